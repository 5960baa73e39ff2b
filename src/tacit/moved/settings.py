"""As 0.1.0 named ``tacit.admm.settings``."""

from tacit.admm.settings import *  # noqa: F403
