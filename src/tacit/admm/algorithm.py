"""Algorithm 1 of the paper, once, in the paper's letters.

    w   consensus (global vector)          λ   dual, one per agent       z   local point
    ρ   penalty                            η   step size                 ξ   noise
    c   = 1/η + ρ on coupled coordinates, 1/η on private ones: the curvature of the local step

Everything here is a pure function of arrays. A single agent, a batch of agents (``vmap``) and an
agent whose set needs a cone solver all run this code. Lines refer to Algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array
from tacit.errors import InvalidInput, SolverFailure
from tacit.objectives.objective import Objective
from tacit.privacy.mechanisms import Mechanism, Noiseless, register_with_jax
from tacit.privacy.secure_noise import GridNoise
from tacit.sets.closed_form import Box, length
from tacit.sets.feasible_set import FeasibleSet, require_64_bits

if TYPE_CHECKING:
    from tacit.admm.problem import LocalProblem
    from tacit.admm.settings import Settings

register_with_jax()  # programs below are compiled for a mechanism of any parameters

Perturbation = Literal["objective", "output", "projected-output"]
Calibration = Literal["certified", "paper", "paper-tight"]


class Rule(NamedTuple):
    """The public structure of a local update; it does not change from round to round."""

    local_updates: int
    perturbation: Perturbation
    calibration: Calibration
    separable: bool  # whether the agent's set is


class Limits(NamedTuple):
    """What a point must satisfy before a gradient is taken there, and before it is released.

    Public. The norms are those for which the sensitivity of f is proven.
    """

    violation: Array
    two: Array
    infinity: Array


class Local(NamedTuple):
    """What one agent brings to every round. Stacked along a first axis for a batch of agents."""

    f: Objective  # private
    W: FeasibleSet | None  # None only where no projection is asked for
    coupled: Array  # 1 on coupled coordinates, 0 on private ones
    Δ: Array  # certified sensitivity of what receives the noise
    mechanism: Mechanism | GridNoise
    key: Array  # of this agent in this run; not used with noise on a grid
    limits: Limits


class Round(NamedTuple):
    """What is public in round t, in the agent's own coordinates (0 on private ones)."""

    t: Array
    w: Array
    λ: Array
    ρ: Array
    η: Array


class Holders(NamedTuple):
    """Who holds each global coordinate: positions in the concatenated local vectors.

    No positions: every agent holds all coordinates in order (global consensus).
    """

    positions: Array | None  # (n, most holders), padded
    present: Array | None  # 1 where a position is real, 0 where it is padding
    count: Array  # (n,) number of holders

    @classmethod
    def of(cls, couplings: Sequence[np.ndarray[Any, Any]], size: int, dtype: Any) -> Holders:
        if all(len(c) == size and (np.asarray(c) == np.arange(size)).all() for c in couplings):
            return cls(None, None, np.full(size, len(couplings), dtype))
        coordinate = np.concatenate([np.asarray(c) for c in couplings])
        position = np.flatnonzero(coordinate >= 0)
        coordinate = coordinate[position]
        order = np.argsort(coordinate, kind="stable")
        coordinate, position = coordinate[order], position[order]
        number = np.bincount(coordinate, minlength=size)
        column = np.arange(len(coordinate)) - np.repeat(np.cumsum(number) - number, number)
        positions = np.zeros((size, max(int(number.max(initial=1)), 1)), dtype=np.int64)
        present = np.zeros(positions.shape, dtype=dtype)
        positions[coordinate, column] = position
        present[coordinate, column] = 1
        return cls(positions, present, number.astype(dtype))


def average_over_holders(values: Array, holders: Holders) -> Array:
    """For each global coordinate the mean of ``values`` over the agents that hold it."""
    if holders.positions is None:
        return values.reshape(-1, len(holders.count)).sum(axis=0) / holders.count
    return (values[holders.positions] * holders.present).sum(axis=1) / holders.count


def server_step(z: Array, λ: Array, ρ: Array, holders: Holders) -> Array:
    """Line 5: w_i ← average over the holders p of coordinate i of z_pi − λ_pi/ρ."""
    return average_over_holders(z - λ / ρ, holders)


def dual_step(λ: Array, ρ: Array, w: Array, z: Array) -> Array:
    """Lines 8 and 23: λ ← λ + ρ(w − z), by the server and by the agent, each on its own."""
    return λ + ρ * (w - z)


