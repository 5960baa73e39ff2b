"""Packages, and what may import what: mathematics never protocol, protocol never presentation."""

import ast
import importlib
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent
# A package may import itself and the packages above it in this list.
PACKAGES = [
    ["_types", "errors"],
    ["pytree", "files"],
    ["tables", "html"],
    ["sets"],
    ["objectives"],
    ["privacy"],
    ["admm"],
    ["planning"],
    ["protocol"],
    ["transports"],
    ["power", "learn"],
    ["studies"],
    ["nvflare"],
    ["lab"],
    ["report"],
    ["cli"],
    ["__main__"],
]
RANK = {package: rank for rank, packages in enumerate(PACKAGES) for package in packages}
FOLDERS = [r for r in RANK if (SOURCE / r / "__init__.py").is_file()]
MODULES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def name_of(path):
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def package_of(name):
    """``transports.nvflare`` knows studies, and the other transports do not."""
    first, *rest = name.split(".")
    return rest[0] if first == "transports" and rest[:1] == ["nvflare"] else first


def imported(tree):
    """What runs: imports under TYPE_CHECKING do not."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module == "tacit":
            yield from (f"tacit.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        yield from imported(node)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_up_the_list(path):
    own = package_of(name_of(path))
    assert own in RANK, f"give {own} a place in PACKAGES"
    for module in imported(ast.parse(path.read_text())):
        top, _, rest = module.partition(".")
        if top == "tacit":
            other = package_of(rest)
            assert other == own or RANK[other] < RANK[own], f"{own} imports {other}"


@pytest.mark.parametrize("package", FOLDERS)
def test_a_package_says_what_is_in_it(package):
    """One line for each file, in the package's docstring."""
    said = ast.get_docstring(ast.parse((SOURCE / package / "__init__.py").read_text())) or ""
    first = {line.split()[0] for line in said.splitlines() if line.strip()}
    missing = {path.stem for path in (SOURCE / package).glob("[a-z]*.py")} - first
    assert not missing, f"{package}/__init__.py says nothing about {sorted(missing)}"


@pytest.mark.parametrize("package", ["", *FOLDERS])
def test_exports(package):
    module = importlib.import_module(f"tacit.{package}".rstrip("."))
    names = getattr(module, "__all__", [])
    assert all(getattr(module, name) is not None for name in names)
    assert package or names == sorted(names, key=str)


def test_only_transports_of_one_owner_make_participants_that_tell_everything():
    """Elsewhere a participant has rules, and refuses what only the owner of the data may ask. The
    one that has a sum is of what was released."""
    found = {name_of(path) for path in MODULES if "owner=True" in path.read_text()}
    assert found == {"transports.local", "protocol.summed"}
