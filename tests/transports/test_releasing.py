"""One noisy release of every agent's data: its noise, its price, and that it is paid for once."""

import io
import json
import math

import numpy as np
import pytest
from scipy import stats

import tacit
from tacit.errors import CorruptFile, InvalidInput, Refused
from tacit.objectives.moments import Mean, SecondMoments
from tacit.privacy.accounting import calibrate
from tacit.protocol.release import Released
from tacit.protocol.statement import PrivacyStatement

RNG = np.random.default_rng(0)
A = RNG.normal(size=(6, 4))
DATA = RNG.normal(size=(2, 6))


def zones(data=DATA, beta=0.1, rows=6):
    """Two agents with 4 variables in common, each with private data d of ‖Az + d‖²."""
    W = tacit.Box(-5, 5, size=4)
    return tacit.Problem(
        tacit.LocalProblem(tacit.Residual(A[:rows], d[:rows], beta), W, name=name)
        for name, d in zip(("north", "south"), data, strict=True)
    )


def ledgers(folder, epsilon=1.0, delta=1e-5):
    return {
        name: tacit.Ledger.create(folder / f"{name}.db", epsilon, delta)
        for name in ("north", "south")
    }


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_noise_is_that_of_the_budget(mechanism, noise):
    size, beta = 30_000, 0.3
    matrix = np.ones((size, 1))
    problem = [
        tacit.LocalProblem(tacit.Residual(matrix, np.arange(size) / 7, beta), tacit.Box(-1, 1, 1))
    ]
    delta = 1e-5 if mechanism == "gaussian" else 0.0
    released = tacit.release(problem, 0.8, delta, mechanism=mechanism, noise=noise)
    ξ = released.releases[0].values - np.arange(size) / 7
    scale = calibrate(mechanism, 0.8, delta, 1).scale(beta)
    law = {"gaussian": stats.norm, "laplace": stats.laplace}[mechanism]
    assert stats.kstest(ξ, law(scale=scale).cdf).pvalue > 1e-6
    for wrong in (scale / 2, 1.1 * scale, scale**2):
        assert stats.kstest(ξ, law(scale=wrong).cdf).pvalue < 1e-6
    statement = released.privacy
    assert statement.certified and statement.once and statement.updates == 1
    assert statement.epsilon <= 0.8 * (1 + 1e-9) and statement.delta == delta
    assert statement.secure == (noise == "secure")
    assert "the sufficient statistics of each agent, once" in str(statement)
    np.testing.assert_array_equal(
        released.problem.agents[0].objective.data, released.releases[0].values
    )


def test_one_charge_for_ten_releases(tmp_path):
    books = ledgers(tmp_path)
    first = tacit.release(zones(), 1.0, 1e-5, ledgers=books)
    assert first.privacy.secure
    spent = books["north"].spent
    assert 0.99 < spent.epsilon <= 1.0
    for _ in range(9):
        again = tacit.release(zones(), 1.0, 1e-5, ledgers=tmp_path)
        for one, other in zip(first.releases, again.releases, strict=True):
            np.testing.assert_array_equal(one.values, other.values)
    assert books["north"].spent == spent
    assert sum(run["rounds_charged"] for run in books["north"].runs()) == 1
    with pytest.raises(Refused, match="beyond the budget"):  # another release of the same data
        tacit.release(zones(), 0.5, 1e-5, ledgers=tmp_path)


def test_no_agent_pays_where_one_cannot(tmp_path):
    books = ledgers(tmp_path)
    poor = tacit.Ledger.create(tmp_path / "poor.db", 0.1, 1e-5)
    with pytest.raises(Refused, match="beyond the budget"):
        tacit.release(zones(), 1.0, 1e-5, ledgers={"north": books["north"], "south": poor})
    assert books["north"].spent.epsilon == 0 and poor.spent.epsilon == 0


def squares():
    """Two agents whose all_statistics are sums over their records."""
    common = {"feature_norm": 5.0, "target_bound": 2.0, "normaliser": 12, "record_bound": 6}
    W = tacit.Box(-1, 1, size=4)
    return tacit.Problem(
        tacit.LocalProblem(tacit.LeastSquares(A, d, **common), W, name=name)
        for name, d in zip(("north", "south"), DATA, strict=True)
    )


