"""The ledger: durable, exact over runs, never started afresh, and no way around it."""

import json
import math
import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from tacit.cli.main import main
from tacit.errors import CorruptFile, InvalidInput, LedgerFailure, Refused
from tacit.privacy.accounting import calibrate, compose, epsilon_of, exact
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian, Laplace, Noiseless
from tacit.privacy.spending import Terms


def terms(mechanism=None, rounds=50, local_updates=2, distance=0.0, hides="one record"):
    mechanism = mechanism or Gaussian(40.0)
    return Terms("a", mechanism, rounds, local_updates, distance, "secure", hides, "digest")


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "agent.db", 2.0, 1e-5)


def test_spend_over_runs_is_composed_exactly(ledger):
    gaussian, other, laplace = Gaussian(40.0), Gaussian(90.0), Laplace(800.0)
    for name, mechanism in (("a", gaussian), ("b", other), ("c", laplace), ("d", gaussian)):
        ledger.begin(name, terms(mechanism))
    ledger.charge("a", 1, 10)
    ledger.charge("b", 1, 1)
    ledger.charge("c", 1, 7)
    ledger.charge("d", 1, 3)
    together = compose([(gaussian, 26), (other, 2), (laplace, 14)], 1e-5)
    assert ledger.spent == together
    apart = sum(exact(m, n, 1e-5).epsilon for m, n in ((gaussian, 26), (other, 2), (laplace, 14)))
    assert ledger.spent.epsilon < apart
    assert Ledger(ledger.path).spent == together  # and is the same when read again
    alone = {run["run"]: run for run in ledger.runs()}
    assert alone["a"]["epsilon"] == exact(gaussian, 20, 1e-5).epsilon
    assert (alone["a"]["rounds_charged"], alone["a"]["rounds_answered"]) == (10, 0)


def test_the_distance_of_discrete_noise_is_counted(ledger):
    ledger.begin("a", terms(distance=1e-9))
    ledger.charge("a", 1, 10)
    plain = exact(Gaussian(40.0), 20, 1e-5).epsilon
    assert plain < ledger.spent.epsilon < 1.1 * plain
    assert ledger.spent.epsilon == epsilon_of([(Gaussian(40.0), 20)], 1e-5, 20 * 1e-9)


