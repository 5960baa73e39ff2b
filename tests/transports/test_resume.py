"""Checkpoints continue bit for bit, and only what they were saved for."""

import signal
import subprocess
import sys
import time
from dataclasses import replace

import jax
import numpy as np
import pytest
from clinic import SHORT, part
from conftest import problem_of, repeat
from test_solving import SETTINGS, same

import tacit
from tacit.errors import CorruptFile, InvalidInput
from tacit.protocol.coordinator import Coordinator
from tacit.protocol.journal import Journal
from tacit.transports import batched
from tacit.transports.local import Local


class Interrupted(Exception):
    pass


def interrupted(problem, settings=SETTINGS, at=5, callback=lambda progress: None, **options):
    """A run that stops in round ``at``, after ``callback``."""

    def stop(progress):
        callback(progress)
        if progress.round == at:
            raise Interrupted

    with pytest.raises(Interrupted):
        tacit.solve(problem, settings, callback=stop, **options)


@pytest.mark.parametrize(
    ("feasible", "seed", "at"),
    [("box", 3, 8), ("polyhedron", 3, 8), ("box", None, 1), ("polyhedron", None, 8)],
    ids="{}".format,
)
def test_a_resumed_run_continues_bit_for_bit(feasible, seed, at, tmp_path):
    """Also with a key of the system, which is saved before anything is released: else a restart
    after round 1 would answer it again with fresh noise."""
    problem = problem_of("logistic", feasible)
    path = tmp_path / "state.npz"
    about, seen, more = {"seed": seed, "checkpoint": path}, [], []
    interrupted(problem, at=at, callback=lambda p: seen.append(p.averages), **about)
    assert path.stat().st_mode & 0o077 == 0  # it holds the noise key
    resumed = tacit.solve(problem, SETTINGS, **about, callback=lambda p: more.append(p))
    assert [p.round for p in more] == list(range(at, 13))  # that round was not saved yet
    np.testing.assert_array_equal(more[0].averages, seen[-1])  # and is the same when asked again
    assert list(resumed.trace["round"]) == list(range(1, 13))
    again = tacit.solve(problem, SETTINGS, **about)
    same(again, resumed)  # a finished checkpoint gives the result again, at no cost
    if seed is not None:
        same(resumed, tacit.solve(problem, SETTINGS, seed=seed))


@pytest.mark.parametrize("batch", [True, False])
def test_a_callback_that_writes_to_its_arrays_changes_no_checkpoint(batch, tmp_path):
    """Else noise that was used would meet other numbers when the run is continued."""
    problem, seed = problem_of("logistic", "box"), np.int64(3)  # of NumPy, as sweeps have them
    about = {"settings": SETTINGS, "seed": seed, "batch": batch}

    def overwrite(progress):
        for values in (*progress.averages, *progress.points, *progress.duals):
            if values.flags.writeable:
                values[:] = 0.0

    path = tmp_path / "state.npz"
    interrupted(problem, callback=overwrite, checkpoint=path, **about)
    resumed = tacit.solve(problem, checkpoint=path, **about)
    same(resumed, tacit.solve(problem, **about))
    assert tacit.Result.load(resumed.save(tmp_path / "found")).seed == 3


KILLS = repeat(1, 4)
SLOW_RUN = """
import numpy as np
import tacit

rng, box = np.random.default_rng(0), tacit.Box(-0.4, 0.5, size=4)
common = {"feature_norm": 1.0, "normaliser": 24, "record_bound": 12}
agents = [
    tacit.LocalProblem(
        tacit.LogisticRegression(rng.uniform(-0.5, 0.5, (12, 4)), np.arange(12) % 2, **common), box
    )
    for _ in range(2)
]
settings = tacit.Settings(40, 2, tacit.Gaussian(3.0), penalty=tacit.ConstantPenalty(0.3))
"""


