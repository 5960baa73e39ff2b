"""Private objectives: value, gradient, and a proven bound on what one record can do to it.

    f(z) = (1/N) Σ_i loss(z, record_i) + a public part        records are private

Feasible sets and all bounds are public, N (``normaliser``) too: it does not change when a record
is added, so that a neighbour changes one term of the sum and nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np

from tacit._types import Array, Vector
from tacit.errors import InvalidInput, choice, positive
from tacit.pytree import pytree, static, store

if TYPE_CHECKING:
    from tacit.objectives.public import PublicObjective
    from tacit.sets.feasible_set import FeasibleSet

RELATIONS = {
    "add-remove": "adding or removing one record",
    "zero-out": "taking one record out of the sums or putting it back (numbers of records stay)",
    "replace": "replacing one record",
}


class Statistics(ABC):
    """Sufficient statistics of f, released once.

    Guarantee: for neighbouring data, as the objective's ``neighbours`` says in words, the computed
    ``values`` are equally many and differ by at most ``sensitivity(norm)``, rounding included. The
    bound, and the number of values, never depend on private data. With noise of that sensitivity
    on them, ``released_objective`` of the noisy values, and all that is computed from it, is
    post-processing.
    """

    values: Vector  # private, float64

    @property
    def size(self) -> int:
        """How many values there are: public; told without computing them where that is work."""
        return int(self.values.size)

    @property
    def source(self) -> tuple[Vector, ...]:
        """What decides the values: an agent knows its data again by these.

        Where values are sums they are not: their last bits differ from processor to processor.
        """
        return (self.values,)

    @abstractmethod
    def sensitivity(self, norm: int) -> float:
        """Δ: the most that neighbouring data can move the values, in the L1 or L2 norm."""

    def gradient_deviation(self, deviation: float, feasible_set: FeasibleSet) -> float | None:
        """The deviation of a gradient's entry where values have ``deviation``, at the worst z; None
        where the values are what a gradient measures."""
        return None

    @abstractmethod
    def released_objective(
        self, values: Vector, deviation: float, agents: float | None = None
    ) -> PublicObjective:
        """f as noisy ``values`` tell it; reads no private data.

        ``deviation`` is the standard deviation of the noise on one value, a public number; 0
        without noise. ``agents``: how many copies will be added up, where that is known.
        """


class Descent(NamedTuple):
    """What a plan of noisy descent looks at (``planning.py``); public.

    curvature   of f at z = 0, were all records alike
    reach       how far a point that moves by 1 may move a score, in units that matter
    longest     step that is stable, times the curvature: 2 where that is the largest there is
    """

    curvature: float
    reach: float
    longest: float


class Objective(ABC):
    """An agent's private convex objective f over a public feasible set.

    Noise goes on ``statistic(z)``, and ``gradient(z) = lift(statistic(z)) + public_gradient(z)``
    with a public linear map; for most objectives the statistic is the gradient itself.

    Guarantee: for neighbouring data, as ``neighbours`` says in words, and any point z with
    ‖z‖ ≤ ``feasible_set.reach`` in L2 and L∞, the *computed* statistics, in float64, satisfy
    ``‖statistic(z) − statistic'(z)‖ ≤ sensitivity(norm, feasible_set)``: rounding is inside the
    bound (``rounding.py``). The bound never depends on private data. Where ``everywhere`` is true
    it holds at all z. Where ``uncertified`` or ``uncertified_on`` says something, it is not proven.
    ``value`` reads private data and nothing bounds it: do not release it.
    """

    neighbours: str
    on_host: ClassVar[bool] = False  # whether all below also runs in NumPy on NumPy's arrays
    everywhere: ClassVar[bool] = False  # whether the sensitivity holds at every z
    clipped: ClassVar[bool] = False  # whether gradients are cut, and no longer those of ``value``
    doubt: str = ""  # what ``uncertified`` says, as 0.1.0 named it: subclasses may set it

    @property
    def uncertified(self) -> str:
        """Why the sensitivity is no proven bound, where it is not."""
        return self.doubt

    def uncertified_on(self, device: str) -> str:
        """Why the rounding of a device ("cpu", "gpu") is not inside the proof, where it is not."""
        return ""

    @property
    def kind(self) -> str:
        """Its name in words about a run."""
        return type(self).__name__

    @property
    def descent(self) -> Descent | None:
        """What a plan of noisy descent looks at; None: it is planned by smoothness alone."""
        return None

    @property
    def relation(self) -> str:
        """``neighbours`` with all that decides which data are neighbours: totals may be added up
        where it is the same."""
        return self.neighbours

    @property
    def agreed(self) -> str:
        """What a party's file must say to agree to it: ``neighbours`` where these words tell all
        (groups, and every bound), else ``relation``."""
        return self.relation

    @property
    @abstractmethod
    def dimension(self) -> int:
        """The length of z."""

    @abstractmethod
    def value(self, z: Array) -> Array:
        """f(z)."""

    @abstractmethod
    def statistic(self, z: Array) -> Array:
        """The vector that receives the noise, in float64."""

    def lift(self, statistic: Array) -> Array:
        """The public linear map from the statistic to the gradient."""
        return statistic

    def public_gradient(self, z: Array) -> Array:
        """The part of the gradient that reads no private data: it needs no noise."""
        return 0.0

    def gradient(self, z: Array) -> Array:
        """f'(z), or a subgradient where f has a kink."""
        private = self.lift(self.statistic(z)).astype(z.dtype)
        return private + self.public_gradient(z)

    @property
    def statistic_size(self) -> int:
        return self.dimension

    @property
    def lift_energy(self) -> float:
        """E‖lift(ξ)‖² for noise ξ of unit variance on the statistic."""
        return float(self.dimension)

    @property
    def deviations(self) -> Vector:
        """The deviation of every entry of lift(ξ), for noise ξ of unit variance: public."""
        return np.full(self.dimension, (self.lift_energy / self.dimension) ** 0.5)

    @abstractmethod
    def sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """Δ: the most that neighbouring data can move the statistic, in the L1 or L2 norm."""

    def statistics(self) -> Statistics:
        """The sufficient statistics of this objective; an error for kinds that have none."""
        raise InvalidInput(
            # in messages of facts, whose bytes are those of 0.2.0
            f"Expected an objective that a few numbers say in full, a quadratic one, to be read "
            f"once, got {type(self).__name__}: each of its gradients is a new question to the data."
        )

    def gradient_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """The most that neighbouring data can move the gradient."""
        return self.sensitivity(norm, feasible_set)

    def output_sensitivity(self, norm: int, feasible_set: FeasibleSet) -> float:
        """Δ for noise on the output, to be shaped by ``algorithm.output_noise_shape``."""
        return self.gradient_sensitivity(norm, feasible_set)

    @property
    def slack_size(self) -> int:
        """The number of linear functions of z with a proximal term of their own."""
        return 0

    def slack_of(self, z: Array) -> Array:
        """These functions at z."""
        raise NotImplementedError

    def paper_sensitivity(self, z: Array, norm: int) -> Array:
        """The Δ with which the paper ran objective perturbation. Not certified."""
        raise InvalidInput(
            f"Expected an objective of the paper's experiments for calibration='paper', got "
            f"{type(self).__name__}."
        )

    def paper_output_sensitivity(self, z: Array, norm: int, curvature: Array | float) -> Array:
        """The Δ with which the paper ran output perturbation. Not certified."""
        return self.paper_sensitivity(z, norm)

    @property
    @abstractmethod
    def smoothness(self) -> float | None:
        """L: a public bound of the gradient's Lipschitz constant; None if f is not smooth."""

    @property
    @abstractmethod
    def strong_convexity(self) -> float:
        """α: a public lower bound of the curvature of f."""

    @abstractmethod
    def gradient_bound(self, feasible_set: FeasibleSet) -> float:
        """U_1 (Section 5): a public bound of ‖f'(z)‖₂ over the set; inf where none is known."""

    @property
    def sample_count(self) -> int:
        """The number of private records; 0 for data that are not records."""
        return 0

    @property
    def in_place(self) -> bool:
        """Whether neighbours have equally many data, at the same places (``rounding.py``)."""
        return True

    def pad(self, rows: int) -> Self:
        """The same function with room for ``rows`` records, so that agents can be batched."""
        return self

    def for_device(self) -> Self:
        """The same function, its data laid out as this process's device computes fastest."""
        return self


