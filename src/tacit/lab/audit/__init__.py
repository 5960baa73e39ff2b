"""Empirical lower bounds on epsilon, beside what the privacy statement claims.

neighbouring_data   neighbouring data and canaries
trials              many runs, and the attacks
agents              the same through agents with ledgers and secure noise
releases            one noisy reading of an agent's data, kept in its ledger
bounds              error rates to lower bounds on epsilon
report              the audit and its verdict
adversary           a hostile server's search for a record that changes more than was proven
"""

from tacit.lab.audit.agents import audit_agents, hostile, ordinary, paying
from tacit.lab.audit.bounds import Bounds, curve_epsilon, free_epsilon, lower_bounds, upper_bound
from tacit.lab.audit.neighbouring_data import (
    Worlds,
    ball_worlds,
    moment_worlds,
    record_worlds,
    simplex_worlds,
    zone_worlds,
)
from tacit.lab.audit.releases import audit_releases
from tacit.lab.audit.report import LIMITS, Audit, audit, paper_claim, plot

__all__ = [
    "LIMITS",
    "Audit",
    "Bounds",
    "Worlds",
    "audit",
    "audit_agents",
    "audit_releases",
    "ball_worlds",
    "curve_epsilon",
    "free_epsilon",
    "hostile",
    "lower_bounds",
    "moment_worlds",
    "ordinary",
    "paper_claim",
    "paying",
    "plot",
    "record_worlds",
    "simplex_worlds",
    "upper_bound",
    "zone_worlds",
]
