"""[limits] hides: a party agrees to one relation between neighbouring data, and to no other."""

import numpy as np
import pytest

from tacit.errors import TacitError
from tacit.studies import PartyFile, Study

PARTY = """
agent = "North hospital"
data = "d.npz"
ledger = "north.db"
[limits]
total_epsilon = 1.0
total_delta = 1e-5
"""
MOVES = """
[objective]
kind = "residual"
matrix = [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
beta = BETA
[set]
kind = "box"
lower = -5.0
upper = 5.0
size = 2
[privacy]
total_epsilon = 1.0
total_delta = 1e-5
[[agents]]
name = "North hospital"
"""


def refused(call):
    with pytest.raises(TacitError) as caught:
        call()
    return str(caught.value)


def moving(folder, beta, hides=None):
    """What a party is asked to hide by a study in which its data move by ``beta``."""
    (folder / "study.toml").write_text(MOVES.replace("BETA", beta))
    np.savez(folder / "d.npz", data=np.zeros(3))
    (folder / "party.toml").write_text(PARTY + (f'hides = "{hides}"\n' if hides else ""))
    party = PartyFile.load(folder / "party.toml")
    return Study.load(folder).problem_of("North hospital", party).objective


@pytest.mark.parametrize(
    ("agreed", "asked"),
    [
        ("5", "5e-05"),  # words that only begin alike
        ("0.12345651", "0.1234565"),  # alike in six digits
        ("[0.1, 0.2, 0.3]", "[1e-9, 1e-9, 0.3]"),  # alike in words: "its own bound, 0.3 or less"
        ("0.1\ngroups = [0, 0, 1]", "0.1\ngroups = [0, 1, 2]"),  # "the data of one group"
        ("0.1\nmoved = 2", "0.1"),
    ],
)
def test_a_party_agrees_to_one_relation_and_no_other(tmp_path, agreed, asked):
    """Words alone do not tell whose data move together, nor each by how much."""
    hides = moving(tmp_path, agreed).agreed
    assert moving(tmp_path, agreed, hides).agreed == hides
    said = refused(lambda: moving(tmp_path, asked, hides))
    assert hides in said and moving(tmp_path, asked).agreed in said


def test_words_that_do_not_tell_all_are_not_enough(tmp_path):
    f = moving(tmp_path, "[0.1, 0.2, 0.3]")
    assert f.agreed == f.relation and f.relation.startswith(f.neighbours)
    assert f.agreed in refused(lambda: moving(tmp_path, "[0.1, 0.2, 0.3]", f.neighbours))
    plain = moving(tmp_path, "0.1")
    assert plain.agreed == plain.neighbours == "one datum moving by at most 0.1"
