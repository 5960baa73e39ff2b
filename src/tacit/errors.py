"""Every error that Tacit raises on purpose, and the checks that raise them.

    TacitError
    ├── InvalidInput       a value that was given cannot be used (also a ValueError)
    │   └── InvalidSet     a feasible set is empty or unbounded
    ├── SolverFailure      a local computation failed: a solver, or a point outside of its set
    ├── Refused            an agent declines a request; nothing was computed on its data
    ├── LedgerFailure      a ledger cannot be written; nothing was released
    ├── EngineFailure      what carries messages between processes failed
    └── CorruptFile        a saved result, checkpoint, ledger or data file cannot be read

A message names what was expected and the value that was given; ``undone``, what was therefore not
done, ends it. A value that may be private is never in it: then the message names the row, and what
was allowed.

NumPy is imported where a check needs it: every command reads this module, and not all compute.
"""

from __future__ import annotations

import functools
import logging
import math
import warnings
from collections.abc import Callable
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from tacit._types import Vector

T = TypeVar("T")
logging.getLogger("tacit").addHandler(logging.NullHandler())


class TacitError(Exception):
    """Base of all errors raised on purpose.

    ``undone`` is what was therefore not done, such as "Nothing was released."; who turns an error
    into one of their own may know better.
    """

    def __init__(self, message: object = "", undone: str = "") -> None:
        super().__init__(str(message))
        self.undone = undone

    def __str__(self) -> str:
        return f"{self.args[0]} {self.undone}".rstrip()


class InvalidInput(TacitError, ValueError):
    """A value that was given cannot be used."""


class InvalidSet(InvalidInput):
    """A feasible set is empty or unbounded."""


class SolverFailure(TacitError, RuntimeError):
    """A local computation failed: a solver's accuracy, or a point outside of its set."""


class Refused(TacitError):
    """An agent declines a request; nothing was computed on its data."""


class LedgerFailure(TacitError):
    """A ledger cannot be written; nothing was released."""


class EngineFailure(TacitError, RuntimeError):
    """What carries messages between processes failed, or a process that they went to."""


class CorruptFile(TacitError):
    """A saved result, checkpoint, ledger or data file cannot be read."""


NOT_DONE = "Nothing was released."

# What public numbers may be, smallest and largest. Products and squares of a few of them neither
# overflow nor vanish in double precision.
LENGTHS = 1e-30, 1e30  # norms, bounds, weights: what a user gives
DERIVED = 1e-100, 1e100  # what is computed from them: sensitivities, step sizes, penalties
EPSILONS = 1e-9, 1e6  # of budgets
MULTIPLIERS = 1e-7, 1e20  # noise in units of the sensitivity
LEAST_PROBABILITY = 1e-300
LARGEST_COUNT = 10**9  # of anything counted
UPDATES = 10**7  # of one run
TRIALS = 10**6  # of an audit, in each world
RUNS = 10**4  # that one command repeats, each with another seed
EXACT = 2**53  # from here on two whole numbers may be one floating-point number


def shown(value: Any) -> str:
    """A value for a message: a number or a short text as it is, of anything else its type only,
    for it may be private data in the wrong place."""
    import numpy as np

    if value is None or isinstance(value, bool | int | float | np.number):
        return repr(value) if not isinstance(value, int) or abs(value) < 10**20 else "over 1e20"
    if type(value) is str and len(value) <= 40:
        return repr(value)
    return f"a value of type {type(value).__name__}"


def printable(name: str, value: Any, most: int = 100) -> str:
    """Return a text from outside, or refuse it unless it has 1 to ``most`` printable characters."""
    if not isinstance(value, str) or not 0 < len(value) <= most or not value.isprintable():
        raise InvalidInput(
            f"Expected {name} as text of 1 to {most} printable characters, got {shown(value)}."
        )
    return value


def plain(text: str, but: str = "\n\t") -> str:
    """A text as it may be shown: what is not printable is written as an escape."""
    return "".join(c if c.isprintable() or c in but else repr(c)[1:-1] for c in text)


