"""The audit of secure sums: a server and colluding parties, who subtract their own shares."""

import math

import numpy as np
import pytest
from conftest import repeat
from test_audit import DELTA, moved_worlds

from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.lab.audit.bounds import largest_bound, lower_bounds
from tacit.lab.audit.neighbouring_data import Worlds
from tacit.objectives.exchange import Exchange
from tacit.privacy import secure_noise
from tacit.privacy.accounting import exact
from tacit.privacy.mechanisms import Gaussian, share_of
from tacit.protocol.masks import Epoch, added_up
from tacit.protocol.messages import Broadcast, Roster, Sum
from tacit.protocol.summed import Summand, shared_noise
from tacit.sets.closed_form import Box

PARTIES, COLLUDING = 5, 3
TRIALS = repeat(250, 2000)
NOISE = Gaussian.analytic(8.0, DELTA)
CLAIMS = {
    COLLUDING: exact(NOISE, 1, DELTA).epsilon,
    PARTIES - 1: exact(share_of(NOISE, PARTIES - COLLUDING), 1, DELTA).epsilon,
}


@pytest.fixture(autouse=True)
def forgotten():
    """Grids of noise, which are kept: a test may plant a bug in them."""
    shared_noise.cache_clear()
    yield
    shared_noise.cache_clear()


def summands(problem):
    """Parties of one run, with keys for masks and secure noise, each with the same data; without
    ledgers, of which another audit is."""
    names = tuple(f"p{i}" for i in range(PARTIES))
    settings = Settings(1, mechanism=NOISE, delta=DELTA, penalty=1.0, step_size=0.01)
    Δ = problem.objective.sensitivity(2, problem.feasible_set)
    about, roster = Sum(1, names, COLLUDING, Δ), Roster(names)
    epochs = {name: Epoch("", "run", 1, roster, name) for name in names}
    told = {name: epoch.public for name, epoch in epochs.items()}
    sealed = {name: epoch.meet(told) for name, epoch in epochs.items()}
    for name, epoch in epochs.items():
        epoch.finish({p: s[name] for p, s in sealed.items() if name in s})
    run = settings, None, "run", problem.dimension, about, ""
    return [Summand(problem, name, *run, epochs[name], False, noise="secure") for name in names]


def household(hour):
    """It draws all it may in one of two hours, whatever the price."""
    f = Exchange(lambda z, x: x, np.eye(2)[hour], lambda z: z @ z, **PUBLIC)
    return LocalProblem(f, Box(-1, 1, size=2))


PUBLIC = {"size": 2, "clip": 1.0, "lower": 0.0, "smoothness": 1.0, "normaliser": 5.0}
HOUSEHOLDS = Worlds("household", "another household", household(0), household(1), None)


def views(worlds=None):
    """What the first party's data show, in units of Δ along the change, to c and to all others: the
    sum of all messages without the shares that colluders know. Both worlds, every trial."""
    found = {c: [] for c in CLAIMS}
    worlds = worlds or moved_worlds(1.0)
    z = np.zeros(2)
    φ = [np.asarray(p.objective.statistic(z)) for p in worlds.problems]
    Δ = worlds.without.objective.sensitivity(2, worlds.without.feasible_set)
    assert np.linalg.norm(φ[1] - φ[0]) > 0.9 * Δ
    for problem in worlds.problems:
        target, others = summands(problem)[0], summands(worlds.without)[1:]
        everybody = [target, *others]
        keys = [one.epoch for one in summands(worlds.without)]  # of one exchange, for all
        for one, epoch in zip(everybody, keys, strict=True):
            one.epoch = epoch
        seen = {c: [] for c in CLAIMS}
        for _ in range(TRIALS):
            for one in everybody:
                one.rounds_done, one._last = 0, None  # a run of its own, with the same keys
            total = added_up([one.respond(Broadcast("run", 1, z)).values for one in everybody])
            for c, told in seen.items():
                left = total - sum(one.average for one in others[len(others) - c :])
                told.append(left * target._grid.spacing @ (φ[1] - φ[0]) / Δ**2)
        for c, told in seen.items():
            found[c].append(np.array(told))
    return found


def bounds(found):
    """Lower bounds on ε for both numbers of colluders, each with all confidence but one percent."""
    epsilons = {}
    for c, (without, with_it) in found.items():
        noise = NOISE if c == COLLUDING else share_of(NOISE, PARTIES - COLLUDING)
        about = ("likelihood",), noise, 1, DELTA
        told = lower_bounds(without[None], with_it[None], *about)
        epsilons[c] = max(told.free, told.curve)
        assert largest_bound(TRIALS, noise, 1, DELTA) > CLAIMS[c]  # it could be refuted
    return epsilons


def test_both_claims_hold_and_are_near():
    found = bounds(views())
    assert all(0.3 * claim < found[c] <= claim for c, claim in CLAIMS.items())
    assert 1.3 * CLAIMS[COLLUDING] < CLAIMS[PARTIES - 1]


def test_a_whole_household_is_hidden_in_an_exchange():
    found = bounds(views(HOUSEHOLDS))
    assert all(0.3 * claim < found[c] <= claim for c, claim in CLAIMS.items())


def test_half_the_diameter_of_a_household_is_caught(monkeypatch):
    real = Exchange.widest.fget
    monkeypatch.setattr(Exchange, "widest", property(lambda self: real(self) / 2))
    found = bounds(views(HOUSEHOLDS))
    assert all(found[c] > claim for c, claim in CLAIMS.items())


def test_shares_for_all_parties_are_caught(monkeypatch):
    """σ/√P in place of σ/√(P − c): c colluders take more away than was added for them."""
    monkeypatch.setattr(Sum, "shares", property(lambda self: len(self.names)))
    found = bounds(views())
    assert any(found[c] > claim for c, claim in CLAIMS.items())  # by chance not always both


def test_half_a_share_is_caught(monkeypatch):
    real = secure_noise.discrete_gaussian
    monkeypatch.setattr(secure_noise, "discrete_gaussian", lambda variance: real(variance / 4))
    found = bounds(views())
    assert all(found[c] > claim for c, claim in CLAIMS.items())


def test_one_share_and_the_sum_have_their_deviations():
    """Within a percent; five per cent would be seen."""
    one = summands(moved_worlds(1.0).without)[0]
    draws = np.concatenate([one._grid.draw(4).values.ravel() for _ in range(2500)])
    expected = float(one._grid.scale) / math.sqrt(PARTIES - COLLUDING)
    assert abs(draws.std() / expected - 1) < 4 / math.sqrt(2 * len(draws)) < 0.05
