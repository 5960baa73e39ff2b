"""A party of a study: the participant of one organisation, by the rules of its own file.

    bytes ──▶ answer_bytes ──▶ Participant.handle ──▶ Facts, Agreed, Curvature, Reply, or a Refusal

Whoever asks may be anyone: a coordinator, an engine's server, a thief of either. What may be
answered is decided here, by the party's own file, its ledger and the participant.
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tacit.admm.problem import LocalProblem
from tacit.errors import InvalidInput, Refused, digits, printable
from tacit.files import read_json, write_atomically
from tacit.privacy.accounting import Guarantee, rounded_up
from tacit.privacy.ledger import Entry, Ledger, Spend, Terms
from tacit.privacy.mechanisms import Noiseless
from tacit.privacy.seeded_noise import root_key
from tacit.protocol.agent import Agent
from tacit.protocol.masks import read_identity
from tacit.protocol.messages import Finish, Own, Propose, Roster
from tacit.protocol.participant import Disagrees, Participant, Run
from tacit.protocol.statement import (
    PrivacyStatement,
    of_sum,
    privacy_statement,
    release_statement,
)
from tacit.protocol.summed import Summand
from tacit.studies.party_file import PartyFile
from tacit.studies.study import REHEARSAL, Cost, Study

log = logging.getLogger("tacit.party")
LONGEST_NAME = 200  # of a run
RELEASED = "released.json"  # by run, its release and ledger, and what was asked after it
RELEASES = re.compile("release-[0-9a-f]{12}-")


def party(study: Study, file: PartyFile, folder: Path | None = None) -> Participant:
    """One organisation in one study, with its data and its ledger.

    folder   where its own part of the outcome goes; None: nowhere
    """
    problem = study.problem_of(file.agent, file)
    ledger = LimitedLedger(file, study.rehearsal is not None)
    rules = PartyRules(Step(study, problem), file, ledger, folder)
    place = study.agents.index(file.agent)
    if study.roster is not None:  # before anything is agreed to
        identity_of(study, file)
    return Participant(problem, file.agent, index=place, ledger=ledger, rules=rules)


@dataclass(frozen=True)
class Step:
    """One run of a study, and those before it, the last of them ``after``."""

    study: Study
    problem: LocalProblem
    before: Cost | None = None
    after: str = ""
    paid: tuple[str, ...] = ()  # as the ledger calls them


class PartyRules:
    """What a party agrees to, and what it keeps of a run. ``steps``: those that may be asked for,
    each once the one before is finished."""

    def __init__(
        self, first: Step, file: PartyFile, ledger: LimitedLedger, folder: Path | None
    ) -> None:
        self.study, self.file, self.ledger, self.folder = first.study, file, ledger, folder
        self.steps, self.tell_why = [first], file.tell_why

    def invited(self, study: str) -> LocalProblem:
        return self._step(study).problem

    def _step(self, study: str) -> Step:
        for step in self.steps:
            if step.study.digest == study:
                return step
        words = f"Expected study {self.steps[-1].study.digest[:12]}, got {study[:12]!r}."
        raise Disagrees("study", words)

    def agree(self, proposal: Propose) -> Own:
        step = self._step(proposal.study)
        self.ledger.others = self._paid(step.paid).and_then(step.study.kind.then)
        if RELEASES.match(printable("a run's name", proposal.run, LONGEST_NAME)):
            # names are kept in the ledger for good, where those of releases are others (``Terms``)
            raise InvalidInput("Expected a run's name, got that of a release. Nothing was charged.")
        self._compare_sums(proposal)
        settings, mechanism = proposal.settings, proposal.release
        if isinstance(mechanism or settings.mechanism, Noiseless):
            raise Disagrees("noise", "Expected noise in a run, got none.")
        if mechanism is not None and not isinstance(settings.mechanism, Noiseless):
            raise InvalidInput("Expected rounds without noise after one release.")
        most = self.file.limits.rounds
        if most is not None and settings.rounds > most:
            words = f"Expected at most {most} rounds, as [limits] says, got {settings.rounds}."
            raise Disagrees("rounds", words)
        kept, once = self._kept, mechanism is not None and proposal.summed is None
        if self.ledger.terms(proposal.run) is not None if once else proposal.run in kept:
            # else it would be charged twice, and compared with the limits as two
            raise Refused(
                "Expected a run as it began, in rounds or by one release. Nothing was charged."
            )
        self.ledger.followed = f"after {proposal.run}" in kept
        many = len(self.study.agents)
        if step.after:
            self._keep(f"after {step.after}", [proposal.study, proposal.run])
        if self.study.rehearsal is None:
            return Own("secure", None, False, many)
        return Own("seeded", root_key(self.study.rehearsal), True, many)

    def _compare_sums(self, proposal: Propose) -> None:
        """Parties, and how many may collude, are the study's, whatever a coordinator says."""
        study, least = self.study, self.file.limits.colluding
        agreed = None if study.roster is None else (study.roster.names, study.colluding)
        summed = proposal.summed
        if (summed and (summed.names, summed.colluding)) != agreed:
            words = "Expected to add up what the study adds up, with its parties, got others."
            raise Disagrees("sum", words)
        if agreed is not None and least is not None and study.colluding < least:
            words = f"Expected a sum where {least} may collude, as [limits] says, got "
            raise Disagrees("sum", f"{words}{study.colluding}.")

    def roster(self) -> tuple[Roster, Any]:
        assert self.study.roster is not None  # ``agree`` has compared the proposal with it
        return self.study.roster, identity_of(self.study, self.file)

    def allow(self, run: str, terms: Terms, release: str) -> None:
        """What was released before, perhaps on wider limits, is within those of today or stays.

        A run has one release, as its statement says: once the data have changed, it takes another.
        """
        self.ledger.compare(run, terms)
        self._keep(run, [release, self.ledger.origin.hex()])

    def _keep(self, key: str, now: list[str]) -> None:
        """Refuse, for a run that is kept, another answer than before."""
        if self.folder is None:
            return
        before = self._kept
        if before.get(key, now) != now:
            raise Refused(
                f"Expected the data, the ledger and the solution that run {key!r} began with, got "
                "others. Give them back, or let the coordinator begin anew (--out): a new release "
                "is charged anew. Nothing was charged."
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / RELEASED, json.dumps({**before, key: now}).encode())

    @property
    def _kept(self) -> dict[str, Any]:
        path = None if self.folder is None else self.folder / RELEASED
        return {} if path is None or not path.exists() else read_json(path)

    def finish(self, participant: Participant, run: Run, outcome: Finish) -> None:
        agent, problem = run.rounds, participant.problem
        assert agent is not None
        step = next(one for one in self.steps if one.problem is problem)
        study, point = step.study, agent.average if isinstance(agent, Agent) else agent.point
        if problem.holds_everything:  # then all have the same answer
            point = outcome.solution
            if point.shape != (problem.dimension,) or not np.isfinite(point).all():
                raise Refused(f"Expected {problem.dimension} finite numbers as solution.")
        said = self.statement(participant, run, study)
        name = run.name if run.reader is None else run.reader.named(problem)
        runs = (*step.paid, name)
        noise, stage = run.reader or run.settings, study.kind.STAGE
        cost = self._at_least(study.kind.total(Cost(said, noise.mechanism), step.before), runs)
        total = Cost(cost, noise.mechanism)
        followed = f"after {run.name}" in self._kept  # by one whose statement is of both
        if self.folder is not None and not followed:
            self.folder.mkdir(parents=True, exist_ok=True)
            study.kind.write_own(self.folder, problem, point, said if stage else cost)
            told: dict[str, Any] = {
                "run": (stage and step.after) or run.name,
                "study": self.study.digest,
            }
            told |= {**({"runs": runs} if step.paid else {}), **cost.to_dict()}
            write_atomically(self.folder / "statement.json", json.dumps(told, indent=2).encode())
            log.info("Run %r is finished; the party's own part is in %s.", run.name, self.folder)
        del self.steps[self.steps.index(step) + 1 :]
        if (then := study.after(outcome.solution)) is not None:
            part = then.problem_of(self.file.agent, self.file)
            self.steps.append(Step(then, part, total, run.name, runs))

    def _paid(self, runs: tuple[str, ...]) -> Spend:
        """What the ledger has charged for these."""
        found = Spend()
        for name in runs:
            terms = self.ledger.terms(name)
            assert terms is not None
            rounds = [last - first + 1 for first, last in self.ledger.charged(name)]
            found = found.plus(terms, sum(rounds) * terms.local_updates)
        return found

    def _at_least(self, cost: PrivacyStatement, runs: tuple[str, ...]) -> PrivacyStatement:
        """No less than was charged: whoever coordinates may have asked for another noise in the
        runs before than the study plans."""
        paid = self._paid(runs)
        ε, alone = (spend.epsilon(cost.delta) for spend in (paid, paid.alone))
        alone = max(cost.alone, alone) if cost.parties > 1 else cost.alone
        return replace(cost, epsilon=max(cost.epsilon, ε), alone=alone)

    def statement(self, participant: Participant, run: Run, study: Study) -> PrivacyStatement:
        """What this party's own messages cost, by its own numbers."""
        one: Any = SimpleNamespace(agents=(participant.problem,), names=(participant.name,))
        seeded, part = self.study.rehearsal is not None, run.rounds
        rounds = [last - first + 1 for first, last in self.ledger.charged(run.name)]
        updates = max(run.settings.rounds, sum(rounds)) * run.settings.local_updates
        if (reader := run.reader) is not None:
            said = release_statement(one, reader.mechanism, reader.delta, seeded, not seeded)
        else:
            said = privacy_statement(one, run.settings, seeded, not seeded, updates)
        uncertified = REHEARSAL if seeded else said.uncertified
        said = replace(said, assumed=study.kind.assumed(said.delta), uncertified=uncertified)
        if not isinstance(part, Summand):
            return said
        said, summed = replace(said, once=part.release), part.summed
        cost = run.settings.mechanism, updates
        return of_sum(said, len(summed.names), summed.colluding, [cost], part.entries)


