"""Privacy-preserving distributed control of power flow (Section 6.1).

case            grids from MATPOWER files, named cases and pandapower networks, in per unit
network         the second-order cone relaxation of AC power flow (Appendix D)
cost            generation cost as an objective, with a price of shed load; its least, in one solver
public_model    zones, all that is public of a grid in them, one zone's problem from its loads
model           a grid in zones as a problem for ``tacit.solve``
ac_flow         what would happen if a dispatch were used: an AC power flow at true loads
plots           the grid as a picture
"""

from tacit.power.ac_flow import PowerFlow, matpower, power_flow
from tacit.power.case import Grid, into_pandapower, load_case
from tacit.power.cost import bound
from tacit.power.model import PowerProblem, build, scheduled
from tacit.power.network import Network, network
from tacit.power.plots import plot_grid, plot_power_flow
from tacit.power.public_model import partition

__all__ = [
    "Grid",
    "Network",
    "PowerFlow",
    "PowerProblem",
    "bound",
    "build",
    "into_pandapower",
    "load_case",
    "matpower",
    "network",
    "partition",
    "plot_grid",
    "plot_power_flow",
    "power_flow",
    "scheduled",
]
