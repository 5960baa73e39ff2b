"""Who carries the messages between server and agents.

in_process      an engine for agents of this process
one_process     server and agents in one process: ``solve``
batched         all agents as one compiled program, for sets with a formula
stacking        agents of the same structure as one stack of arrays
sweep           many configurations as one program: ``solve_many``
"""

from tacit.engines.in_process import InProcess
from tacit.engines.one_process import solve
from tacit.engines.sweep import solve_many

__all__ = [
    "InProcess",
    "solve",
    "solve_many",
]
