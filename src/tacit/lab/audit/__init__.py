"""Empirical lower bounds on epsilon, beside what the privacy statement claims.

bounds              scores in two worlds to lower bounds on epsilon, and the verdict on a claim
neighbouring_data   neighbouring data and canaries
trials              many runs of rounds, of agents with ledgers, or of releases, and the attacks
adversary           a hostile server's search for a record that changes more than was proven
"""

from tacit.lab.audit.bounds import (
    LIMITS,
    Audit,
    Bounds,
    curve_epsilon,
    free_epsilon,
    lower_bounds,
    paper_claim,
    upper_bound,
)
from tacit.lab.audit.neighbouring_data import (
    Worlds,
    ball_worlds,
    moment_worlds,
    record_worlds,
    simplex_worlds,
    zone_worlds,
)
from tacit.lab.audit.trials import (
    audit,
    audit_agents,
    audit_releases,
    hostile,
    ordinary,
    paying,
)

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
    "record_worlds",
    "simplex_worlds",
    "upper_bound",
    "zone_worlds",
]
