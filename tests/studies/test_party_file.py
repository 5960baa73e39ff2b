"""A party's own file: what it must say, and one clear line for what it may not."""

import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from test_study import PARTY, VALUES, refused, toml

from tacit.errors import TacitError
from tacit.studies import Limits, PartyFile

WHOLE = PARTY.replace("[limits]", 'rehearsal = true\ncoordinator = "k"\n[limits]')
WHOLE += 'rounds = 7\nhides = "replacing one record"\n'


def test_paths_are_relative_to_the_file(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "party.toml").write_text(WHOLE)
    monkeypatch.chdir(tmp_path)
    party = PartyFile.load("here/party.toml")
    assert party.data == (tmp_path / "here" / "north.csv").resolve()
    assert party.ledger == (tmp_path / "here" / "north.db").resolve()
    assert party.agent == "North hospital" and party.target == "progression"
    assert party.rehearsal and party.coordinator == "k" and party.unit is None
    assert party.limits == Limits(1.0, 1e-5, 7, "replacing one record")


def test_nothing_is_allowed_that_is_not_said(tmp_path):
    (tmp_path / "party.toml").write_text(PARTY)
    party = PartyFile.load(tmp_path / "party.toml")
    assert not party.rehearsal and party.limits == Limits(1.0, 1e-5)
    (tmp_path / "party.toml").write_text(PARTY.replace("total_delta = 1e-5", "total_delta = 0"))
    assert PartyFile.load(tmp_path / "party.toml").limits.total_delta == 0.0


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('agent = "North hospital"', "", "agent"),
        ('data = "north.csv"', "data = 3", "data as text in"),
        ('ledger = "north.db"', "", "ledger"),
        ('target = "progression"', 'unit = "kW"', "'kW'"),
        ('target = "progression"', "rehearsal = 1", "true or false"),
        ("total_epsilon = 1.0", "total_epsilon = inf", "total_epsilon=inf"),
        ("total_delta = 1e-5", "total_delta = false", "total_delta"),
        ("total_delta = 1e-5", 'total_delta = 1e-5\nhides = ""', "hides"),
        ("total_delta = 1e-5", "total_delta = 1e-5\ntotal = 3", "total"),
        ("[limits]\ntotal_epsilon = 1.0\ntotal_delta = 1e-5", "", "[limits]"),
    ],
)
def test_what_a_party_file_may_not_say(tmp_path, old, new, words):
    assert PARTY.count(old) == 1
    (tmp_path / "party.toml").write_text(PARTY.replace(old, new))
    assert words in refused(lambda: PartyFile.load(tmp_path / "party.toml"))


def test_a_file_that_is_not_there(tmp_path):
    assert "party.toml" in refused(lambda: PartyFile.load(tmp_path / "party.toml"))
    (tmp_path / "party.toml").write_bytes(b"\xff")
    assert "party.toml" in refused(lambda: PartyFile.load(tmp_path / "party.toml"))


LINES = [k for k, line in enumerate(WHOLE.splitlines()) if " = " in line]


@settings(max_examples=repeat(30, 60))
@given(st.sampled_from(LINES), VALUES)
def test_a_hostile_party_file_is_refused_in_one_manner(tmp_path_factory, line, value):
    lines = WHOLE.splitlines()
    lines[line] = f"{lines[line].split(' = ')[0]} = {toml(value)}"
    path = tmp_path_factory.mktemp("hostile") / "party.toml"
    path.write_text("\n".join(lines))
    try:
        limits = PartyFile.load(path).limits
        assert 0 < limits.total_epsilon < 1e7 and 0 <= limits.total_delta < 1
    except TacitError as error:
        assert str(error).startswith("Expected") and str(error).endswith("Nothing was sent.")
