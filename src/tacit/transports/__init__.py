"""Who carries the messages between server and agents, behind ``Engine`` of ``protocol/server.py``.

seats           all agents of a run, wherever they are: what is asked of them
rounds          noise in every round: a server and its agents, or all as one program
releasing       ``release``: one noisy reading of every agent's data
ledgers         the ledgers of all agents of a run
clock           where the time of a run goes
mpi             all agents on the ranks of a cluster
parcels         what travels between the ranks, as bytes
solving         ``solve``: the whole run, and with all agents in one process
solving_released   exact steps on public copies until both residuals are small
batched         all agents as one compiled program, for sets with a formula
stacking        agents of the same structure as one stack of arrays
sweep           many configurations as one program: ``solve_many``
nvflare         NVFLARE carries a study between organisations (a folder, below studies)
"""

from tacit.transports.releasing import release
from tacit.transports.solving import solve
from tacit.transports.sweep import solve_many

__all__ = [
    "release",
    "solve",
    "solve_many",
]
