"""Products of sets: each block of variables in a set of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from tacit.errors import InvalidInput
from tacit.pytree import pytree, store
from tacit.sets.feasible_set import FeasibleSet, norm_of, point_and_weight, point_of


@pytree
class Product(FeasibleSet):
    """Cartesian product W_1 × W_2 × ...: blocks of variables in order, each in its own set.

    Its sizes are exact where those of all parts are.
    """

    sets: tuple[FeasibleSet, ...]

    def __init__(self, sets: Sequence[FeasibleSet]) -> None:
        if not sets or not all(isinstance(part, FeasibleSet) for part in sets):
            raise InvalidInput(f"Expected one or more feasible sets, got {sets!r}.")
        store(self, sets=tuple(sets))

    @property
    def closed_form(self) -> bool:
        return all(part.closed_form for part in self.sets)

    @property
    def separable(self) -> bool:
        return all(part.separable for part in self.sets)

    @property
    def dimension(self) -> int:
        return sum(part.dimension for part in self.sets)

    def project(self, point: ArrayLike, weight: ArrayLike | None = None) -> Any:
        v, c = point_and_weight(point, weight, self.dimension)
        weights = self._blocks(jnp.broadcast_to(c, v.shape))
        parts = zip(self.sets, self._blocks(v), weights, strict=True)
        blocks = [part.project(block, c) for part, block, c in parts]
        return (jnp if self.closed_form else np).concatenate(blocks)

    def violation(self, point: ArrayLike) -> Any:
        blocks = self._blocks(point_of(point, self.dimension))
        broken = [part.violation(z) for part, z in zip(self.sets, blocks, strict=True)]
        return jnp.max(jnp.stack(broken)) if self.closed_form else float(np.max(broken))

    def in_format(self, dtype: Any) -> Product:
        return Product([part.in_format(dtype) for part in self.sets])

    def _blocks(self, vector: Array) -> list[Array]:
        ends = np.cumsum([part.dimension for part in self.sets])
        return jnp.split(vector, ends[:-1])

    @property
    def diameter(self) -> float:
        return norm_of([part.diameter for part in self.sets], 2)

    def radius(self, norm: float) -> float:
        return norm_of([part.radius(norm) for part in self.sets], norm)

    @property
    def magnitude(self) -> float:
        return max(part.magnitude for part in self.sets)

    def tolerance(self, dtype: Any) -> float:
        return max(part.tolerance(dtype) for part in self.sets)
