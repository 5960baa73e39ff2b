"""Whether this process is one of several that were started together, as by mpiexec.

Asked before MPI is there, and where it is not installed. Light: ``interrupts.py`` imports it.
"""

from __future__ import annotations

import os

# How many there are and which one this is, by launcher: Open MPI; MPICH, Intel MPI; MVAPICH; Slurm
VARIABLES = (
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
)


def launched() -> tuple[int, int]:
    """This process's rank, and the number of ranks; 0 and 1 if it is alone."""
    for size, rank in VARIABLES:
        try:
            found = int(os.environ[rank]), int(os.environ[size])
        except (KeyError, ValueError):
            continue
        if found[1] > 1:
            return found
    return 0, 1
