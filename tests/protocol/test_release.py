"""One agent's release: paid before it is read, kept before it is shown, once for the same data."""

import jax
import numpy as np
import pytest
from clinic import counted
from conftest import repeat

import tacit
from tacit.errors import CorruptFile, Refused
from tacit.objectives.moments import Mean, SecondMoments
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger import Ledger, Payments
from tacit.privacy.secure_noise import secure_noise
from tacit.protocol import release
from tacit.protocol.release import Reader, Release

KILLS = repeat(24, 500)
MECHANISM = calibrate("gaussian", 1.0, 1e-5, 1)
RNG = np.random.default_rng(0)
MATRIX, DATA = RNG.normal(size=(6, 3)), RNG.normal(size=6)
BOX = tacit.Box(-1, 1, size=3)


def zone(data=DATA, beta=0.1):
    return tacit.LocalProblem(tacit.Residual(MATRIX, data, beta), BOX)


def table(rows=MATRIX, target_bound=1.0):
    bounds = {"feature_norm": 1.0, "target_bound": target_bound, "normaliser": 6}
    return tacit.LocalProblem(tacit.LeastSquares(rows, DATA / 10, **bounds), BOX)


def reader(ledger, noise="secure", name="north", mechanism=MECHANISM):
    return Reader(name, mechanism, 1e-5, noise, jax.random.key(7), ledger)


def charges(ledger):
    return sum(run["rounds_charged"] for run in ledger.runs())


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "north.db", 10.0, 1e-5)


# --- order of steps -----------------------------------------------------------------------------


def test_payment_comes_before_the_reading_and_storage_before_it_is_shown(ledger, monkeypatch):
    steps = []

    def spied(owner, name):
        whole = getattr(owner, name)

        def spy(*arguments):
            found = whole(*arguments)
            steps.append((name, charges(ledger), ledger.runs()[0]["rounds_answered"]))
            return found

        monkeypatch.setattr(owner, name, spy)

    spied(Payments, "pay")
    spied(Reader, "_measured")
    spied(Payments, "store")
    shown = reader(ledger).read(zone())
    assert steps == [("pay", 1, 0), ("_measured", 1, 0), ("store", 1, 1)]
    answer = ledger.answer(ledger.runs()[0]["run"], 1)
    assert answer.reply == shown.to_bytes() and answer.state == shown.seal


STOPS = [(Payments, "pay"), (release, "noisy"), (Reader, "_measured"), (Payments, "store")]


@pytest.mark.parametrize(("when", "noise"), [("before", "secure"), ("after", "seeded")])
@pytest.mark.parametrize(("owner", "name"), STOPS)
def test_stopped_anywhere_it_costs_one_charge(ledger, monkeypatch, owner, name, when, noise):
    """Ctrl-C at any step, in a process that ends there."""

    def stopped(*arguments):
        if when == "after":
            whole(*arguments)
        raise KeyboardInterrupt

    whole = getattr(owner, name)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, stopped)
        with pytest.raises(KeyboardInterrupt):
            reader(ledger, noise).read(zone())
    with Ledger(ledger.path) as later:
        shown = [reader(later, noise).read(zone()).values for _ in range(2)]
        np.testing.assert_array_equal(*shown)
        assert charges(later) == 1 and later.spent.epsilon <= 1.0


def test_a_failure_is_paid_for(ledger, monkeypatch):
    def failing(*arguments):
        raise OSError("no entropy")

    with monkeypatch.context() as patch:
        patch.setattr(Reader, "_measured", failing)
        with pytest.raises(OSError, match="entropy"):
            reader(ledger).read(zone())
    run = ledger.runs()[0]["run"]
    assert ledger.failures(run, 1) == 1
    reader(ledger).read(zone())
    assert charges(ledger) == 2 and len(ledger.runs()) == 1


@pytest.fixture
def overtaken(ledger, monkeypatch):
    """Let ``act`` happen while a reader has paid and computes; its release."""
    measured = Reader._measured

    def read(act, fails=False):
        def slow(self, plan, run):
            monkeypatch.setattr(Reader, "_measured", measured)
            act(Ledger(ledger.path), run)
            if fails:
                raise FloatingPointError("too late")
            return measured(self, plan, run)

        monkeypatch.setattr(Reader, "_measured", slow)
        return reader(ledger).read(zone())

    return read


@pytest.mark.parametrize("fails", [False, True])
def test_what_another_process_kept_meanwhile_counts(ledger, overtaken, fails):
    """It takes over the payment, and is faster; a failure that comes late would be a second
    computation shown."""
    theirs = []
    mine = overtaken(lambda other, run: theirs.append(reader(other).read(zone())), fails)
    np.testing.assert_array_equal(mine.values, theirs[0].values)
    assert charges(ledger) == 1