@effort(deadline=None, max_examples=25)
@given(st.data())
def test_no_sequence_of_charges_exceeds_the_budget(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("ledger") / "a.db"
    ledger = Ledger.create(
        path, data.draw(st.floats(0.2, 3)), data.draw(st.sampled_from([1e-6, 1e-3]))
    )
    multipliers = data.draw(st.lists(st.floats(5, 100), min_size=1, max_size=3, unique=True))
    refused = 0
    for i, m in enumerate(multipliers):
        try:
            ledger.begin(str(i), terms(Gaussian(m), rounds=30, local_updates=3))
        except Refused:
            refused += 1
            continue
        for _ in range(data.draw(st.integers(1, 4))):
            first = data.draw(st.integers(1, 30))
            try:
                ledger.charge(str(i), first, data.draw(st.integers(first, 30)))
            except Refused:
                refused += 1
        assert ledger.spent.epsilon <= ledger.budget.epsilon * (1 + 1e-9)
    head = ledger.head
    ledger.close()
    assert Ledger(path).head == head


@pytest.mark.parametrize("mechanism", [Gaussian(20.0), Laplace(60.0)], ids=lambda m: m.name)
def test_the_last_charge_that_fits_is_taken_and_the_next_refused(tmp_path, mechanism):
    budget = exact(mechanism, 2 * 12, 1e-5).epsilon
    ledger = Ledger.create(tmp_path / "a.db", budget * (1 + 1e-9), 1e-5)
    ledger.begin("r", terms(mechanism, rounds=12))
    with pytest.raises(Refused, match="beyond the budget"):
        ledger.begin("s", terms(mechanism, rounds=13))
    for t in range(1, 13):
        ledger.charge("r", t, t)
    before = ledger.head
    with pytest.raises(
        Refused, match=r"beyond the budget of .*12 rounds of this run are paid.* Nothing"
    ):
        ledger.charge("r", 12, 12)
    assert ledger.head == before
    assert ledger.spent.epsilon <= ledger.budget.epsilon


def test_pure_budgets_and_noiseless_runs(tmp_path):
    ledger = Ledger.create(tmp_path / "a.db", 1.0, 0.0)
    ledger.begin("l", terms(Laplace(100.0), rounds=49))
    ledger.charge("l", 1, 20)
    assert ledger.spent.epsilon == pytest.approx(0.4)
    for mechanism in (Gaussian(1e6), Noiseless()):
        with pytest.raises(Refused, match="delta 0 cannot pay"):
            ledger.begin("g", terms(mechanism))
    other = Ledger.create(tmp_path / "b.db", 1.0, 1e-5)
    with pytest.raises(Refused, match="epsilon inf"):
        other.begin("n", terms(Noiseless()))


def test_charges_outside_the_agreement_are_refused(ledger):
    with pytest.raises(Refused, match="not agreed"):
        ledger.charge("r", 1, 1)
    ledger.begin("r", terms(rounds=10))
    ledger.begin("r", terms(rounds=10))  # the same again is no change
    for first, last in ((0, 1), (3, 2), (5, 11)):
        with pytest.raises(Refused, match="between 1 and 10"):
            ledger.charge("r", first, last)
    with pytest.raises(Refused, match="other terms"):
        ledger.begin("r", terms(rounds=11))
    assert ledger.spent.epsilon == 0


def test_runs_that_hide_different_things_do_not_share_a_ledger(ledger):
    ledger.begin("r", terms())
    ledger.begin("s", terms(hides="one bus"))
    ledger.charge("r", 1, 1)
    for act in (lambda: ledger.charge("s", 1, 1), lambda: ledger.begin("t", terms(hides="a bus"))):
        with pytest.raises(Refused, match="cannot be added"):
            act()


def test_budget_can_change_and_what_is_spent_stays(ledger):
    ledger.begin("r", terms())
    ledger.charge("r", 1, 50)
    spent = ledger.spent.epsilon
    ledger.set_budget(0.1, 1e-5)
    assert ledger.spent.epsilon == spent > ledger.budget.epsilon
    with pytest.raises(Refused):
        ledger.charge("r", 1, 1)
    ledger.set_budget(5.0, 1e-5)
    ledger.charge("r", 1, 1)


def test_the_distance_of_discrete_noise_decides_at_the_edge(tmp_path):
    """A budget between the cost without and with it refuses the run."""
    mechanism, distance = Gaussian(40.0), 1e-9
    plain = epsilon_of([(mechanism, 100)], 1e-5)
    total = epsilon_of([(mechanism, 100)], 1e-5, 100 * distance)
    assert plain < total
    tight = Ledger.create(tmp_path / "a.db", (plain + total) / 2, 1e-5)
    tight.begin("exact", terms(mechanism))
    with pytest.raises(Refused):
        tight.begin("discrete", terms(mechanism, distance=distance))
    wide = Ledger.create(tmp_path / "b.db", total * (1 + 1e-6), 1e-5)
    wide.begin("discrete", terms(mechanism, distance=distance))
    wide.charge("discrete", 1, 50)
    assert wide.spent.epsilon == pytest.approx(total, rel=1e-12)


def test_laplace_charges_notice_other_runs_and_budgets(tmp_path):
    """How many updates fit is remembered; what else is spent must not be forgotten with it."""
    laplace, gaussian = Laplace(60.0), Gaussian(40.0)
    budget = exact(laplace, 2 * 12, 1e-5).epsilon * (1 + 1e-9)
    ledger = Ledger.create(tmp_path / "a.db", budget, 1e-5)
    ledger.begin("l", terms(laplace, rounds=12))
    ledger.begin("g", terms(gaussian, rounds=2))
    ledger.charge("l", 1, 6)
    ledger.charge("g", 1, 2)
    with pytest.raises(Refused):
        ledger.charge("l", 7, 12)
    assert ledger.spent.epsilon <= budget
    ledger.set_budget(ledger.spent.epsilon * (1 + 1e-9), 1e-5)
    with pytest.raises(Refused):
        ledger.charge("l", 7, 7)


def test_memory_follows_the_disk_when_a_commit_fails(ledger):
    ledger.begin("r", terms())
    before = ledger.head, ledger.spent

    class Failing:
        def __init__(self, db):
            self._db = db

        def execute(self, statement, *arguments):
            if statement == "COMMIT":
                raise sqlite3.OperationalError("disk I/O error")
            return self._db.execute(statement, *arguments)

        @property
        def in_transaction(self):
            return self._db.in_transaction

    real = ledger._db
    ledger._db = Failing(real)
    with pytest.raises(LedgerFailure, match="disk I/O"):
        ledger.charge("r", 1, 5)
    ledger._db = real
    assert (ledger.head, ledger.spent) == before
    ledger.charge("r", 1, 1)
    assert ledger.spent == exact(Gaussian(40.0), 2, 1e-5)


def test_a_ledger_made_meanwhile_is_not_replaced(tmp_path, monkeypatch):
    path = tmp_path / "a.db"
    connect = sqlite3.connect

    def slow(file, *arguments, **others):
        if str(file).endswith(".new") and not path.exists():
            monkeypatch.setattr(sqlite3, "connect", connect)
            filled(path)
        return connect(file, *arguments, **others)

    monkeypatch.setattr(sqlite3, "connect", slow)
    with pytest.raises(LedgerFailure, match="Expected to write"):
        Ledger.create(path, 9.0, 1e-5)
    assert Ledger(path).spent.epsilon > 0
    assert sorted(p.suffix for p in tmp_path.iterdir() if p.suffix == ".new") == []


@pytest.mark.parametrize("bad", [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 1.0), (1, -1e-5)])
def test_bad_budgets_are_refused(tmp_path, bad):
    with pytest.raises(InvalidInput):
        Ledger.create(tmp_path / "a.db", *bad)
    assert not list(tmp_path.iterdir())


