"""Counterexamples of a hostile review of security, each mended: they must not come back."""

import os
import sqlite3
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tacit
from tacit.admm.agent import Agent, Broadcast
from tacit.admm.data_digest import Digest
from tacit.admm.result import Result
from tacit.errors import CorruptFile, InvalidInput, Refused, SolverFailure
from tacit.files import write_atomically

SETTINGS = tacit.Settings.for_budget(1.0, 1e-5, 4, penalty=1.0, step_size=0.1)


def part(dtype=np.float64, **options):
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(dtype)
    common = {"feature_norm": 1.0, "normaliser": 100.0, "neighbours": "zero-out", **options}
    f = tacit.LogisticRegression(x, x[:, 0] > 0, **common)
    return tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, 3), name="a")


def agent(ledger=None, key=0, **options):
    key = None if ledger else jax.random.key(key)
    return Agent(part(**options), "a", SETTINGS, key, "run", 3, ledger=ledger)


# --- the statement ----------------------------------------------------------------------------


def test_rounds_that_failed_and_were_paid_again_are_in_the_statement(tmp_path, monkeypatch):
    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    options = {"ledgers": {"a": ledger}, "run": "june", "checkpoint": tmp_path / "c.npz"}
    right, calls = Agent._noisy, []

    def sometimes(self):
        calls.append(1)
        if len(calls) == 2:
            raise SolverFailure("no answer.")
        return right(self)

    monkeypatch.setattr(Agent, "_noisy", sometimes)
    with pytest.raises(SolverFailure):
        tacit.solve([part()], SETTINGS, **options)
    result = tacit.solve([part()], SETTINGS, **options)
    assert result.privacy.updates == 5  # four rounds, and the one that failed
    assert result.privacy.epsilon > 1
    assert result.privacy.epsilon == pytest.approx(ledger.spent.epsilon, rel=1e-6)


def test_a_checkpoint_binds_where_noise_comes_from(tmp_path):
    file, seen = tmp_path / "c.npz", []

    def stop(progress):
        seen.append(progress.round)
        if progress.round == 2:
            raise KeyboardInterrupt

    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SETTINGS, checkpoint=file, ledgers={"a": ledger}, callback=stop)
    with pytest.raises(InvalidInput, match="its source of noise"):
        tacit.solve([part()], SETTINGS, checkpoint=file)
    other = tmp_path / "d.npz"
    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SETTINGS, checkpoint=other, seed=1, callback=stop)
    flag = jax.config.jax_threefry_partitionable
    jax.config.update("jax_threefry_partitionable", not flag)
    try:
        with pytest.raises(InvalidInput, match="its source of noise"):
            tacit.solve([part()], SETTINGS, checkpoint=other, seed=1)
    finally:
        jax.config.update("jax_threefry_partitionable", flag)


@pytest.mark.parametrize("change", ["round", "outside", "nan"])
def test_a_checkpoint_with_a_changed_state_is_refused(tmp_path, change):
    from dataclasses import replace

    from tacit.admm.checkpoint import Checkpoint

    file = tmp_path / "c.npz"

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SETTINGS, checkpoint=file, seed=1, callback=stop)
    saved = Checkpoint.load(file)
    point = {"outside": np.full(3, 2.0), "nan": np.full(3, np.nan)}.get(change)
    state = saved.state if point is None else {**saved.state, "average": [point]}
    replace(saved, state=state, round=-3 if change == "round" else saved.round).save(file)
    for batch in (True, False):
        with pytest.raises((CorruptFile, InvalidInput), match="Nothing was"):
            tacit.solve([part()], SETTINGS, checkpoint=file, seed=1, batch=batch)


def test_64_bits_are_needed_where_an_objective_is_made():
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(InvalidInput, match="jax_enable_x64"):
            part()
        with pytest.raises(InvalidInput, match="jax_enable_x64"):
            tacit.Residual(np.eye(2), np.zeros(2), 1.0)
    finally:
        jax.config.update("jax_enable_x64", True)


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_noise_that_float32_would_flush_to_zero_is_refused(noise):
    tiny = part(np.float32, feature_norm=1e-8, normaliser=5e29)
    with pytest.raises(InvalidInput, match="noise of scale between 1e-30 and 1e30 for float32"):
        tacit.solve([tiny], SETTINGS, noise=noise)