def test_a_payment_that_was_taken_over_shows_nothing(ledger, overtaken):
    with pytest.raises(Refused, match="taken the payment over"):
        overtaken(lambda other, run: other.take_over(run, 1))
    reader(ledger).read(zone())  # asked again, it takes the payment back
    assert charges(ledger) == 1


def test_another_processs_data_are_not_ours(ledger, overtaken):
    """Two processes with different data begin at once: each gets a release of its own data."""
    mine = overtaken(lambda other, run: reader(other).read(zone(DATA + 1)))
    assert mine.fits(zone().objective.statistics())
    assert charges(ledger) == 2
    np.testing.assert_array_equal(reader(ledger).read(zone()).values, mine.values)


# --- the same data, and others ------------------------------------------------------------------


@pytest.mark.parametrize(
    "states",
    [[zone(), zone(DATA + 1e-9), zone(2 * DATA)], [table(), table(MATRIX + 1e-9), table(-MATRIX)]],
    ids=["zone", "table"],
)
@pytest.mark.parametrize("noise", ["secure", "seeded"])
def test_every_state_of_the_data_has_one_release(ledger, noise, states):
    shown = [reader(ledger, noise).read(p).values for p in states]
    for problem, values in zip(states[::-1], shown[::-1], strict=True):
        np.testing.assert_array_equal(reader(ledger, noise).read(problem).values, values)
    assert charges(ledger) == len(states)
    ξ = [s - p.objective.statistics().values for s, p in zip(shown, states, strict=True)]
    assert np.abs(ξ[0] - ξ[1]).min() > 1e-6 and np.abs(ξ[0] - ξ[2]).min() > 1e-6


def test_last_bits_of_a_sum_are_no_change_of_the_data(ledger, monkeypatch):
    """Processors add up in different orders; the same table is not paid for twice."""
    first = reader(ledger).read(table()).values
    exact = SecondMoments.values.func
    noise = np.random.default_rng(1)

    def rounded_otherwise(self):
        return exact(self) * (1 + 1e-16 * noise.integers(-4, 5, 9))

    monkeypatch.setattr(SecondMoments, "values", property(rounded_otherwise))
    np.testing.assert_array_equal(reader(ledger).read(table()).values, first)
    assert charges(ledger) == 1
    reader(ledger).read(table(MATRIX + 1e-12))
    assert charges(ledger) == 2


def test_a_ledger_holds_a_release_by_its_values(ledger):
    """Whoever has a seal has not the values: only what was paid for, bit for bit, is free again."""
    kept = reader(ledger).read(zone())
    assert reader(ledger).holds(zone(), kept)
    values = np.array(kept.values)
    values[-1] = np.nextafter(values[-1], np.inf)
    assert not reader(ledger).holds(zone(), Release(values, kept.seal))
    assert not reader(ledger).holds(zone(), Release(0 * values, kept.seal))
    assert not reader(ledger).holds(zone(DATA + 1), kept)


def test_a_changed_target_is_a_change_of_the_data(ledger):
    """Also where X'X and X'y stay as they are, up to rounding."""
    rows = np.vstack([MATRIX, np.zeros((1, 3))])
    bounds = {"feature_norm": 1.0, "target_bound": 1.0, "normaliser": 7}
    for last in (0.0, 1.0):
        f = tacit.LeastSquares(rows, np.append(DATA / 10, last), **bounds)
        reader(ledger).read(tacit.LocalProblem(f, BOX))
    assert charges(ledger) == 2


def test_another_law_or_kind_of_noise_is_another_release(ledger):
    """A statement is about the noise that was drawn, so that must be what was asked for."""
    half = calibrate("gaussian", 0.5, 1e-5, 1)
    readers = [reader(ledger), reader(ledger, "seeded"), reader(ledger, mechanism=half)]
    shown = [one.read(zone()).values for one in readers]
    assert charges(ledger) == 3 and len({v.tobytes() for v in shown}) == 3
    assert [run["noise"] for run in ledger.runs()] == ["secure", "seeded", "secure"]


def test_a_delta_of_0_is_one_delta(ledger):
    law = calibrate("laplace", 1.0, 0.0, 1)
    shown = [Reader("north", law, δ, "secure", None, ledger).read(zone()) for δ in (0, 0.0)]
    assert charges(ledger) == 1 and shown[1].kept and not shown[0].kept


