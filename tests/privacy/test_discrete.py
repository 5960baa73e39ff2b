"""Discrete noise: the exact mass function, and every branch of the tables."""

import math
import os
from decimal import Decimal

import numpy as np
import pytest
from scipy import stats

from tacit.privacy import secure_noise

COUNT = 200_000


def exact_masses(name, scale, size):
    k = np.arange(-size, size + 1)
    mass = np.exp(-(k**2) / (2 * scale**2)) if name == "gaussian" else np.exp(-np.abs(k) / scale)
    return k, mass / mass.sum()


def law_of(name, scale):
    scale = Decimal(scale)
    if name == "gaussian":
        return secure_noise.discrete_gaussian(scale**2)
    return secure_noise.discrete_laplace(scale)


def chi_square(values, k, mass):
    """p-value of the counts, cells with fewer than 10 expected merged at both ends."""
    keep = mass * len(values) >= 10
    low, high = k[keep][0], k[keep][-1]
    clipped = np.clip(values, low, high)
    seen = np.bincount(clipped - low, minlength=high - low + 1)
    expected = np.array([mass[k == j].sum() for j in range(low, high + 1)])
    expected[0], expected[-1] = mass[k <= low].sum(), mass[k >= high].sum()
    return stats.chisquare(seen, expected / expected.sum() * len(values)).pvalue


@pytest.mark.parametrize("name", ["gaussian", "laplace"])
@pytest.mark.parametrize("scale", [0.7, 3.0, 40.5])
def test_counts_fit_the_exact_mass_function_and_not_another(name, scale):
    k, mass = exact_masses(name, scale, int(60 * scale) + 5)
    values = secure_noise.sample(law_of(name, scale), COUNT)
    assert chi_square(values, k, mass) > 1e-4
    _, wrong = exact_masses(name, 1.05 * scale, int(60 * scale) + 5)
    assert chi_square(values, k, wrong) < 1e-6


@pytest.mark.parametrize(
    ("name", "scale", "law"),
    [("gaussian", 1.3 * 2.0**28, stats.norm), ("laplace", 1.6 * 2.0**40, stats.laplace)],
)
def test_wide_laws_are_sums_of_tables(name, scale, law):
    made = law_of(name, scale)
    assert len(made.tables) >= 3
    values = secure_noise.sample(made, COUNT)
    assert stats.kstest(values / scale, law.cdf).pvalue > 1e-4
    assert stats.kstest(values / (1.05 * scale), law.cdf).pvalue < 1e-4
    # low digits are as random as they should be
    assert stats.chisquare(np.bincount(values % 64, minlength=64)).pvalue > 1e-4


def masses_of(table):
    """The exact masses of a table, from its 256-bit thresholds."""
    thresholds = [int(h) << 192 | m for h, m in zip(table.high, table.low, strict=True)]
    steps = np.diff(np.array([0, *thresholds, 2**256], dtype=object))
    return {table.first + i: int(step) for i, step in enumerate(steps)}


def test_tables_are_exact_far_into_the_tail():
    (table,) = secure_noise.discrete_gaussian(Decimal("7.3")).tables
    masses = masses_of(table)
    assert sum(masses.values()) == 2**256 and min(masses) == -max(masses)
    for k in (0, 1, 5, 20, 35):  # 13 scales
        ratio = Decimal(masses[k]) / Decimal(masses[0])
        exact = (-Decimal(k * k) / (2 * Decimal("7.3"))).exp()
        assert abs(ratio / exact - 1) < Decimal("1e-24")


def test_digits_of_laplace_have_the_wide_law(monkeypatch):
    """A narrow radix, so that all masses can be computed: every digit counts."""
    monkeypatch.setattr(secure_noise, "RADIX", (8, 8))
    monkeypatch.setattr(secure_noise, "WIDEST_TABLE", (32, 6))
    scale = Decimal("211.7")
    law = secure_noise.discrete_laplace.__wrapped__(scale)
    digits = [masses_of(table) for table in law.tables]
    assert len(digits) == 3 and law.one_sided
    whole = Decimal(2) ** 256

    def mass(k):
        parts = [k % 8, k // 8 % 8, k // 64]
        shares = [Decimal(d[p]) / whole for d, p in zip(digits, parts, strict=True)]
        return math.prod(shares, start=Decimal(1))

    for k in (0, 1, 7, 8, 63, 64, 500, 3000):
        assert abs(mass(k) / mass(0) / (-k / scale).exp() - 1) < Decimal("1e-20")
    assert sum(mass(k) for k in range(0, 64 * len(digits[2]), 1)) == pytest.approx(Decimal(1))


def test_sum_of_two_gaussian_tables_has_the_wide_law(monkeypatch):
    """A narrow radix, so that all masses of the sum can be computed and compared."""
    monkeypatch.setattr(secure_noise, "RADIX", (8, 8))
    monkeypatch.setattr(secure_noise, "WIDEST_TABLE", (32, 32))
    variance = Decimal("4321.7")
    fine, coarse = secure_noise.discrete_gaussian.__wrapped__(variance).tables
    total = {}
    fine, coarse = masses_of(fine), masses_of(coarse)
    for b, q in coarse.items():
        for a, p in fine.items():
            total[a + 8 * b] = total.get(a + 8 * b, 0) + p * q
    for k in (0, 3, 100, -357, 500):
        ratio = Decimal(total[k]) / Decimal(total[0])
        exact = (-Decimal(k * k) / (2 * variance)).exp()
        assert abs(ratio / exact - 1) < Decimal("1e-20")


def bytes_from(chunks, monkeypatch):
    chunks = iter(chunks)
    monkeypatch.setattr(secure_noise, "random_bytes", lambda n: next(chunks))


def test_undecided_bits_are_followed_by_more(monkeypatch):
    table = secure_noise.Table(0, np.array([5, 5, 9], np.uint64), (10, 20, 0))
    word = lambda x: int(x).to_bytes(8, "little")  # noqa: E731
    for rest, outcome in ((9, 0), (10, 1), (19, 1), (20, 2)):
        bytes_from([word(5), rest.to_bytes(24, "little")], monkeypatch)
        assert secure_noise._draw(table, 1) == outcome
    for first, outcome in ((4, 0), (6, 2), (10, 3)):
        bytes_from([word(first)], monkeypatch)
        assert secure_noise._draw(table, 1) == outcome


def test_negative_zero_is_drawn_again(monkeypatch):
    law = secure_noise.discrete_laplace(Decimal("0.5"))
    zero, large = bytes(8), (2**64 - 2**40).to_bytes(8, "little")
    bytes_from([zero, b"\x01", large, b"\x01"], monkeypatch)
    assert secure_noise.sample(law, 1) < 0


def test_bits_come_from_the_operating_system():
    assert secure_noise.random_bytes is os.urandom
    law = law_of("gaussian", 2.0**28)
    assert not np.array_equal(secure_noise.sample(law, 50), secure_noise.sample(law, 50))