def output_noise_shape(c: Array, least: Array, separable: bool, norm: int) -> Array:
    """Factors s such that s·ξ may be added to the output of an update, ξ having Δ of the gradient.

    Guarantee: for neighbouring gradients g, g' the outputs satisfy
    ``‖(z − z')/s‖_norm ≤ ‖g − g'‖_norm`` (norm 1 on a set that is not separable: ≤ Δ_2 ≤ Δ_1),
    so additive noise with shape s and the gradient's sensitivity is certified.
    Proof. A projection in the metric C = diag(c) is non-expansive: ‖dz‖_C ≤ ‖dg‖_{C⁻¹}. On a
    separable set this holds for each coordinate alone, |dz_i| ≤ |dg_i|/c_i, so s = 1/c. Otherwise
    ‖C^{1/2}dz‖_2 ≤ ‖dg‖_2/√``least``, the least of c, so s = 1/√(c·least) in L2; in L1 one more √n.
    With a slack r = Az the metric is C + A'A/η and dg = A'dr, so that ‖C^{1/2}dz‖_2 ≤ √η‖dr‖_2, as
    A(C + A'A/η)⁻¹A' ≤ η: the same with Δ of the residual and least = 1/η.
    """
    if separable:
        return 1.0 / c
    shape = (c * least) ** -0.5
    return shape if norm == 2 else shape * np.sqrt(c.shape[-1])


def draw(z: Array, c: Array, e: Array, now: Round, local: Local, rule: Rule) -> Array:
    """The noise ξ^{t,e} of one update: on the statistic of f (objective) or on the output z.

    Every update (t, e) of an agent has its own key, derived from the agent's.
    """
    f, Δ, mechanism = local.f, local.Δ, local.mechanism
    if isinstance(mechanism, GridNoise):
        return mechanism.values[e]
    norm, sample = mechanism.norm, sample_on_host if isinstance(z, np.ndarray) else _sample
    if rule.perturbation == "objective":
        if rule.calibration != "certified":
            Δ = f.paper_sensitivity(z, norm)
        return sample(local.key, now.t, e, f.statistic_size, Δ, z.dtype, mechanism)
    if rule.calibration != "certified":
        Δ = f.paper_output_sensitivity(z, norm, c.min())
        if rule.calibration == "paper-tight":  # on a box a step moves by no more than Δ/c
            Δ = f.paper_sensitivity(z, norm) / c.min()
        return sample(local.key, now.t, e, z.size, Δ, z.dtype, mechanism)
    least = 1.0 / now.η if f.slack_size else c.min()
    shape = output_noise_shape(c, least, rule.separable, norm).astype(z.dtype)
    return sample(local.key, now.t, e, z.size, Δ, z.dtype, mechanism) * shape


def _sample(
    key: Array, t: Array, e: Array, size: int, Δ: Array, dtype: Any, mechanism: Mechanism
) -> Array:
    return mechanism.sample(jax.random.fold_in(jax.random.fold_in(key, t), e), (size,), Δ, dtype)


_compiled_sample = jax.jit(_sample, static_argnames=("size", "dtype"))


def sample_on_host(
    key: Array, t: Array, e: Array, size: int, Δ: Array, dtype: Any, mechanism: Mechanism
) -> Array:
    """The first entries of a longer draw: agents of many sizes share few compiled samplers."""
    return np.asarray(_compiled_sample(key, t, e, room(size), Δ, dtype, mechanism))[:size]