def test_the_largest_further_run_fits(ledger):
    assert ledger.left == pytest.approx(2.0, rel=1e-4)
    ledger.begin("r", terms())
    ledger.charge("r", 1, 50)
    left = ledger.left
    assert ledger.budget.epsilon - ledger.spent.epsilon < left < ledger.budget.epsilon
    fitting = calibrate("gaussian", left, 1e-5, 10)
    ledger.begin("s", terms(fitting, rounds=5))
    with pytest.raises(Refused):
        ledger.begin("t", terms(calibrate("gaussian", 1.01 * left, 1e-5, 10), rounds=5))


def test_a_remembered_hash_shows_removed_entries(ledger, tmp_path, capsys):
    ledger.begin("r", terms())
    ledger.backup(tmp_path / "old.db")
    ledger.charge("r", 1, 1)
    remembered = ledger.head
    ledger.charge("r", 2, 2)
    assert ledger.holds(remembered) and ledger.holds(remembered[:16])
    assert not Ledger(tmp_path / "old.db").holds(remembered) and not ledger.holds("")
    assert main(["ledger", "show", str(ledger.path), "--expect", remembered[:16]]) == 0
    assert main(["ledger", "show", str(tmp_path / "old.db"), "--expect", remembered[:16]]) == 1
    assert "old copy" in capsys.readouterr().err


def test_one_answer_a_round(ledger):
    ledger.begin("r", terms())
    first, second = ledger.charge("r", 1, 1), ledger.charge("r", 1, 1)
    assert ledger.store(first, 1, "request", b"reply", b"state")
    for payment in (first, second):
        assert not ledger.store(payment, 1, "another", b"other", b"state")
    assert Ledger(ledger.path).answer("r", 1).reply == b"reply"
    assert ledger.answer("r").round == 1 and ledger.answer("r", 2) is None


# --- damage --------------------------------------------------------------------------------


def filled(path):
    ledger = Ledger.create(path, 2.0, 1e-5)
    ledger.begin("r", terms())
    for t in range(1, 6):
        payment = ledger.charge("r", t, t)
        ledger.store(payment, t, f"request {t}", os.urandom(3000), os.urandom(3000))
    ledger.close()
    return path


def tampered(statement):
    def change(path):
        db = sqlite3.connect(path)
        db.execute(statement)
        db.commit()
        db.close()

    return change


def cut(path):
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def scribbled(path):
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 200] = os.urandom(200)
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        scribbled,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"SQLite format 3\0" + os.urandom(4000)),
        lambda path: path.write_text("not a ledger"),
        tampered("DELETE FROM entries WHERE serial = 4"),
        tampered("DELETE FROM entries"),
        tampered("UPDATE entries SET last = 1 WHERE serial = 5"),
        tampered('UPDATE entries SET event = \'{"epsilon":9.0,"delta":0.1}\' WHERE serial = 1'),
        tampered("UPDATE entries SET reply = x'00' WHERE kind = 'answer' AND first = 2"),
        tampered("UPDATE entries SET state = x'00' WHERE kind = 'answer' AND first = 2"),
        tampered("UPDATE entries SET state = NULL WHERE kind = 'answer' AND first = 5"),
        tampered("UPDATE entries SET owner = '' WHERE kind = 'charge' AND first = 2"),
        tampered("UPDATE entries SET payment = 99 WHERE kind = 'answer' AND first = 2"),
        tampered("UPDATE entries SET serial = 99 WHERE serial = 5"),
        tampered("UPDATE entries SET time = '2020' WHERE serial = 3"),
        tampered("PRAGMA user_version = 1"),
        tampered("PRAGMA application_id = 7"),
    ],
)
def test_a_damaged_ledger_is_refused_and_left_alone(tmp_path, damage):
    path = filled(tmp_path / "a.db")
    damage(path)
    before = path.read_bytes()
    with pytest.raises((CorruptFile, LedgerFailure), match=r"Nothing was released|found none"):
        Ledger(path)
    with pytest.raises(InvalidInput, match="there is one"):
        Ledger.create(path, 1.0, 1e-5)
    assert path.read_bytes() == before


