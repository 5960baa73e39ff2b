"""As 0.1.0 named ``tacit.privacy.secure_noise``."""

from tacit.privacy.secure_noise import *  # noqa: F403
