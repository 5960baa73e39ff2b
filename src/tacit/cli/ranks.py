"""``--engine mpi``: a command whose agents are on the ranks of a cluster.

Rank 0 is the command itself: it alone prints, asks and writes, and its status is mpiexec's. The
others make their own agents out of the options that rank 0 tells them, and answer for these until
it lets them go. A command that has no ``--engine mpi`` is refused under mpiexec: its copies would
write to one folder.
"""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from tacit.errors import EngineFailure

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

    from tacit.transports.mpi import Part, Ranks

Run = Callable[[Callable[[], int]], int]  # says errors in one line; the status
UNTOLD = ("command", "parser", "crew")
SILENT = 0  # status of the other ranks: with another, mpiexec would end rank 0 before it has spoken


def _world(ranks: int) -> Comm:
    """All ranks, as many as were launched."""
    from tacit.transports.mpi import world

    comm = world()
    if ranks > 1 and comm.size != ranks:
        raise EngineFailure(
            f"Expected the {ranks} ranks that mpiexec started, MPI knows of {comm.size}: mpiexec "
            "and the library that mpi4py loads are of different MPIs. Nothing was started."
        )
    return comm


def lead(options: argparse.Namespace, ranks: int, run: Run) -> int:
    """On rank 0."""
    from tacit.transports.mpi import Ranks

    crew = Ranks(_world(ranks), builders())
    status = 1
    try:
        options.crew = crew
        status = run(partial(options.command, options))
    except Exception:  # a mistake of ours: told before the others end, and with them this process
        traceback.print_exc()
    finally:
        crew.end(status)
    return status


def follow(ranks: int) -> int:
    """On the others."""
    from tacit.transports.mpi import serve

    try:
        comm = _world(ranks)
    except (ModuleNotFoundError, EngineFailure):
        return SILENT  # rank 0 says why
    try:
        serve(comm, builders())
    except Exception as error:  # MPI itself: no word reaches rank 0, which must not wait for one
        print(f"tacit: Rank {comm.rank} failed: {error!r}", file=sys.stderr, flush=True)
        comm.Abort(1)
    return SILENT


def builders() -> Mapping[str, Callable[[Any, int, int], Part]]:
    """What makes a rank's own agents, by command."""
    from tacit.cli import learn, power, solve

    parts = {"solve": solve.part, "power solve": power.part, "learn": learn.part}
    return {name: partial(_part, make) for name, make in parts.items()}


def _part(make: Callable[..., Part], told: Any, rank: int, ranks: int) -> Part:
    from tacit.transports.mpi import default_workers, world

    as_typed = {k: list(v) if isinstance(v, tuple) else v for k, v in told.items()}
    options = argparse.Namespace(**as_typed)
    workers = options.workers or default_workers(world())
    return make(options, rank, ranks)._replace(workers=workers, ledgers=options.ledgers)


def build(crew: Ranks, command: str, options: argparse.Namespace) -> list[Any]:
    """Let every rank make its agents; what each says about them."""
    told = {name: value for name, value in vars(options).items() if name not in UNTOLD}
    return crew.build(command, told)
