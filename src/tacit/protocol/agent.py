"""How an agent answers a round: pay, compute with noise, store, reply; or an exact step.

    Broadcast(run, round, consensus)  →  Agent.respond  →  Reply(run, round, primal)

An agent with a ledger pays durably before it looks at its data, and keeps a reply durably before it
lets it go. Data that are released once meet a message in ``release.py`` instead; ``ExactRounds``
goes on from what was released.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import numpy as np

from tacit._types import Array, Vector
from tacit.admm.adaptive import (
    RANGE,
    Ground,
    Pace,
    ground_of_agent,
    is_adaptive,
    learned,
    own_steps,
)
from tacit.admm.algorithm import (
    Local,
    Round,
    Rule,
    admitted,
    agent_round,
    local_round,
    local_side,
)
from tacit.admm.fixed_point import MEMORY, Instructions, LocalRounds
from tacit.admm.problem import LocalProblem, start_point
from tacit.admm.settings import Settings, schedule_in
from tacit.errors import InvalidInput, Refused, SolverFailure, TacitError, count
from tacit.objectives.objective import Objective
from tacit.objectives.public import PublicObjective
from tacit.privacy.ledger import Answer, Ledger, Payments, Terms
from tacit.privacy.secure_noise import SecureNoise, secure_noise
from tacit.privacy.seeded_noise import noise_source
from tacit.protocol.messages import Broadcast, Reply, digest_of
from tacit.protocol.statement import why_uncertified
from tacit.sets.feasible_set import require_64_bits

log = logging.getLogger("tacit.agent")
MANY = 4096  # records of a summand that are worth a program of their own
_compiled = jax.jit(local_round, static_argnames="rule")


@contextmanager
def _logged() -> Iterator[None]:
    """Refusals go to the log, once, and say nothing of what came before them."""
    try:
        yield
    except Refused as refusal:
        log.warning("%s", refusal)
        refusal.__context__ = None
        raise


def compiled_round(z: Array, now: Round, local: Local, rule: Rule) -> tuple[Vector, Vector, Vector]:
    """``local_round`` as one program, its results on the host: duals are computed there, alike by
    agent and server."""
    point, average, noise = (np.asarray(x) for x in _compiled(z, now, local, rule))
    return point, average, noise


class Agent:
    """One party of a run, with its data, its dual and its last local point.

    It answers the rounds 1, 2, ..., T of its run in order and refuses anything else before it
    looks at its data. The same request again gets the same reply, from memory (the last round) or
    from the ledger (any round), without new noise.

    Without a ledger an agent remembers nothing beyond its own life. One with seeded noise must not
    be started again with the same key and run: it would answer other requests with the noise it
    has used, and two such replies give the data away. (``solve`` with a checkpoint does not: it
    asks the same again.) Use a ledger, or another run name and so another budget.

    ledger  pay for every round here, first; needs a certified problem. A run that was begun
            continues where the ledger says.
    noise   "seeded" from ``key``, or "secure" (the default with a ledger): exact discrete noise
            from the operating system
    key     of seeded noise (``agent_key``); None for secure noise
    size    number of global coordinates, the length of the consensus
    """

    _public: tuple[Any, ...] = ()  # what terms depend on beside settings and bounds
    _parties: tuple[int, ...] = ()

    def __init__(
        self,
        problem: LocalProblem,
        name: str,
        settings: Settings,
        key: Array,
        run: str,
        size: int,
        *,
        ledger: Ledger | None = None,
        noise: str | None = None,
    ) -> None:
        self.problem, self.name, self.settings, self.run = problem, name, settings, run
        self.ledger = ledger
        self.noise_source = noise_source(noise, paid=ledger is not None)
        self._check_arguments(key, size)
        self._lock = threading.Lock()
        self._size = size
        self._coupling = np.asarray(problem.coupling)
        self._held = np.flatnonzero(self._coupling >= 0)
        local = local_side(problem, settings, key, problem.dtype)
        self._local = local._replace(f=local.f.for_device())
        self._secure = self._secure_noise() if self.noise_source == "secure" else None
        self._rule = settings.rule(problem.feasible_set.separable)
        self._round = compiled_round if problem.feasible_set.closed_form else local_round
        self.point = start_point(problem)
        self.average = self.point
        self.dual = np.zeros_like(self.point)
        self._ground = self._known(settings) if is_adaptive(settings) else None
        self.pace: Vector = np.zeros(0)  # of steps that adapt (``adaptive.Pace``), packed
        if self._ground is not None:
            self.pace = Pace.first(problem.dimension, problem.dimension, settings).packed()
        self.noise_magnitude = 0.0  # Σ|ξ| of the last round; not released
        self.rounds_done = 0
        self._failed = False  # without a ledger, a run ends with a failure
        self._payments: Payments | None = None  # with a ledger
        # request (its digest, or where no ledger needs that, itself) and average of the last round
        self._last: tuple[str | Broadcast, Array] | None = None
        if ledger is not None:
            with _logged():
                self._agree(ledger)

    def respond(self, broadcast: Broadcast) -> Any:
        """Lines 15-23 of Algorithm 1 for one round: a ``Reply``, or a part of a sum (``Summand``).

        Guarantee: a reply that leaves was paid for and kept first (with a ledger); a round is never
        answered twice with different noise; a refusal spends and reveals nothing. A computation
        that fails shows that it did: the round must be paid for again. Several processes on one
        ledger never show more noisy computations than were paid for (proof in ``ledger.py``).
        Without a ledger all of this holds for this object alone: see ``Agent``.
        """
        with self._lock, _logged():
            return self._respond(broadcast)

    def _respond(self, broadcast: Broadcast) -> Any:
        require_64_bits()
        t, w = self._accept(broadcast)
        told = self._told(broadcast)
        asked = Broadcast(self.run, t, w, instructions=told)
        if t <= self.rounds_done:
            return self._again(asked)
        self._check_past(broadcast)
        if self._failed:
            raise Refused(
                f"Agent {self.name!r} failed in round {t}. Without a ledger nobody would pay for "
                "another try, and a seed would repeat the noise. Nothing was computed."
            )
        if self._payments is not None and not self._payments.pay(t):
            return self._late(asked)
        try:
            found = self._computed(t, w, told)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as failure:  # also a solver's panic, which is no Exception
            self._failed = self.ledger is None
            if self._payments is not None and not self._payments.fail(t):
                return self._late(asked)
            if not isinstance(failure, TacitError):
                raise  # of one of ours a coordinator would take it that nothing was paid
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: {failure} Nothing of this round was released."
            ) from failure
        request: str | Broadcast = asked
        if self._payments is not None:
            request = digest = asked.digest
            if not self._payments.store(t, digest, *self._kept(found)):
                return self._late(asked)
        self._last = request, self._taken(found)
        self.rounds_done = t
        return self._said(t, w)

    def _computed(self, t: int, w: Array, told: Vector) -> tuple[Array, ...]:
        """What follows from the data in round t: point, average, dual and the size of the noise;
        with steps that adapt, their state too."""
        held, known = (self.point, self.dual, self._coupling), self._ground
        coupled = np.asarray(self._local.coupled)
        if known is None:
            ρ, η = (x[0] for x in schedule_in(self.point.dtype, self.settings, t, t))
        else:
            pace = Pace.unpacked(self.pace, len(coupled), len(coupled))
            steps = told[0], told[1:][self._coupling]
            reach, ρ, η = own_steps(pace, known, coupled, self.point, steps, t)
        found = agent_round(t, w, ρ, η, *held, self._noisy(), self._rule, self._round)
        if not (np.isfinite(found[1]).all() and np.isfinite(found[2]).all()):
            raise SolverFailure("the local point is not finite, or outside of the set.")
        if known is None:
            return found
        now = Round(t, w[self._coupling], self.dual, ρ, η)
        with np.errstate(over="ignore", invalid="ignore"):  # of coupled ones the server knows
            pace = learned(pace, known, reach, now, coupled, self.point, found[0])
        pace = pace._replace(energy=np.where(coupled > 0, 0.0, pace.energy))
        return *found, pace.packed()

    def _kept(self, found: tuple[Array, ...]) -> tuple[bytes, bytes]:
        """What a ledger keeps: the answer, and the agent's own state."""
        point, average, dual, noise, *pace = found
        kept = *pace, point, dual, np.float64(noise)
        return average.tobytes(), b"".join(np.asarray(x).tobytes() for x in kept)

    def _taken(self, found: tuple[Array, ...]) -> Array:
        self.point, self.average, self.dual, noise, *pace = found
        self.pace = pace[0] if pace else self.pace
        self.noise_magnitude = float(noise)
        return self.average

    def _said(self, t: int, w: Array) -> Any:
        return Reply(self.run, t, self.average[self._held])

    def _check_arguments(self, key: Array, size: int) -> None:
        if self.settings.penalty is None or self.settings.step_size is None:
            raise InvalidInput(
                "Expected settings with a penalty and a step size: all agents must have the same. "
                "Settings.complete(problem) chooses them. Nothing was released."
            )
        if self.noise_source == "seeded" and key is None:
            raise InvalidInput("Expected a key (jax.random.key) for seeded noise, got none.")
        held = 1 + int(np.asarray(self.problem.coupling).max(initial=-1))
        if count("size", size) < held or (self.problem.holds_everything and size != held):
            raise InvalidInput(
                f"Expected size, the number of global coordinates, to be {held} as agent "
                f"{self.name!r} holds them, got {size}. Nothing was released."
            )

    def compute_with(self, objective: Objective) -> None:
        """Another objective from the next round on: of what an agent is told of elsewhere."""
        self._local = self._local._replace(f=objective)

    # --- refusing -------------------------------------------------------------------------

    def _accept(self, broadcast: Broadcast) -> tuple[int, Array]:
        """The round and the consensus of a request that has the right form."""
        name, T = self.name, self.settings.rounds
        if type(broadcast) is not Broadcast:
            raise Refused(f"Agent {name!r} expects a Broadcast, got {type(broadcast).__name__}.")
        if type(broadcast.run) is not str or broadcast.run != self.run:
            raise Refused(f"Agent {name!r} is in run {self.run!r}, not in the one asked for.")
        t = int(broadcast.round) if isinstance(broadcast.round, np.integer) else broadcast.round
        whole = type(t) is int  # nothing that could answer two comparisons differently
        if not whole or not 1 <= t <= min(self.rounds_done + 1, T):
            after = f"round {self.rounds_done + 1} of {T}" if self.rounds_done < T else "no more"
            old = " If the server is right, the ledger is an old copy." if self.ledger else ""
            raise Refused(
                f"Agent {name!r} has answered {self.rounds_done} rounds and expects {after}, got "
                f"{f'round {t}' if whole and abs(t) < 10**9 else 'another'}. Nothing was computed."
                f"{old}"
            )
        try:
            w = np.asarray(broadcast.consensus)
            if w.dtype.kind not in "fiu":
                raise TypeError
            with np.errstate(over="ignore"):
                w = w.astype(self.point.dtype)
        except Exception:  # whatever a message does when it is looked at
            raise Refused(
                f"Agent {name!r} expects a consensus of numbers, got something else. Nothing was "
                "computed."
            ) from None
        if w.shape != (self._size,) or not np.isfinite(w).all():
            raise Refused(
                f"Agent {name!r} expects a finite consensus of shape ({self._size},), got shape "
                f"{w.shape}{', not all finite' if w.shape == (self._size,) else ''}. Nothing was "
                "computed."
            )
        return int(t), w

    def _told(self, broadcast: Broadcast) -> Vector:
        """d and 1/s of all coordinates, where steps adapt: any that are usable numbers will do."""
        if self._ground is None:
            return np.zeros(0)
        try:
            told = np.array(broadcast.instructions)
            usable = told.dtype == np.float64 and told.shape == (self._size + 1,)
            usable = usable and 0 < told[0] <= 1 and bool((told[1:] >= RANGE[0]).all())
            usable = usable and bool((told[1:] <= RANGE[1]).all())
        except Exception:  # whatever a message does when it is looked at
            usable = False
        if not usable:
            raise Refused(
                f"Agent {self.name!r} expects how far steps go, and {self._size} numbers for steps "
                f"from {RANGE[0]:g} to {RANGE[1]:g}, got others. Nothing was computed."
            )
        return told

    def _again(self, asked: Broadcast) -> Any:
        """The reply to a round that was answered, if the request is the same."""
        t, w = asked.round, asked.consensus
        request, average = "", None
        if self.ledger is not None and (answer := self.ledger.answer(self.run, t)) is not None:
            request, average = answer.request, self._read(answer)
        elif self._last is not None and t == self.rounds_done:
            last, average = self._last
            request = last if isinstance(last, str) else last.digest
        known = asked.digest, "" if self._ground is not None else digest_of(self.run, t, w)
        if average is None or request not in known:
            raise Refused(
                f"Agent {self.name!r} has answered round {t} and is at round {self.rounds_done}; "
                "this is another request for it. Nothing was computed."
            )
        self.average = average
        return self._said(t, w)

    def _read(self, answer: Answer) -> Array:
        self.noise_magnitude = float(np.frombuffer(answer.state[-8:])[0])
        return np.frombuffer(answer.reply, self.point.dtype)

    def _check_past(self, broadcast: Broadcast) -> None:
        """Refuse if the server knows a reply that this agent's ledger does not, or too few.

        A ledger restored from an old copy would answer rounds a second time.
        """
        if self.ledger is None:
            return
        last = broadcast.last
        try:
            claimed = last.get(self.name, "") if isinstance(last, Mapping) else None
        except Exception:
            claimed = None
        if type(claimed) is not str or claimed != self.last_digest:
            raise Refused(
                f"Agent {self.name!r}: the server's last reply is not the last in the ledger "
                f"(round {self.rounds_done}). The ledger is an old copy, or the server is "
                "mistaken. Nothing was computed."
            )

    @property
    def last_digest(self) -> str:
        """The digest of the last reply; empty before the first."""
        if self._last is None:
            return ""
        return Reply(self.run, self.rounds_done, self._last[1][self._held]).digest

    # --- paying ---------------------------------------------------------------------------

    def _agree(self, ledger: Ledger) -> None:
        """Write the run's terms into the ledger, or continue a run that is there."""
        problem, settings = self.problem, self.settings
        if reason := self._why_uncertified():
            raise Refused(f"Agent {self.name!r} pays only for what is proven, but {reason}")
        secure = self._secure
        public = [settings.to_dict(), self.name, self._size, float(self._local.Δ), 1]
        public += self._public
        terms = Terms(
            self.name,
            secure.mechanism if secure else settings.mechanism,
            settings.rounds,
            settings.local_updates,
            secure.distance if secure else 0.0,
            self.noise_source,
            problem.objective.relation,
            hashlib.sha256(json.dumps(public, sort_keys=True).encode()).hexdigest(),
            *self._parties,
        )
        ledger.begin(self.run, terms)
        self._payments = Payments(ledger, self.run)
        self._resume()

    def _resume(self) -> None:
        """Go on from the last answer in the ledger."""
        assert self.ledger is not None
        answer = self.ledger.answer(self.run)
        if answer is not None:
            before = self.pace.nbytes
            values = np.frombuffer(answer.state[before:-8], self.point.dtype)
            average = np.frombuffer(answer.reply, self.point.dtype)
            pace = np.frombuffer(answer.state[:before])
            parts = values[: len(average)], average, values[len(average) :], answer.round
            self.restore(*parts, pace)
            self._last = answer.request, average

    def _why_uncertified(self) -> str:
        return why_uncertified([self.problem], self.settings)

    def _late(self, asked: Broadcast) -> Any:
        """Another process of this agent has answered the round: its answer counts."""
        self._resume()
        return self._again(asked)

    def _known(self, settings: Settings) -> Ground | None:
        return ground_of_agent(self.problem, settings)

    def _secure_noise(self) -> SecureNoise:
        settings = self.settings
        if settings.perturbation != "objective" or settings.calibration != "certified":
            raise InvalidInput(
                "Expected perturbation='objective' and calibration='certified' for secure noise, "
                f"got {settings.perturbation!r} and {settings.calibration!r}. Nothing was released."
            )
        size = self.problem.objective.statistic_size
        return secure_noise(
            settings.mechanism, self._local.Δ, size, settings.updates, settings.delta
        )

    def _noisy(self) -> Local:
        """The local side with fresh noise for one round."""
        if self._secure is None:
            return self._local
        return self._local._replace(mechanism=self._secure.draw(self.settings.local_updates))

    def restore(
        self,
        point: Array,
        average: Array,
        dual: Array,
        rounds_done: int,
        pace: Vector | None = None,
    ) -> None:
        """Continue from a checkpoint."""
        pace = self.pace if pace is None else np.asarray(pace)
        if pace.shape != self.pace.shape or not np.isfinite(pace).all():
            raise InvalidInput(f"Expected the state of agent {self.name!r}'s steps, got another.")
        self.pace = pace
        for name, value in (("point", point), ("average", average), ("dual", dual)):
            if np.shape(value) != self.point.shape:
                raise InvalidInput(
                    f"Expected a {name} of shape {self.point.shape}, got {np.shape(value)}."
                )
            setattr(self, name, np.asarray(value, self.point.dtype))
        for name, z in (("point", self.point), ("average", self.average)):
            admissible = admitted(z, self._local)
            if not np.isfinite(np.asarray(admissible)).all() or not np.isfinite(self.dual).all():
                raise InvalidInput(
                    f"Expected a {name} within the feasible set of agent {self.name!r} to "
                    "continue from, got one outside. Nothing was computed."
                )
        self.rounds_done = rounds_done


