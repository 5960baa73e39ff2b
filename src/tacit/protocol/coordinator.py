"""The coordinator: the one loop of a run, for every transport, and what a transport is.

    plan → propose → [release → start] → rounds → finish → Result

It knows public facts and answers only. Participants of one owner (``Transport.own``) also tell it
what no message between strangers says: the objective, the size of the noise, and what a journal
keeps. A run with noise in every round ends after the rounds that were agreed on and for no other
reason: stopping when a number computed from private data looks good would release that number.
Runs on released data, and runs without noise, may end at a tolerance.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from tacit._types import Vector
from tacit.admm.adaptive import (
    Gap,
    Pace,
    gap_apart,
    gap_in_common,
    ground_of_consensus,
    is_adaptive,
)
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, ConstantPenalty, Settings
from tacit.errors import InvalidInput, Refused, SolverFailure, choice, count, shown
from tacit.objectives.public import has_exact_step
from tacit.planning import Plan, penalties_of
from tacit.planning import plan as planned
from tacit.privacy.mechanisms import Mechanism, Noiseless
from tacit.privacy.seeded_noise import generator, noise_source, root_key
from tacit.protocol import result as results
from tacit.protocol.facts import DescribedObjective, NotKnown, described, members_of
from tacit.protocol.journal import Arrays, Journal, joined_digest
from tacit.protocol.messages import (
    Agreed,
    Answer,
    Curvature,
    Facts,
    Failure,
    Finish,
    Invite,
    Measure,
    Measured,
    Own,
    Propose,
    Refusal,
    ReleaseOnce,
    Request,
    Restore,
    Snapshot,
    Start,
    State,
    sorted_answers,
)
from tacit.protocol.release import (
    Release,
    Released,
    SavedReleases,
    mark,
    refuse_unless,
)
from tacit.protocol.result import Progress, Result
from tacit.protocol.server import AdaptiveServer, ExactServer, Server, Transport
from tacit.protocol.statement import PrivacyStatement, privacy_statement, release_statement
from tacit.sets.feasible_set import require_64_bits

if TYPE_CHECKING:
    from tacit.protocol.summed import Summed

T = TypeVar("T")
OWN_NOISE = "Also that every participant draws its noise from that source: its own rules decide."
LAST_WORD = 60.0  # seconds for the answer to the outcome
PER_AGENT = ("point", "average", "dual", "total")  # arrays of an agent in a journal


class Paused(Refused):
    """The run cannot go on now. ``parties`` says why, party by party."""

    def __init__(
        self, parties: Mapping[str, str], round: int, rounds: int, kept: bool = True
    ) -> None:
        self.parties = dict(parties)
        after = "Nothing is lost." if kept else "Without a checkpoint it cannot go on."
        where = f"in round {round} of {rounds}" if round else "before the first round"
        super().__init__(f"The study is paused {where}: {' '.join(self.parties.values())} {after}")


class Ended(Refused):
    """A transport is at its end, whatever was asked. ``answers`` are those that came before."""

    answers: Mapping[str, Any] = {}


class Side(Protocol):
    """Who computes rounds: ``ByMessage``, or all agents as one program (``batched.py``)."""

    converged: bool

    @property
    def round(self) -> int:
        """The last one that is done."""

    def advance(self, last: int) -> dict[str, Refusal]:
        """Rounds until ``last``, or until converged; refusals end them."""

    def evaluate(self) -> list[float]:
        """The trace's columns after its round."""

    def state(self) -> Arrays:
        """What a journal keeps after noise in every round (``PER_AGENT``)."""

    def restore(self, arrays: Arrays, rounds_done: int) -> None: ...

    def progress(self, row: dict[str, float]) -> Progress: ...


class Source(NamedTuple):
    """Of exact steps: what agents released, and what it cost. A run without noise has none."""

    releases: Sequence[Release]
    mechanism: Mechanism
    privacy: PrivacyStatement
    seed: int | None


