"""A study from invitation to result, by what its parties answer. The coordinator sees nothing else.

    facts of all parties  ─▶  settings  ─▶  all agree  ─▶  rounds (``Server``)  ─▶  result folder

The folder has the state of about a second ago, so that whoever stops, the run goes on from there:
the same questions get the same answers out of the parties' ledgers. Where data were read once,
rounds begin again at the first: they cost nothing.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from tacit._types import Vector
from tacit.admm.algorithm import average_over_holders
from tacit.admm.problem import Problem
from tacit.admm.settings import Settings
from tacit.errors import CorruptFile, InvalidInput, Refused
from tacit.planning import penalties_of
from tacit.privacy.mechanisms import Mechanism
from tacit.protocol.exact_server import ExactServer
from tacit.protocol.facts import NotKnown, described, members_of
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Copied,
    Facts,
    Invitation,
    Outcome,
    Proposal,
    Read,
    Refusal,
    Reply,
    Start,
    answer_from,
)
from tacit.protocol.result import RELEASED_SERVER_TRACE, SERVER_TRACE, Result, versions
from tacit.protocol.server import Server
from tacit.protocol.statement import PrivacyStatement, privacy_statement, release_statement
from tacit.studies.progress import State, Status
from tacit.studies.study import REHEARSAL, Study

T = TypeVar("T")
KEPT = 1.0  # seconds between states on the disk
MOST_CHARACTERS = 1000  # of anything that a party says in words


class Line(Protocol):
    """Carries bytes to parties by name and back. Whoever says nothing in time is left out.

    ``heard`` is called with a party's name when its answer is there.
    """

    def ask(
        self, requests: Mapping[str, bytes], deadline: float | None, heard: Callable[[str], None]
    ) -> Mapping[str, bytes]: ...


class Paused(Refused):
    """The study cannot go on now. ``parties`` says why, party by party."""

    def __init__(
        self, parties: Mapping[str, str], round: int, rounds: int, failed: tuple[str, ...] = ()
    ) -> None:
        self.parties, self.failed = dict(parties), failed  # who computed the round in vain
        where = f"in round {round} of {rounds}" if round else "before the first round"
        super().__init__(
            f"The study is paused {where}: {' '.join(self.parties.values())} Nothing is lost."
        )


class Coordinator:
    """Runs one study over a line, from where its folder says it is.

    report   hears of every change of the ``Status``, which is also in status.json
    """

    def __init__(
        self,
        study: Study,
        folder: Path,
        line: Line,
        report: Callable[[Status], None] = lambda status: None,
    ) -> None:
        self.study, self.folder, self.line = study, Path(folder), line
        self.status = Status(self.folder, study.name, study.agents, report)

    def run(self) -> Result:
        """The result, saved in the folder; ``Paused`` if a party is missing or refuses.

        Guarantee: the statement in the result covers all that the parties sent, and rounds that
        a party has said to have failed, which it pays again. It holds for each party by that
        party's own ledger, whatever this process does.
        """
        if (self.folder / "result.json").exists():
            found = Result.load(self.folder)
            if tuple(found.names) != self.study.agents:
                raise InvalidInput(
                    f"Expected the result of study {self.study.name!r} in {self.folder}, got one "
                    f"of {', '.join(found.names)}. Nothing was sent."
                )
            return found
        facts, problem, settings, law, plan = self._planned()
        state = State.begun(self.folder, self.study, settings, law, facts)
        self.status.show("agreeing", rounds=settings.rounds, run=state.run)
        self._propose(problem, settings, law, state.run)
        if law is None:
            result = self._noisy_rounds(problem, settings, state)
        else:
            result = self._exact_rounds(problem, settings, law, state)
        result = dataclasses.replace(result, plan=plan)
        if self.study.rehearsal is not None:
            said = dataclasses.replace(result.privacy, uncertified=REHEARSAL)
            result = dataclasses.replace(result, privacy=said)
        result = self.study.stated(result)
        self.status.show("telling the parties", done=result.summary["round"])
        self._tell(state.run, result)  # before the result is there: whoever goes on tells again
        self.study.write_outcome(self.folder, result)
        result.save(self.folder)
        State.remove(self.folder)
        self.status.show("finished", waiting=())
        return result

    # --- before the first round ---------------------------------------------------------------

    def _planned(
        self,
    ) -> tuple[list[Facts], Problem, Settings, tuple[Mechanism, float] | None, str]:
        """What the parties say of themselves, and what follows from it."""
        try:
            return self._planned_with(sizes=False)
        except NotKnown:  # schedules follow from sizes that take the parties a while
            return self._planned_with(sizes=True)

    def _planned_with(
        self, sizes: bool
    ) -> tuple[list[Facts], Problem, Settings, tuple[Mechanism, float] | None, str]:
        self.status.show("inviting")
        answers = self._all(Invitation(self.study.digest, sizes), Facts)
        facts = [answers[name] for name in self.study.agents]
        for name, own in answers.items():
            if own.agent != name:
                raise InvalidInput(
                    f"Expected the facts of party {name!r}, got those of another. Nothing was "
                    "started."
                )
        problem = described(facts, self.study.penalties)
        plan = self.study.plan(problem)
        if plan.release is not None:
            return facts, problem, plan.settings, (plan.release, plan.delta), plan.reason
        return facts, problem, plan.settings.complete(problem), None, plan.reason

    def _propose(
        self, problem: Problem, settings: Settings, law: tuple[Mechanism, float] | None, run: str
    ) -> None:
        noise, delta = law if law is not None else (None, settings.delta)
        proposal = Proposal(
            self.study.digest,
            run,
            problem.size,
            settings,
            delta,
            noise,
            noise is not None,
        )
        self._all(proposal, Agreed)

    # --- rounds -------------------------------------------------------------------------------

    def _noisy_rounds(self, problem: Problem, settings: Settings, state: State) -> Result:
        server = Server(members_of(problem), settings, state.run, problem.dtype)
        total = np.zeros_like(server.z)
        if state.round:
            server.restore(state.arrays["z"], state.arrays["λ"], state.round)
            total = state.arrays["total"]
        trace = state.arrays["trace"].tolist() if state.round else []
        written = time.monotonic()
        while server.round < settings.rounds:
            try:
                seconds = self._step(server, settings.rounds)
            except Paused as pause:
                if pause.failed:
                    state.with_failures(pause.failed)
                raise
            weight = settings.averaging_weights(server.round, server.round)[0]
            total = total + np.asarray(weight, total.dtype) * server.z
            trace.append([server.round, server.residual, *seconds])
            if time.monotonic() - written > KEPT or server.round == settings.rounds:
                arrays = {"z": server.z, "λ": server.λ, "total": total, "trace": np.array(trace)}
                state, written = state.after(server.round, arrays), time.monotonic()
        seeded = self.study.rehearsal is not None
        updates = (settings.rounds + max(state.failed.values(), default=0)) * settings.local_updates
        privacy = privacy_statement(problem, settings, seeded, not seeded, updates)
        ergodic = total.astype(np.float64) / settings.averaging_weights(1, settings.rounds).sum()
        found = average_over_holders(server.z.astype(np.float64), server.holders)
        mean = average_over_holders(ergodic, server.holders)
        columns = dict(zip(SERVER_TRACE, np.array(trace, np.float64).T, strict=True))
        return self._result(server, settings, privacy, columns, found, mean)

    def _exact_rounds(
        self, problem: Problem, settings: Settings, law: tuple[Mechanism, float], state: State
    ) -> Result:
        self.status.show("reading")
        copies = self._all(Read(state.run), Copied)
        curvatures = [copies[name].curvature for name in self.study.agents]
        penalties = penalties_of(problem, settings, curvatures)
        self._all(Start(state.run, penalties[0], penalties[1].astype("<i8")), Agreed)
        server = ExactServer(members_of(problem), settings, state.run, penalties)
        trace = []
        while server.round < settings.rounds and not server.converged:
            seconds = self._step(server, settings.rounds)
            assert server.residuals is not None
            found = server.residuals
            trace.append([server.round, found.primal, found.dual, *seconds])
        seeded = self.study.rehearsal is not None
        privacy = release_statement(problem, *law, seeded, not seeded)
        columns = dict(zip(RELEASED_SERVER_TRACE, np.array(trace, np.float64).T, strict=True))
        solution = server.solution
        result = self._result(server, settings, privacy, columns, solution, solution)
        converged = server.converged if settings.tolerance is not None else None
        duals = tuple(server.parts(server.λ))
        return dataclasses.replace(result, converged=converged, duals=duals)

    def _step(self, server: Server, rounds: int) -> tuple[float, float]:
        """One round; seconds of the server's own, and of waiting."""
        remote, before = _Remote(self, server.run), time.perf_counter()
        self.status.show("waiting", done=server.round, waiting=self.study.agents, rounds=rounds)
        refusals = server.step(remote, self.study.deadline)
        if refusals:
            said = {name: refusal.words for name, refusal in refusals.items()}
            failed = tuple(name for name, refusal in refusals.items() if refusal.reason == "failed")
            self._pause(said, server.round + 1, rounds, failed)
        self.status.show("waiting", done=server.round, waiting=self.study.agents, rounds=rounds)
        return time.perf_counter() - before - remote.seconds, remote.seconds

    def _result(
        self,
        server: Server,
        settings: Settings,
        privacy: PrivacyStatement,
        trace: dict[str, Vector],
        solution: Vector,
        ergodic: Vector,
    ) -> Result:
        return Result(
            solution=solution,
            ergodic=ergodic,
            local=tuple(server.parts(server.z)),  # the coupled coordinates: all that is known here
            trace=trace,
            settings=settings,
            privacy=privacy,
            names=self.study.agents,
            seed=self.study.rehearsal,
            versions=versions(),
        )

    def _tell(self, run: str, result: Result) -> None:
        """The outcome, to those who are still there; nothing depends on their word."""
        outcome = Outcome(run, int(result.summary["round"]), result.solution).to_bytes()
        names = dict.fromkeys(self.study.agents, outcome)
        self.line.ask(names, min(self.study.deadline, 60.0), lambda name: None)

    # --- asking -------------------------------------------------------------------------------

    def _all(self, request: Any, kind: type[T]) -> dict[str, T]:
        """Everyone's answer of this kind, or a pause that names who gave none."""
        answers = self.ask(request.to_bytes(), self.study.deadline)
        found: dict[str, T] = {}
        said: dict[str, str] = {}
        for name in self.study.agents:
            answer = answers[name]
            if isinstance(answer, kind):
                found[name] = answer
            elif isinstance(answer, Refusal):
                said[name] = answer.words
            else:
                said[name] = f"Party {name!r} gave no answer to a {request.kind} that is one."
        if said:
            self._pause(said, 0, 0)
        return found

    def ask(self, request: bytes, deadline: float | None) -> dict[str, Any]:
        """What everyone answers to one request; silence and nonsense as refusals."""
        waiting = list(self.study.agents)

        def heard(name: str) -> None:
            if name in waiting:
                waiting.remove(name)
                self.status.heard(name)

        self.status.asked(self.study.agents)
        try:
            answers = self.line.ask(dict.fromkeys(self.study.agents, request), deadline, heard)
        finally:
            if waiting:  # whoever is waited for stands in status.json when the job ends here
                self.status.show(self.status.content["stage"], waiting=waiting, now=True)
        found: dict[str, Any] = {}
        for name in self.study.agents:
            if name not in answers:
                words = f"Party {name!r} gave no answer in {deadline:g} seconds."
                found[name] = Refusal("", 0, "missing", words)
                continue
            try:
                found[name] = answer_from(answers[name])
            except CorruptFile:
                words = f"Party {name!r} sent something that is no answer."
                found[name] = Refusal("", 0, "invalid", words)
                continue
            if odd := [text for text in _texts(found[name]) if not _plain(text)]:
                words = f"Party {name!r} sent {len(odd[0])} characters that are no plain words."
                found[name] = Refusal("", 0, "invalid", words)
        return found

    def _pause(
        self, said: Mapping[str, str], round: int, rounds: int, failed: tuple[str, ...] = ()
    ) -> None:
        self.status.show("paused", waiting=tuple(said), why=dict(said))
        raise Paused(said, round, rounds, failed)


def _texts(answer: Any) -> list[str]:
    """What a party says in words: it comes to a terminal, and into statements."""
    return [value for value in vars(answer).values() if isinstance(value, str)]


def _plain(text: str) -> bool:
    return len(text) <= MOST_CHARACTERS and text.isprintable()


class _Remote:
    """The parties as an engine of ``Server.step``."""

    def __init__(self, coordinator: Coordinator, run: str) -> None:
        self.coordinator, self.run, self.seconds = coordinator, run, 0.0

    def exchange(
        self, broadcast: Broadcast, deadline: float | None = None
    ) -> dict[str, Reply | Refusal]:
        request, before = broadcast.to_bytes(), time.perf_counter()
        answers = self.coordinator.ask(request, deadline)
        self.seconds += time.perf_counter() - before
        return answers
