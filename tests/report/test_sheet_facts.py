"""Every fact on a sheet, of a run and a ledger in which no two numbers are alike."""

import dataclasses
import math

import pytest

from tacit.privacy.accounting import Guarantee, compose, exact, rounded_up
from tacit.privacy.ledger import Limit
from tacit.privacy.mechanisms import Gaussian, Laplace
from tacit.protocol.statement import PrivacyStatement
from tacit.report.account import Account
from tacit.report.odds import guess, hits, percent, suspicion
from tacit.report.sheet import sheet
from tacit.report.subject import Subject, _of_study
from tacit.studies.party_file import Limits

LAW, CHANGE = Gaussian(17.0), "adding or removing one record"
SAID = PrivacyStatement(
    exact(LAW, 24, 1e-5).epsilon, 1e-5, "gaussian", 24, ((CHANGE, ("north",)),), False, secure=True
)
RUN = {
    **{"run": "winter", "began": "2026-01-01T10:00", "last": "2026-01-02T11:00"},
    **{"mechanism": LAW.to_dict(), "noise": "secure", "neighbours": CHANGE, "local_updates": 2},
    **{"rounds_agreed": 12, "rounds_charged": 12, "rounds_answered": 12, "read_once": False},
    "epsilon": SAID.epsilon,
}
OTHER = RUN | {"run": "summer", "rounds_charged": 7}
RELEASE = RUN | {"run": "release-x-1", "read_once": True, "local_updates": 1}
RELEASE |= {"rounds_charged": 1, "rounds_answered": 1}
ACCOUNT = Account(
    *("north.db", "north", Guarantee(7.51239, 1e-3), Guarantee(2.34567, 1e-3), 3.21987, 29),
    *((RUN, OTHER), "0123456789abcdef" * 4, (Limit("2026-01-01T09:00", 7.51239, 1e-3),)),
)
SUBJECT = Subject(
    **{"agents": ("north",), "others": 2, "statement": SAID, "when": "then", "run": "winter"},
    **{"rounds": 12, "numbers": 5, "account": ACCOUNT, "own": True},
    limits=Limits(0.75, 1e-6, 15),
)  # fmt: skip


def told(subject):
    page = sheet(subject)
    return dict(page.facts), {s.title: " ".join(s.lines) for s in page.sections}, page


def test_every_fact_of_a_run_and_its_ledger():
    facts, sections, page = told(SUBJECT)
    own = 1.09  # ε = 1.0828, rounded up
    assert 1.08 < SAID.epsilon < own and page.promised
    assert page.title == "Privacy sheet: north" and page.verdict.startswith("Certified: all that")
    assert f"ε = {own}, δ = 0.00001, against" in page.verdict
    said = ("Purpose", "Recipients", "Data used")  # test_sheet.py
    assert {name: fact for name, fact in facts.items() if name not in said} == {
        "Whose data": "north, with 2 other agents",
        "Which run": "winter",
        "When": "then",
        "Budget of this run": f"ε ≤ {own}, δ ≤ 0.00001",
        "Limit of one run": "ε = 0.75, δ = 0.000001, 15 rounds, in the party's own file",
        "Spent in all runs": "ε ≤ 2.346 of a limit of 7.51239, at δ = 0.001, in 2 runs",
        "Left": "room for one more run (Gaussian noise) of ε = 3.21 at this δ (runs together cost "
        "less than their sum)",
        "Ledger": "north.db, 29 entries, all consistent; the last has the hash 0123456789abcdef",
    }
    budgets = [(own, 1e-5), (2.346, 1e-3), (7.51239, 1e-3)]
    header = ("Someone who ...", "this run", "all runs so far", "all of the limit")
    assert page.odds.header == header
    assert [row[1:] for row in page.odds.rows] == [
        *(tuple(percent(suspicion(p, *b)) for b in budgets) for p in (0.01, 0.1, 0.5)),
        ("≤ 0.0001", "≤ 0.01", "≤ 0.01"),
        *(tuple(percent(hits(p, *b)) for b in budgets) for p in (0.01, 0.05)),
        tuple(percent(guess(*b)) for b in budgets),
    ]
    factor = math.ceil(math.exp(own) * 100) / 100
    assert f"at most {factor} times as probable (plus 0.00001) if it" in page.odds.note
    shared = sections["What was shared, and with whom"]
    assert "12 messages of at most 5 numbers each, one in each round: points of a public" in shared
    assert "(24 noisy updates, all in the budget)" in shared and "Gaussian noise" in shared
    assert "--expect 0123456789abcdef" in sections["How to check"]
    assert "whoever ran the command" in sections["Not covered"]


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"others": 1}, "Whose data", "north, with one other agent"),
        ({"others": 0}, "Whose data", "north"),
        ({"others": None}, "Whose data", "north"),
        ({"run": ""}, "Which run", "its name is not recorded"),
        ({"run": "", "about": "case14"}, "Which run", "case14"),
        ({"limits": Limits(0.75, 0.0)}, "Limit of one run", "ε = 0.75, δ = 0, in"),
        ({"account": None, "missing": "it burnt"}, "Ledger", "None was read: it burnt. Nothing on"),
        ({"run": "autumn"}, "Ledger", "THIS RUN IS NOT IN IT: its totals leave this run out"),
        ({"own": False}, "Ledger", "THIS RUN IS NOT IN IT"),
    ],
    ids=str,
)
def test_facts_that_follow_from_a_run(changes, name, words):
    found = told(dataclasses.replace(SUBJECT, **changes))[0][name]
    assert found.startswith(words) or (words in found and name == "Ledger"), found


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"left": None}, "Left", "ε = 5.16: the limit less what is spent (runs together"),
        ({"left": None, "spent": Guarantee(9.0, 1e-3)}, "Left", "ε = 0: the limit less"),
        ({"spent": Guarantee(7.5124, 1e-3)}, "Spent in all runs", "MORE IS SPENT THAN THE LIMIT"),
        ({"runs": (RUN,)}, "Spent in all runs", "δ = 0.001, in one run"),
        ({"runs": (RUN, RELEASE)}, "Spent in all runs", "in one release of the data and one run"),
        (
            {"runs": (RUN, RELEASE, RELEASE, OTHER)},
            "Spent in all runs",
            "in 2 releases of the data and 2 runs of rounds",
        ),
        (
            {"limits": (Limit("2026-02-03T0", 8.0, 1e-4), *ACCOUNT.limits)},
            "Spent in all runs",
            "limit of 7.51239 (changed from 8 at δ = 0.0001 on 2026-01-01)",
        ),
    ],
    ids=str,
)
def test_facts_that_follow_from_a_ledger(changes, name, words):
    account = dataclasses.replace(ACCOUNT, **changes)
    assert words in told(dataclasses.replace(SUBJECT, account=account))[0][name]