def digits(value: float) -> str:
    """A number of a promise as it is: the nearest one of six digits may promise more."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


def positive(name: str, value: float, within: tuple[float, float] = LENGTHS) -> float:
    """Return ``value`` as a float, or refuse it unless it is positive and ``within`` a range."""
    number = _real(name, value)
    if not (number > 0 and math.isfinite(number)):
        raise InvalidInput(f"Expected a finite {name} > 0, got {name}={shown(value)}.")
    if not within[0] <= number <= within[1]:
        raise InvalidInput(
            f"Expected {within[0]:g} <= {name} <= {within[1]:g}, got {name}={shown(value)}."
        )
    return number


def non_negative(name: str, value: float, within: tuple[float, float] = LENGTHS) -> float:
    """Return ``value`` as a float, or refuse it unless it is 0 or positive ``within`` a range."""
    number = _real(name, value)
    if not (number >= 0 and math.isfinite(number)):
        raise InvalidInput(f"Expected a finite {name} >= 0, got {name}={shown(value)}.")
    return number if number == 0 else positive(name, value, within)


def probability(name: str, value: float) -> float:
    """Return ``value`` as a float, or refuse it unless 0 < value < 1."""
    number = _real(name, value)
    if not 0 < number < 1:
        raise InvalidInput(f"Expected 0 < {name} < 1, got {name}={shown(value)}.")
    if number < LEAST_PROBABILITY:
        raise InvalidInput(f"Expected {name} >= {LEAST_PROBABILITY:g}, got {name}={shown(value)}.")
    return number


def count(name: str, value: int, most: int = LARGEST_COUNT) -> int:
    """Return ``value`` as an int, or refuse it unless it is a whole number from 1 to ``most``."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise InvalidInput(f"Expected a whole number {name} >= 1, got {name}={shown(value)}.")
    if value > most:
        raise InvalidInput(f"Expected {name} <= {most}, got {name}={shown(value)}.")
    return int(value)


def updates_of(rounds: int, local_updates: int) -> int:
    """Rounds times local updates, or an error if no run could have that many."""
    updates = count("rounds", rounds) * count("local_updates", local_updates)
    if updates > UPDATES:
        raise InvalidInput(
            f"Expected rounds times local_updates <= {UPDATES}, got {rounds} times {local_updates}."
        )
    return updates


def array(name: str, value: Any, shape: tuple[int | None, ...], *, dtype: Any = None) -> Vector:
    """Return ``value`` as a finite floating array of the given shape (None: any length).

    float32 stays float32 and everything else becomes float64, unless ``dtype`` says so.
    """
    import numpy as np

    try:
        result = np.asarray(value)
        if result.dtype.kind not in "biuf" and result.size:
            raise TypeError
        if dtype is None:
            dtype = np.float32 if result.dtype == np.float32 else np.float64
        result = result.astype(dtype, copy=False)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"Expected {name} to hold numbers, in rows of equal length.") from None
    if result.ndim != len(shape) or any(
        want is not None and have != want for have, want in zip(result.shape, shape, strict=True)
    ):
        wanted = "(" + ", ".join("any" if n is None else str(n) for n in shape) + ")"
        raise InvalidInput(f"Expected {name} of shape {wanted}, got shape {result.shape}.")
    finite = np.isfinite(result)
    if not finite.all():
        where = tuple(int(i) for i in np.argwhere(~finite)[0])
        raise InvalidInput(f"Expected finite numbers in {name}, not so at index {where}.")
    return result


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return ``value``, or refuse it unless it is one of ``allowed``."""
    if value not in allowed:
        options = ", ".join(repr(a) for a in allowed)
        raise InvalidInput(f"Expected {name} to be one of {options}, got {shown(value)}.")
    return value


def _real(name: str, value: float) -> float:
    try:
        if isinstance(value, str | bytes | bool):
            raise TypeError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidInput(f"Expected a number {name}, got {name}={shown(value)}.") from None


def current(names: dict[str, str], given: dict[str, Any], where: str) -> dict[str, Any]:
    """Arguments under their present names; an old name works for one version, with a warning."""
    for old in names.keys() & given.keys():
        warnings.warn(f"{where}: {old} is now {names[old]}", FutureWarning, stacklevel=3)
    return {names.get(name, name): value for name, value in given.items()}


def renamed(**names: str) -> Callable[[type[T]], type[T]]:
    """For a class whose arguments have new names: old=new."""

    def of(kind: type[T]) -> type[T]:
        made: Any = kind.__init__

        @functools.wraps(made)
        def init(self: Any, *args: Any, **given: Any) -> None:
            made(self, *args, **current(names, given, kind.__name__))

        kind.__init__ = init  # type: ignore[method-assign]
        return kind

    return of