def test_a_killed_process_resumes_to_the_same_result(tmp_path):
    """SIGKILL at a random moment, several times, then compare with an undisturbed run.

    The last life is in this process, which spares one that imports and compiles everything.
    """
    path = tmp_path / "state.npz"
    program = f"""
{SLOW_RUN}
import time
tacit.solve(agents, settings, seed=7, checkpoint={str(path)!r}, callback=lambda p: time.sleep(0.05))
"""
    rng = np.random.default_rng(0)
    for _ in range(KILLS):
        process, saved = subprocess.Popen([sys.executable, "-c", program]), set()
        end = time.monotonic() + 120
        while len(saved) < 4 and process.poll() is None:  # the last one, no round, one round, two
            assert time.monotonic() < end, "it saves nothing"
            saved.add(path.stat().st_mtime_ns if path.exists() else 0)
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL  # before its end
    names, more = {}, []
    exec(SLOW_RUN, names)
    run = names["agents"], names["settings"]
    watch = {"callback": lambda p: more.append(p.round)}
    resumed = tacit.solve(*run, seed=7, checkpoint=path, **watch)
    assert more[0] > 1 and more[-1] == 40  # it had begun, and was not at its end
    same(resumed, tacit.solve(*run, seed=7))


def coupled(order=(0, 1, 2, 3), limit=0.5):
    """Two agents, of which the second names its coordinates in this order."""
    first, second = (a.objective for a in problem_of("logistic", "box").agents)
    W = tacit.Box(-0.4, limit, size=4)
    return tacit.Problem([tacit.LocalProblem(first, W), tacit.LocalProblem(second, W, order)])


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 9},
        {"run": "other"},
        {"settings": tacit.Settings(13, 2, tacit.Gaussian(3.0))},
        {"problem": problem_of("logistic", "box", agents=3)},
        {"problem": problem_of("logistic", "box", dimension=5)},
        {"problem": problem_of("logistic", "box", seed=1)},  # other data of the same shape
        {"problem": problem_of("logistic", "box", normaliser=25)},
        {"problem": coupled((1, 0, 2, 3))},
        {"problem": coupled(limit=0.6)},
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change, tmp_path):
    path = tmp_path / "state.npz"
    arguments = {
        "problem": coupled(),
        "settings": SETTINGS,
        "seed": 3,
        "run": "run",
        "checkpoint": path,
    }
    interrupted(**arguments)
    before = path.read_bytes()
    with pytest.raises(tacit.InvalidInput, match="Nothing was resumed"):
        tacit.solve(**(arguments | change))
    assert path.read_bytes() == before


def test_a_checkpoint_that_disappears_is_not_begun_again(tmp_path, monkeypatch):
    """A state of round 3 under round 0 would use the noise of rounds 1 to 3 again."""
    problem, path = problem_of("logistic", "box"), tmp_path / "c.npz"
    settings = tacit.Settings(6, 1, tacit.Gaussian(1.0))
    interrupted(problem, settings, at=4, seed=1, checkpoint=path)
    restore, save, rounds = batched.Batched.restore, Journal.save, []

    def restored(self, *state):
        restore(self, *state)
        path.unlink()

    monkeypatch.setattr(batched.Batched, "restore", restored)
    monkeypatch.setattr(Journal, "save", lambda c: (rounds.append(c.round), save(c)))
    tacit.solve(problem, settings, seed=1, checkpoint=path)
    assert rounds == [4, 5, 6]


def elsewhere(problem, settings, **how):
    """Agents of this process that look as if they were on other ranks."""
    return Coordinator(Local.of(problem), settings, known=problem, **how).conduct()


def test_a_run_goes_on_as_it_was_begun(tmp_path):
    """One by one or as one program: the same noise must not meet numbers that round differently."""
    problem, path = problem_of("logistic", "box"), tmp_path / "c.npz"
    arguments = {"settings": SETTINGS, "seed": 3}
    undisturbed = tacit.solve(problem, batch=False, **arguments)

    def begin(**batch):
        path.unlink(missing_ok=True)
        interrupted(problem, checkpoint=path, **arguments, **batch)

    begin(batch=False)
    with pytest.raises(tacit.InvalidInput, match="Nothing was resumed"):
        tacit.solve(problem, checkpoint=path, batch=True, **arguments)
    content = path.read_bytes()
    for resumed in (
        tacit.solve(problem, checkpoint=path, **arguments),
        path.write_bytes(content) and elsewhere(problem, checkpoint=path, **arguments),
    ):
        assert resumed.solution.tobytes() == undisturbed.solution.tobytes()
    begin()  # as one program
    with pytest.raises(tacit.InvalidInput, match="one process"):
        elsewhere(problem, checkpoint=path, **arguments)


def stopped(at=1, **options):
    """The averages of a run's first round, which stops in round ``at``."""
    seen = []
    interrupted([part()], SHORT, at, lambda now: seen.append(now.averages[0]), **options)
    return seen[0]