def room(size: int) -> int:
    """One of a few sizes, for which programs are compiled."""
    return 1 << (size - 1).bit_length() if size <= 256 else -(-size // 256) * 256


def proximal_target(
    z: Array, e: Array, now: Round, local: Local, rule: Rule
) -> tuple[Array, Array, Array, Array]:
    """The point v and weights c for which the local update is Proj_W^c(v); also ξ and Σ_i|ξ_i|.

    Completing the square in eq. (DPADMM-2-Prox), with the noise on the statistic φ of f:
    v = (z/η + ρw + λ − f'(z) − ξ)/c, where f'(z) + ξ is read as lift(φ(z) + ξ). A slack Az of f
    follows the variables with its own proximal term: it is drawn to Az^{t,e} with weight 1/η.
    """
    _, w, λ, ρ, η = now
    c = 1.0 / η + ρ * local.coupled
    ξ = draw(z, c, e, now, local, rule)
    φ = local.f.statistic(z)
    private = local.f.lift(noisy(φ, ξ, local.mechanism) if rule.perturbation == "objective" else φ)
    gradient = private.astype(z.dtype) + local.f.public_gradient(z)
    v = (z / η + local.coupled * (ρ * w + λ) - gradient) / c
    if slacks := local.f.slack_size:
        joined = np.concatenate if isinstance(z, np.ndarray) else jnp.concatenate
        v = joined([v, local.f.slack_of(z)])
        c = joined([c, np.ones(slacks, c.dtype) / (η.min() if np.ndim(η) else η)])
    spacing = local.mechanism.spacing if isinstance(local.mechanism, GridNoise) else 1.0
    return v, c, ξ, (abs(ξ).sum() * spacing).astype(z.dtype)


def noisy(φ: Array, ξ: Array, mechanism: Mechanism | GridNoise) -> Array:
    """φ + ξ in float64. With noise on a grid φ is rounded to it, and whole numbers are added."""
    if not isinstance(mechanism, GridNoise):
        return φ + ξ
    spacing = mechanism.spacing
    steps = (φ / spacing).round().clip(-(2.0**61), 2.0**61)
    known = steps == steps  # NaN is no whole number; it stays what it is
    xp: Any = np if isinstance(φ, np.ndarray) else jnp
    total = xp.where(known, steps, 0.0).astype(np.int64) + ξ
    return xp.where(known, total.astype(np.float64) * spacing, xp.nan)


_compiled_target = jax.jit(proximal_target, static_argnames="rule")


def local_update(z: Array, e: Array, now: Round, local: Local, rule: Rule) -> tuple[Array, Array]:
    """Line 18: one noisy local update z^{t,e} → z^{t,e+1}; also returns Σ_i|ξ_i|.

    Guarantee: (objective) the result is a function of φ(z) + ξ, public quantities and earlier
    results, hence exactly as private as the mechanism on φ; it lies in W. φ is computed only at
    points within the limits for which Δ is proven (``admitted``). (output) The noise is added to
    the result, which may leave W. (projected-output) The noisy result is projected back, which is
    post-processing. No claim covers anything else computed from the data.
    """
    W = local.W
    assert W is not None
    z = admitted(z, local)
    if W.closed_form:
        v, c, ξ, magnitude = proximal_target(z, e, now, local, rule)
    else:  # the projection runs a solver outside of JAX; the rest is NumPy or one compiled call
        target = proximal_target if local.f.on_host else _compiled_target
        v, c, ξ, magnitude = target(z, e, now, local._replace(W=None), rule)
    z = W.project(v, c)
    if rule.perturbation != "objective":
        z = z + ξ
        if rule.perturbation == "projected-output":
            z = W.project(z, c[: z.size])
    return z, magnitude


def admitted(z: Array, local: Local) -> Array:
    """z if it is within the limits; else an error on the host, and NaN in compiled code.

    We do not trust ``project`` here. Since z depends on noisy results only, failing is
    post-processing too. NaN spreads to all later points and to the average, which is then not
    released.
    """
    W, limits = local.W, local.limits
    assert W is not None
    if not W.closed_form:
        norms = np.linalg.norm(z), np.abs(z).max(initial=0)
        if not all(x <= most for x, most in zip((W.violation(z), *norms), limits, strict=True)):
            raise SolverFailure("the local point lies outside of the feasible set.")
        return z
    wide = z.astype(jnp.float64)
    # squares of float32 numbers do not overflow in float64
    two = length(z) if z.dtype == jnp.float64 else jnp.sqrt(jnp.sum(wide * wide))
    sizes = W.violation(z), two, jnp.max(jnp.abs(z))
    inside = jnp.asarray(True)
    for size, most in zip(sizes, limits, strict=True):
        inside = inside & (size <= most)
    return jnp.where(inside, z, jnp.nan)


def local_round(z: Array, now: Round, local: Local, rule: Rule) -> tuple[Array, Array, Array]:
    """Lines 16-20: E local updates. Returns z^{t,E+1}, the average z^{t+1} to release, and Σ|ξ|."""

    def update(carry: tuple[Array, Array, Array], e: Array) -> tuple[tuple[Array, ...], None]:
        z, total, noise = carry
        z, magnitude = local_update(z, e, now, local, rule)
        return (z, total + z, noise + magnitude), None

    assert local.W is not None
    E = rule.local_updates
    if E == 1:
        z, noise = local_update(z, 0, now, local, rule)
        return z, admitted(z, local), noise
    # the average in float64: of many float32 points it would leave the set by their rounding
    start = (z, np.zeros(z.shape), np.zeros((), z.dtype))
    repeat: Callable[..., Any] = jax.lax.scan if local.W.closed_form else _repeat_on_host
    (z, total, noise), _ = repeat(update, start, np.arange(E))
    return z, admitted((total / E).astype(z.dtype), local), noise


def agent_round(
    t: Array,
    w: Array,
    ρ: Array,
    η: Array,
    z: Array,
    λ: Array,
    coupling: Array | None,
    local: Local,
    rule: Rule,
    local_round: Callable[..., tuple[Array, Array, Array]] = local_round,
) -> tuple[Array, Array, Array, Array]:
    """Lines 15-23: an agent's whole round, given w. Returns z^{t,E+1}, z^{t+1}, λ^{t+1} and Σ|ξ|.

    ``coupling`` are the agent's global coordinates; None: it holds all of w in order. Whatever
    stands for private coordinates there is masked.
    """
    w = w if coupling is None else w[coupling] * local.coupled
    point, average, noise = local_round(z, Round(t, w, λ, ρ, η), local, rule)
    return point, average, dual_step(λ, ρ, w, average * local.coupled), noise


def _repeat_on_host(step: Callable[..., Any], carry: Any, inputs: Array) -> tuple[Any, None]:
    """``jax.lax.scan`` without tracing, for sets whose projection runs a solver."""
    for item in inputs:
        carry, _ = step(carry, item)
    return carry, None


# --- what an agent computes with ----------------------------------------------------------------


def certified_sensitivity(problem: LocalProblem, settings: Settings) -> float:
    """Δ of what receives the noise: the statistic (objective) or, shaped later, the gradient.

    Plain output noise leaves the set, and the next gradient is taken there, so Δ must then hold
    at every point; its rounding is bounded up to ``farthest``, beyond which a round fails. For L1
    noise on the output of a set that is not separable, the bound in ``output_noise_shape`` is in
    terms of Δ_2.
    """
    mechanism, feasible_set = settings.mechanism, problem.feasible_set
    if isinstance(mechanism, Noiseless) or settings.calibration != "certified":
        return 0.0
    if settings.perturbation == "objective":
        return problem.objective.sensitivity(mechanism.norm, feasible_set)
    norm = mechanism.norm if feasible_set.separable else 2
    if settings.perturbation == "projected-output":
        return problem.objective.output_sensitivity(norm, feasible_set)
    everywhere = Box(-math.inf, math.inf, size=problem.dimension)
    Δ = problem.objective.output_sensitivity(norm, everywhere)
    if not math.isfinite(Δ):
        raise InvalidInput(
            f"Expected an objective whose gradient changes by a bounded amount at every point for "
            f"perturbation='output'; that of {type(problem.objective).__name__} is bounded only "
            "inside the feasible set. Use 'objective' or 'projected-output'. Nothing was released."
        )
    if problem.objective.everywhere:
        return Δ
    most = farthest(problem)
    return problem.objective.output_sensitivity(norm, Box(-most, most, size=problem.dimension))


def farthest(problem: LocalProblem) -> float:
    """The largest coordinate of a point outside of the set at which an agent computes."""
    return 2.0**10 * (1 + problem.feasible_set.reach(math.inf))


def limits(problem: LocalProblem, settings: Settings, dtype: Any) -> Limits:
    """Where this agent computes and what it releases: see ``admitted``."""
    f, W = problem.objective, problem.feasible_set
    violation, two, infinity = W.tolerance(dtype), math.inf, math.inf
    if settings.perturbation == "output":
        violation = math.inf
        infinity = math.inf if f.everywhere else farthest(problem)
    elif not f.everywhere:
        two, infinity = W.reach(2), W.reach(math.inf)
    return Limits(*map(np.float64, (violation, two, infinity)))


def local_side(problem: LocalProblem, settings: Settings, key: Array, dtype: Any) -> Local:
    """What this agent brings to every round, computing in ``dtype``."""
    require_64_bits()
    exact = certified_sensitivity(problem, settings)
    # never less noise than was certified, also after the scale is rounded
    Δ = dtype.type(exact * (1 + 2 * float(np.finfo(dtype).eps)))
    if exact and dtype == np.float32 and not 1e-30 < float(settings.mechanism.scale(exact)) < 1e30:
        raise InvalidInput(
            "Expected noise of scale between 1e-30 and 1e30 for float32 data, got "
            f"{float(settings.mechanism.scale(exact)):g}: give float64. Nothing was released."
        )
    coupled = problem.coupled.astype(dtype)
    f, W = problem.objective, problem.feasible_set
    return Local(f, W, coupled, Δ, settings.mechanism, key, limits(problem, settings, dtype))