# --- the ledger's file ------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["replaced", "removed"])
def test_a_ledger_that_is_replaced_while_in_use_is_noticed(tmp_path, how):
    path = tmp_path / "a.db"
    ledger = tacit.Ledger.create(path, 9.0, 1e-5)
    ledger.backup(tmp_path / "copy.db")
    one = agent(ledger)
    one.respond(Broadcast("run", 1, np.zeros(3)))
    for rest in ("", "-wal", "-shm"):
        (tmp_path / f"a.db{rest}").unlink(missing_ok=True)
    if how == "replaced":
        os.replace(tmp_path / "copy.db", path)
    with pytest.raises(CorruptFile, match="replaced, moved or removed"):
        one.respond(Broadcast("run", 2, np.zeros(3), {"a": one.last_digest}))
    assert one.rounds_done == 1


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TRIGGER t AFTER INSERT ON entries WHEN new.kind = 'charge' "
        "BEGIN DELETE FROM entries WHERE serial = new.serial; END",
        "CREATE VIEW v AS SELECT * FROM entries",
        "CREATE TABLE more (x)",
        "DROP INDEX one_use",
    ],
)
def test_a_ledger_of_another_schema_is_refused(tmp_path, change):
    path = tmp_path / "a.db"
    ledger = tacit.Ledger.create(path, 9.0, 1e-5)
    one = agent(ledger)
    db = sqlite3.connect(path)
    db.execute(change)
    db.commit()
    db.close()
    with pytest.raises((CorruptFile, tacit.LedgerFailure), match="schema"):
        one.respond(Broadcast("run", 1, np.zeros(3)))
    with pytest.raises(CorruptFile, match="schema"):
        tacit.Ledger(path)


def test_no_ledger_is_made_beside_what_is_left_of_another(tmp_path):
    for rest in ("-wal", "-shm"):
        (tmp_path / f"a.db{rest}").write_bytes(b"old")
        with pytest.raises(InvalidInput, match="left of another ledger"):
            tacit.Ledger.create(tmp_path / "a.db", 1.0, 1e-5)
        (tmp_path / f"a.db{rest}").unlink()


def test_only_text_and_whole_numbers_get_into_a_ledger(tmp_path):
    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    with pytest.raises(InvalidInput, match="name as text"):
        Agent(part(), "a", SETTINGS, None, 5, 3, ledger=ledger)
    agent(ledger)
    with pytest.raises(InvalidInput, match="whole numbers"):
        ledger.charge("run", True, True)
    assert tacit.Ledger(tmp_path / "a.db").spent.epsilon == 0


# --- messages ---------------------------------------------------------------------------------


class Changing(int):
    """One thing when it is compared, another when it is used."""

    def __int__(self):
        return 1 + 2**32

    __index__ = __int__


class Agreeing(str):
    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


class Raising:
    def __array__(self, *given, **named):
        raise RuntimeError("private")

    def __repr__(self):
        raise RuntimeError("private")


def test_messages_that_are_not_what_they_seem_are_refused(tmp_path):
    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    zero = np.zeros(3)
    for one in (agent(), agent(ledger)):
        for message in (
            Broadcast("run", Changing(1), zero),
            Broadcast(Agreeing("other"), 1, zero),
            Broadcast("run", 10**5000, zero),
            Broadcast("run", Raising(), zero),
            Broadcast("run", 1, Raising()),
        ):
            with pytest.raises(Refused):
                one.respond(message)
        assert one.rounds_done == 0
    with pytest.raises(Refused, match="last reply"):
        one.respond(Broadcast("run", 1, zero, {"a": Agreeing("x")}))
    assert ledger.spent.epsilon == 0


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_without_a_ledger_a_failed_round_is_not_tried_again(noise):
    one = Agent(part(), "a", SETTINGS, jax.random.key(0), "run", 3, noise=noise)
    right = one._round

    def fail(*given, **named):
        raise SolverFailure("no answer.")

    one._round = fail
    with pytest.raises(SolverFailure):
        one.respond(Broadcast("run", 1, np.zeros(3)))
    one._round = right
    with pytest.raises(Refused, match="failed in round 1"):
        one.respond(Broadcast("run", 1, np.ones(3)))


