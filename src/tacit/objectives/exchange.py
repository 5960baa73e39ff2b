"""A household's part of an exchange problem, as what it would draw at a public price.

    min (1/N) Σ_i f_i(x_i) + G((1/N) Σ_i x_i),   x_i ∈ X_i      private f_i and X_i, public G

The dual problem has one vector in common, the price z, and is one of Tacit's problems:

    min over z of (1/N) Σ_i φ_i(z) + G*(z),   φ_i(z) = −min over x in X_i of f_i(x) + z'x

The gradient of φ_i is −x_i(z), what the household would draw at this price. So nobody need say what
it draws: a secure sum tells the mean draw with noise, and the price follows from it. Who knows the
price draws x_i(z) in the end, and nobody else learns that plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, count, positive
from tacit.objectives.objective import Records
from tacit.objectives.rounding import DOUBLE, gamma, rounded_up
from tacit.pytree import pytree, static, store
from tacit.sets.closed_form import bounds
from tacit.sets.feasible_set import require_64_bits

if TYPE_CHECKING:
    from tacit.sets.feasible_set import FeasibleSet

HOUSEHOLD = "replacing all data of one household, or taking it out of the sums,"


@pytree
class Exchange(Records):
    """f(z) = −min_x (cost(x) + z'x)/N + G*(z)/N of one household, for a public price z.

    draw       x_i(z) = draw(z, data), the household's answer to a price, in JAX
    data       all that is private: numbers, or any tree of arrays, such as a ``Hyperplane``
    conjugate  G*, a public convex function of the price, in JAX
    cost       f_i(x) = cost(x, data); only ``value`` needs it. By default 0
    size       of x and z, such as the hours of a day
    smoothness L of φ_i + G*: 1/μ + that of G*, where f_i curves by μ or more. Your public claim
    clip       the longest draw in the L2 norm: public. A longer one is scaled down
    lower, upper   public bounds of every entry, with 0 between them; a draw beyond them is cut
    normaliser N, the number of households, one an agent; the same for all

    A draw that leaps with the price cannot be steered, so f_i needs some curvature μ, as in
    f_i(x) = μ‖x − d‖²/2, for which x_i(z) is the projection of d − z/μ onto X_i. That f_i and X_i
    are convex, and ``draw`` minimal, is the user's claim; privacy does not rest on it. Draw at the
    mean price of the rounds, ``Result.ergodic``: noise averages out in it.

    Guarantee: neighbours have any other data of one household, all of it, or do without it (x = 0).
    Whatever ``draw`` and ``data`` are, what is added up is −x/N with x in
    B = {lower ≤ x ≤ upper, ‖x‖₂ ≤ clip}, as computed, and 0 is in B. So it moves by at most
    Δ₂ = D/N, D the diameter of B or more, and Δ₁ ≤ √n·Δ₂, at every z to which a server can drive a
    household, in every round, whatever was said before: a draw is a function of z and of the data
    alone, and T rounds are T adaptive uses of one mechanism.
    Proof of B. Cutting to lower and upper is exact. Scaling by a rounded factor s in [0, 1] keeps
    every entry between 0 and where it was, so within the bounds, which have 0 between them. The
    computed norm has a relative error of at most (n + 2)u, the factor and the products one of 3u;
    the limit is less than clip by (n + 8)2u. What is measured is what is scaled (``_draw``). A draw
    with NaN, or too long for float64, counts as 0.
    Proof of D. ‖x − y‖ ≤ 2·clip; ‖x − y‖ ≤ ‖upper − lower‖; and over the entries with one sign, S,
    x_i y_i ≥ 0, so that ‖x − y‖² ≤ Σ_S (x_i² + y_i²) + Σ_{not S} 2(x_i² + y_i²), which is at most
    2clip² where all have one sign. Dividing by N rounds each of the two by at most u·clip/N. ∎
    """

    draw: Callable[[Array, Any], Array] = static()
    data: Any = field(repr=False)
    conjugate: Callable[[Array], Array] = static()
    _: KW_ONLY
    cost: Callable[[Array, Any], Array] | None = static(default=None)
    size: int = static()
    smoothness: float = math.inf
    clip: float
    lower: Any = static(default=-math.inf)
    upper: Any = static(default=math.inf)
    neighbours: Any = static(default="replace")
    everywhere: ClassVar[bool] = True
    clipped: ClassVar[bool] = True
    axis: ClassVar[int] = 0

    def __post_init__(self) -> None:
        require_64_bits()
        n = count("size", self.size)
        if self.neighbours != "replace":
            raise InvalidInput(
                f"Expected neighbours='replace', of all that one household has, got "
                f"{self.neighbours!r}: one relation covers replacing it and taking it out."
            )
        try:
            data = jax.tree.map(lambda leaf: _as_float(leaf)[None], self.data)
        except TypeError:
            raise InvalidInput("Expected data to be a tree of arrays of numbers.") from None
        lower, upper = bounds(self.lower, self.upper, n)
        if (lower > 0).any() or (upper < 0).any():
            raise InvalidInput(
                f"Expected lower <= 0 <= upper, as a household may draw nothing, got "
                f"lower={self.lower} and upper={self.upper}."
            )
        self._accept(1)
        steep = positive("smoothness", self.smoothness) / self.normaliser
        store(self, data=data, clip=positive("clip", self.clip), smoothness=steep)
        store(self, lower=tuple(lower.tolist()), upper=tuple(upper.tolist()))
        store(self, neighbours=HOUSEHOLD)
        self._check(n)

    def _check(self, n: int) -> None:
        """What is given must turn a price, and a draw, into a draw and a number."""
        z = jnp.zeros(n)
        shapes = {"draw": (n,), "conjugate": ()} | ({"cost": ()} if self.cost else {})
        for name, shape in shapes.items():
            given = (z,) if name == "conjugate" else (z, self._own)
            try:
                found = jax.eval_shape(getattr(self, name), *given).shape
            except Exception as error:
                line = str(error).split("\n")[0]
                raise InvalidInput(f"Expected {name} to accept {n} numbers: {line}") from error
            if found != shape:
                raise InvalidInput(f"Expected shape {shape} from {name}, got {found}.")

    @property
    def _own(self) -> Any:
        return jax.tree.map(lambda leaf: leaf[0], self.data)

    @property
    def dimension(self) -> int:
        return self.size

    def plan(self, price: Array) -> Vector:
        """What the household draws at a price, such as the last one. Private: it stays there."""
        drawn: Vector = np.asarray(_drawn(self, np.asarray(price, np.float64)))
        return drawn

    def _draw(self, z: Array) -> Array:
        """x in B. What ``draw`` said is in memory, between two steps of a loop, before it is
        measured: else a compiler may compute it twice, and measure another rounding of it."""

        def step(k: Array, said: Array) -> Array:
            own = lambda: jnp.asarray(self.draw(z, self._own), jnp.float64)  # noqa: E731
            found: Array = jax.lax.cond(k == 0, own, lambda: self._within(said))
            return found

        x: Array = jax.lax.fori_loop(0, 2, step, jnp.zeros(self.size))
        return x

    def _within(self, x: Array) -> Array:
        x = jnp.clip(x, np.array(self.lower), np.array(self.upper))
        limit = self.clip * (1 - (self.size + 8) * float(np.finfo(np.float64).eps))
        norm = jnp.linalg.norm(x)
        x = x * jnp.where(norm > limit, limit / norm, 1)
        return jnp.where(jnp.isfinite(norm) & self.present[0], x, 0)

    def value(self, z: Array) -> Array:
        x = self._draw(jax.lax.stop_gradient(z))  # so that its gradient is that of the minimum
        cost = 0.0 if self.cost is None else self.cost(x, self._own)
        return (self.conjugate(z) - cost - z @ x) / self.normaliser

    def statistic(self, z: Array) -> Array:
        return -self._draw(z) / self.normaliser

    def public_gradient(self, z: Array) -> Array:
        return jax.grad(self.conjugate)(z) / self.normaliser

    @property
    def widest(self) -> float:
        """D: no two draws of a household are further apart."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        one_sign = bool(((lower == 0) | (upper == 0)).all())
        ball = float(self.clip) * (math.sqrt(2) if one_sign else 2.0)
        return rounded_up(min(ball, float(np.linalg.norm(upper - lower))))

    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        rounding = 2 * gamma(2, DOUBLE) * min(float(self.clip), self.widest)
        worst = rounded_up((self.widest + rounding) / self.normaliser)
        return worst if norm == 2 else rounded_up(math.sqrt(self.size) * worst)

    strong_convexity = 0.0

    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        return math.inf  # of G* none is known


_drawn = jax.jit(Exchange._draw)


def _as_float(leaf: Any) -> Array:
    found = jnp.asarray(leaf)
    return found.astype(jnp.float64) if found.dtype.kind == "f" else found