def test_no_agent_pays_where_one_cannot_be_read(tmp_path, monkeypatch):
    problem, books = squares(), ledgers(tmp_path)
    south, values = problem.agents[1].objective, SecondMoments.values.func

    def too_large(statistics):
        if statistics.objective is south:
            raise MemoryError
        return values(statistics)

    monkeypatch.setattr(SecondMoments, "values", property(too_large))
    with pytest.raises(MemoryError):
        tacit.release(problem, 1.0, 1e-5, ledgers=books)
    assert all(book.spent.epsilon == 0 for book in books.values())


def test_a_plan_knows_how_many_values_there_are():
    mean = Mean(A, feature_norm=5.0, normaliser=12)
    for f in (zones().agents[0].objective, squares().agents[0].objective, mean):
        statistics = f.statistics()
        assert type(statistics.size) is int and statistics.values.shape == (statistics.size,)


def test_uncertified_data_are_not_paid_for(tmp_path):
    f = tacit.Residual(A, DATA[0], 0.1, doubt="beta is a guess.")
    agents = [tacit.LocalProblem(f, tacit.Box(-1, 1, size=4), name="north")]
    book = tacit.Ledger.create(tmp_path / "north.db", 1.0, 1e-5)
    with pytest.raises(Refused, match="beta is a guess"):
        tacit.release(agents, 1.0, 1e-5, ledgers={"north": book})
    assert book.spent.epsilon == 0
    released = tacit.release(agents, 1.0, 1e-5, seed=1)
    assert not released.privacy.certified and "Not certified" in released.privacy.words
    agents = [zones().agents[1], *agents]  # whoever of them it is
    assert "beta is a guess" in tacit.release(agents, 1.0, 1e-5, seed=1).privacy.uncertified


def test_seeds_and_runs():
    one, again = (tacit.release(zones(), 1.0, 1e-5, seed=3) for _ in range(2))
    other = tacit.release(zones(), 1.0, 1e-5, seed=3, run="other")
    np.testing.assert_array_equal(one.releases[0].values, again.releases[0].values)
    assert np.abs(one.releases[0].values - other.releases[0].values).min() > 0
    ξ = [r.values - d for r, d in zip(one.releases, DATA, strict=True)]
    assert np.abs(ξ[0] - ξ[1]).min() > 0  # every agent has its own
    assert one.privacy.seeded and "from a seed" in one.privacy.words
    wider = tacit.release(zones(), 0.5, 1e-5, seed=3)  # else two budgets would solve for the data
    ratio = (wider.releases[0].values - DATA[0]) / ξ[0]
    assert np.ptp(ratio) > 0.1
    with pytest.raises(InvalidInput, match="no seed for secure noise"):
        tacit.release(zones(), 1.0, 1e-5, seed=3, noise="secure")


def test_noise_from_a_seed_is_never_stated_as_another(tmp_path):
    """Whoever knows the seed subtracts the noise: a statement without a seed needs other noise."""
    books = ledgers(tmp_path, epsilon=3.0)
    known = tacit.release(zones(), 1.0, 1e-5, seed=3, noise="seeded", ledgers=books)
    other = tacit.release(zones(), 1.0, 1e-5, noise="seeded", ledgers=books)
    assert known.privacy.seeded and not other.privacy.seeded
    assert np.abs(known.releases[0].values - other.releases[0].values).min() > 0
    assert sum(run["rounds_charged"] for run in books["north"].runs()) == 2


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace"])
def test_copies_know_the_size_of_the_noise(mechanism):
    """Least squares repairs X'X by what the noise does to it: a standard deviation, not b or σ²."""
    bounds = {"feature_norm": 2.0, "target_bound": 1.0, "normaliser": 12}
    f = tacit.LeastSquares(A, DATA[0], **bounds)
    agents = [tacit.LocalProblem(f, tacit.Box(-1, 1, size=4))]
    delta = 1e-5 if mechanism == "gaussian" else 0.0
    released = tacit.release(agents, 1.0, delta, mechanism=mechanism, seed=1)
    law, norm = calibrate(mechanism, 1.0, delta, 1), 2 if mechanism == "gaussian" else 1
    scale = law.scale(f.statistics().sensitivity(norm))
    deviation = scale if mechanism == "gaussian" else math.sqrt(2) * scale
    expected = f.statistics().released_objective(released.releases[0].values, deviation)
    copy = released.problem.agents[0].objective
    np.testing.assert_allclose(copy.matrix, expected.matrix, rtol=1e-12)
    np.testing.assert_allclose(copy.data, expected.data, rtol=1e-12)