class LimitedLedger(Ledger):
    """The ledger of a party in one study, which agrees to nothing beyond the party's own limits.

    Agents and readers agree to a run in one place, ``Ledger.begin``, before anything is paid or
    read. There the terms are compared with the limits: whatever a coordinator sends, the comparison
    is of what the agent itself is about to spend.

    Guarantee: no run begins whose total cost, with that of the ``others`` of its study, exceeds
    ``limits``, or whose noise is not secure (but in a rehearsal that the party allows). Nor does
    one come to cost more: a round that fails is paid again, within the same limits, and nothing
    once another run of its study has ``followed``, as that one counted what was charged till then.
    Which runs these are the party's folder knows: if it is lost, they count in the ledger alone.
    All runs together stay within the ledger's own budget, and within ``total_epsilon_alone``
    whatever others do. What a run hides is that of the party's problem, which ``Study.problem_of``
    compares with ``hides``.
    """

    STATE = (*Ledger.STATE, "_paid")

    def __init__(self, party: PartyFile, seeded: bool = False) -> None:
        self.limits, self._noise = party.limits, "seeded" if seeded else "secure"
        self._paid: dict[str, int] = {}  # rounds of each run
        self.others, self.followed = Spend(), False
        if seeded and not party.rehearsal:
            raise InvalidInput(
                f"Expected rehearsal = true in {party.path} for seeded noise. Nothing was sent."
            )
        super().__init__(party.ledger)

    def begin(self, run: str, terms: Terms) -> None:
        self.compare(run, terms)
        super().begin(run, terms)

    def compare(self, run: str, terms: Terms) -> None:
        """Raise ``Disagrees`` where the terms of a run, begun or not, are beyond the limits."""
        most, noise = self.limits.rounds, self._noise
        if most is not None and terms.rounds > most:
            got = f"got {terms.rounds} in run {run!r}. Nothing was charged."
            raise Disagrees("rounds", f"Expected at most {most} rounds, as [limits] says, {got}")
        if terms.noise != noise:
            got = f"got {terms.noise} in run {run!r}. Nothing was charged."
            raise Disagrees("noise", f"Expected {noise} noise, {got}")
        self._compare_run(run, terms, terms.rounds)

    def _refuse_beyond_budget(self, run: str, terms: Terms, rounds: int) -> None:
        """In the transaction of every charge: what others paid meanwhile is counted."""
        if self.followed:
            raise Refused(
                f"Expected no more of run {run!r}, which another one of its study has followed. "
                "Nothing was charged."
            )
        after = self._paid.get(run, 0) + rounds
        if after > terms.rounds:
            self._compare_run(run, terms, after)
        if (most := self.limits.total_epsilon_alone) is not None:
            alone = self._spend.plus(terms, rounds * terms.local_updates).alone
            self._compare_cost(alone, most, "whatever others do, all runs together")
        super()._refuse_beyond_budget(run, terms, rounds)

    def _compare_run(self, run: str, terms: Terms, rounds: int) -> None:
        cost = self.others.plus(terms, rounds * terms.local_updates)
        self._compare_cost(cost, self.limits.total_epsilon, f"{rounds} rounds of run {run!r}")

    def _compare_cost(self, cost: Spend, most: float, what: str) -> None:
        delta = self.limits.total_delta
        if not cost.within(Guarantee(most, delta)):
            raise Disagrees(
                "budget",
                f"Expected a total epsilon of at most {digits(most)} at delta {digits(delta)}, as "
                f"[limits] says; {what} would cost {rounded_up(cost.epsilon(delta), 6)}. Nothing "
                "was charged.",
            )

    def _apply(self, row: Entry) -> None:
        super()._apply(row)
        if row.kind == "charge":
            paid = self._paid.get(row.run, 0) + row.last - row.first + 1
            self._paid = {**self._paid, row.run: paid}


def identity_of(study: Study, file: PartyFile) -> Any:
    """The party's own private key, which is the one that the study knows it by."""
    if file.identity is None:
        raise InvalidInput(
            f"Expected identity in {file.path}, the file that `tacit federation identity` made, "
            "for a study with a secure sum; not given. Nothing was sent."
        )
    assert study.roster is not None
    key = read_identity(file.identity)
    if key.public_key().public_bytes_raw() != study.roster.identity(file.agent):
        raise InvalidInput(
            f"Expected the identity that the study has for {file.agent!r} in {file.identity}, got "
            "another: somebody else's key is in the study, or yours is. Nothing was sent."
        )
    return key
