"""The numbers of cone sets: checked vectors and sparse matrices, and M'CM for any weights C."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit import errors
from tacit._types import Vector
from tacit.errors import InvalidInput


def vector_of(name: str, value: Any, size: int) -> Vector:
    return errors.array(name, value, (size,), dtype=np.float64).copy()


def full_vector_of(name: str, value: Any, size: int) -> Vector:
    """A vector; a number stands for a constant one."""
    return vector_of(name, np.full(size, value) if np.ndim(value) == 0 else value, size)


def sparse(name: str, matrix: Any, columns: int | None = None) -> Any:
    """A finite matrix in compressed columns."""
    if not sp.issparse(matrix):
        matrix = errors.array(name, matrix, (None, columns), dtype=np.float64)
    result = sp.csc_matrix(matrix, dtype=np.float64, copy=True)
    errors.array(f"the entries of {name}", result.data, (None,))
    if 0 in result.shape or columns not in (None, result.shape[1]):
        raise InvalidInput(f"Expected {name} with {columns or 'some'} columns, got {result.shape}.")
    return result


def weighted_square(matrix: Any) -> tuple[Any, Any]:
    """The pattern of M'CM (upper triangle) and the matrix that gives its numbers from C's.

    Row k of M adds c_k M_ka M_kb to entry (a, b).
    """
    length = np.diff(matrix.indptr)
    columns = matrix.shape[1]
    # every ordered pair of entries of a row
    first = np.repeat(np.arange(matrix.nnz), np.repeat(length, length))
    start = np.repeat(matrix.indptr[:-1], length**2)
    within = np.arange(len(first)) - np.repeat(np.cumsum(length**2) - length**2, length**2)
    second = start + within % np.repeat(length, length**2)
    row = np.repeat(np.arange(len(length)), length**2)
    a, b = matrix.indices[first], matrix.indices[second]
    upper = a <= b
    key = b[upper].astype(np.int64) * columns + a[upper]  # column-major, as in csc
    keys, entry = np.unique(key, return_inverse=True)
    values = (matrix.data[first] * matrix.data[second])[upper]
    numbers = sp.csr_matrix((values, (entry, row[upper])), shape=(len(keys), len(length)))
    pointer = np.searchsorted(keys // columns, np.arange(columns + 1))
    pattern = sp.csc_matrix((np.ones(len(keys)), keys % columns, pointer), shape=(columns,) * 2)
    return pattern, numbers
