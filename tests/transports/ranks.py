"""mpiexec on this machine: more ranks than cores, as root too, and no network but the loopback."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

MPIEXEC = Path(sys.executable).parent / "mpiexec"
ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,sm",
    "OMP_NUM_THREADS": "1",
    "TERM": "dumb",  # Open MPI gives ranks a terminal of its own
}


def environment(**more):
    return {**os.environ, **ENVIRONMENT, **more}


def mpiexec(ranks, *command, cwd=None, timeout=240, **more):
    """Run a command on so many ranks; what it said."""
    launcher = MPIEXEC if MPIEXEC.exists() else shutil.which("mpiexec")
    return subprocess.run(
        [str(launcher), "-n", str(ranks), *map(str, command)],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def said_by_tacit(done):
    """Lines of ours on standard error, and that there is no page of anything else."""
    assert "Traceback" not in done.stderr, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("tacit: ")]