@dataclass
class Coordinator:
    """One run over a transport.

    asked      a budget, settings, or a plan: or how one follows from public facts
    known      the problem, where the coordinator has it: else it is what participants say
    penalties  public starting penalties of exact steps, for a problem made of facts
    seed, run, evaluate_every, callback, batch, noise, start, released   as in ``tacit.solve``
    checkpoint the file of the journal, or of what was released; None: nothing is kept, and a run
               between organisations that is paused cannot go on
    every      seconds between two entries in the journal
    batched    makes all agents one program, where a transport has them in one process
    aggregation, colluding   "sum": statistics are only added up (``summed.py``), and nobody learns
               one, if no more than ``colluding`` collude; by default just less than half of all
    model      any participant's part of the problem, for what is public in it, where there is one
    study      digest of the study that participants hold
    deadline   seconds that a participant may take for an answer
    show       hears of every stage of the run
    """

    transport: Transport
    asked: Asked | Settings | Plan | Callable[[Problem], Plan]
    _: KW_ONLY
    known: Problem | None = None
    penalties: tuple[Vector, Vector] | None = None
    seed: int | None = None
    run: str | None = None
    evaluate_every: int = 1
    callback: Callable[[Progress], None] | None = None
    checkpoint: str | Path | None = None
    batch: bool | None = None
    noise: str | None = None
    start: Result | None = None
    released: Released | None = None
    every: float = 0.0
    batched: Callable[[Problem, Settings, Vector, str], Side] | None = None
    aggregation: str | None = None
    colluding: int | None = None
    model: LocalProblem | None = None
    study: str = ""
    deadline: float | None = None
    show: Callable[..., None] = lambda *stage, **about: None
    facts: list[Facts] = field(init=False, default_factory=list)
    journal: Journal | None = field(init=False, default=None)
    waited: float = field(init=False, default=0.0)  # seconds for answers
    sums: Summed | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        if isinstance(self.seed, np.integer):  # NumPy's are not plain data
            self.seed = int(self.seed)
        if self.model is None and self.known is not None:
            self.model = self.known.agents[0]
        if self.aggregation is None and self.colluding is not None:
            raise InvalidInput(
                f'Expected aggregation="sum" beside colluding={self.colluding!r}, got none. '
                "Nothing was computed."
            )
        if choice("aggregation", self.aggregation, (None, "sum")) is not None:
            from tacit.protocol.summed import Summed

            part = self.model
            if part is None or self.released is not None or self.start is not None:
                raise InvalidInput(
                    "Expected private data, also of agents on rank 0, for a secure sum, and no "
                    "start. Nothing was computed."
                )
            how = self.seed is None, self.batch is False
            self.transport = self.sums = Summed(self.transport, self.colluding, part, *how)
            self.known = self.batched = None

    def conduct(self) -> Result:
        """Run it, and say what it left behind.

        Guarantee: the statement in the result covers every answer of the rounds and releases, and
        rounds that failed and are paid for again. It holds for each participant by its own ledger,
        whatever this process does.
        """
        require_64_bits()
        count("evaluate_every", self.evaluate_every)
        problem, plan = self.planned()
        if not self._is_exact(plan) and self.start is not None:
            raise InvalidInput(
                "Expected no start where every round adds noise. Nothing was computed."
            )
        found = (self._exact if self._is_exact(plan) else self._noisy)(problem, plan)
        alike = self.model is not None and problem.is_global  # then any part has all labels
        labels = (Problem([self.model]) if alike else problem).labels  # type: ignore[list-item]
        found = replace(found, labels=labels)
        if self.sums is not None:
            same = found.local * len(self.sums.parties)
            found = replace(found, names=self.sums.parties, local=same, duals=())
        if self.transport.own or self.study:
            return found
        said = replace(found.privacy, assumed=f"{found.privacy.assumed} {OWN_NOISE}".strip())
        return replace(found, privacy=said)

    # --- plan ---------------------------------------------------------------------------------

    def planned(self) -> tuple[Problem, Plan]:
        try:
            return self._planned(sizes=False)
        except NotKnown:  # schedules follow from sizes that participants take a while to compute
            return self._planned(sizes=True)

    def _planned(self, sizes: bool) -> tuple[Problem, Plan]:
        known = None if sizes else self.known
        problem = self.introduced(sizes) if known is None else known
        if callable(self.asked):
            plan = self.asked(problem)
        else:
            if self.released is not None and isinstance(self.asked, Asked):
                raise InvalidInput(
                    "Expected Settings for a released problem, got a budget: it is spent already."
                )
            plan = planned(problem, self.asked)
        settings = plan.settings
        incomplete = settings.penalty is None or settings.step_size is None
        if incomplete and not self._is_exact(plan):
            plan = replace(plan, settings=settings.complete(problem))
        return problem, plan

    def _is_exact(self, plan: Plan) -> bool:
        """Whether steps are exact, on what was released or without noise."""
        known = self.released is not None or plan.release is not None
        return known or plan.settings.tolerance is not None

    def introduced(self, sizes: bool) -> Problem:
        """The problem, of what its participants say of themselves."""
        self.show("inviting")
        self.facts = self._all(Invite(self.study, sizes), Facts)
        for name, own in zip(self.transport.names, self.facts, strict=True):
            if own.agent != name:
                raise InvalidInput(
                    f"Expected the facts of party {name!r}, got those of another. Nothing was "
                    "started."
                )
        return described(self.facts, self.penalties)

    # --- noise in every round -----------------------------------------------------------------

    def _noisy(self, problem: Problem, plan: Plan) -> Result:
        settings, own = plan.settings, self.transport.own
        paid, noise = self._noise()
        alone = paid or noise == "secure"  # every agent pays and draws by itself: none is batched
        if own and noise == "secure" and not paid and self.checkpoint is not None:
            raise InvalidInput(
                "Expected no checkpoint for secure noise without ledgers: a continued run would "
                "release other noise for the same round. Nothing was released."
            )
        if self.batch and (alone or self.batched is None):
            raise InvalidInput(
                "Expected batch=False with ledgers, secure noise or agents elsewhere, got "
                "batch=True."
            )
        now, batch = self._begun(problem, plan, paid, noise, alone)
        self.show("agreeing", rounds=settings.rounds, run=now.run)
        side: Side
        if batch:
            assert self.batched is not None
            side = self.batched(problem, settings, now.key, now.run)
        else:
            self._all(self._proposal(problem, plan, now.run, noise, now.key), Agreed)
            known = members_of(problem), settings, now.run, problem.dtype, paid or not own
            server = Server(*known)
            if is_adaptive(settings):
                server = AdaptiveServer(*known, ground=ground_of_consensus(problem, settings))
            side = ByMessage(self, problem, server)
        if now.arrays:
            now.check_arrays(side.state(), settings.rounds)
            side.restore(now.arrays, now.round)
        elif own and self.checkpoint is not None:
            now = now.after(0, side.state(), [])  # the key is kept before anything is released
        self.journal, trace, written = now, now.trace.tolist(), time.monotonic()
        columns = results.TRACE if own else results.SERVER_TRACE
        for _ in self._rounds(side, settings, columns, trace):
            due = time.monotonic() - written >= self.every or side.round == settings.rounds
            if self.checkpoint is not None and due:
                now = self.journal = now.after(side.round, side.state(), trace)
                written = time.monotonic()
        state = side.state()
        states = self._all(Snapshot(now.run), State) if paid else []
        charged = max((one.charged for one in states), default=0)  # rounds that failed too
        updates = max(settings.rounds + max([0, *now.failed.values()]), charged)
        seeded, secure = self.seed is not None, noise == "secure"
        updates *= settings.local_updates
        privacy = privacy_statement(problem, settings, seeded, secure, updates)
        privacy = self._stated(privacy, settings.mechanism)
        about = dict(zip(columns, np.array(trace, np.float64).T, strict=True)), privacy, self.seed
        found = results.result_of(problem, settings, state, *about)
        self._finish(now.run, side.round, found.solution)
        found = replace(found, plan=plan.reason, timing={} if batch else self._timing())
        return replace(found, gap=self._gap(problem, settings, state))

    def _gap(self, problem: Problem, settings: Settings, state: Arrays) -> Gap | None:
        """Where steps adapted; None where a set is elsewhere, or of no known kind."""
        if not is_adaptive(settings):
            return None
        try:
            if not problem.is_global:
                return gap_apart(state["pace"], problem, settings) if "pace" in state else None
            if self.model is None:
                return None
            kept, n = state["steps"][0], problem.size
            pace = Pace.unpacked(kept, len(kept) - 2 * n - 2, n)
            ground = ground_of_consensus(problem, settings)
            return gap_in_common(pace, ground, problem, self.model.feasible_set)
        except (InvalidInput, SolverFailure):
            return None

    def _begun(
        self, problem: Problem, plan: Plan, paid: bool, noise: str, alone: bool
    ) -> tuple[Journal, bool]:
        """Where the run begins, or where its journal is; whether all agents are one program.

        One program rounds differently than agents one by one do: a run continues as it was begun.
        """
        closed = all(a.feasible_set.closed_form for a in problem.agents)
        batch = not alone and closed and self.batched is not None
        batch = batch if self.batch is None else self.batch
        path = None if self.checkpoint is None else Path(self.checkpoint)
        own, settings = self.transport.own, plan.settings
        saved = Journal.load(path) if path is not None and path.exists() else None
        agreed: dict[str, Any] = {"study": self.study, "settings": settings.to_dict()}
        if self.sums is not None:
            agreed["colluding"] = self.sums.colluding
        if own:
            if path is not None and not path.resolve().parent.is_dir():
                raise InvalidInput(f"Expected an existing folder for the checkpoint {path}.")
            if saved is not None and saved.agreed.get("batch") is True:
                if self.batched is None:
                    raise InvalidInput(
                        "Expected a run whose agents compute one by one to go on with on other "
                        "ranks, got one that was begun as one program, which rounds differently. "
                        "Nothing was resumed: continue it in one process."
                    )
                batch = batch if self.batch is not None else True
            elif saved is not None and self.batch is None:
                batch = False
            agreed |= {"noise": noise, "ledgers": paid, "generator": generator()}
            agreed |= {"batch": batch, "seed": self.seed}
        else:
            release = plan.release and [plan.release.to_dict(), plan.delta]
            agreed |= {"release": release, **{f"facts of {f.agent}": f.sha256 for f in self.facts}}

        def digest(key: Vector) -> str:
            if not own:
                return ""
            states = self._all(Snapshot("", key), State)
            about = key, settings.penalty, settings.step_size
            return joined_digest([state.digest for state in states], *about)

        if saved is not None:
            run = saved.run if self.run is None or not own else self.run
            saved.check({**agreed, "run": run}, partial(digest, saved.key))
            return saved, batch
        run = self._name
        if (self.run is None and paid) or (not own and self.seed is None):
            run = f"{run}-{secrets.token_hex(6)}"  # of a rehearsal the name decides the noise
        key = root_key(self.seed) if own else np.zeros(0, np.uint32)
        about = key, digest(key) if path is not None else ""
        begun = Journal(path, run, {**agreed, "run": run}, *about)
        return begun if own else begun.after(0, {}, []), batch

    @property
    def _name(self) -> str:
        """What the run is called, be it an empty text: seeded noise differs between names."""
        return "run" if self.run is None else self.run

    # --- exact steps --------------------------------------------------------------------------

    def _exact(self, problem: Problem, plan: Plan) -> Result:
        settings, own = plan.settings, self.transport.own
        if self.batch is not None and self.sums is None:
            raise InvalidInput(
                "Expected batch left out for exact steps, which have none, got "
                f"batch={self.batch!r}. Nothing was computed."
            )
        if not own:
            run, source = self._agreed_release(problem, plan)
        else:
            run, source = self._name, self._source(problem, plan)
        if self.released is None and self._needs_one_place(plan):
            return self._in_one_place(problem, plan, source)
        self.show("reading")
        curvatures = [copy.curvature for copy in self._all(ReleaseOnce(run), Curvature)]
        check_exact(settings)
        penalties = penalties_of(problem, settings, curvatures)
        penalty, group = penalties[0], penalties[1].astype("<i8")
        firsts = self._firsts(problem, source)
        if firsts is None:
            self._all(Start(run, penalty, group), Agreed)
        else:
            self._each([Start(run, penalty, group, first) for first in firsts], Agreed)
        begin = None
        if self.start is not None:
            begin = self.start.solution, np.concatenate(self.start.duals)
        server = ExactServer(members_of(problem), settings, run, penalties, begin, not own)
        side = ByMessage(self, problem, server)
        columns = results.RELEASED_TRACE if own else results.RELEASED_SERVER_TRACE
        trace: list[list[float]] = []
        for _ in self._rounds(side, settings, columns, trace):
            pass
        duals, reason = tuple(server.parts(server.λ)), plan.reason
        local = tuple(side.points() if own else server.parts(server.z))
        if plan.release is not None and source.releases and all(r.kept for r in source.releases):
            reason += " All agents had released these data before: nothing was charged."
        found = (server.solution, *local, *duals)
        self._finish(run, side.round, server.solution)
        return Result(
            solution=server.solution,
            ergodic=server.solution,
            local=local,
            trace=dict(zip(columns, np.array(trace, dtype=np.float64).T, strict=True)),
            settings=settings,
            privacy=source.privacy,
            names=problem.names,
            seed=source.seed,
            versions=results.versions(),
            converged=side.converged if settings.tolerance is not None else None,
            plan=reason,
            duals=duals,
            timing=self._timing(),
            release=mark(source.releases, found) if source.releases else "",
            released=tuple(release.values for release in source.releases),
        )

    def _needs_one_place(self, plan: Plan) -> bool:
        """Whether there is no noise, and some agent of this process has no exact steps."""
        if plan.release is not None or self.known is None:
            return False
        parts = self.known.agents
        if any(isinstance(a.objective, DescribedObjective) for a in parts):  # they are elsewhere
            return False
        return not all(has_exact_step(a.objective, a.feasible_set) for a in parts)

    def _in_one_place(self, problem: Problem, plan: Plan, source: Source) -> Result:
        """The optimum where some loss has no exact local step (``admm/reference.py``)."""
        from tacit.admm.reference import optimum

        check_exact(plan.settings)
        if self.start is not None:
            raise InvalidInput(
                "Expected no start where the optimum is found by a bundle method, got one. "
                "Nothing was computed."
            )
        settings = plan.settings
        tolerance = min(settings.tolerance or 1e-6, 1e-6)
        found = optimum(problem, tolerance, settings.rounds, self.show)
        couplings = [np.asarray(agent.coupling) for agent in problem.agents]
        solution = np.zeros(problem.size)
        for z, at in zip(found.points, couplings, strict=True):
            solution[at[at >= 0]] = z[at >= 0]
        pairs = zip(problem.agents, found.points, strict=True)
        violation = max(float(a.feasible_set.violation(z)) for a, z in pairs)
        row = found.rounds, found.value, 0.0, found.gap, violation
        trace = {k: np.array([x]) for k, x in zip(results.RELEASED_TRACE, row, strict=True)}
        return Result(
            solution=solution,
            ergodic=solution,
            local=tuple(found.points),
            trace=trace,
            settings=settings,
            privacy=source.privacy,
            names=problem.names,
            seed=None,
            versions=results.versions(),
            converged=found.converged,
            plan=(
                "Without noise: a bundle method on all data in one place, as some loss has no "
                f"exact local step on its set. The optimum is at most {found.gap:.2g} lower."
            ),
        )

    def _agreed_release(self, problem: Problem, plan: Plan) -> tuple[str, Source]:
        """The run in which strangers release their data once; nobody but they see the releases."""
        assert plan.release is not None
        now = self.journal = self._begun(problem, plan, False, "", True)[0]
        self.show("agreeing", rounds=plan.settings.rounds, run=now.run)
        self._all(self._proposal(problem, plan, now.run), Agreed)
        if self.sums is not None and now.arrays:  # parties that know of the end have no parts left
            [[values]] = now.arrays.values()
            self._all(Restore(now.run, release=Release(values), check=False), Agreed)
        elif self.sums is not None:
            self._all(ReleaseOnce(now.run), Curvature)
            assert self.sums.kept is not None
            self.journal = now.after(0, {"release": [self.sums.kept.values]}, [])
        seeded = self.seed is not None
        about = plan.release, plan.delta, seeded, not seeded
        privacy = self._stated(release_statement(problem, *about), plan.release)
        return now.run, Source((), plan.release, privacy, self.seed)

    def _source(self, problem: Problem, plan: Plan) -> Source:
        """What participants of one owner release: known before, or now."""
        released = self.released
        if released is not None:
            given: dict[str, Any] = {"seed": self.seed, "run": self.run, "noise": self.noise}
            given |= {"checkpoint": self.checkpoint, "ledgers": self._paid() or None}
            for name, value in given.items():
                if value is not None:
                    raise InvalidInput(
                        f"Expected no {name} for a released problem: its noise is drawn and paid "
                        "for; got one."
                    )
            before = released.mechanism, released.privacy.delta
            plan = replace(plan, release=before[0], delta=before[1])
            self._restored(problem, plan, released.releases, "seeded", check=False)
            about = released.mechanism, released.privacy, released.seed
            return Source(released.releases, *about)
        if plan.release is not None:
            return self.releases(problem, plan)
        if not isinstance(plan.settings.mechanism, Noiseless):
            raise InvalidInput("Expected settings without noise for exact steps.")
        if self.noise is not None or self._paid():
            raise InvalidInput(
                "Expected neither ledgers nor a source of noise for a run without noise, which "
                "no ledger can pay for. Nothing was released."
            )
        self._all(self._proposal(problem, plan, self._name, "seeded"), Agreed)
        privacy = release_statement(problem, Noiseless(), 1e-6, False, False)
        if (path := self.checkpoint) is not None:
            known = SavedReleases.load(path) if Path(path).exists() else None
            if known is not None and not isinstance(known.mechanism, Noiseless):
                raise InvalidInput(
                    f"Expected no checkpoint of another run in {path}, which would be lost. "
                    "Nothing was computed."
                )
            SavedReleases(problem.names, (), Noiseless(), None, privacy.delta, False).save(path)
        return Source((), Noiseless(), privacy, None)

    def releases(
        self, problem: Problem, plan: Plan, then: tuple[Mechanism, int] | None = None
    ) -> Source:
        """What the checkpoint keeps, or a new release, which it keeps before anything is computed
        from it; ``then``: what ledgers must be able to pay for after a new one."""
        assert plan.release is not None
        path, about = self.checkpoint, (plan.release, plan.delta)
        if path is not None and Path(path).exists():
            return self._continued(problem, plan, Path(path))
        run, (_, noise) = self._name, self._noise()
        propose = partial(self._proposal, problem, plan, run, noise, root_key(self.seed))
        if then is not None:
            self._all(propose(then=then), Agreed)
        self._all(propose(), Agreed)  # all can be read and paid for, or none is
        seeded, secure = self.seed is not None, noise == "secure"
        privacy = self._stated(release_statement(problem, *about, seeded, secure), plan.release)
        releases = [state.release for state in self._all(Snapshot(run), State)]
        found = tuple(release for release in releases if release is not None)
        if path is not None:
            kept = SavedReleases(problem.names, found, plan.release, self.seed, plan.delta, secure)
            kept.save(path)
        return Source(found, plan.release, privacy, self.seed)

    def _continued(self, problem: Problem, plan: Plan, path: Path) -> Source:
        """The release in the checkpoint: of this budget, noise and data, and known to ledgers."""
        assert plan.release is not None
        saved = SavedReleases.load(path)
        privacy = self._stated(saved.statement(path, problem), saved.mechanism)
        refuse_unless(saved.names == problem.names, path)
        if (saved.mechanism, privacy.delta) != (plan.release, plan.delta):
            raise InvalidInput(
                f"Expected the budget of the release in {path}, got another: a new release needs a "
                "checkpoint of its own. Nothing was released."
            )
        noise = self._noise()[1]
        if saved.seed != self.seed or privacy.secure != (noise == "secure"):
            raise InvalidInput(
                f"Expected the seed and the source of noise of the release in {path}; they differ. "
                "A new release needs a checkpoint of its own. Nothing was released."
            )
        try:
            self._restored(problem, plan, saved.releases, noise, check=True)
        except InvalidInput as error:
            raise InvalidInput(f"{path}: {error}") from None
        return Source(saved.releases, saved.mechanism, privacy, saved.seed)

    def _stated(self, privacy: PrivacyStatement, mechanism: Mechanism) -> PrivacyStatement:
        return privacy if self.sums is None else self.sums.stated(privacy, mechanism)

    def _restored(
        self,
        problem: Problem,
        plan: Plan,
        releases: Sequence[Release],
        noise: str,
        check: bool,
    ) -> None:
        """Participants that go on from what they released before."""
        run = self._name
        key = root_key(self.seed) if check else None
        self._all(self._proposal(problem, plan, run, noise, key, resumed=True), Agreed)
        known = [Restore(run, release=release, check=check) for release in releases]
        self._each(known, Agreed)

    def _firsts(self, problem: Problem, source: Source) -> Sequence[tuple[Vector, Vector]] | None:
        """What each agent starts from: its point and dual in another result of exact steps.

        Guarantee: a run that promises anything starts from an answer that is a function of its own
        release and of public numbers, or from none (``mark``): then so is its answer.
        """
        start = self.start
        if start is None:
            return None
        if not isinstance(start, Result):
            raise InvalidInput(
                f"Expected a Result to start from, got {shown(start)}. Nothing was computed."
            )
        own = list(zip(start.local, start.duals, strict=False))
        sizes = [(a.dimension, int(a.coupled.sum())) for a in problem.agents]
        if [(len(z), len(λ)) for z, λ in own] != sizes:
            raise InvalidInput(
                "Expected a result of exact steps on a problem of the same agents and coordinates "
                "to start from, got another. Nothing was computed."
            )
        answer = (start.solution, *start.local, *start.duals)
        promises = not math.isinf(source.privacy.epsilon)
        if promises and start.release != mark(source.releases, answer):
            raise InvalidInput(
                "Expected a start that was computed from the same release, got another answer, "
                "whose own cost the privacy statement would leave out. Leave start out. Nothing "
                "was computed."
            )
        return own

    # --- rounds, alike ------------------------------------------------------------------------

    def _rounds(
        self, side: Side, settings: Settings, columns: Sequence[str], trace: list[list[float]]
    ) -> Iterator[None]:
        """The loop of a run: until its last round, or until it has converged; after every
        evaluation ``trace`` is longer by a row."""
        T, names = settings.rounds, self.sums.parties if self.sums else self.transport.names
        while side.round < T and not side.converged:
            self.show("waiting", done=side.round, waiting=names, rounds=T)
            if refusals := side.advance(min(side.round + self.evaluate_every, T)):
                self._stop(refusals, side.round + 1, T)
            last = side.round if side.converged else T
            self.show("waiting", done=side.round, waiting=names, rounds=last)
            trace.append([side.round, *side.evaluate()])
            if self.callback is not None:
                self.callback(side.progress(dict(zip(columns, trace[-1], strict=True))))
            yield

    def _finish(self, run: str, round: int, solution: Vector) -> None:
        """Tell strangers that are still there; nothing depends on what they say."""
        if not self.transport.own or self.sums is not None:
            self.show("telling the parties", done=round)
            outcome = Finish(run, round, solution)
            deadline = min(self.deadline or LAST_WORD, LAST_WORD)
            self.transport.ask(dict.fromkeys(self.transport.names, outcome), deadline)

    def _timing(self) -> dict[str, Any]:
        clock = getattr(self.transport, "clock", None)
        return {} if clock is None else clock.read()

    # --- asking -------------------------------------------------------------------------------

    def _proposal(
        self,
        problem: Problem,
        plan: Plan,
        run: str,
        noise: str = "",
        key: Vector | None = None,
        resumed: bool = False,
        then: tuple[Mechanism, int] | None = None,
    ) -> Propose:
        own = None
        if self.transport.own:
            many, from_seed = len(problem.agents), self.seed is not None
            own = Own(noise, key, from_seed, many, resumed, then)
        delta = plan.delta if plan.release is not None else plan.settings.delta
        about = self.study, run, problem.size, plan.settings, delta, plan.release
        return Propose(*about, self._is_exact(plan), own)

    def _noise(self) -> tuple[bool, str]:
        """Whether agents pay, and where their noise comes from. Strangers decide it themselves."""
        if not self.transport.own:
            return False, "secure" if self.seed is None else "seeded"
        paid = self._paid()
        return paid, noise_source(self.noise, paid, self.seed)

    def _paid(self) -> bool:
        paid = {state.paid for state in self._all(Snapshot(""), State)}
        if len(paid) > 1:
            raise InvalidInput("Expected ledgers on all ranks or on none. Nothing was released.")
        return paid == {True}

    def ask(
        self, requests: Mapping[str, Request], deadline: float | None = None
    ) -> Mapping[str, Answer]:
        """Everyone's answer; an owner's error is raised as it is."""
        begun = time.perf_counter()
        try:
            answers = self.transport.ask(requests, self.deadline if deadline is None else deadline)
        except Ended as end:
            self._count_failures(end.answers)
            raise
        self.waited += time.perf_counter() - begun
        for name in requests:
            if isinstance(answer := answers.get(name), Failure):
                raise answer.error
        return answers

    def _all(self, request: Request, kind: type[T]) -> list[T]:
        """Everyone's answer of this kind to one request, in the order of participants."""
        return self._each([request] * len(self.transport.names), kind)

    def _each(self, requests: Sequence[Request], kind: type[T]) -> list[T]:
        names = self.transport.names
        answers = self.ask(dict(zip(names, requests, strict=True)))
        found, refusals = sorted_answers(answers, names, kind, ("", 0))
        if refusals:
            self._stop(refusals, 0, 0)
        return found

    def _stop(self, refusals: Mapping[str, Refusal], round: int, rounds: int) -> None:
        """In one process raise the first agent's error; between strangers pause, so that what
        failed is counted."""
        if self.transport.own:
            raise next(iter(refusals.values())).error()
        refusals = self.sums.refused if self.sums is not None else refusals
        said = {name: refusal.words for name, refusal in refusals.items()}
        self._count_failures(refusals)
        self.show("paused", waiting=tuple(said), why=said)
        raise Paused(said, round, rounds, self.checkpoint is not None)

    def _count_failures(self, answers: Mapping[str, Answer]) -> None:
        """On the disk, before anyone is asked again."""
        refusals = {name: a for name, a in answers.items() if isinstance(a, Refusal)}
        failed = [name for name, refusal in refusals.items() if refusal.reason == "failed"]
        if failed and self.journal is not None:
            self.journal = self.journal.with_failures(failed)