def test_kept_in_a_file(tmp_path):
    released = tacit.release(zones(), 1.0, 1e-5)
    path = tmp_path / "release.npz"
    released.save(path)
    assert path.stat().st_mode & 0o077 == 0  # the seals are not covered
    loaded = Released.load(path, zones())
    assert loaded.privacy == released.privacy
    assert PrivacyStatement.from_dict(released.privacy.to_dict()) == released.privacy
    for one, other in zip(released.releases, loaded.releases, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
    changed = DATA.copy()
    changed[0, 0] = np.nextafter(changed[0, 0], 9)
    renamed = tacit.Problem(
        tacit.LocalProblem(a.objective, a.feasible_set, name=f"{a.name}-2") for a in zones().agents
    )
    for other in (zones(changed), zones(rows=5), renamed, zones(beta=0.2)):
        with pytest.raises(InvalidInput, match="others by now"):
            Released.load(path, other)
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    with pytest.raises(CorruptFile, match="Expected a release"):
        Released.load(path, zones())


def test_what_is_shown_of_a_release_is_covered():
    released = tacit.release(zones(), 1.0, 1e-5)
    assert "seal" not in repr(released) and repr(released.releases[0].seal) not in repr(released)
    with pytest.raises(InvalidInput, match="released already"):
        tacit.release(released, 1.0, 1e-5)
    with pytest.raises(InvalidInput, match="public already"):
        tacit.release(released.problem, 1.0, 1e-5)


def test_an_objective_without_curvature_is_solved():
    flat = tacit.Residual(np.zeros((1, 2)), [0.5], 0.1)
    agents = [tacit.LocalProblem(flat, tacit.Box(-1, 1, size=2), [0, -1]) for _ in range(2)]
    result = tacit.solve(agents, tacit.Settings(rounds=20, tolerance=1e-6))
    assert np.isfinite(result.solution).all() and result.trace["violation"][-1] == 0


def edited(path, **changes):
    """The saved release with other parts; ``about`` is changed key by key."""
    with np.load(path) as arrays:
        parts = {name: arrays[name] for name in arrays.files}
    about = json.loads(str(parts["about"]))
    for key, value in changes.pop("about", {}).items():
        about[key] = {**about[key], **value} if isinstance(value, dict) else value
    content = io.BytesIO()
    np.savez(content, **{**parts, "about": json.dumps(about), **changes})
    path.write_bytes(content.getvalue())


def test_words_in_a_file_are_no_statement(tmp_path):
    released = tacit.release(zones(), 1.0, 1e-5)
    path = tmp_path / "release.npz"
    for change in (
        {"epsilon": 0.01},
        {"epsilon": -1.0},
        {"uncertified": "no"},
        {"neighbours": [{"change": "anything", "agents": ["north", "south"]}]},
    ):
        released.save(path)
        edited(path, about={"privacy": change})
        assert Released.load(path, zones()).privacy == released.privacy
    edited(path, about={"mechanism": {"kind": "noiseless"}})
    with pytest.raises(CorruptFile, match="Expected a release"):
        Released.load(path, zones())


def test_the_seal_is_of_the_bounds_too(tmp_path):
    """Words tell the largest bound only; a group whose others are larger needs more noise."""

    def grouped(*beta):
        W = tacit.Box(-5, 5, size=4)
        return tacit.Problem(
            tacit.LocalProblem(tacit.Residual(A, d, beta, groups=(0, 0, 1, 1, 2, 2)), W)
            for d in DATA
        )

    few, all_of_them = grouped(0.1, 0, 0.1, 0, 0.1, 0), grouped(*[0.1] * 6)
    assert few.agents[0].objective.neighbours == all_of_them.agents[0].objective.neighbours
    path = tmp_path / "release.npz"
    tacit.release(few, 1.0, 1e-5).save(path)
    with pytest.raises(InvalidInput, match="bounds"):
        Released.load(path, all_of_them)
