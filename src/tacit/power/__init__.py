"""Privacy-preserving distributed control of power flow: cases, zones, model (Section 6.1)."""

from tacit.power.case import Grid, load_case
from tacit.power.model import PowerProblem, build, scheduled
from tacit.power.network import Network, bound, network
from tacit.power.plots import plot_grid
from tacit.power.zones import partition

__all__ = [
    "Grid",
    "Network",
    "PowerProblem",
    "bound",
    "build",
    "load_case",
    "network",
    "partition",
    "plot_grid",
    "scheduled",
]
