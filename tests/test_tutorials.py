"""The notebooks run, and show what is stored in them."""

import re

import nbformat
import pytest
from tutorials import NOTEBOOKS, executed, kernel, shown

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
TOLERANCE = 0.02, 0.002  # relative and absolute, on numbers; cells may state a wider one
FRESH = re.compile(r"run-[0-9a-f]{12}")  # a name that every run gets
PRIVATE = re.compile(r"/(home|root|tmp|work|Users)/|\bat 0x")  # where it ran


def differs(now, stored, tolerance=TOLERANCE):
    """Whether two texts differ by more than numbers within the tolerance."""
    now, stored = (FRESH.sub("run-", text) for text in (now, stored))
    if NUMBER.sub("#", now).split() != NUMBER.sub("#", stored).split():
        return True
    pairs = zip(NUMBER.findall(now), NUMBER.findall(stored), strict=True)
    return [float(a) for a, _ in pairs] != [
        pytest.approx(float(b), rel=tolerance[0], abs=tolerance[1]) for b in NUMBER.findall(stored)
    ]


@pytest.fixture(scope="module")
def shared():
    with kernel() as client:
        yield client


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_tutorial_shows_what_it_computes(path, tmp_path, shared):
    stored = nbformat.read(path, as_version=4)
    assert not PRIVATE.search(path.read_text())
    now = executed(path, tmp_path, shared)
    for before, after in zip(stored.cells, now.cells, strict=True):
        if before.cell_type == "code":
            assert [o.output_type for o in before.outputs] == [o.output_type for o in after.outputs]
            stated = before.metadata.get("tolerance", TOLERANCE[0]), TOLERANCE[1]
            for ours, theirs in zip(shown(after), shown(before), strict=True):
                assert not differs(ours, theirs, stated), f"{before.source}\n{ours}\n{theirs}"
    pictures = sum("image/png" in str(cell.get("outputs", "")) for cell in stored.cells)
    assert pictures == {"error_bars": 1, "grid": 2, "hospitals": 1, "own_loss": 0}[path.stem]
