"""``tacit account``: the price of updates, and what is wrong with a question."""

import json
from importlib import metadata

import pytest

import tacit
from tacit.privacy.accounting import exact


@pytest.fixture
def account(command):
    """The JSON document of an account."""
    return lambda *arguments: json.loads(command("account", *arguments, "--json"))


def test_accounts_of_one_update(account, command):
    largest = "--epsilon", 1, "--delta", 1e-6, "--updates", 50000
    totals, text = account(*largest, "--mechanism", "gaussian"), command("account", *largest)
    assert totals["paper"]["epsilon"] == pytest.approx(221.8, abs=0.1)
    assert totals["exact"]["epsilon"] == pytest.approx(1090.0, abs=0.1)
    assert totals["basic"] == {"epsilon": 50000.0, "delta": pytest.approx(0.05)}
    assert totals["exact"]["delta"] == 1e-6
    assert "understates" in text and "1090.0" in text and "221.8" in text
    totals = account("--epsilon", 0.1, "--delta", 1e-2, "--updates", 500)  # the paper overstates
    assert totals["exact"]["epsilon"] == pytest.approx(1.493, abs=0.002)
    laplace = "--mechanism", "laplace", "--epsilon", 0.1, "--updates", 500
    totals = account(*laplace)
    assert totals["exact"]["epsilon"] == pytest.approx(50) and totals["paper"] is None
    assert 12 < account(*laplace, "--delta", 1e-6)["exact"]["epsilon"] < 13


def test_the_classical_formula_holds_up_to_epsilon_one(account):
    for epsilon, valid in ((1, True), (1.01, False), (5, False)):
        totals = account("--epsilon", epsilon, "--delta", 1e-5, "--updates", 1)
        assert totals.get("basic_valid", True) is valid
        laplace = "--mechanism", "laplace", "--updates", 1
        assert "basic_valid" not in account("--epsilon", epsilon, *laplace)


@pytest.mark.parametrize(
    ("parties", "colluding", "noise", "alone"),  # as in the table of docs/privacy.md
    [(3, 1, 1.22, 1.47), (5, 2, 1.29, 1.83), (10, 1, 1.05, 3.41), (10, 4, 1.29, 2.71)],
)
def test_account_of_a_secure_sum(account, command, parties, colluding, noise, alone):
    asked = "--total-epsilon", 1, "--total-delta", 1e-5, "--updates", 200, "--parties", parties
    found = account(*asked, "--colluding", colluding)
    assert found["exact"]["epsilon"] == pytest.approx(1.0, rel=1e-6)
    assert found["sum"]["noise"] == pytest.approx(noise, abs=5e-3)
    assert found["sum"]["alone"]["epsilon"] == pytest.approx(alone, abs=5e-3)
    assert account(*asked)["sum"]["colluding"] == (parties - 1) // 2
    assert "each party alone" in command("account", *asked)


def test_account_names_what_is_wrong(refused):
    for given, words in (
        ("--epsilon -1 --delta 1e-6", "epsilon=-1.0"),
        ("--epsilon 1", "delta"),
        ("", "either --epsilon"),
        ("--epsilon 1 --delta 1e-5 --total-epsilon 1", "either --epsilon"),
        ("--total-epsilon 1", "--total-delta"),
        ("--total-epsilon 1 --delta 0.1", "got --delta"),
        ("--epsilon 1 --total-delta 0.1", "got --total-delta"),
        ("--noise-multiplier 1 --delta 0.1 --parties 2", "three parties"),
        ("--noise-multiplier 1 --delta 0.1 --parties 5 --colluding 4", "colluding <= 3"),
        ("--noise-multiplier 1 --delta 0.1 --colluding 4", "--parties"),
        ("--noise-multiplier 1 --mechanism laplace --parties 5", "laplace noise"),
    ):
        assert words in refused(f"account --updates 10 {given}")


def test_price_of_a_noise_multiplier_and_version(account, command):
    totals = account("--noise-multiplier", 144.487, "--delta", 1e-5, "--updates", "1.5e3")
    assert totals["exact"]["epsilon"] == pytest.approx(1.0, abs=1e-4)
    assert command("--version").strip() == f"tacit {metadata.version('tacit')}"


def test_account_in_words_is_no_better_than_it_is(account, command):
    """A budget is shown as it is, and a multiplier never smaller than what the budget needs."""
    asked = ("--total-epsilon", 1.2345649, "--total-delta", 1e-5, "--updates", 10)
    text = command("account", *asked)
    assert "within epsilon 1.2345649," in text
    shown = float(text.split("noise multiplier of one update")[1].split("\u2502")[1])
    assert shown >= account(*asked)["noise_multiplier"]
    assert exact(tacit.Gaussian(shown), 10, 1e-5).epsilon <= 1.2345649
