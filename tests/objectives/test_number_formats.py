"""Objectives are made only where their bounds are proven: in 64 bits."""

import jax
import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput


def test_64_bits_are_needed_where_an_objective_is_made():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(InvalidInput, match="jax_enable_x64"):
            tacit.LogisticRegression(np.eye(2), [0, 1], feature_norm=1.0, normaliser=2)
        with pytest.raises(InvalidInput, match="jax_enable_x64"):
            tacit.Residual(np.eye(2), np.zeros(2), 1.0)
    finally:
        jax.config.update("jax_enable_x64", True)
