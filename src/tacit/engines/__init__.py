"""Who carries the messages between server and agents.

one_process     all agents in this process: ``solve``
batched         all agents as one compiled program, for sets with a formula
sweep           many configurations as one program: ``solve_many``
"""

from tacit.engines.one_process import solve
from tacit.engines.sweep import solve_many

__all__ = [
    "solve",
    "solve_many",
]
