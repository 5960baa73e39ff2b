"""Secure sums: nobody learns a part, and all add the noise of one."""

from __future__ import annotations

import numpy as np
import pytest

import tacit
from tacit.admm.settings import Asked
from tacit.errors import InvalidInput
from tacit.objectives import LeastSquares, LogisticRegression
from tacit.privacy.ledger import Ledger
from tacit.sets import Box

BUDGET = Asked(1.0, 1e-5)


def parties(many=4, kind="classes", each=30, size=3):
    """Parties with records of one kind on one common set."""
    rng = np.random.default_rng(0)
    found = []
    for p in range(many):
        X = rng.normal(size=(each, size)) / 2
        common = {"feature_norm": 1.0, "normaliser": many * each, "ridge": 1e-3}
        common["neighbours"] = "zero-out"
        if kind == "classes":
            f = LogisticRegression(X, X @ np.ones(size) > 0, **common)
        else:
            f = LeastSquares(X, X @ np.ones(size), target_bound=1.0, **common)
        found.append(tacit.LocalProblem(f, Box(-3, 3, size=size), name=f"party {p}"))
    return found


def test_masks_change_no_bit():
    given = parties()
    plain, masked = (
        tacit.solve(given, BUDGET, seed=1, aggregation="sum", batch=batch)
        for batch in (None, False)
    )
    assert np.array_equal(plain.solution, masked.solution)
    assert plain.privacy == masked.privacy
    assert plain.privacy.parties == 4 and plain.privacy.colluding == 1
    assert plain.names == tuple(p.name for p in given) and len(plain.local) == 4


@pytest.mark.parametrize("many, colluding", [(2, 1), (4, 0), (4, 3), (4, 4), (4, -1), (4, True)])
def test_sums_that_bring_nothing_are_refused(many, colluding):
    with pytest.raises(InvalidInput, match="Nothing was computed"):
        tacit.solve(parties(many), BUDGET, seed=1, aggregation="sum", colluding=colluding)


def test_coordinates_of_an_agents_own_are_named_as_what_cannot_be_summed():
    given = [tacit.LocalProblem(p.objective, p.feasible_set, [0, 1, -1]) for p in parties()]
    with pytest.raises(InvalidInput, match="'agent 1', of which not all coordinates are in common"):
        tacit.solve(given, BUDGET, seed=1, aggregation="sum")


def test_colluding_is_of_a_sum():
    with pytest.raises(InvalidInput, match="colluding=1"):
        tacit.solve(parties(), BUDGET, seed=1, colluding=1)


def ledgers(folder, given, epsilon=5.0):
    return {p.name: Ledger.create(folder / f"{p.name}.db", epsilon, 1e-5) for p in given}


def test_ledgers_pay_for_a_sum_and_keep_no_part(tmp_path):
    given = parties()
    own = ledgers(tmp_path, given)
    found = tacit.solve(given, Asked(1.0, 1e-5, rounds=5), ledgers=own, aggregation="sum")
    assert found.privacy.secure and found.privacy.epsilon <= 1.0 < found.privacy.alone
    for ledger in own.values():
        assert ledger.spent.epsilon == pytest.approx(1.0, rel=1e-6)
        assert ledger.spent_alone.epsilon == pytest.approx(found.privacy.alone, rel=1e-6)
    assert not any(p.is_file() for p in tmp_path.glob("*-parts/**/*"))


def test_a_release_of_a_sum_is_kept_by_its_checkpoint_alone(tmp_path):
    given = parties(kind="numbers")
    own = ledgers(tmp_path, given)
    how = {"ledgers": own, "aggregation": "sum", "checkpoint": tmp_path / "sum.npz"}
    once, again = (tacit.solve(given, BUDGET, **how) for _ in range(2))
    assert np.array_equal(once.solution, again.solution)
    assert once.privacy.once and once.names == again.names
    spent = {ledger.spent.epsilon for ledger in own.values()}
    assert max(spent) == pytest.approx(1.0, rel=1e-6)
    with pytest.raises(InvalidInput, match="others by now"):
        tacit.solve(parties(kind="numbers", each=29), BUDGET, **how)


def test_a_sum_goes_on_where_it_was_stopped(tmp_path):
    given, settings = parties(), Asked(1.0, 1e-5, rounds=6)
    whole = tacit.solve(given, settings, seed=2, aggregation="sum")

    def stop(now):
        if now.round == 3:
            raise KeyboardInterrupt

    how = {"seed": 2, "aggregation": "sum", "checkpoint": tmp_path / "state.npz"}
    with pytest.raises(KeyboardInterrupt):
        tacit.solve(given, settings, callback=stop, **how)
    assert np.array_equal(tacit.solve(given, settings, **how).solution, whole.solution)
    with pytest.raises(InvalidInput, match="colluding"):
        tacit.solve(given, settings, **how, colluding=2)
