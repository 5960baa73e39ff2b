"""ADMM with exact local steps, as one map whose fixed points are the optimum.

    s   = w + λ/ρ, one number for every copy of a shared coordinate        ρ   penalty, per coordinate
    z   = argmin over W_p of f_p(z) + ½ Σ_i ρ_i (z_i − s_i)²               the exact local step
    w⁺  = average over the holders of 2z − s                               line 5 of Algorithm 1
    g   = w⁺ − z                                                           how far s is from fixed
    s⁺  = s + g                                                            lines 8 and 23: λ⁺ = ρ(s − z)

That is Algorithm 1 with its local step solved exactly in place of linearised: w⁺ + λ⁺/ρ = s⁺.
At z the vector λ⁺ = ρ(s − z) is a subgradient of f_p over W_p, so that z is optimal if all copies
of a coordinate agree (primal) and their λ⁺ add up to zero (dual). g is the sum of both errors,

    g = (z̄ − z) + (mean of (z − s) over the holders),

which are orthogonal: g = 0 if and only if z is an optimum. Private coordinates need no s: they are
drawn to their last value with a small weight, which is the same map for a coordinate with one
holder (s⁺ = z), so that it leaves the fixed points as they are.

s → s + g is firmly non-expansive in the metric ρ (Douglas and Rachford; Eckstein and Bertsekas,
1992). Instead of s⁺ the server may choose a combination of earlier ones (``acceleration.py``). It
says so in a few public numbers, and every agent *follows* on its own coordinates: no agent needs
another one's s. Server and agent run the same code, one coordinate at a time, in float64, without
sums over coordinates: the same bits on both sides.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from tacit._types import Vector
from tacit.admm.algorithm import Holders, average_over_holders
from tacit.errors import Refused

PRIVATE_WEIGHT = 1e-3  # of the penalty: what draws a private coordinate to its last value


@dataclass(frozen=True)
class Instructions:
    """What the server tells all agents to do with s, in public numbers.

    ``mixing``   θ, one number for each earlier step that counts, latest first; none: s⁺ = s + g
    ``factors``  what to multiply the penalties of each group of coordinates with
    ``forget``   whether earlier steps count no more
    """

    mixing: tuple[float, ...] = ()
    factors: tuple[float, ...] = ()
    forget: bool = False

    def to_vector(self) -> Vector:
        """As numbers, for the wire."""
        return np.array([self.forget, len(self.factors), *self.factors, *self.mixing], np.float64)

    @classmethod
    def from_vector(cls, numbers: Vector) -> Instructions:
        """What ``to_vector`` wrote; anything else is refused."""
        values = np.asarray(numbers, np.float64).tolist()
        try:
            forget, many = values[0], int(values[1])
            factors, mixing = tuple(values[2 : 2 + many]), tuple(values[2 + many :])
            if forget not in (0.0, 1.0) or len(factors) != values[1]:
                raise ValueError
            if not all(math.isfinite(x) for x in mixing) or not all(
                1e-30 < f < 1e30 for f in factors
            ):
                raise ValueError
        except (IndexError, ValueError, OverflowError):
            raise Refused("Expected instructions of a server. Nothing was computed.") from None
        return cls(mixing, factors, bool(forget))


@dataclass(frozen=True)
class Iterate:
    """s and what is remembered of earlier ones, on some coordinates: an agent's, or all copies.

    ``group`` is the group of each coordinate: penalties are adapted group by group. ``steps`` are
    the changes of s + g, and ``residuals`` those of g, from step to step, latest first.
    """

    s: Vector
    penalty: Vector
    group: Vector
    memory: int
    last: tuple[Vector, Vector] | None = None  # s + g and g before the step that led to s
    steps: tuple[Vector, ...] = ()
    residuals: tuple[Vector, ...] = ()

    def remembering(self, w: Vector, z: Vector) -> Iterate:
        """The same s, with the step from the last one to it remembered."""
        g = w - z
        if self.last is None:
            return self
        step, residual = self.s + g - self.last[0], g - self.last[1]
        keep = self.memory - 1
        return dataclasses.replace(
            self,
            steps=(step, *self.steps[:keep]) if self.memory else (),
            residuals=(residual, *self.residuals[:keep]) if self.memory else (),
        )

    def follow(self, w: Vector, z: Vector, instructions: Instructions) -> Iterate:
        """The next iterate, given w⁺ and z on these coordinates.

            s⁺ = s + g − Σ_k θ_k (change of s + g, k steps ago)

        A change of penalties ρ → ρ' leaves λ as it is: s⁺ = w⁺ + (ρ/ρ')(s + g − w⁺). Earlier steps
        are then forgotten.
        """
        now = self.remembering(w, z)
        g = w - z
        plain = now.s + g
        s = plain
        for θ, step in zip(instructions.mixing, now.steps, strict=False):
            s = s - θ * step
        factors = np.asarray(instructions.factors, np.float64)
        if (factors != 1).any():
            factor = factors[now.group]
            s = w + (plain - w) / factor
            return dataclasses.replace(
                now, s=s, penalty=now.penalty * factor, last=None, steps=(), residuals=()
            )
        if instructions.forget:
            return dataclasses.replace(now, s=s, last=None, steps=(), residuals=())
        return dataclasses.replace(now, s=s, last=(plain, g))


def next_consensus(s: Vector, z: Vector, holders: Holders) -> Vector:
    """w⁺: for each global coordinate the mean of 2z − s over the agents that hold it."""
    w: Vector = average_over_holders(2 * z - s, holders)
    return w
