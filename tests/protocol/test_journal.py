"""Checkpoints go on only with the run they were made by, and only as it left them."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from clinic import SHORT, part

import tacit
from tacit.errors import CorruptFile, InvalidInput
from tacit.protocol.journal import Journal


def stopped(at=1, **options):
    """The averages of a run's first round, which stops in round ``at``."""
    seen = []

    def stop(progress):
        seen.append(progress.averages[0])
        if progress.round == at:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SHORT, callback=stop, **options)
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
