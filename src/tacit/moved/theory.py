"""As 0.1.0 named ``tacit.admm.theory``."""

from tacit.admm.theory import *  # noqa: F403