@pytree
class Records(Objective):
    """An objective that is a sum over private records, divided by a public ``normaliser``.

    ``neighbours`` is "add-remove", "zero-out" or "replace", and kept in words. "zero-out" is
    "add-remove" where the number of records is public and stays: the record that is out counts,
    but adds nothing. ``record_bound`` is a public bound on the number of records. By default it is
    that number itself under "replace" and "zero-out", where neighbours have equally many, and the
    normaliser under "add-remove".
    """

    _: KW_ONLY
    normaliser: float
    neighbours: Any = static(default="add-remove")
    record_bound: float | None = None
    present: Array = field(init=False, repr=False)  # False on rows that are padding
    axis: ClassVar[int] = -1  # that of records, of every array

    @property
    def sample_count(self) -> int:
        return int(np.sum(np.asarray(self.present)))

    @property
    def in_place(self) -> bool:
        return bool(self.neighbours != RELATIONS["add-remove"])

    @property
    def most_records(self) -> float:
        """M: no neighbour has more records than this. Public."""
        if self.record_bound is not None:
            return self.record_bound
        adds = self.neighbours == RELATIONS["add-remove"]
        return self.normaliser if adds else float(self.sample_count)

    def pad(self, rows: int) -> Self:
        have = self.present.shape[-1]
        if rows < have:
            raise InvalidInput(f"Expected rows >= {have} to pad to, got rows={rows}.")
        if rows == have:
            return self

        def widen(leaf: Any) -> Any:
            width = [(0, 0)] * np.ndim(leaf)
            if width:
                width[self.axis] = 0, rows - have
            return jnp.pad(leaf, width) if width else leaf

        longer: Self = jax.tree.map(widen, self)
        return longer

    def _accept(self, records: int) -> None:
        """Check the public settings against ``records`` rows, and mark all of them as present."""
        store(
            self,
            normaliser=positive("normaliser", self.normaliser),
            neighbours=RELATIONS[choice("neighbours", self.neighbours, tuple(RELATIONS))],
            record_bound=optional_positive("record_bound", self.record_bound),
            present=jax.device_put(np.ones(records, bool)),
        )
        if self.most_records > 2.0**50:
            raise InvalidInput(
                "Expected fewer than 2^50 records (record_bound, or else normaliser), got "
                f"{self.most_records:g}: a sum of more is not bounded. Give a public record_bound."
            )
        if self.most_records < records:
            raise InvalidInput(
                f"Expected at most {self.most_records:g} records (record_bound, or else "
                f"normaliser), got more. Give a public record_bound."
            )


def optional_positive(name: str, value: float | None) -> float | None:
    return None if value is None else positive(name, value)
