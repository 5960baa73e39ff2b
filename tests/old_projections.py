"""The projection onto a simplex as it once was: exact for ordinary points, pushed out by huge ones.

With coordinates of about 1e55 the sum over breakpoints cancels, and the answer may lie a million
times farther out than the set reaches. Kept to see that the audit notices.
"""

import jax
import jax.numpy as jnp


def onto_simplex(v, c, total):
    """argmin Σ c_i (z_i − v_i)²/2 over {z ≥ 0, Σ z = total} by the piece of μ that meets it."""
    v, c, total = (jnp.asarray(x, jnp.float64) for x in (v, c, total))
    ends = c * v
    breakpoints = jnp.sort(jnp.concatenate([jnp.full(v.shape, -jnp.inf), ends]))

    def still_above(k):
        μ = breakpoints[k]
        z = jnp.maximum(v - jnp.where(jnp.isfinite(μ), μ, 0) / c, 0)
        return (μ == -jnp.inf) | (jnp.sum(z) > total)

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
    free = right <= ends
    fall = jnp.sum(jnp.where(free, 1 / c, 0))
    excess = jnp.sum(jnp.where(free, v, 0)) - total
    corner = jnp.where(jnp.isfinite(right), right, left)
    μ = jnp.clip(jnp.where(fall > 0, excess / jnp.where(fall > 0, fall, 1), corner), left, right)
    z = jnp.where(free, jnp.maximum(v - μ / c, 0), 0)
    for _ in range(2):
        rest = (jnp.sum(z) - total) / jnp.where(fall > 0, fall, 1)
        z = jnp.where(free, jnp.maximum(z - rest / c, 0), z)
    return z
