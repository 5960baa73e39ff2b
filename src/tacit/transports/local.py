"""The participants of one process, and the clock of a run."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tacit.admm.problem import LocalProblem, Problem
from tacit.errors import InvalidInput
from tacit.privacy.ledger import Ledger
from tacit.protocol.messages import Answer, Broadcast, Failure, Measure, Request
from tacit.protocol.participant import Participant

Ledgers = Mapping[str, Ledger | str | Path] | str | Path | None
# Seconds of the slowest answer: where all take less, threads wait for one another longer than they
# save.
WORTH_A_THREAD = 3e-3


class Local:
    """Participants of this process and of one owner, up to ``workers`` of them at a time.

    Workers are threads: the cone solver runs outside of Python's lock. No number depends on how
    many there are, as participants share nothing.

    ``first``: how many participants of the run are elsewhere before these.
    """

    own = True

    def __init__(
        self,
        agents: Sequence[tuple[str, LocalProblem]],
        workers: int = 1,
        ledgers: Ledgers = None,
        first: int = 0,
    ) -> None:
        self.names = tuple(name for name, _ in agents)
        opened = {} if ledgers is None else open_ledgers(ledgers, self.names)
        self.participants = {
            name: Participant(part, name, index=first + i, ledger=opened.get(name), owner=True)
            for i, (name, part) in enumerate(agents)
        }
        self.clock = Clock(1)
        several = workers > 1 and len(agents) > 1
        self._pool = ThreadPoolExecutor(min(workers, len(agents))) if several else None
        self._slowest = math.inf  # seconds of the slowest answer in the last round

    @classmethod
    def of(cls, problem: Problem, workers: int = 1, ledgers: Ledgers = None) -> Local:
        """All agents of a problem."""
        return cls(list(zip(problem.names, problem.agents, strict=True)), workers, ledgers)

    def ask(
        self, requests: Mapping[str, Request], deadline: float | None = None
    ) -> dict[str, Answer]:
        """Everyone's answer, or those until the first error: it ends the run. There is no deadline:
        what was paid for is computed."""
        took: list[float] = []

        def one(name: str, request: Request) -> Answer:
            begun = time.perf_counter()
            answer = self.participants[name].handle(request)
            took.append(time.perf_counter() - begun)
            return answer

        begun = time.perf_counter()
        kind = type(next(iter(requests.values()), None))
        if (
            self._pool is not None
            and kind in (Broadcast, Measure)
            and (self._slowest > WORTH_A_THREAD)
        ):
            found = self._pool.map(one, requests, requests.values())
            answers = dict(zip(requests, found, strict=True))
        else:
            answers = {}
            for name, request in requests.items():
                answers[name] = one(name, request)
                if isinstance(answers[name], Failure):
                    break
        if kind is Broadcast:
            spent = time.perf_counter() - begun
            self.clock.round(spent, [spent])
            self._slowest = max(took, default=0.0)
        return answers


def open_ledgers(
    ledgers: Mapping[str, Ledger | str | Path] | str | Path, names: Sequence[str]
) -> dict[str, Ledger]:
    """Ledgers or files by name, or those NAME.db in a folder."""
    if isinstance(ledgers, Mapping):
        found = {n: v if isinstance(v, Ledger) else Ledger(v) for n, v in ledgers.items()}
        if missing := sorted(set(names) - set(found)):
            agents = ", ".join(map(repr, missing))
            raise InvalidInput(f"Expected a ledger for agent {agents}, got none.")
        return found
    if not isinstance(ledgers, str | os.PathLike):
        raise InvalidInput(
            "Expected ledgers as a folder, or by the agents' names, got a value of type "
            f"{type(ledgers).__name__}. Nothing was released."
        )
    for name in names:
        if Path(name).name != name:
            raise InvalidInput(f"Expected an agent's name that can name a file, got {name!r}.")
    absent = [name for name in names if not (Path(ledgers) / f"{name}.db").is_file()]
    if len(absent) > 1:  # of a single one its ledger says how to make it
        raise InvalidInput(
            f"Expected the ledgers of {len(names)} agents in {ledgers}, found none of "
            f"{', '.join(map(repr, absent[:10]))}{', ...' if absent[10:] else ''}. Make each with: "
            f"tacit ledger budget '{Path(ledgers) / 'AGENT.db'}' --total-epsilon E "
            "--total-delta D. Nothing was released."
        )
    return {name: Ledger(Path(ledgers) / f"{name}.db") for name in names}


class Clock:
    """Adds up, over the rounds of one process, what every rank spent.

    A round lasts from the broadcast to the last reply. In it the slowest rank computes, the others
    wait for it, and the rest is transfer: encoding, carrying and decoding of messages.
    """

    def __init__(self, ranks: int) -> None:
        self._begun = time.perf_counter()
        self._rounds = 0
        self._exchange = self._slowest = 0.0
        self._compute = [0.0] * ranks

    def round(self, seconds: float, compute: Sequence[float]) -> None:
        """One round took ``seconds``; every rank computed for ``compute`` of them."""
        self._rounds += 1
        self._exchange += seconds
        self._slowest += max(compute)
        self._compute = [a + b for a, b in zip(self._compute, compute, strict=True)]

    def read(self) -> dict[str, Any]:
        """Seconds. ``total`` = ``compute`` (of the slowest rank in each round) + ``transfer`` +
        ``server`` (all else: consensus, evaluations, files). ``wait`` is the mean over the ranks of
        what each waited for the slowest."""
        total = time.perf_counter() - self._begun
        waited = [self._slowest - spent for spent in self._compute]
        return {
            "rounds": self._rounds,
            "total": total,
            "compute": self._slowest,
            "wait": sum(waited) / len(waited),
            "transfer": max(0.0, self._exchange - self._slowest),
            "server": total - self._exchange,
            "ranks": [
                {"compute": spent, "wait": left}
                for spent, left in zip(self._compute, waited, strict=True)
            ],
        }
