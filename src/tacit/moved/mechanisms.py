"""As 0.1.0 named ``tacit.privacy.mechanisms``."""

from tacit.privacy.mechanisms import *  # noqa: F403