@pytest.mark.parametrize("problem", [zone(), table()], ids=["zone", "table"])
def test_the_ledger_pays_for_the_noise_that_is_drawn(ledger, problem):
    """Discrete noise is a little wider, and its distance from the continuous law is counted."""
    reader(ledger).read(problem)
    terms = ledger.terms(ledger.runs()[0]["run"])
    f = problem.objective.statistics()
    secure = secure_noise(MECHANISM, f.sensitivity(2), f.values.size, 1, 1e-5)
    assert terms.mechanism == secure.mechanism != MECHANISM
    assert terms.distance == secure.distance > 0
    assert (terms.rounds, terms.local_updates, terms.noise) == (1, 1, "secure")
    assert terms.neighbours == problem.objective.relation


def test_a_reading_is_one_look_at_the_data():
    """Data that change under a reader cannot give values and seal of two states."""
    f = table().objective
    statistics = f.statistics()
    assert statistics.values is statistics.values
    residual = zone().objective.statistics()
    assert residual.values is residual.values


def test_another_weight_of_the_targets_is_another_reading(ledger):
    """κ = B/Y is in the values: what was read with one is not used with another."""
    small = np.clip(DATA / 10, -0.1, 0.1)
    assert np.abs(small).max() <= 0.1
    for Y in (1.0, 2.0):
        released = reader(ledger).read(table(target_bound=Y))
        assert released.fits(table(target_bound=Y).objective.statistics())
    assert charges(ledger) == 2


def test_a_wider_bound_in_one_norm_is_another_reading():
    """Both bounds leave these rows as they are, and records that move them by more in L1 only."""

    def mean(longest):
        bounds = {"feature_norm": 1.0, "feature_norm_1": longest, "normaliser": 6}
        return tacit.LocalProblem(Mean(MATRIX / 10, **bounds), BOX)

    released = Reader("a", calibrate("laplace", 1.0, 0.0, 1), 0.0, "secure").read(mean(1.2))
    one, other = (mean(longest).objective.statistics() for longest in (1.2, 1.5))
    assert one.sensitivity(2) == other.sensitivity(2)
    np.testing.assert_array_equal(one.values, other.values)
    assert released.fits(one) and not released.fits(other)


@pytest.mark.parametrize(("one", "other"), [(zone(), zone(-DATA)), (table(), table(-2 * MATRIX))])
def test_a_copy_is_made_of_the_release_and_public_numbers(one, other):
    """Agents with other data make the same of the same release."""
    values = one.objective.statistics().values + 0.1
    copies = [p.objective.statistics().released_objective(values, 0.1) for p in (one, other)]
    np.testing.assert_array_equal(copies[0].matrix, copies[1].matrix)
    np.testing.assert_array_equal(copies[0].data, copies[1].data)


def test_the_seal_is_keyed(ledger):
    """Two releases of the same data have different seals: it takes the key to test a guess."""
    seals = {Reader("a", MECHANISM, 1e-5, "secure").read(zone()).seal for _ in range(3)}
    assert len(seals) == 3 and all(len(seal) == release.SEAL for seal in seals)
    assert len({seal[32:] for seal in seals}) == 3
    changed = DATA.copy()
    changed[-1] = np.nextafter(changed[-1], 9)
    one = Reader("a", MECHANISM, 1e-5, "secure").read(zone())
    assert one.fits(zone().objective.statistics())
    assert not one.fits(zone(changed).objective.statistics())
    assert not release.Release(one.values).fits(zone().objective.statistics())


# --- ledgers ------------------------------------------------------------------------------------


def test_releases_are_within_the_budget_or_refused(tmp_path):
    book = Ledger.create(tmp_path / "north.db", 1.3, 1e-5)
    reader(book).read(zone())
    for ask in (reader(book).agree, reader(book).read):
        with pytest.raises(Refused, match="beyond the budget"):
            ask(zone(DATA + 1))
    reader(book).read(zone())  # what was released is still there
    assert charges(book) == 1


def test_a_release_that_was_tampered_with_is_refused(ledger, monkeypatch):
    reader(ledger).read(zone())
    monkeypatch.setattr(release, "SEAL", 32)
    with pytest.raises(CorruptFile, match="Expected a release as"):
        reader(ledger).read(zone())


def test_readers_killed_at_random_moments():
    found = counted("killed_reader.py", "--kills", KILLS)
    assert found["kills"] >= KILLS
    assert found["two readings"] == found["unpaid"] == found["lost"] == 0
    assert found["one reading twice"] == 0  # of different data
    # whoever lost its payment to another process may pay anew
    assert 0 <= found["charges"] - found["states"] <= found.get("refused", 0)
    assert found["release"] >= 10
    assert found["taken over"] >= 1  # kills did fall between payment and storage
