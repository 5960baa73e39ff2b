"""The ledger: exact over runs, within its budget, and no way around it."""

import math
from dataclasses import replace

import pytest
from conftest import repeat
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from tacit.errors import InvalidInput, Refused
from tacit.privacy.accounting import calibrate, compose, epsilon_of, exact
from tacit.privacy.ledger import Ledger, Terms
from tacit.privacy.mechanisms import Gaussian, Laplace, Noiseless, share_of


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
    ledger.charge("d", 1, 3)
    ledger.charge("c", 1, 7)  # last: a sum with Laplace noise takes a second
    together = compose([(gaussian, 26), (other, 2), (laplace, 14)], 1e-5)
    assert ledger.spent == together
    apart = sum(exact(m, n, 1e-5).epsilon for m, n in ((gaussian, 26), (other, 2), (laplace, 14)))
    assert ledger.spent.epsilon < apart
    assert Ledger(ledger.path).spent == together  # and is the same when read again
    alone = {run["run"]: run for run in ledger.runs()}
    assert alone["a"]["epsilon"] == exact(gaussian, 20, 1e-5).epsilon
    assert (alone["a"]["rounds_charged"], alone["a"]["rounds_answered"]) == (10, 0)


@pytest.mark.parametrize("turned", [False, True])
def test_what_an_agent_s_own_noise_has_spent_counts_all_runs(ledger, turned):
    """Of a secure sum by its share, of other runs by all of their noise, in any order."""
    law, other = Gaussian(60.0), Gaussian(90.0)
    runs = [("sum", replace(terms(law), parties=4, colluding=1)), ("own", terms(other))]
    for name, about in runs[:: -1 if turned else 1]:
        ledger.begin(name, about)
        ledger.charge(name, 1, 3)
    for found in (ledger, Ledger(ledger.path)):
        assert found.spent == compose([(law, 6), (other, 6)], 1e-5)
        alone = compose([(share_of(law, 3), 6), (other, 6)], 1e-5)
        assert found.spent_alone.epsilon == pytest.approx(alone.epsilon, rel=1e-9)


def test_the_distance_of_discrete_noise_is_counted(tmp_path):
    """A budget between the cost without and with it refuses the run."""
    mechanism, distance = Gaussian(40.0), 1e-9
    plain = epsilon_of([(mechanism, 100)], 1e-5)
    total = epsilon_of([(mechanism, 100)], 1e-5, 100 * distance)
    assert plain < total < 1.1 * plain
    tight = Ledger.create(tmp_path / "a.db", (plain + total) / 2, 1e-5)
    tight.begin("exact", terms(mechanism))
    with pytest.raises(Refused):
        tight.begin("discrete", terms(mechanism, distance=distance))
    wide = Ledger.create(tmp_path / "b.db", total * (1 + 1e-6), 1e-5)
    wide.begin("discrete", terms(mechanism, distance=distance))
    wide.charge("discrete", 1, 50)
    assert wide.spent.epsilon == pytest.approx(total, rel=1e-12)


def test_what_a_ledger_affords_is_what_it_would_charge(ledger):
    """What was spent counts, and every part that is asked for, of whatever mechanism."""
    one, other = Gaussian(40.0), Gaussian(70.0)
    ledger.set_budget(compose([(one, 30), (other, 5)], 1e-5).epsilon * (1 + 1e-9), 1e-5)
    assert ledger.affords((one, 30), (other, 5)) and ledger.affords((one, 10), (one, 20))
    assert not ledger.affords((one, 31), (other, 5))
    assert not ledger.affords((one, 20), (one, 20))
    ledger.begin("a", terms(one, 10, 1))
    ledger.charge("a", 1, 10)
    assert ledger.affords((one, 20), (other, 5))
    assert not ledger.affords((one, 21), (other, 5))


@effort(deadline=None, max_examples=repeat(12, 25))
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


def test_a_run_that_costs_exactly_the_budget_fits(tmp_path):
    for delta in (0.0, 1e-5):
        budget = exact(Laplace(60.0), 24, delta).epsilon
        ledger = Ledger.create(tmp_path / f"{delta}.db", budget, delta)
        ledger.begin("r", terms(Laplace(60.0), rounds=12))
        ledger.charge("r", 1, 12)
        assert ledger.spent.epsilon == ledger.budget.epsilon
        with pytest.raises(Refused, match="beyond the budget"):
            ledger.charge("r", 12, 12)


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


@pytest.mark.parametrize("bad", [(0, 1e-5), (-1, 1e-5), (math.inf, 1e-5), (1, 1.0), (1, -1e-5)])
def test_bad_budgets_are_refused(tmp_path, bad):
    with pytest.raises(InvalidInput):
        Ledger.create(tmp_path / "a.db", *bad)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("turned", [False, True])
def test_what_is_left_counts_all_runs(tmp_path, turned):
    """Of different noise: a run of just what is left fits, and none that is larger."""
    ledger = Ledger.create(tmp_path / "a.db", 2.0, 1e-5)
    for k, m in enumerate((40.0, 17.0)[:: -1 if turned else 1]):
        ledger.begin(str(k), terms(Gaussian(m), rounds=20))
        ledger.charge(str(k), 1, 20)
    for share, fits in ((1.0, True), (1.001, False)):
        assert ledger.affords((calibrate("gaussian", share * ledger.left, 1e-5, 1), 1)) is fits
    ledger.set_budget(ledger.spent.epsilon, 1e-5)
    assert ledger.left < 1e-2
    ledger.set_budget(0.1, 1e-5)
    assert ledger.left == 0
    assert Ledger.create(tmp_path / "b.db", 1.0, 0.0).left is None
    laplace = Ledger.create(tmp_path / "c.db", 9.0, 1e-5)
    laplace.begin("l", terms(Laplace(500.0), rounds=1))
    laplace.charge("l", 1, 1)
    assert laplace.left is None


def test_a_laplace_run_is_refused_where_it_would_not_fit_and_not_before(tmp_path):
    """What fits is found once: it starts from what the same noise, and others, have spent."""
    mine, other = Laplace(60.0), Laplace(90.0)
    together = compose([(mine, 24), (other, 6)], 1e-5).epsilon
    ledger = Ledger.create(tmp_path / "a.db", together * (1 + 1e-9), 1e-5)
    ledger.begin("o", terms(other, rounds=3))
    ledger.charge("o", 1, 3)
    ledger.begin("m", terms(mine, rounds=7))
    for t in (*range(1, 6), *range(1, 8)):
        ledger.charge("m", t, t)
    with pytest.raises(Refused, match="beyond the budget"):
        ledger.charge("m", 1, 1)


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


def test_terms_on_disk_are_those_of_the_first_version():
    """Entries are hashed as text: a ledger of 0.1.0 stays sound and its runs go on."""
    text = (
        '{"agent":"a","local_updates":2,"mechanism":{"kind":"gaussian","noise_multiplier":40.0},'
        '"neighbours":"one record","noise":"secure","rounds":50,"settings":"digest","slack":1e-09}'
    )
    assert terms(distance=1e-9).to_json() == text
    assert Terms.from_json(text) == terms(distance=1e-9)
    laplace = terms(Laplace(60.0))
    assert Terms.from_json(laplace.to_json()) == laplace
