"""Whose record each is, whatever the others' agents are: 1 is not 1.0, nor 2^53 + 1 2^53."""

from __future__ import annotations

from typing import Any

import numpy as np

from tacit._types import Vector
from tacit.errors import InvalidInput
from tacit.learn.data import first_missing
from tacit.learn.source import EXACT


def owners(agents: Any, records: int) -> tuple[Vector, Vector]:
    """The agents' names in order, and the position of each record's there."""
    if agents is None:
        return np.array(["agent 1"]), np.zeros(records, int)
    labels = np.asarray(agents)
    if labels.shape != (records,):
        raise InvalidInput(
            f"Expected one agent per record, {records} in all, got shape {labels.shape}. "
            "Nothing was fit."
        )
    if (row := first_missing(labels)) is not None:
        raise InvalidInput(
            f"Expected an agent of every record, got none in row {row + 1}. Nothing was fit."
        )
    kinds = set() if hasattr(agents, "dtype") else {*map(type, agents)}
    if len(kinds) > 1 or (labels.dtype.kind in "fc" and (np.abs(labels) >= EXACT).any()):
        raise InvalidInput("Expected agents of one type, as floats below 2^53. Nothing was fit.")
    names, owner = np.unique(labels, return_inverse=True)
    return names, owner


def sizes(owner: Vector) -> dict[str, float]:
    """Of all records, and of the largest agent's: public."""
    return {"normaliser": float(len(owner)), "record_bound": float(np.bincount(owner).max())}
