"""Who carries the messages between coordinator and participants (``protocol/coordinator.py``).

local           participants of this process, their ledgers, and the clock of a run
mpi             participants on the ranks of a cluster
solving         ``solve`` and ``release``: a coordinator, and all agents in this process
batched         all agents as one compiled program, for sets with a formula
sweep           many configurations as one program: ``solve_many``
nvflare         NVFLARE carries a study between organisations (a folder, below studies)
"""

from tacit.transports.solving import release, solve
from tacit.transports.sweep import solve_many

__all__ = [
    "release",
    "solve",
    "solve_many",
]