# --- digests ----------------------------------------------------------------------------------


def test_digests_see_attributes_modules_imports_and_metaclasses(tmp_path, monkeypatch):
    def digest(value):
        return Digest(b"k").of(value)

    def loss(z, x):
        return loss.scale * jnp.sum(z * x)

    loss.scale = 1.0
    before = digest(loss)
    loss.scale = 2.0
    assert digest(loss) != before
    (tmp_path / "mine.py").write_text("FACTOR = 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    import mine

    with pytest.raises(InvalidInput, match="no digest"):
        digest([mine])

    def reads(z, x, module=mine):
        return module.FACTOR * jnp.sum(z * x)

    def imports(z, x):
        import mine as again

        return again.FACTOR * jnp.sum(z * x)

    for function in (reads, imports):
        with pytest.raises(InvalidInput, match="no digest"):
            digest(function)

    def classed(factor):
        def call(cls, z):
            return factor * z

        meta = type("Meta", (type,), {"__call__": call, "__module__": "user"})
        return meta("Loss", (), {"__module__": "user"})

    assert digest(classed(1.0)) != digest(classed(2.0))


# --- files and words --------------------------------------------------------------------------


def test_two_writers_do_not_share_a_temporary_file(tmp_path):
    path, failed = tmp_path / "x", []
    contents = [bytes([i]) * 200_000 for i in range(4)]

    def write(content):
        try:
            for _ in range(20):
                write_atomically(path, content)
        except OSError as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(c,)) for c in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and path.read_bytes() in contents
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_two_runs_do_not_share_a_folder(tmp_path):
    from tacit.cli.run_folder import RunFolder

    (tmp_path / "out").mkdir()
    RunFolder("solve", tmp_path / "out").claim()
    code = "import sys; from pathlib import Path; from tacit.cli.run_folder import RunFolder\n"
    code += "RunFolder('solve', Path(sys.argv[1])).claim()"
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "out")], capture_output=True, text=True
    )
    assert "Another run is writing to" in other.stderr


def test_what_nothing_covers_is_private(tmp_path):
    os.umask(0)
    try:
        for name, settings in (("noisy", SETTINGS), ("plain", tacit.Settings(2))):
            tacit.solve([part()], settings, seed=0).save(tmp_path / name)
    finally:
        os.umask(0o022)
    modes = [os.stat(tmp_path / n / "arrays.npz").st_mode & 0o777 for n in ("noisy", "plain")]
    assert modes == [0o644, 0o600]


def test_numpy_numbers_in_settings_become_plain(tmp_path):
    settings = tacit.Settings.for_budget(1.0, np.float32(1e-5), np.int64(3), np.int32(2))
    assert type(settings.rounds) is int and type(settings.local_updates) is int
    result = tacit.solve([part()], settings, seed=0)
    assert Result.load(result.save(tmp_path / "r")).settings.rounds == 3


def test_data_in_the_wrong_place_are_not_printed():
    x, y = np.full((2, 2), 0.12345678), np.array([7654321.0, 1.0])
    calls = [
        lambda: tacit.LeastSquares(x, y, target_bound=y, feature_norm=1.0, normaliser=2),
        lambda: tacit.LeastSquares(x, y, target_bound=1.0, feature_norm=x, normaliser=2),
        lambda: tacit.SoftmaxRegression(x, [0, 1], y, feature_norm=1.0, normaliser=2),
        lambda: tacit.solve([x], SETTINGS),
        lambda: tacit.Quantile(x, y, level=y, feature_norm=1.0, normaliser=2),
        lambda: tacit.Hinge(x, [0, 1], feature_norm=1.0, normaliser=2, neighbours=(y,)),
    ]
    for call in calls:
        with pytest.raises(InvalidInput) as caught:
            call()
        assert "7654321" not in str(caught.value) and "0.1234" not in str(caught.value)