def test_a_missing_ledger_is_not_made(tmp_path):
    with pytest.raises(InvalidInput, match="found none"):
        Ledger(tmp_path / "a.db")
    assert not list(tmp_path.iterdir())


def test_a_full_or_read_only_disk_refuses(ledger):
    ledger.begin("r", terms())
    payment = ledger.charge("r", 1, 1)
    head, spent = ledger.head, ledger.spent
    pages = ledger._db.execute("PRAGMA page_count").fetchone()[0]
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerFailure, match=r"full.* Nothing was released"):
        ledger.store(payment, 1, "request", bytes(100_000), bytes(100_000))
    ledger._db.execute("PRAGMA max_page_count = 1000000")
    ledger._db.execute("PRAGMA query_only = ON")
    with pytest.raises(LedgerFailure, match=r"readonly.* Nothing was released"):
        ledger.charge("r", 2, 2)
    ledger._db.execute("PRAGMA query_only = OFF")
    assert (ledger.head, ledger.spent) == (head, spent)
    ledger.charge("r", 2, 2)
    assert Ledger(ledger.path).spent == exact(Gaussian(40.0), 4, 1e-5)


def test_backup_while_in_use(ledger, tmp_path):
    ledger.begin("r", terms())
    ledger.charge("r", 1, 2)
    ledger.backup(tmp_path / "copy.db")
    copied = ledger.head
    ledger.charge("r", 3, 3)
    copy = Ledger(tmp_path / "copy.db")
    assert copy.head == copied != ledger.head
    assert copy.spent.epsilon < ledger.spent.epsilon
    with pytest.raises(InvalidInput, match="there is one"):
        ledger.backup(tmp_path / "copy.db")


# --- several processes ---------------------------------------------------------------------

CHARGES = 40


def charge_many(path, run):
    ledger = Ledger(path)
    done = 0
    for t in range(1, CHARGES + 1):
        try:
            ledger.charge(run, t, t)
            done += 1
        except Refused:
            pass
    return done


def test_concurrent_processes_lose_no_charge(tmp_path):
    mechanism = Gaussian(30.0)
    fitting = 4 * CHARGES * 3 // 4  # the budget ends before all have charged everything
    epsilon = exact(mechanism, fitting, 1e-5).epsilon * (1 + 1e-9)
    path = tmp_path / "a.db"
    ledger = Ledger.create(path, epsilon, 1e-5)
    for run in "abcd":
        ledger.begin(run, terms(mechanism, rounds=CHARGES, local_updates=1))
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        done = pool.starmap(charge_many, [(path, run) for run in "abcd"])
    assert sum(done) == fitting
    assert sum(len(ledger.charged(run)) for run in "abcd") == fitting
    assert ledger.spent.epsilon <= epsilon
    assert Ledger(path).head == ledger.head


def test_the_thousandth_charge_does_no_more_work_than_the_tenth(ledger):
    """Counted in steps of SQLite's machine and entries read; times are in benchmarks/."""
    ledger.begin("r", terms(Gaussian(3000.0), rounds=2000, local_updates=1))
    steps = []
    count = [0]

    def tick():
        count[0] += 1
        return 0

    ledger._db.set_progress_handler(tick, 1)
    for t in range(1, 1001):
        count[0] = 0
        ledger.charge("r", t, t)
        steps.append(count[0])
    assert max(steps[900:]) <= 1.2 * max(steps[5:15])
    assert len(ledger._spend.updates) == 1


# --- the command ---------------------------------------------------------------------------


