"""The projection onto a simplex as it once was: exact for ordinary points, pushed out by huge ones.

With coordinates of about 1e55 the sum over breakpoints cancels, and the answer may lie a million
times farther out than the set reaches. Kept to see that the audit notices.
"""

import jax
import jax.numpy as jnp


@jax.jit
def onto_cut(v, c, a, b, lower, upper):
    """argmin Σ c_i (z_i − v_i)²/2 over {a'z = b, lower ≤ z ≤ upper}, by a finite algorithm.

    z(μ) = clip(v − μ a/c, lower, upper) for the multiplier μ with a'z(μ) = b. As μ grows, z_i
    leaves one bound at ``start``, reaches the other at ``end``, and a'z falls along straight
    pieces between these breakpoints. A binary search over the sorted breakpoints finds the piece
    that meets b, on which μ solves a linear equation.
    """
    dtype = v.dtype  # sums over far points need all digits, also where the data are float32
    v, c, a, b, lower, upper = (jnp.asarray(x, jnp.float64) for x in (v, c, a, b, lower, upper))
    moving = a != 0
    slope = jnp.where(moving, a, 1)
    first, last = jnp.where(a > 0, upper, lower), jnp.where(a > 0, lower, upper)
    start = jnp.where(moving, c * (v - first) / slope, -jnp.inf)
    end = jnp.where(moving, c * (v - last) / slope, -jnp.inf)
    breakpoints = jnp.sort(jnp.concatenate([start, end]))

    def still_above(k):
        μ = breakpoints[k]
        z = jnp.clip(v - jnp.where(jnp.isfinite(μ), μ, 0) * a / c, lower, upper)
        return (μ == -jnp.inf) | ((μ < jnp.inf) & (jnp.sum(a * z) > b))

    def halve(_, bracket):
        low, high = bracket
        middle = (low + high) // 2
        right = (low < high) & still_above(middle)
        return jnp.where(right, middle + 1, low), jnp.where(right, high, middle)

    count = breakpoints.size
    whole = (jnp.asarray(0), jnp.asarray(count))
    piece, _ = jax.lax.fori_loop(0, count.bit_length(), halve, whole)
    edges = jnp.concatenate([jnp.array([-jnp.inf]), breakpoints, jnp.array([jnp.inf])])
    left, right = edges[piece], edges[piece + 1]

    free = moving & (start <= left) & (right <= end)
    fixed = jnp.where(moving, jnp.where(start >= right, first, last), jnp.clip(v, lower, upper))
    fall = jnp.sum(jnp.where(free, a * a / c, 0))
    excess = jnp.sum(jnp.where(free, a * v, jnp.where(moving, a * fixed, 0))) - b
    corner = jnp.where(jnp.isfinite(right), right, left)
    μ = jnp.clip(jnp.where(fall > 0, excess / jnp.where(fall > 0, fall, 1), corner), left, right)
    z = jnp.where(free, jnp.clip(v - μ * a / c, lower, upper), fixed)
    for _ in range(2):  # v − μ a/c loses digits when v is far away: remove what is left of a'z − b
        rest = (jnp.sum(jnp.where(moving, a * z, 0)) - b) / jnp.where(fall > 0, fall, 1)
        z = jnp.where(free, jnp.clip(z - rest * a / c, lower, upper), z)
    return jnp.where(jnp.isnan(v), v, z).astype(dtype)


def onto_simplex(v, c, total):
    """The weighted projection onto {z ≥ 0, Σ z = total}."""
    ones = jnp.ones_like(v)
    return onto_cut(v, c, ones, total, 0 * ones, jnp.inf * ones)