class ByMessage:
    """A server, and participants that it exchanges messages with, wherever they are."""

    def __init__(self, run: Coordinator, problem: Problem, server: Server) -> None:
        self.coordinator, self.problem, self.server = run, problem, server
        self.held = [np.flatnonzero(np.asarray(part.coupling) >= 0) for part in problem.agents]
        self.total = np.zeros_like(server.z)  # weighted sum of z^{t+1}, for the ergodic average
        self.seconds = 0.0, 0.0  # of the last rounds: the server's own, and waiting
        self.converged = False
        self._state: tuple[int, Arrays] | None = None  # after a round

    @property
    def round(self) -> int:
        return self.server.round

    def advance(self, last: int) -> dict[str, Refusal]:
        begun, waited = time.perf_counter(), self.coordinator.waited
        server, exact = self.server, isinstance(self.server, ExactServer)
        while server.round < last and not self.converged:
            if refusals := server.step(self.coordinator, self.coordinator.deadline):
                return refusals
            if isinstance(server, ExactServer):
                self.converged = server.converged
            if not exact:
                weight = server.settings.averaging_weights(server.round, server.round)[0]
                self.total = self.total + np.asarray(weight, self.total.dtype) * server.z
        waited = self.coordinator.waited - waited
        self.seconds = time.perf_counter() - begun - waited, waited
        return {}

    def evaluate(self) -> list[float]:
        """Sums are taken in the order of agents."""
        server = self.server
        primal, dual = server.residual, []
        if isinstance(server, ExactServer):
            assert server.residuals is not None
            primal, dual = server.residuals.primal, [server.residuals.dual]
        if not self.coordinator.transport.own:
            return [primal, *dual, *self.seconds]
        measured = self.coordinator._all(Measure(server.run), Measured)
        objective = sum(found.objective for found in measured)
        noise = dual or [sum(found.noise for found in measured)]
        return [objective, primal, *noise, max(found.violation for found in measured)]

    def points(self) -> list[Vector]:
        """z of exact steps, private coordinates included."""
        states = self.coordinator._all(Snapshot(self.server.run), State)
        return [state.arrays[0] for state in states]

    def state(self) -> Arrays:
        if self._state is None or self._state[0] != self.round:
            self._state = self.round, self._states()
        return self._state[1]

    def _states(self) -> Arrays:
        server = self.server
        known = {"average": server.z, "dual": server.λ, "total": self.total}
        parts = {name: server.parts(values) for name, values in known.items()}
        steps = {"steps": [server.pace.packed()]} if isinstance(server, AdaptiveServer) else {}
        if not self.coordinator.transport.own:
            return parts | steps
        states = self.coordinator._all(Snapshot(server.run), State)
        state = {
            name: [np.array(found.arrays[i]) for found in states]
            for i, name in enumerate(PER_AGENT[:3])
        }
        state["total"] = [np.zeros(len(z), self.total.dtype) for z in state["point"]]
        # what the server knows is of its own round; an agent with a ledger may be ahead of it
        for name, values in parts.items():
            for whole, held, part in zip(state[name], self.held, values, strict=True):
                whole[held] = part
        if steps:
            state["pace"] = [np.array(found.arrays[3]) for found in states]
        return state | steps

    def restore(self, arrays: Arrays, rounds_done: int) -> None:
        own, run = self.coordinator.transport.own, self.server.run
        if own:
            names = (*PER_AGENT[:3], "pace") if "pace" in arrays else PER_AGENT[:3]
            points = zip(*(arrays[name] for name in names), strict=True)
            self.coordinator._each([Restore(run, rounds_done, of) for of in points], Agreed)

        def shared(name: str) -> Vector:
            parts = zip(arrays[name], self.held, strict=True)
            return np.concatenate([np.asarray(x)[held] if own else x for x, held in parts])

        z, λ = shared("average"), shared("dual")
        self.server.restore(z, λ, rounds_done)
        if isinstance(self.server, AdaptiveServer):
            self.server.pace = Pace.unpacked(arrays["steps"][0], len(z), self.server.size)
        if self.coordinator.sums is not None and not own:
            self.coordinator._all(Restore(run, rounds_done, (z, z, λ)), Agreed)
        self.total = shared("total")

    def progress(self, row: dict[str, float]) -> Progress:
        server = self.server
        if isinstance(server, ExactServer):
            points = self.points()
            return Progress(self.round, server.w, points, points, server.parts(server.λ), row)
        # copies: a callback that writes to them changes no journal
        state = {name: list(map(np.array, parts)) for name, parts in self.state().items()}
        averages, points, duals = state["average"], state["point"], state["dual"]
        return Progress(self.round, server.w, averages, points, duals, row)


def check_exact(settings: Settings) -> None:
    """Refuse settings that exact steps do not have."""
    if not isinstance(settings.mechanism, Noiseless):
        raise InvalidInput(
            f"Expected settings without noise for a released problem, got "
            f"{settings.mechanism.name}: its noise is in the data already, and paid for."
        )
    if settings.penalty is not None and not isinstance(settings.penalty, ConstantPenalty):
        raise InvalidInput(
            f"Expected a number as penalty for exact steps, where penalties start, got "
            f"{settings.penalty!r}."
        )
    if settings.step_size is not None or settings.local_updates != 1:
        raise InvalidInput(
            "Expected no step_size and local_updates=1 for exact steps, which have neither, got "
            f"step_size={settings.step_size!r} and local_updates={settings.local_updates}."
        )
