"""How a secure sum is run: a participant's part of it, and all participants as one.

    Coordinator ──▶ Summed.ask({"sum": request}) ──▶ the same, to every participant, and keys
                                                 ◀── masked parts ── added up ── one agent, here

To the coordinator it is a transport to one participant that holds all records: its facts are those
of all together, so that a plan knows the smaller noise; its noisy statistic at the public point z
is what all participants' parts add up to (``masks.py``). All else is post-processing, here.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

from tacit._types import Array, Vector
from tacit.admm.algorithm import admitted, room, sample_on_host
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput, LedgerFailure, Refused, SolverFailure
from tacit.files import write_atomically
from tacit.objectives import public
from tacit.objectives.objective import Objective, Records
from tacit.privacy.ledger import Answer as Kept
from tacit.privacy.mechanisms import Gaussian, Mechanism, Noiseless, check_parties, refuse_no_sum
from tacit.privacy.secure_noise import SecureNoise, secure_noise
from tacit.privacy.seeded_noise import root_key
from tacit.protocol.agent import Agent
from tacit.protocol.facts import NAME, summed
from tacit.protocol.journal import joined_digest
from tacit.protocol.masks import Epoch, added_up, cut
from tacit.protocol.messages import (
    Agreed,
    Answer,
    Broadcast,
    Facts,
    Failure,
    Finish,
    Invite,
    Keys,
    Masked,
    Measure,
    Measured,
    Own,
    Propose,
    Refusal,
    ReleaseOnce,
    Request,
    Restore,
    Snapshot,
    State,
    Sum,
    sorted_answers,
)
from tacit.protocol.participant import Participant
from tacit.protocol.release import Release
from tacit.protocol.statement import PrivacyStatement, of_sum

T = TypeVar("T")
KEY = 32
MANY = 4096  # records of a summand that are worth a program of their own


class Summand(Agent):
    """One party of a run in which statistics are only added up (``masks.py``).

    It is asked at public points z, rounds its statistic there to the grid, adds its share of the
    noise, X_p of scale s/√(P − c), and sends the sum with masks on it:

        y_p = cut(round(φ_p(z)/γ)) + X_p

    The part y_p is kept in a file beside the ledger, whose answer is its digest, and masked anew
    whenever the same request comes again. The files go when the run is finished: y_p hides the data
    by this party's own share only.

    Guarantee: what leaves it is masked; Σ_p y_p, and whatever c of the parties and the server know,
    is as private as secure noise of the proposed multiplier on one agent. Proof: at most one
    party's rounded statistic moves between neighbours, by Δ + γ√n (``secure_noise.py``); cutting
    moves no two numbers apart; of the sum, the shares of the P − c honest parties are noise of
    scale s (the lemma there), and the rest is known or uniform (``masks.py``). X_p enters no sum
    with other shares than these: the run's terms name the study, and so all identities. ∎ The point
    is in the set, and within the limits for which Δ is proven, before anything is paid.

    study    its digest; empty within one owner
    release  the released statistics are added up, once; ``size`` is 0 then
    """

    def __init__(
        self,
        problem: LocalProblem,
        name: str,
        settings: Settings,
        key: Array,
        run: str,
        size: int,
        summed: Sum,
        study: str,
        epoch: Epoch | None,
        release: bool,
        **how: Any,
    ) -> None:
        self.summed, self.epoch, self.release = summed, epoch, release
        self._public = "sum", study, *summed.names, summed.colluding, summed.sensitivity, release
        self._parties = len(summed.names), summed.colluding
        f = problem.objective
        self.entries = f.statistics().size if release else f.statistic_size
        super().__init__(problem, name, settings, key, run, size, **how)
        known: Any = self._local.f
        if not release and known.in_place and (have := known.present.shape[-1]) < MANY:
            self._local = self._local._replace(f=known.pad(room(max(have, 1))))
        nothing: Any = dict.fromkeys(("f", "coupled", "Δ", "mechanism", "key"))
        self._limits = self._local._replace(**nothing)  # all that a point is checked by

    def _check_arguments(self, key: Array, size: int) -> None:
        summed, problem, f = self.summed, self.problem, self.problem.objective
        check_parties(len(summed.names), summed.colluding)
        why = ""
        if not isinstance(f, Records) or not problem.holds_everything:
            why = "losses over records on one common set of coordinates"
        elif not isinstance(self.settings.mechanism, Gaussian):
            why = "gaussian noise"
        elif self.settings.local_updates != 1:
            why = "one local update: a gradient at a point that is not public is no sum"
        elif self.name not in summed.names:
            why = "a sum that this party is part of"
        else:
            own = f.statistics() if self.release else None
            Δ = own.sensitivity(2) if own else f.sensitivity(2, problem.feasible_set)
            if not Δ <= summed.sensitivity < math.inf:
                why = f"noise for a sensitivity of {Δ:.6g} or more"
        if why:
            raise Refused(f"Agent {self.name!r} expects {why}. Nothing was computed.")
        if not self.release:
            super()._check_arguments(key, size)

    @property
    def objective(self) -> Objective:
        """With room for more records, as it is computed with."""
        return self._local.f

    def _secure_noise(self) -> SecureNoise:
        super()._secure_noise()  # refuses what is not certified
        return self._grid

    @property
    def _grid(self) -> SecureNoise:
        secure, settings = self.noise_source == "secure", self.settings
        budget = settings.mechanism, settings.updates, settings.delta
        return shared_noise(self.summed, *budget, self.entries, secure)

    def _accept(self, broadcast: Broadcast) -> tuple[int, Array]:
        t, z = super()._accept(broadcast)
        if self.epoch is not None and not self.epoch.ready:  # before anything is paid
            raise Refused(f"Agent {self.name!r} expects the keys of all parties before a sum.")
        try:
            inside = self.release or np.isfinite(np.asarray(self._checked(z, self._limits))).all()
        except SolverFailure:
            inside = False
        if not inside:
            raise Refused(
                f"Agent {self.name!r} expects a point of its feasible set in round {t}, got "
                "another. Nothing was computed."
            )
        return t, z

    @property
    def _checked(self) -> Any:
        return _admitted if self.problem.feasible_set.closed_form else admitted

    def _computed(self, t: int, w: Array, told: Vector) -> tuple[Array, ...]:
        f, grid, summed = self.problem.objective, self._grid, self.summed
        φ = np.asarray(f.statistics().values if self.release else _statistic(self._local.f, w))
        if not np.isfinite(φ).all():
            raise SolverFailure("the statistic is not finite.")
        if self._secure is not None:
            X = grid.draw(1).values[0]
        else:
            Δ = np.float64(summed.sensitivity / math.sqrt(summed.shares))
            about = self.entries, Δ, np.float64, self.settings.mechanism
            ξ = sample_on_host(self._local.key, t, 0, *about)
            X = np.round(ξ / grid.spacing).astype(np.int64)
        y = cut(np.round(φ / grid.spacing), len(summed.names)) + X
        return y, np.abs(X).sum() * grid.spacing

    def _kept(self, found: tuple[Array, ...]) -> tuple[bytes, bytes]:
        content = np.asarray(found[0], "<i8").tobytes()
        digest = hashlib.sha256(content).digest()
        try:
            self._place.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self._place / digest.hex(), content)
        except OSError as error:
            raise LedgerFailure(f"Expected to write {error}. Nothing was released.") from None
        return digest, b""

    @property
    def _place(self) -> Path:
        """Of the parts of this run, by their digests: no two processes write the same file."""
        assert self.ledger is not None
        of_run = hashlib.sha256(self.run.encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self.ledger.path.with_name(f"{self.ledger.path.name}-parts") / of_run

    def _taken(self, found: tuple[Array, ...]) -> Array:
        self.average, self.noise_magnitude = found[0], float(found[1])
        return self.average

    def _read(self, answer: Kept) -> Array:
        path = self._place / answer.reply.hex()
        data = path.read_bytes() if path.is_file() else b""
        if hashlib.sha256(data).digest() != answer.reply:
            raise Refused(
                f"Agent {self.name!r} has answered round {answer.round}, and its part of the sum "
                f"is no longer in {path.parent}. Nothing was computed: begin a new run."
            )
        return np.frombuffer(data, "<i8")

    def _said(self, t: int, w: Array) -> Any:
        y = self.average
        if self.epoch is not None:
            grid = self._grid
            about = self.summed.colluding, grid.spacing, str(grid.scale)
            y = self.epoch.mask(y, t, *about, Broadcast(self.run, t, w).digest)
        return Masked(self.run, t, y)

    def _resume(self) -> None:
        assert self.ledger is not None
        if (answer := self.ledger.answer(self.run)) is not None:
            self.rounds_done = answer.round

    def _known(self, settings: Settings) -> None:
        """Steps are taken with the sum, elsewhere."""

    def _check_past(self, broadcast: Broadcast) -> None:
        """The number of the round says all: what it answers differs from epoch to epoch."""

    def _why_uncertified(self) -> str:
        return self.problem.objective.uncertified if self.release else super()._why_uncertified()

    def forget(self) -> None:
        """After the run: keys and parts go, digests and charges stay."""
        if self.epoch is not None:
            self.epoch.forget()
        if self.ledger is not None:
            shutil.rmtree(self._place, ignore_errors=True)


_statistic = jax.jit(lambda f, z: f.statistic(z))
_admitted = jax.jit(admitted)


@lru_cache(maxsize=64)
def shared_noise(
    summed: Sum, mechanism: Mechanism, updates: int, delta: float, size: int, secure: bool
) -> SecureNoise:
    """The grid of a sum of ``size`` numbers, and a participant's share of the noise on it."""
    Δ, shares = summed.sensitivity, summed.shares
    if secure:
        return secure_noise(mechanism, Δ, size, updates, delta, shares)
    return SecureNoise(mechanism, Δ, size, shares)  # type: ignore[arg-type]


