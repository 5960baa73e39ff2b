"""Empirical lower bounds on epsilon, beside what the privacy statement claims.

worlds.py    neighbouring data and canaries          trials.py    many runs, and the attacks
bounds.py    error rates to lower bounds on ε        report.py    the audit and its verdict
agents.py    the same through agents with ledgers and secure noise
"""

from tacit.audit.agents import audit_agents, hostile, ordinary, paying
from tacit.audit.bounds import Bounds, curve_epsilon, free_epsilon, lower_bounds, upper_bound
from tacit.audit.report import LIMITS, Audit, audit, paper_claim, plot
from tacit.audit.worlds import (
    Worlds,
    ball_worlds,
    record_worlds,
    simplex_worlds,
    zone_worlds,
)

__all__ = [
    "LIMITS",
    "Audit",
    "Bounds",
    "Worlds",
    "audit",
    "audit_agents",
    "ball_worlds",
    "curve_epsilon",
    "free_epsilon",
    "hostile",
    "lower_bounds",
    "ordinary",
    "paper_claim",
    "paying",
    "plot",
    "record_worlds",
    "simplex_worlds",
    "upper_bound",
    "zone_worlds",
]
