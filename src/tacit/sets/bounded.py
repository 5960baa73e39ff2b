"""A proof that a cone set is bounded, from the signs of its matrix alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from tacit.sets.cone_program import Blocks


def bounded_by_signs(matrix: Any, cones: Blocks) -> bool:
    """Whether it follows, row by row, that d = 0 is the only d with −matrix @ d in K.

    {x : offset − matrix @ x in K} is then empty or bounded. An inequality with one entry left gives
    the sign of its d_i; both signs, or an equation with one entry left, give d_i = 0. A cone whose
    head is zero has a body of zeros: its rows are equations. Entries of a d_i that is zero are left
    out, until nothing new follows. Exact: signs are not rounded. False means that this way found no
    proof.
    """
    entries = sp.coo_matrix(matrix)
    kept = entries.data != 0
    row, column, sign = entries.row[kept], entries.col[kept], np.sign(entries.data[kept])
    rows, columns = matrix.shape
    size = np.array([m for _, m in cones])
    head = np.repeat(np.cumsum(size) - size, size)  # of each row, the first of its block
    kind = np.repeat([k for k, _ in cones], size)
    curved, straight = kind == "soc", kind == "nonneg"
    falls, rises = np.zeros(columns, bool), np.zeros(columns, bool)  # d_i ≤ 0, d_i ≥ 0
    while True:
        zero = falls & rises
        if zero.all():
            return True
        open_entry = ~zero[column]
        left = np.bincount(row[open_entry], minlength=rows)
        equation = (kind == "zero") | (curved & (left[head] == 0))
        alone = open_entry & (left[row] == 1)
        up, down = sign > 0, sign < 0  # an inequality: −a d_i ≥ 0
        to_zero = alone & equation[row]
        falls_now, rises_now = falls.copy(), rises.copy()
        falls_now[column[to_zero | (alone & straight[row] & up)]] = True
        rises_now[column[to_zero | (alone & straight[row] & down)]] = True
        if (falls_now == falls).all() and (rises_now == rises).all():
            return False
        falls, rises = falls_now, rises_now
