"""Runs a study from invitation to result: the coordinator over bytes, its folder and its status.

The loop is ``protocol/coordinator.py``'s. Its folder has the state of about a second ago, so that
whoever stops, the run goes on from there: the same questions get the same answers out of the
parties' ledgers. Where data were released once, rounds begin again at the first: they cost nothing.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from tacit.admm.problem import Problem
from tacit.errors import CorruptFile, InvalidInput
from tacit.files import write_atomically
from tacit.planning import Plan
from tacit.privacy.mechanisms import Mechanism
from tacit.protocol.coordinator import Coordinator, Ended
from tacit.protocol.messages import Answer, Refusal, Request, answer_from
from tacit.protocol.result import Result
from tacit.studies.study import REHEARSAL, Cost, Study

STATE, STATUS = "state.npz", "status.json"
KEPT = 1.0  # seconds between states on the disk
MOST_CHARACTERS = 1000  # of anything that a party says in words


class Line(Protocol):
    """Carries bytes to parties by name and back. Whoever says nothing in time is left out; a line
    that cannot go on raises ``Ended``, with the answers so far.

    ``heard`` is called with a party's name when its answer is there.
    """

    def ask(
        self, requests: Mapping[str, bytes], deadline: float | None, heard: Callable[[str], None]
    ) -> Mapping[str, bytes]: ...


def conduct(
    study: Study,
    folder: Path,
    line: Line,
    report: Callable[[Status], None] = lambda status: None,
) -> Result:
    """Run a study over a line, from where its folder says it is. ``Paused`` if a party is missing
    or refuses.

    report   hears of every change of the ``Status``, which is also in status.json

    Guarantee: the statement in the result covers all that the parties sent, and rounds that a party
    has said to have failed, which it pays again. It holds for each party by that party's own
    ledger, whatever this process does.
    """
    folder = Path(folder)
    if (folder / "result.json").exists():
        found = Result.load(folder)
        if tuple(found.names) != study.agents:
            raise InvalidInput(
                f"Expected the result of study {study.name!r} in {folder}, got one of "
                f"{', '.join(found.names)}. Nothing was sent."
            )
        return found
    status = Status(folder, study.name, study.agents, report)
    parties, result = Parties(study.agents, line, status), None
    step: Study | None = study
    cost: Cost | None = None
    while step is not None:
        found, mechanism = _run(step, folder, parties)
        cost = Cost(step.kind.total(Cost(found.privacy, mechanism), cost), mechanism)
        step.kind.write_outcome(folder, found)
        if not step.kind.STAGE:
            result = step.kind.stated(found)
        step = step.after(found.solution)
    assert result is not None and cost is not None
    result = dataclasses.replace(result, privacy=cost.privacy)
    result.save(folder)
    for path in folder.glob("state*.npz"):
        path.unlink()
    status.show("finished", waiting=())
    return result


def _run(study: Study, folder: Path, parties: Parties) -> tuple[Result, Mechanism]:
    """One run of a study, from where its journal is, and the noise that was planned."""
    stage, plans = study.kind.STAGE, list[Plan]()
    sums: dict[str, Any] = {}
    if study.roster is not None:
        model = study.kind.public_part()
        sums = {"aggregation": "sum", "colluding": study.colluding, "model": model}

    def plan(problem: Problem) -> Plan:
        plans.append(study.plan(problem))
        return plans[-1]

    result = Coordinator(
        parties,
        plan,
        penalties=study.kind.penalties,
        seed=study.rehearsal,
        run=", ".join(filter(None, [study.name or "run", stage])),
        evaluate_every=study.evaluate_every,
        checkpoint=folder / (f"state-{stage}.npz" if stage else STATE),
        every=KEPT,
        study=study.digest,
        deadline=study.deadline,
        show=parties.status.show,
        **sums,
    ).conduct()
    if study.rehearsal is not None:
        said = dataclasses.replace(result.privacy, uncertified=REHEARSAL)
        result = dataclasses.replace(result, privacy=said)
    return result, plans[-1].release or plans[-1].settings.mechanism


class Parties:
    """The transport between organisations: messages as bytes, silence and nonsense as refusals."""

    own = False

    def __init__(self, names: tuple[str, ...], line: Line, status: Status) -> None:
        self.names, self.line, self.status = names, line, status

    def ask(
        self, requests: Mapping[str, Request], deadline: float | None = None
    ) -> dict[str, Answer]:
        asked: Any = requests.values()
        encoded = {id(request): request.to_bytes() for request in asked}
        waiting = list(requests)

        def heard(name: str) -> None:
            if name in waiting:
                waiting.remove(name)
                self.status.heard(name)

        self.status.asked(self.names)
        try:
            told = {name: encoded[id(request)] for name, request in requests.items()}
            answers = self.line.ask(told, deadline, heard)
        except Ended as end:
            end.answers = {name: _understood(name, d, None) for name, d in end.answers.items()}
            raise
        finally:
            if waiting:  # whoever is waited for stands in status.json when the job ends here
                self.status.show(self.status.content["stage"], waiting=waiting, now=True)
        return {name: _understood(name, answers.get(name), deadline) for name in requests}


class Status:
    """What a study is doing, in status.json and to whoever listens: each time whole.

    stage     inviting, agreeing, reading, waiting (for replies), paused, finished, ...
    waiting   parties that have not answered yet; since when is ``since``
    """

    def __init__(
        self, folder: Path, study: str, parties: Sequence[str], report: Callable[[Status], None]
    ) -> None:
        self.folder, self.report = folder, report
        self.content: dict[str, Any] = {
            "study": study,
            "parties": list(parties),
            "stage": "inviting",
            "run": None,
            "round": 0,
            "rounds": None,
            "waiting": list(parties),
            "seconds": {},  # until each party's last answer
            "why": {},
        }
        self._asked, self._written = time.monotonic(), 0.0

    def show(
        self,
        stage: str,
        done: int | None = None,
        rounds: int | None = None,
        run: str | None = None,
        waiting: Sequence[str] | None = None,
        why: Mapping[str, str] | None = None,
        now: bool = False,
    ) -> None:
        new = now or self.content["stage"] != stage
        given = {"round": done, "rounds": rounds, "run": run}
        self.content |= {k: v for k, v in given.items() if v is not None}
        self.content |= {"stage": stage, "why": dict(why or {})}
        if waiting is not None:
            self.content["waiting"] = list(waiting)
        self._write(new)

    def asked(self, parties: Sequence[str]) -> None:
        self._asked = time.monotonic()
        self.content["waiting"] = list(parties)

    def heard(self, party: str) -> None:
        """A party's answer is there."""
        self.content["seconds"][party] = round(time.monotonic() - self._asked, 4)
        self.content["waiting"] = [name for name in self.content["waiting"] if name != party]
        self._write(False)

    def _write(self, now: bool) -> None:
        """At most twice a second, but for a new stage."""
        self.report(self)
        if not now and time.monotonic() - self._written < 0.5:
            return
        self._written = time.monotonic()
        self.content["since"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / STATUS, json.dumps(self.content, indent=1).encode())


def _understood(name: str, data: bytes | None, deadline: float | None) -> Answer:
    if data is None:
        words = f"Party {name!r} gave no answer in {deadline:g} seconds."
        return Refusal("", 0, "missing", words)
    try:
        answer = answer_from(data)
    except CorruptFile:
        return Refusal("", 0, "invalid", f"Party {name!r} sent something that is no answer.")
    # what a party says in words comes to a terminal, and into statements
    for text in vars(answer).values():
        if isinstance(text, str) and not (len(text) <= MOST_CHARACTERS and text.isprintable()):
            words = f"Party {name!r} sent {len(text)} characters that are no plain words."
            return Refusal("", 0, "invalid", words)
    return answer
