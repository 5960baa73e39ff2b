"""A hostile server against one agent: where can it drive it, and what does a record do there?

The server sends consensus vectors of its choice to a real ``Agent`` with a ledger and secure noise,
and so moves the points z at which gradients are taken: to corners of the set, by absurd numbers,
by numbers that differ in the last bits, and where steps adapt by steps of any size. At every point
that the agent reaches, the search computes

    ratio        ‖φ(z; D) − φ(z; D')‖ / Δ     for neighbouring data D and D', as computed
    violation    of the set, in units of what rounding may leave (``FeasibleSet.tolerance``)

No ratio may exceed 1: Δ is the sensitivity that the noise was scaled by. Where a bound is called
attained, the search should come near it.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from tacit import sets
from tacit._types import Vector
from tacit.admm.adaptive import RANGE, is_adaptive
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import AdaptiveStep, Settings
from tacit.errors import SolverFailure
from tacit.objectives import losses
from tacit.objectives.objective import RELATIONS, Objective
from tacit.objectives.per_sample import PerSample
from tacit.objectives.residual import Residual
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian, Laplace
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast
from tacit.sets.feasible_set import FeasibleSet

Pair = tuple[Objective, Objective]
FEATURES, CLASSES = 4, 3
CROWD = 700  # records besides the one that differs: more than a block of sums
LENGTH, TARGET = 2.0, 3.0  # the largest row and target
LIMIT = 0.15  # of slopes
ROUNDS = 12  # of one plan
PENALTY, STEP = 4.0, 0.5
BALANCED = np.array([1.0, -1.0, 1.0, -1.0]) / 2

SETS: dict[str, Callable[[int], FeasibleSet]] = {
    "box": lambda n: sets.Box(-0.5, 0.5, n),
    "ball": lambda n: sets.Ball(0.0, 1.0, n),
    "l1-ball": lambda n: sets.L1Ball(1.5, n),
    "simplex": lambda n: sets.Simplex(n, 2.0),
    "half-space": lambda n: sets.HalfSpace(np.arange(1.0, n + 1), 1.0, -0.5, 2.0),
    "hyperplane": lambda n: sets.Hyperplane(np.arange(1.0, n + 1), 1.0, -0.5, 2.0),
    "product": lambda n: sets.Product([sets.L1Ball(1.0, 2), sets.Ball(np.ones(n - 2), 0.3)]),
}
RECORDS: dict[str, Callable[..., Objective]] = {
    "least-squares": lambda x, y, **o: losses.LeastSquares(x, y, target_bound=TARGET, **o),
    "huber": lambda x, y, **o: losses.Huber(x, y, target_bound=TARGET, threshold=0.8, **o),
    "quantile": lambda x, y, **o: losses.Quantile(x, y, level=0.7, **o),
    "logistic": lambda x, y, **o: losses.LogisticRegression(x, y > 0, **o),
    "hinge": lambda x, y, **o: losses.Hinge(x, y > 0, **o),
    "softmax": lambda x, y, **o: losses.SoftmaxRegression(x, np.where(y < 0, 0, 1), CLASSES, **o),
    "limited-softmax": lambda x, y, **o: losses.SoftmaxRegression(
        x, np.where(y < 0, 0, 1), CLASSES, clip=LIMIT, **o
    ),
    "clipped-softmax": lambda x, y, **o: losses.SoftmaxRegression(
        x, np.where(y < 0, 0, 1), CLASSES, clip=LIMIT, clip_form="norm", **o
    ),
}
OBJECTIVES = (*RECORDS, "move", "per-sample", "in-units", "residual")


def _slope(z: Any, record: Any) -> Any:
    x, y = record
    return jax.nn.softplus(-y * (x @ z)) * 10


@dataclass(frozen=True)
class Found:
    """The worst that the search reached."""

    objective: str
    set: str
    dtype: str
    relation: str
    ratio: float  # of the change to Δ
    violation: float  # in units of the tolerance
    points: int
    failures: int  # rounds that ended without a release

    @property
    def sound(self) -> bool:
        return self.ratio <= 1 and self.violation <= 1


def neighbours(objective: str, dtype: Any, relation: str, rng: Any, crowd: int = CROWD) -> Pair:
    """Two neighbouring data sets: a record as long as allowed comes first, so that all others
    shift where it is taken out."""
    x = rng.normal(size=(crowd + 1, FEATURES)) * 10.0 ** rng.uniform(-2, 1, (crowd + 1, 1))
    y = rng.normal(size=crowd + 1) * TARGET
    # with signs that make slopes large at points that ``plans`` name
    x[0], y[0] = LENGTH / math.sqrt(FEATURES), TARGET if objective == "quantile" else -TARGET
    x[1 : crowd // 2] = x[1]  # many records on one side of a kink at once
    x, y = x.astype(dtype), y.astype(dtype)
    options: dict[str, Any] = {"normaliser": 60_000.0, "neighbours": relation}
    if relation == "add-remove":
        options["record_bound"] = crowd + 1.0
    if objective == "residual":
        A = rng.normal(size=(6, FEATURES))
        d = rng.normal(size=6) * 1e3
        return Residual(A, d, 0.01), Residual(A, d + 0.01 * (np.arange(6) == 2), 0.01)
    if objective == "move":
        options["neighbours"] = ("move", 1e-3)
        y[0] = 1.0
        bounds = {"feature_norm": LENGTH, "target_bound": TARGET}
        moved = np.where(np.arange(crowd + 1) == 0, y - 1e-3, y)
        first, second = (losses.LeastSquares(x, t, **bounds, **options) for t in (y, moved))
        return first, second
    other_x, other_y = x[1:], y[1:]
    if relation == "zero-out":
        other_x, other_y = np.r_[0 * x[:1], x[1:]], y
    elif relation == "replace" and objective == "least-squares":  # as in its proof, for ‖z‖ ≤ 1
        q = 2 * LENGTH / (TARGET + math.hypot(TARGET, math.sqrt(8) * LENGTH))
        tilted = x[0] * math.sqrt(1 - q * q) + np.outer([1, -1], q * LENGTH * BALANCED)
        x[0], other_x = tilted[0], np.r_[tilted[1:], x[1:]].astype(dtype)
        other_y = np.r_[-y[:1], y[1:]]
    elif relation == "replace":
        other_x, other_y = np.r_[-x[:1], x[1:]], y
    if objective in ("per-sample", "in-units"):
        units = None if objective == "per-sample" else 10.0 ** np.arange(-2, FEATURES - 2)
        clipped: Any = {"clip": 0.3, "size": FEATURES, "units": units, **options}
        return PerSample(_slope, (x, y), **clipped), PerSample(
            _slope, (other_x, other_y), **clipped
        )
    bounds = {"feature_norm": LENGTH, "ridge": 10.0}
    build = RECORDS[objective]
    return build(x, y, **bounds, **options), build(other_x, other_y, **bounds, **options)


def plans(n: int, dtype: Any, size: float, rng: Any) -> Iterator[list[Vector]]:
    """Where the server wants the agent, round by round, before the duals are made up for."""
    ones = np.ones(n)
    patterns = [
        ones,
        -ones,
        np.resize(BALANCED, n),
        *(s * np.eye(n)[i] for i in (0, n - 1) for s in (1, -1)),
    ]
    if n == FEATURES * CLASSES:  # one class low and one or all others high, and the reverse
        for low in (0, 1):
            every = np.where(np.arange(CLASSES) == low, -1.0, 1.0)
            one = np.where(np.arange(CLASSES) == low, -1.0, np.arange(CLASSES) == 2)
            patterns += [np.tile(every, FEATURES), np.tile(one, FEATURES), -np.tile(one, FEATURES)]
    yield [1e3 * size * p for p in patterns][:ROUNDS]
    yield [size * rng.normal(size=n) for _ in range(ROUNDS)]
    top = math.log10(float(np.finfo(dtype).max)) - 4
    absurd = [10.0 ** rng.uniform(-top, top) for _ in range(ROUNDS)]
    yield [a * rng.choice([-1.0, 0.0, 1.0], n) for a in absurd]
    yield [a * (1 + rng.integers(-2, 3, n) * float(np.finfo(dtype).eps)) for a in absurd]
    yield [10.0 ** rng.uniform(-top, top, n) * rng.choice([-1.0, 1.0], n) for _ in range(ROUNDS)]


def every_hunt() -> Iterator[tuple[str, str, Any, str]]:
    """All objectives on all sets, in both formats, for all relations that they have."""
    for objective in OBJECTIVES:
        for kind in SETS:
            for dtype in (np.float64, np.float32):
                if objective in ("move", "residual"):
                    if dtype == np.float64:
                        yield objective, kind, dtype, "zero-out"
                    continue
                yield from ((objective, kind, dtype, relation) for relation in RELATIONS)


def search(
    objective: str,
    set_name: str,
    dtype: Any = np.float64,
    relation: str = "zero-out",
    *,
    seed: int = 0,
    crowd: int = CROWD,
    mechanism: type[Gaussian] | type[Laplace] = Gaussian,
    adaptive: bool = False,
) -> Found:
    """Drive an agent along all plans; the worst ratio and violation at the points it reached."""
    rng = np.random.default_rng([seed, len(objective), len(set_name)])
    f, g = neighbours(objective, dtype, relation, rng, crowd)
    W = SETS[set_name](f.dimension)
    problem = LocalProblem(f, W, name="target")
    norm = mechanism.norm
    Δ = f.sensitivity(norm, W)
    step: Any = AdaptiveStep(1.0) if adaptive else STEP
    settings = Settings(ROUNDS, 1, mechanism(2.0), penalty=PENALTY, step_size=step)
    change = jax.jit(lambda f, g, z: f.statistic(z) - g.statistic(z))
    worst = Found(objective, set_name, np.dtype(dtype).name, relation, 0.0, 0.0, 0, 0)
    with tempfile.TemporaryDirectory() as folder:
        every = plans(f.dimension, problem.dtype, W.radius(2), rng)
        for i, plan in enumerate(every):
            ledger = Ledger.create(Path(folder) / f"{i}.db", 1e3, 1e-6)
            agent = Agent(problem, "target", settings, None, "hunt", f.dimension, ledger=ledger)
            reached, failures = _driven(agent, plan, rng)
            ledger.close()
            for z in reached:
                with np.errstate(over="ignore"):
                    changed = float(np.linalg.norm(np.asarray(change(f, g, z)), norm))
                broken = float(W.violation(z)) / W.tolerance(problem.dtype)
                worst = replace(
                    worst,
                    ratio=max(worst.ratio, changed / Δ),
                    violation=max(worst.violation, broken),
                )
            worst = replace(
                worst, points=worst.points + len(reached), failures=worst.failures + failures
            )
    return worst


def _driven(agent: Agent, plan: Sequence[Vector], rng: Any) -> tuple[list[Vector], int]:
    """The points at which the agent takes gradients when the server follows the plan.

    The server knows the duals, and takes them out of what it sends while that is finite. Steps that
    adapt it makes up too: those of every other round as large or small as agents take them.
    """
    points, last, told, penalty = [agent.point], "", np.zeros(0), np.float64(PENALTY)
    for t, aim in enumerate(plan, start=1):
        if is_adaptive(agent.settings):
            c = np.full(len(aim), 2 * PENALTY)
            if t % 2:
                c = np.array(RANGE)[rng.integers(0, 2, len(aim))] if t % 4 == 1 else c * 0 + 1e-8
            told, penalty = np.append(rng.uniform(1e-6, 1), c), c / 2  # type: ignore[assignment]
        with np.errstate(over="ignore"):
            w = (aim - agent.dual / penalty).astype(agent.point.dtype)
        w = np.where(np.isfinite(w), w, 0)
        try:
            agent.respond(Broadcast("hunt", t, w, {"target": last}, told))
        except SolverFailure:
            return points, 1
        last = agent.last_digest
        points.append(agent.point)
    return points, 0