class Void(Exception):
    """Some participants did not answer as they should: nothing was added up."""


class Summed:
    """A transport to one participant, made of the ``parties`` of another transport.

    colluding  c; None: just less than half of them
    part       any participant's part of the problem, for what is public in it
    secure     whether strangers' noise is, who draw it by their own rules
    masked     also among participants of one owner without ledgers

    ``refused``: the parties that voided the last request, and why.
    """

    names: tuple[str, ...] = (NAME,)

    def __init__(
        self, inner: Any, colluding: int | None, part: LocalProblem, secure: bool, masked: bool
    ) -> None:
        self.inner, self.own, self.parties = inner, inner.own, inner.names
        self.colluding = check_parties(len(self.parties), colluding)
        if not isinstance(part.objective, Records):
            raise InvalidInput(
                "Expected losses over records for a secure sum, got "
                f"{type(part.objective).__name__}: for others a sum has no gain or no proof. "
                "Leave aggregation out. Nothing was computed."
            )
        self.part, self._secure, self._masked = part, secure, masked
        self.clock = getattr(inner, "clock", None)
        self.refused: dict[str, Refusal] = {}
        self._deadline: float | None = None
        self._facts: list[Facts] = []
        self._run = ""  # its name among the parties
        self._proposal: Propose
        self._grid: SecureNoise
        self._one: Participant | None = None  # who has the sum
        self.kept: Release | None = None  # the released sum

    def ask(
        self, requests: Mapping[str, Request], deadline: float | None = None
    ) -> dict[str, Answer]:
        self.refused, self._deadline = {}, deadline
        [request] = requests.values()
        try:
            return {NAME: self._answer(request)}
        except Void:
            return {NAME: next(iter(self.refused.values()))}

    def _answer(self, request: Request) -> Answer:
        match request:
            case Invite():
                self._facts = self._all(request, Facts)
                if (other := self._facts[0].start.dtype) != self.part.dtype:
                    raise InvalidInput(
                        f"Expected data in {self.part.dtype} for this secure sum, got {other}. "
                        "Nothing was computed."
                    )
                return summed(self._facts, self.colluding)
            case Propose():
                return self._agree(request)
            case Snapshot():
                return self._state(request)
            case Finish():
                if self.kept is None or not self.own:  # else parts have gone when they were summed
                    done = 1 if self.kept else request.round
                    self._all(replace(request, run=self._run, round=done), Agreed)
                return Agreed(request.run)
            case Restore() if request.release is not None:
                return self._restore(request.release, request.check)
            case ReleaseOnce() if self.kept is None:
                self._release()
        assert self._one is not None and self._one.run is not None
        agent = self._one.run.rounds
        match request:
            case Broadcast() if isinstance(agent, Agent):
                known: Any = agent.problem.objective
                asked = Broadcast(self._run, request.round, agent.point)
                total = self._sum(asked, len(known.sum)).astype(agent.point.dtype)
                agent.compute_with(replace(known, sum=total))
            case Measure() if isinstance(agent, Agent):
                found = self._all(Measure(self._run, agent.point), Measured)
                outside = float(self.part.feasible_set.violation(agent.point))
                value = sum(measured.objective for measured in found)
                return Measured(value, outside, sum(measured.noise for measured in found))
            case Restore() if self.own:
                self._all(Restore(self._run, request.round), Agreed)
        return self._one.handle(request)

    def stated(self, privacy: PrivacyStatement, mechanism: Mechanism) -> PrivacyStatement:
        """Both guarantees, about all parties, of a statement about the one that has the sum."""
        about = tuple((change, self.parties) for change, _ in privacy.neighbours)
        parts = [(mechanism, privacy.updates)]
        widest = max(self.part.dimension, self._facts[0].size or 0)
        found = replace(privacy, neighbours=about)
        return of_sum(found, len(self.parties), self.colluding, parts, widest)

    @property
    def released(self) -> Problem:
        """The released problem of the one that has the sum."""
        assert self._one is not None
        return Problem([self._one.problem])

    # --- asking everybody -----------------------------------------------------------------------

    def _all(self, request: Request, kind: type[T]) -> list[T]:
        return self._each([request] * len(self.parties), kind)

    def _each(self, requests: Sequence[Request], kind: type[T]) -> list[T]:
        asked = dict(zip(self.parties, requests, strict=True))
        about = getattr(requests[0], "run", ""), getattr(requests[0], "round", 0)
        answers = self.inner.ask(asked, self._deadline)
        found, self.refused = sorted_answers(answers, self.parties, kind, about)
        if self.refused:
            raise Void
        return found

    def _agree(self, proposal: Propose) -> Answer:
        """Everybody's agreement, and keys for masks; the one that is here agrees to no noise."""
        release, settings, own = proposal.release, proposal.settings, proposal.own
        mechanism, names = release or settings.mechanism, self.parties
        refuse_no_sum(mechanism.name, settings.local_updates, settings.calibration)
        secure = self._secure if own is None else own.noise == "secure"
        updates, delta = (1, proposal.delta) if release else (settings.updates, settings.delta)
        size = (self._facts[0].size or 0) if release else self.part.objective.statistic_size
        Δ = max((f.read_two or math.inf) if release else f.two for f in self._facts)
        masked = self._masked or secure or not self.own
        about = Sum(secrets.randbits(62), names, self.colluding, Δ, masked)
        self._grid = shared_noise(about, mechanism, updates, delta, size, secure)
        self._proposal, self.kept, self._run = proposal, None, proposal.run
        if own is None or not own.resumed:
            if release and own is not None:  # where they keep nothing, each is a run of its own
                self._run += f"-{secrets.token_hex(6)}" if secure else ""
            asked = replace(proposal, run=self._run, summed=about)
            agreed = self._all(asked, Agreed)
            if masked and (own is None or own.then is None):
                self._exchange_keys(about.epoch, [one.told for one in agreed])
        if not release:
            nothing = np.zeros(size, self.part.dtype)
            known = public.KnownSum(nothing, self.part.objective, len(names))
            self._begin(known, replace(settings, mechanism=Noiseless()))
        return Agreed(proposal.run)

    def _exchange_keys(self, epoch: int, agreed: Sequence[Mapping[str, str]]) -> None:
        names = self.parties
        told = {name: one.get(name, "") for name, one in zip(names, agreed, strict=True)}
        sealed = [one.told for one in self._all(Keys(self._run, epoch, told), Agreed)]
        mine = [{p: s[q] for p, s in zip(names, sealed, strict=True) if q in s} for q in names]
        self._each([Keys(self._run, epoch, for_one, True) for for_one in mine], Agreed)

    def _begin(self, objective: Any, settings: Settings) -> None:
        """The one that has the sum, and agrees to what was proposed."""
        self._one = Participant(self.part.with_objective(objective, NAME), NAME, owner=True)
        alone = Own("seeded", root_key(0), True, 1)
        proposal = replace(self._proposal, settings=settings, release=None, own=alone)
        answer = self._one.handle(proposal)
        if isinstance(answer, Failure):
            raise answer.error

    # --- sums -----------------------------------------------------------------------------------

    def _sum(self, request: Broadcast | ReleaseOnce, size: int) -> Vector:
        parts = self._all(request, Masked)
        expected = self._run, getattr(request, "round", 1), (size,), np.dtype(np.int64)
        for name, part in zip(self.parties, parts, strict=True):
            if (part.run, part.round, part.values.shape, part.values.dtype) != expected:
                words = f"Party {name!r} owes a part of the sum as answer; got another."
                self.refused[name] = Refusal(*expected[:2], "invalid", words)
        if self.refused:
            raise Void
        return np.asarray(added_up([part.values for part in parts]) * self._grid.spacing)

    def _release(self) -> None:
        """The sum of all that is released, and the objective that follows from it."""
        values = self._sum(ReleaseOnce(self._run), self._grid.size)
        seal = self._seal(secrets.token_bytes(KEY)) if self.own else b""
        self._publish(Release(values, seal))
        if self.own:
            self._all(Finish(self._run, 1, np.zeros(0)), Agreed)

    def _publish(self, release: Release) -> None:
        mechanism, many = self._proposal.release, len(self.parties)
        assert mechanism is not None
        Δ = summed(self._facts, self.colluding).read_two or 0.0
        statistics = public.of_sum(self.part.objective, many).statistics()
        self.kept = release
        copy = statistics.released_objective(release.values, math.sqrt(mechanism.variance(Δ)), 1)
        self._begin(copy, self._proposal.settings)

    def _restore(self, release: Release, check: bool) -> Answer:
        if check and release.seal != self._seal(release.seal[:KEY]):
            raise InvalidInput(
                "Expected the sum of these data, noise and ledgers; they are others by now. A new "
                "one needs a checkpoint of its own. Nothing was released."
            )
        self._publish(release)
        return Agreed(self._proposal.run)

    def _seal(self, key: bytes) -> bytes:
        """Of the data of all, so that what was released of them is known again."""
        return key + self._state(Snapshot("", np.frombuffer(key, np.uint8))).digest

    def _state(self, request: Snapshot) -> State:
        known = self._one is not None and self._one.run is not None
        states = self._all(replace(request, run=self._run if request.run else ""), State)
        if request.key is not None:
            said = joined_digest([state.digest for state in states], request.key)
            return State(digest=bytes.fromhex(said))
        paid, charged = {s.paid for s in states}, max(s.charged for s in states)
        if len(paid) > 1:
            raise InvalidInput("Expected ledgers of all agents or of none. Nothing was released.")
        if not request.run:
            return State(paid == {True})
        if self._proposal.release is not None and self.kept is None:
            self._release()
        one = self._one.handle(request) if known or self.kept else None  # type: ignore[union-attr]
        arrays = one.arrays if isinstance(one, State) else ()
        return State(paid == {True}, charged, b"", arrays, self.kept)
