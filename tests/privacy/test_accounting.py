"""A stated (epsilon, delta) is never too small, and hardly larger than the truth."""

import math

import dp_accounting as dp
import numpy as np
import pytest
from conftest import repeat
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from tacit.errors import InvalidInput
from tacit.privacy import accounting
from tacit.privacy.accounting import (
    Guarantee,
    basic,
    calibrate,
    compose,
    delta_of,
    epsilon_of,
    exact,
    paper,
    rounded_down,
    rounded_up,
)
from tacit.privacy.mechanisms import Gaussian, Laplace, Noiseless, gaussian_epsilon

# --- Gaussian -----------------------------------------------------------------------------

TABLE = [  # epsilon and delta of one update, updates, the paper's total, the exact total
    (1, 1e-6, 100, 9.92, 10.25),
    (1, 1e-6, 5_000, 70.1, 151.6),
    (1, 1e-6, 50_000, 221.8, 1090.0),
    (0.1, 1e-2, 500, 2.18, 1.493),
    (1, 1e-2, 500, 21.8, 41.8),
]


@pytest.mark.parametrize("row", TABLE)
def test_table_of_totals(row):
    epsilon, delta, updates, by_paper, true = row
    assert paper(epsilon, delta, updates).epsilon == pytest.approx(by_paper, rel=3e-3)
    total = exact(Gaussian.classical(epsilon, delta), updates, delta)
    assert total.epsilon == pytest.approx(true, rel=1.5e-3)
    assert total.delta == delta
    assert basic(epsilon, delta, updates) == Guarantee(updates * epsilon, min(1, updates * delta))


# --- Laplace ------------------------------------------------------------------------------


def scalar(shift, log_gamma):
    """D_gamma(Lap(0) || Lap(shift)) in closed form."""
    if log_gamma >= shift:
        return 0.0
    if log_gamma <= -shift:
        return -math.expm1(log_gamma)
    return -math.expm1((log_gamma - shift) / 2)


def pair(a, b, log_gamma):
    """D_gamma(Lap(0) x Lap(0) || Lap(a) x Lap(b)): integrate over the second coordinate."""
    kinks = [y for y in ((b - log_gamma - a) / 2, (b - log_gamma + a) / 2) if 0 < y < b]
    inner, _ = quad(
        lambda y: math.exp(-y) * scalar(a, log_gamma + 2 * y - b),
        0,
        b,
        points=kinks or None,
        epsabs=1e-13,
        epsrel=1e-12,
    )
    return (scalar(a, log_gamma - b) + inner + math.exp(-b) * scalar(a, log_gamma + b)) / 2


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.5, 0.9])
def test_one_and_two_laplace_updates(epsilon, fraction):
    at, mechanism = fraction * epsilon, Laplace(1 / epsilon)
    for updates, truth in ((1, scalar(epsilon, at)), (2, pair(epsilon, epsilon, 2 * at))):
        stated = delta_of([(mechanism, updates)], updates * at)
        assert truth * (1 - 1e-9) <= stated <= truth * (1 + 1e-3)
    total = exact(mechanism, 1, scalar(epsilon, at)).epsilon
    assert total == pytest.approx(at, rel=5e-4, abs=1e-5 * epsilon)


@pytest.mark.parametrize("total", [0.3, 2.0, 9.0])
def test_lemma_the_worst_neighbour_moves_one_coordinate(total):
    for log_gamma in np.linspace(-0.95, 0.95, 9) * total:
        along = [pair(a, total - a, log_gamma) for a in np.linspace(total / 2, total, 9)]
        assert np.all(np.diff(along) >= -1e-11)
        assert along[-1] == pytest.approx(scalar(total, log_gamma), abs=1e-11)


@pytest.mark.parametrize("updates", [1, 40, 1000])
def test_a_vector_costs_no_more_than_a_scalar(updates):
    parts = [(Laplace(1 / 0.06), updates), (Laplace(1 / 0.04), updates)]
    assert epsilon_of(parts, 1e-6) <= exact(Laplace(1 / 0.1), updates, 1e-6).epsilon


@pytest.mark.parametrize(("delta", "above"), [(1e-9, 3e-3), (1e-12, 0.12), (1e-100, 0.12)])
def test_laplace_small_delta_is_not_lost_in_rounding(delta, above):
    """Central limit: many small updates behave like one Gaussian update; Renyi below 1e-10."""
    laplace = exact(Laplace(1e4), 50_000, delta).epsilon
    gaussian = exact(Gaussian(1e4), 50_000, delta).epsilon
    assert gaussian * (1 - 1e-3) <= laplace <= gaussian * (1 + above)


