"""As 0.1.0 named ``tacit.privacy.accounting``."""

from tacit.privacy.accounting import *  # noqa: F403