class ExactRounds:
    """One party of a run on released data: exact steps on a released objective. Nothing here is
    private, and it needs no ledger: its data were paid for when they were released. It answers
    rounds 1, 2, ... in order, each once.

    penalties  where they start, and their groups, on all global coordinates; public
    start      the point z and the dual λ (on coupled coordinates) to start from
    tolerance  at which private coordinates are at rest, which replies then say
    """

    def __init__(
        self,
        problem: LocalProblem,
        name: str,
        run: str,
        penalties: tuple[Vector, Vector],
        start: tuple[Vector, Vector] | None = None,
        tolerance: float | None = None,
    ) -> None:
        if not isinstance(problem.objective, PublicObjective):
            raise InvalidInput(
                f"Expected a released objective for agent {name!r}, got "
                f"{type(problem.objective).__name__}. Nothing was computed."
            )
        self.problem, self.name, self.run, self._tolerance = problem, name, run, tolerance
        coupling = np.asarray(problem.coupling)
        held = np.flatnonzero(coupling >= 0)
        penalty, group = penalties
        self._mine, self._size = coupling[held], len(penalty)
        point, dual = start or (np.asarray(start_point(problem), np.float64), 0.0)
        self._rounds = LocalRounds(
            problem.objective.prox(problem.feasible_set),
            held,
            point,
            penalty[self._mine],
            group[self._mine],
            MEMORY,
            problem.objective.mean_curvature,
            dual=dual,
        )
        self._last: tuple[Broadcast, Reply] | None = None
        self.rounds_done = 0

    @property
    def point(self) -> Vector:
        """z, private coordinates included."""
        return self._rounds.z

    def respond(self, broadcast: Broadcast) -> Reply:
        """The exact local step of one round; the last round again gets the same reply."""
        t, w = self._accept(broadcast)
        if self._last is not None and t == self.rounds_done:
            if broadcast.digest != self._last[0].digest:
                raise Refused(f"Agent {self.name!r} has answered round {t} of another consensus.")
            return self._last[1]
        try:
            told = Instructions() if t == 1 else Instructions.from_vector(broadcast.instructions)
            rounds = self._rounds.answer(w[self._mine], told)
        except InvalidInput as error:
            raise Refused(
                f"Agent {self.name!r}, round {t}: {error} Nothing was computed."
            ) from None
        except SolverFailure as error:
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: {error} Nothing more was released. The release "
                "can be solved again, at no cost, from another --penalty (Settings(penalty=...))."
            ) from None
        point = np.asarray(rounds.z, np.float64)
        violation = float(self.problem.feasible_set.violation(point))
        if not violation <= self.problem.feasible_set.tolerance(np.float64):
            raise SolverFailure(
                f"Agent {self.name!r}, round {t}: the local point lies outside of the feasible set "
                f"by {violation:.2g}."
            )
        at_rest = self._tolerance is not None and rounds.settled(self._tolerance)
        reply = Reply(self.run, t, point[rounds.held], at_rest)
        self._rounds, self.rounds_done = rounds, t
        self._last = broadcast, reply
        return reply

    def _accept(self, broadcast: Broadcast) -> tuple[int, Vector]:
        """The round and the consensus of a request that makes sense."""
        if type(broadcast) is not Broadcast or broadcast.run != self.run:
            raise Refused(f"Expected a broadcast of run {self.run!r}. Nothing was computed.")
        t, w = broadcast.round, np.asarray(broadcast.consensus)
        if type(t) is not int or t not in (max(1, self.rounds_done), self.rounds_done + 1):
            raise Refused(
                f"Expected round {self.rounds_done + 1} of run {self.run!r} for agent "
                f"{self.name!r}, got {t!r}. Nothing was computed."
            )
        if w.dtype != np.float64 or w.shape != (self._size,) or not np.isfinite(w).all():
            raise Refused(
                f"Expected {self._size} finite float64 numbers as consensus, got {w.dtype} of "
                f"shape {w.shape}. Nothing was computed."
            )
        told = np.asarray(broadcast.instructions)
        if told.dtype.kind != "f" or told.ndim != 1:
            raise Refused(
                f"Expected a vector of numbers as instructions, got {told.dtype} of shape "
                f"{told.shape}. Nothing was computed."
            )
        return t, w