@pytest.mark.parametrize("epsilon", [1e-5, 0.01, 1.0, 30.0, 2000.0])
@pytest.mark.parametrize("updates", [1, 30, 100_000])
def test_laplace_bounds_at_every_scale(epsilon, updates):
    """Below the pure epsilon, and above the mean loss less two standard deviations."""
    stated = exact(Laplace(1 / epsilon), updates, 1e-3).epsilon
    mean = updates * (epsilon + math.expm1(-epsilon))
    deviation = math.sqrt(updates) * min(epsilon, 2.0)
    assert stated <= updates * epsilon * (1 + 1e-14)
    assert stated >= mean - 2 * deviation
    assert exact(Laplace(1 / epsilon), updates, 0.0).epsilon == pytest.approx(updates * epsilon)


# --- composition --------------------------------------------------------------------------


def test_count_is_repetition():
    for mechanism in (Gaussian(3.0), Laplace(3.0)):
        once = exact(mechanism, 6, 1e-5).epsilon
        assert compose([(mechanism, 1)] * 6, 1e-5).epsilon == pytest.approx(once, rel=1e-12)
        assert compose([(mechanism, 2), (mechanism, 4)], 1e-5).epsilon == pytest.approx(
            once, rel=1e-12
        )


GOOGLE = [  # parts, delta, and the cell of the accountant's grid
    ([(Laplace(10.0), 500)], 1e-2, 2e-4),
    ([(Laplace(0.5), 300)], 1e-6, 4e-3),
    ([(Gaussian(4.0), 1)], 1e-7, 1e-4),
    ([(Gaussian(4.0), 10)], 1e-2, 1e-4),
    ([(Laplace(2.0), 3), (Laplace(7.0), 100)], 1e-2, 1e-3),
    ([(Gaussian(1.0), 1), (Laplace(2.0), 2), (Laplace(30.0), 50)], 1e-6, 1e-3),
]


@pytest.mark.parametrize(("parts", "delta", "cell"), GOOGLE)
def test_totals_are_those_of_google(parts, delta, cell):
    accountant = dp.pld.PLDAccountant(value_discretization_interval=cell)
    for mechanism, updates in parts:
        accountant.compose(mechanism.event(updates))
    stated = epsilon_of(parts, delta)
    assert stated == pytest.approx(accountant.get_epsilon(delta), rel=1e-3, abs=1e-4)
    assert delta_of(parts, stated) <= delta


def test_negligible_parts_do_not_blow_up_the_grid(monkeypatch):
    monkeypatch.setattr(accounting, "LARGEST_GRID", repeat(200_000, accounting.LARGEST_GRID))
    monkeypatch.setattr(accounting, "_grid_epsilon", accounting._grid_epsilon.__wrapped__)
    total = epsilon_of([(Gaussian(1.0), 1), (Laplace(1e9), 1)], 1e-6)
    assert total == pytest.approx(gaussian_epsilon(1.0, 1e-6), rel=2e-4)


def test_noiseless_is_never_private():
    assert exact(Noiseless(), 1, 1e-5).epsilon == math.inf
    assert epsilon_of([(Gaussian(1.0), 3), (Noiseless(), 1)], 1e-5) == math.inf
    assert delta_of([(Laplace(1.0), 3), (Noiseless(), 1)], 10.0) == 1.0
    assert "inf" in str(exact(Noiseless(), 1, 1e-5))


@given(st.floats(0.01, 20), st.floats(1e-9, 0.1), st.integers(1, 300), st.booleans(), st.booleans())
@settings(max_examples=12)
def test_epsilon_and_delta_are_inverse(multiplier, delta, updates, gaussian, laplace):
    parts = [(Gaussian(multiplier), updates)] * gaussian + [
        (Laplace(multiplier), updates)
    ] * laplace
    if not parts:
        return
    epsilon = epsilon_of(parts, delta)
    assert delta_of(parts, epsilon) <= delta
    if epsilon > 0 and not (laplace and not gaussian and delta_of(parts, epsilon) == 0):
        assert delta_of(parts, epsilon * 0.999) > delta


# --- calibration --------------------------------------------------------------------------


@given(
    st.sampled_from(["gaussian", "laplace"]),
    st.floats(-3, 3).map(lambda x: 10**x),
    st.floats(-15, -0.5).map(lambda x: 10**x),
    st.floats(0, 5).map(lambda x: round(10**x)),
)
@settings(max_examples=repeat(15, 30))
def test_calibrated_noise_meets_the_budget(name, epsilon, delta, updates):
    total = exact(calibrate(name, epsilon, delta, updates), updates, delta)
    assert 0.999 * epsilon <= total.epsilon <= epsilon
    assert total.delta == delta