def test_a_checkpoint_binds_where_noise_comes_from(tmp_path):
    file, other = tmp_path / "c.npz", tmp_path / "d.npz"
    stopped(2, checkpoint=file, ledgers={"a": tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)})
    with pytest.raises(InvalidInput, match="changed"):
        tacit.solve([part()], SHORT, checkpoint=file)
    stopped(2, checkpoint=other, seed=1)
    flag = jax.config.jax_threefry_partitionable
    jax.config.update("jax_threefry_partitionable", not flag)
    try:
        with pytest.raises(InvalidInput, match="changed"):
            tacit.solve([part()], SHORT, checkpoint=other, seed=1)
    finally:
        jax.config.update("jax_threefry_partitionable", flag)


def test_a_run_goes_on_with_its_own_ledgers(tmp_path):
    """Others know nothing of a round that was seen, and would pay for it with other noise."""
    one, other = (tacit.Ledger.create(tmp_path / f"{name}.db", 9.0, 1e-5) for name in "ab")
    about = {"checkpoint": tmp_path / "c.npz", "run": "spring"}
    seen = stopped(ledgers={"a": one}, **about)
    with pytest.raises(InvalidInput, match="the ledgers, agents"):
        tacit.solve([part()], SHORT, ledgers={"a": other}, **about)
    one.backup(tmp_path / "copy.db")  # which knows it
    again = stopped(ledgers={"a": tmp_path / "copy.db"}, **about)
    np.testing.assert_array_equal(seen, again)


CHANGES = ["round", "later", "outside", "point outside", "average", "dual", "point"]


@pytest.mark.parametrize(("change", "batch"), [*((c, True) for c in CHANGES), ("dual", False)])
def test_a_checkpoint_with_a_changed_state_is_refused(tmp_path, change, batch):
    file, beyond = tmp_path / "c.npz", [np.full(3, 2.0)]
    stopped(checkpoint=file, seed=1, batch=batch)
    saved = Journal.load(file)
    broken = {"outside": {"average": beyond}, "point outside": {"point": beyond}}
    broken |= {"round": {}, "later": {}}
    rounds = {"round": -3, "later": SHORT.rounds + 1}
    arrays = saved.arrays | broken.get(change, {change: [np.full(3, np.nan)]})
    replace(saved, arrays=arrays, round=rounds.get(change, saved.round)).save()
    with pytest.raises((CorruptFile, InvalidInput), match="Nothing was"):
        tacit.solve([part()], SHORT, checkpoint=file, seed=1, batch=batch)


def test_secure_noise_is_not_drawn_twice_for_a_round(tmp_path):
    """Nothing keeps it but a ledger: a continued run would release other noise for the same."""
    file = tmp_path / "c.npz"
    with pytest.raises(InvalidInput, match="no checkpoint for secure noise without ledgers"):
        tacit.solve([part()], SHORT, noise="secure", checkpoint=file)
    assert not file.exists()
    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    tacit.solve([part()], SHORT, noise="secure", checkpoint=file, ledgers={"a": ledger})
    assert file.exists()


# all that a run of one owner is known again by, beside the digest of its agents and schedules
AGREED = {"study", "settings", "noise", "ledgers", "generator", "batch", "seed", "run"}


@pytest.mark.parametrize("name", sorted(AGREED))
def test_a_run_goes_on_only_with_all_that_it_was_begun_with(tmp_path, name):
    file = tmp_path / "c.npz"
    stopped(2, checkpoint=file, seed=1)
    saved = Journal.load(file)
    assert saved.agreed.keys() == AGREED
    replace(saved, agreed=saved.agreed | {name: "another"}).save()
    with pytest.raises(InvalidInput, match=f"the .*{name}.* changed"):
        tacit.solve([part()], SHORT, checkpoint=file, seed=1, run="run", batch=True)


@pytest.mark.parametrize("name", ["penalty", "step_size"])
def test_schedules_of_a_user_s_own_code_are_known_again(tmp_path, name):
    """Two that say the same of themselves, and are not."""
    file = tmp_path / "c.npz"
    stopped(2, checkpoint=file, seed=1)
    own = getattr(SHORT, name)
    other = type("Other", (type(own),), {"__call__": lambda self, t: 2 * self.value})(own.value)
    assert replace(SHORT, **{name: other}).to_dict() == SHORT.to_dict()
    with pytest.raises(InvalidInput, match="the code of functions included"):
        tacit.solve([part()], replace(SHORT, **{name: other}), checkpoint=file, seed=1)
