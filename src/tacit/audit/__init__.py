"""Empirical lower bounds on epsilon, beside what the privacy statement claims.

worlds.py    neighbouring data and canaries          trials.py    many runs, and the attacks
bounds.py    error rates to lower bounds on ε        report.py    the audit and its verdict
"""

from tacit.audit.bounds import Bounds, curve_epsilon, free_epsilon, lower_bounds, upper_bound
from tacit.audit.report import LIMITS, Audit, audit, paper_claim, plot
from tacit.audit.worlds import Worlds, record_worlds, zone_worlds

__all__ = [
    "LIMITS",
    "Audit",
    "Bounds",
    "Worlds",
    "audit",
    "curve_epsilon",
    "free_epsilon",
    "lower_bounds",
    "paper_claim",
    "plot",
    "record_worlds",
    "upper_bound",
    "zone_worlds",
]