@pytest.mark.parametrize(
    ("change", "counted", "disputed"),
    [
        ({}, True, False),
        ({"rounds_charged": 13}, True, True),
        ({"rounds_charged": 11}, False, False),
        ({"local_updates": 1}, False, False),
        ({"local_updates": 3}, True, True),
        ({"mechanism": Laplace(14.0).to_dict()}, True, True),
        ({"mechanism": Gaussian(16.9).to_dict()}, True, False),  # within a hundredth
        ({"mechanism": Gaussian(12.0).to_dict()}, True, True),
        ({"mechanism": Gaussian(30.0).to_dict()}, False, False),
        ({"run": "autumn"}, False, False),
    ],
    ids=str,
)
def test_what_a_ledger_paid_is_compared_with_what_the_run_says(change, counted, disputed):
    """Whatever one entry is another: noise, rounds, updates."""
    account = dataclasses.replace(ACCOUNT, runs=({**RUN, **change}, RELEASE))
    subject = dataclasses.replace(SUBJECT, account=account)
    assert subject.counted is counted and subject.disputed is disputed
    _, sections, page = told(subject)
    assert (len(page.odds.header) == 4) is counted
    assert ("PAID MORE" in page.verdict) is disputed and page.promised is not disputed
    if disputed:
        run = {**RUN, **change}
        law = Laplace(14.0) if change.get("mechanism", {}).get("kind") == "laplace" else None
        law = law or Gaussian(run["mechanism"]["noise_multiplier"])
        paid = exact(law, run["rounds_charged"] * run["local_updates"], 1e-5).epsilon
        assert subject.epsilon == pytest.approx(paid, rel=1e-9)
        shown = float(rounded_up(paid, 3))
        assert page.odds.header[1] == "this run, as paid"
        assert page.odds.rows[1][1] == percent(suspicion(0.1, shown, 1e-5))
        assert sections["May be published"].startswith("Nothing")


@pytest.mark.parametrize(("before", "least"), [("", 1), ("a mean of rows", 2)])
def test_a_mean_is_the_release_that_costs_least_with_the_rounds(before, least):
    laws = Gaussian(9.0), Gaussian(50.0)
    releases = [
        RELEASE | {"run": f"release-{k}", "mechanism": m.to_dict()} for k, m in enumerate(laws)
    ]
    account = dataclasses.replace(ACCOUNT, runs=(RUN, *releases))
    paid = account.paid_for(dataclasses.replace(SAID, before=before), "winter", True)
    parts = [(LAW, 24), (Gaussian(50.0), 1)][:least]
    assert paid == pytest.approx(compose(parts, 1e-5).epsilon, rel=1e-9)


