"""The two kinds of arrays in annotations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = Any  # a NumPy or a JAX array: code that is given one uses only what both have
Vector: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"  # NumPy's, of any shape and number format