def test_commands(tmp_path, capsys):
    path = str(tmp_path / "agent one.db")
    assert main(["ledger", "budget", path, "--total-epsilon", "4", "--total-delta", "1e-5"]) == 0
    ledger = Ledger(path)
    ledger.begin("winter", terms())
    ledger.charge("winter", 1, 5)
    capsys.readouterr()
    assert main(["ledger", "show", path, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["budget"] == {"epsilon": 4.0, "delta": 1e-5}
    assert shown["spent"]["epsilon"] == ledger.spent.epsilon
    assert shown["runs"][0]["run"] == "winter" and shown["head"] == ledger.head
    assert main(["ledger", "show", path]) == 0
    text = capsys.readouterr().out
    assert "winter" in text and "budget" in text and ledger.head[:16] in text
    assert main(["ledger", "budget", path, "--total-epsilon", "3", "--total-delta", "1e-5"]) == 0
    assert ledger.budget.epsilon == 3.0
    assert main(["ledger", "backup", path, str(tmp_path / "copy.db"), "--json"]) == 0
    assert Ledger(tmp_path / "copy.db").head == ledger.head


def test_commands_refuse(tmp_path, capsys):
    missing = str(tmp_path / "none.db")
    assert main(["ledger", "show", missing]) == 2
    assert "found none" in capsys.readouterr().err
    assert main(["ledger", "budget", missing, "--total-epsilon", "0", "--total-delta", "1e-5"]) == 2
    assert "total_epsilon > 0" in capsys.readouterr().err
    assert not Path(missing).exists()
    (tmp_path / "text.db").write_text("hello")
    assert main(["ledger", "show", str(tmp_path / "text.db")]) == 1
    assert "Do not start afresh" in capsys.readouterr().err


EXAMPLE = Path(__file__).parents[2] / "examples" / "hospitals.toml"


def test_solve_with_ledgers_pays_resumes_and_refuses(tmp_path, capsys):
    """End to end: each hospital's ledger, a killed run that goes on, and the end of the budget."""
    folder = tmp_path / "ledgers"
    folder.mkdir()
    text = EXAMPLE.read_text()
    names = [line.split('"')[1] for line in text.splitlines() if line.startswith("name = ")]
    for name in names:
        Ledger.create(folder / f"{name}.db", 1.2, 1e-5)
    out = tmp_path / "first"
    command = [sys.executable, "-c", "from tacit.cli.main import main; raise SystemExit(main())"]
    command += ["solve", str(EXAMPLE), "--ledgers", str(folder), "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    watch = folder / f"{names[0]}.db"
    deadline = time.monotonic() + 120
    while not Ledger(watch).runs() or Ledger(watch).runs()[0]["rounds_answered"] < 25:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    spent = Ledger(watch).runs()[0]
    assert 25 <= spent["rounds_answered"] <= spent["rounds_charged"] < 100
    assert main(["solve", "--resume", str(out), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["noise_source"] == "operating system, exact (secure)"
    for name in names:
        (run,) = Ledger(folder / f"{name}.db").runs()
        assert (run["rounds_charged"], run["rounds_answered"]) == (100, 100)
        assert Ledger(folder / f"{name}.db").spent.epsilon <= 1.0
    assert (
        main(["solve", str(EXAMPLE), "--ledgers", str(folder), "--out", str(tmp_path / "b")]) == 1
    )
    assert "beyond the budget of 1.2" in capsys.readouterr().err
    assert main(["solve", "--resume", str(out), "--noise", "secure"]) == 2
    for wrong in (["--block", "0", "--ledgers", str(folder)], ["--block", "3"]):
        assert main(["solve", str(EXAMPLE), "--out", str(tmp_path / "c"), *wrong]) == 2
    shutil.rmtree(out)


def test_a_run_that_costs_exactly_the_budget_fits(tmp_path):
    for delta in (0.0, 1e-5):
        budget = exact(Laplace(60.0), 24, delta).epsilon
        ledger = Ledger.create(tmp_path / f"{delta}.db", budget, delta)
        ledger.begin("r", terms(Laplace(60.0), rounds=12))
        ledger.charge("r", 1, 12)
        assert ledger.spent.epsilon == ledger.budget.epsilon
        with pytest.raises(Refused, match="beyond the budget"):
            ledger.charge("r", 12, 12)


def test_a_payment_that_was_taken_over_is_the_new_owner_s(ledger):
    """Even while nothing was shown for it."""
    ledger.begin("r", terms())
    old = ledger.charge("r", 1, 1)
    new = ledger.take_over("r", 1)
    assert (new.serial, new.owner != old.owner) == (old.serial, True)
    head = ledger.head
    for stranger in (old, new._replace(owner=""), new._replace(owner="someone else")):
        with pytest.raises(Refused, match="taken the payment over"):
            ledger.store(stranger, 1, "request", b"reply", b"state")
        with pytest.raises(Refused, match="taken the payment over"):
            ledger.fail(stranger, 1)
    assert ledger.head == head
    assert ledger.store(new, 1, "request", b"reply", b"state")