def test_all_runs_are_never_told_as_less_than_this_one():
    """1.0828 is shown as 1.09 of the run, and as 1.083 of the ledger."""
    account = dataclasses.replace(ACCOUNT, runs=(RUN,), spent=Guarantee(SAID.epsilon, 1e-3))
    rows = told(dataclasses.replace(SUBJECT, account=account))[2].odds.rows
    assert rows[1][2] == percent(suspicion(0.1, 1.09, 1e-3)) != percent(suspicion(0.1, 1.083, 1e-3))


@pytest.mark.parametrize(
    ("changes", "there"),
    [
        ({}, True),
        ({"others": 0}, False),
        ({"others": 0, "agents": ("north", "south")}, True),
        ({"apart": True}, False),
        ({"apart": True, "others": None}, False),
    ],
    ids=str,
)
def test_who_has_read_the_data_beside_their_owner(changes, there):
    words = told(dataclasses.replace(SUBJECT, **changes))[1]["Not covered"]
    assert ("whoever ran the command, which read the data of all agents" in words) is there


def test_one_change_that_is_no_record_makes_all_exact():
    load = "the active demand of one bus moving by at most 0.02 per unit"
    for changes, records in (((CHANGE,), True), ((CHANGE, load), False), ((load,), False)):
        hidden = tuple((change, ("north",)) for change in changes)
        said = dataclasses.replace(SAID, neighbours=hidden)
        words = told(dataclasses.replace(SUBJECT, statement=said, account=None))[1][
            "What is hidden"
        ]
        assert words.startswith("Whether any one record") is records
        assert all(change in words or change.capitalize() in words for change in changes)


@pytest.mark.parametrize(
    ("once", "secure", "seeded"), [(o, s, d) for o in (0, 1) for s, d in ((0, 0), (0, 1), (1, 0))]
)
def test_what_is_said_of_the_noise(once, secure, seeded):
    said = dataclasses.replace(SAID, once=bool(once), secure=bool(secure), seeded=bool(seeded))
    _, sections, page = told(dataclasses.replace(SUBJECT, statement=said, account=None))
    shared = sections["What was shared, and with whom"]
    assert ("a key of 64 bits" in shared) == (not secure and not seeded)
    assert ("follows from a seed" in shared) == bool(seeded)
    assert ("the seed" in sections["Must be kept"]) == bool(seeded)
    assert ("released once" in shared) == bool(once) != ("one in each round" in shared)
    assert ("secret" in page.verdict) == bool(seeded)


@pytest.mark.parametrize("once", [False, True])
def test_a_secure_sum_and_what_was_released_after_it(once):
    parts = {"parties": 3, "colluding": 1, "alone": 2.0, "after": "one noisy histogram"}
    said = dataclasses.replace(SAID, once=once, **parts)
    _, sections, page = told(dataclasses.replace(SUBJECT, statement=said, account=None))
    shared = sections["What was shared, and with whom"]
    assert ("A part of one sum" in shared) == once != ("A part of 24 sums of at most 5" in shared)
    assert "the sums alone, if at most 1 of the agents collude" in shared
    assert "in the clear" not in shared and "After that, in the same budget: one noisy" in shared
    assert "masks" not in shared  # of one process
    apart = dataclasses.replace(SUBJECT, statement=said, account=None, apart=True)
    assert "under masks" in told(apart)[1]["What was shared, and with whom"]
    assert page.odds.note.startswith("“It” is that a given record (one row of the table")


def test_an_evaluation_beside_a_run_is_named():
    files = ("evaluation.json", "model.json")
    sections = told(dataclasses.replace(SUBJECT, files=files))[1]
    shared = sections["What was shared, and with whom"]
    assert "one histogram of other records" in shared
    assert sections["May be published"].startswith("evaluation.json, model.json")


def test_columns_of_a_study_are_those_of_its_file_of_rules(tmp_path):
    (tmp_path / "rules.toml").write_text(
        "target = 'cost'\nranges = { age = [18, 90] }\ncategories = { sex = ['f', 'm'] }\n"
    )
    (tmp_path / "study.toml").write_text("[learn]\ncolumns = 'rules.toml'\n")
    assert _of_study(tmp_path / "study.toml") == "the columns age, sex; to predict cost"
    (tmp_path / "study.toml").write_text(f"[learn]\ncolumns = '{tmp_path}/rules.toml'\n")
    assert _of_study(tmp_path / "study.toml") == ""  # not beside it: not the study's own