def test_pure_budget():
    mechanism = calibrate("laplace", 3.0, 0.0, 7)
    assert mechanism.noise_multiplier == pytest.approx(7 / 3)
    assert exact(mechanism, 7, 0.0).epsilon <= 3.0


# --- words and errors ---------------------------------------------------------------------


def test_text_rounds_up():
    assert str(Guarantee(1.4928123, 1e-2)) == "epsilon <= 1.4929, delta <= 0.01"
    assert str(Guarantee(1090.0001, 1.000001e-6)) == "epsilon <= 1090.1, delta <= 1.0001e-06"
    assert str(Guarantee(2.0, 0.0)) == "epsilon <= 2, delta <= 0"


@given(st.floats(1e-12, 1e12), st.integers(1, 8))
def test_what_is_left_is_never_told_as_more_nor_what_is_spent_as_less(value, digits):
    below, above = float(rounded_down(value, digits)), float(rounded_up(value, digits))
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    assert value - unit * (1 + 1e-9) <= below <= value * (1 + 1e-12)
    assert value * (1 - 2e-12) <= above <= value + unit * (1 + 1e-9)


# beyond the grid: too small a delta, too many updates, too wide a law; of Laplace noise alone, and
# with Gaussian noise beside it
BESIDE = [[], [(Gaussian(2.0), 3)]]
BEYOND = [([(Laplace(9.0), 40)], 1e-12), ([(Laplace(400.0), 100_001)], 1e-4)]


@pytest.mark.parametrize("beside", BESIDE, ids=len)
@pytest.mark.parametrize(("parts", "delta"), BEYOND)
def test_totals_beyond_the_grid_are_those_of_renyi(parts, delta, beside):
    accountant = dp.rdp.RdpAccountant()
    for mechanism, updates in [*parts, *beside]:
        accountant.compose(mechanism.event(updates))
    stated = epsilon_of([*parts, *beside], delta)
    assert stated == pytest.approx(accountant.get_epsilon(delta), rel=1e-6)
    if delta > 1e-10:
        assert delta_of([*parts, *beside], stated) == pytest.approx(delta, rel=1e-3)


@pytest.mark.parametrize("beside", BESIDE, ids=len)
def test_a_law_too_wide_for_a_grid_costs_its_pure_epsilon(beside):
    """Never less than its parts, nor more than their sum."""
    parts = [(Laplace(1 / 400), 2), *beside]
    more = exact(Gaussian(2.0), 3, 1e-5).epsilon if beside else 0.0
    assert epsilon_of(parts, 1e-5) == pytest.approx(800 + more, rel=1e-12)
    assert delta_of(parts, 799.0) == 1.0
    assert delta_of(parts, 801.0) == (1.0 if beside else 0.0)


BAD = {"epsilon": (-1.0, math.nan, math.inf), "delta": (1.0, -0.1, math.nan)}
BAD["updates"] = (0, -3, 2.5, True)
CALLS = {
    "basic": basic,
    "paper": paper,
    "calibrate": lambda epsilon, delta, updates: calibrate("laplace", epsilon, delta, updates),
    "exact": lambda epsilon, delta, updates: exact(Laplace(1 / epsilon), updates, delta),
    "compose": lambda epsilon, delta, updates: compose([(Gaussian(1 / epsilon), updates)], delta),
}


@pytest.mark.parametrize(("what", "bad"), [(what, bad) for what in BAD for bad in BAD[what]])
@pytest.mark.parametrize("call", CALLS)
def test_arguments_out_of_range_are_refused(call, what, bad):
    with pytest.raises(InvalidInput):
        CALLS[call](**{"epsilon": 1.0, "delta": 1e-5, "updates": 3, what: bad})


@pytest.mark.parametrize(
    "call",
    [
        lambda: calibrate("gaussian", 0.0, 1e-5, 3),
        lambda: compose([], 1e-5),
        lambda: compose([("gaussian", 3)], 1e-5),
        lambda: calibrate("noiseless", 1.0, 1e-5, 3),
        lambda: calibrate("gaussian", 1.0, 0.0, 3),
        lambda: exact(Gaussian(1.0), 3, 0.0),
        lambda: delta_of([(Laplace(1.0), 1)], -1.0),
    ],
)
def test_what_has_no_guarantee_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
