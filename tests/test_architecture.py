"""Imports point one way: mathematics never imports protocol, protocol never presentation."""

import ast
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
# A module may import only modules of earlier lines.
LAYERS = [
    ["errors", "pytree", "polish", "projections"],
    ["sets", "coneprogram"],
    ["conic", "objectives"],
    ["persample", "residual", "losses", "cvxpyset"],
    ["mechanisms", "schedules", "problem"],
    ["accounting", "algorithm"],
    ["settings"],
    ["agent", "privacy"],
    ["fleet", "result"],
    ["checkpoint"],
    ["solve"],
    ["theory", "job", "demo"],
    ["cli"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "tacit":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit."):
            yield node.module.split(".")[1]


MODULES = sorted(path for path in SOURCE.glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_imports_go_down(path):
    assert path.stem in RANK, f"give {path.stem} a place in LAYERS"
    for name in imported(path):
        assert RANK[name] < RANK[path.stem], f"{path.stem} may not import {name}"


def test_exports():
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    assert tacit.__all__ == sorted(tacit.__all__, key=str)
