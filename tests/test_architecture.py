"""Imports point one way: mathematics never imports protocol, protocol never presentation."""

import ast
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
# A module may import only modules of earlier lines.
LAYERS = [
    ["interrupts", "errors", "pytree", "polish", "projections", "rounding", "draws", "discrete"],
    ["files"],
    ["sets", "coneprogram"],
    ["conic", "objectives"],
    ["persample", "residual", "linearmodel", "cvxpyset"],
    ["losses"],
    ["mechanisms", "schedules", "problem"],
    ["accounting", "algorithm"],
    ["settings", "secure", "spend"],
    ["entries"],
    ["book"],
    ["ledger"],
    ["privacy", "payments"],
    ["agent"],
    ["fleet", "result", "digest"],
    ["checkpoint"],
    ["solve"],
    ["sweep", "learn.data", "learn.constraints", "learn.download"],
    ["learn.plan", "learn.inversion", "learn.ranges"],
    ["learn.estimator"],
    ["learn.attack", "learn.model"],
    ["learn"],
    ["power.case"],
    ["power.network", "power.zones"],
    ["power.model"],
    ["power.plots", "power.attack"],
    ["power"],
    ["audit.bounds", "audit.worlds", "audit.adversary"],
    ["audit.trials"],
    ["audit.report"],
    ["audit.agents"],
    ["audit"],
    ["theory", "job", "demo", "experiments.folder"],
    ["experiments.power", "experiments.learning"],
    ["console"],
    ["commands.learndata"],
    ["commands.attack"],
    ["commands.power", "commands.learn", "commands.ledger", "commands.audit"],
    ["commands.reproduce"],
    ["cli"],
    ["__main__"],
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "tacit":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tacit."):
            yield node.module.removeprefix("tacit.")


def name_of(path):
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = sorted(
    path for path in SOURCE.rglob("*.py") if path.parent != SOURCE or path.stem != "__init__"
)
MODULES = [path for path in MODULES if name_of(path) not in ("experiments", "commands")]


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_down(path):
    name = name_of(path)
    assert name in RANK, f"give {name} a place in LAYERS"
    for other in imported(path):
        assert RANK[other] < RANK[name] or _only_for_types(path, other), f"{name} imports {other}"


def _only_for_types(path, other):
    """Imports under TYPE_CHECKING do not run."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            lines = [f"tacit.{other}" == getattr(inner, "module", None) for inner in node.body]
            return any(lines)
    return False


def test_exports():
    for name in tacit.__all__:
        assert getattr(tacit, name) is not None
    assert tacit.__all__ == sorted(tacit.__all__, key=str)
