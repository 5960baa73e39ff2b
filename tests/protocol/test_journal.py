"""Checkpoints go on only with the run they were made by, and only as it left them."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from clinic import SHORT, part

import tacit
from tacit.errors import CorruptFile, InvalidInput
from tacit.protocol.journal import Journal


def test_a_checkpoint_binds_where_noise_comes_from(tmp_path):
    file, seen = tmp_path / "c.npz", []

    def stop(progress):
        seen.append(progress.round)
        if progress.round == 2:
            raise KeyboardInterrupt

    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SHORT, checkpoint=file, ledgers={"a": ledger}, callback=stop)
    with pytest.raises(InvalidInput, match="changed"):
        tacit.solve([part()], SHORT, checkpoint=file)
    other = tmp_path / "d.npz"
    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SHORT, checkpoint=other, seed=1, callback=stop)
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
    file, seen = tmp_path / "c.npz", []

    def stop(progress):
        seen.append(progress.averages[0])
        raise KeyboardInterrupt

    about = {"checkpoint": file, "run": "spring"}
    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SHORT, ledgers={"a": one}, callback=stop, **about)
    with pytest.raises(InvalidInput, match="the ledgers, agents"):
        tacit.solve([part()], SHORT, ledgers={"a": other}, **about)
    one.backup(tmp_path / "copy.db")
    with pytest.raises(KeyboardInterrupt):  # a copy knows it
        tacit.solve([part()], SHORT, ledgers={"a": tmp_path / "copy.db"}, callback=stop, **about)
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("change", ["round", "later", "outside", "average", "dual", "point"])
def test_a_checkpoint_with_a_changed_state_is_refused(tmp_path, change):
    file = tmp_path / "c.npz"

    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tacit.solve([part()], SHORT, checkpoint=file, seed=1, callback=stop)
    saved = Journal.load(file)
    broken = {"outside": {"average": [np.full(3, 2.0)]}, "round": {}, "later": {}}
    rounds = {"round": -3, "later": SHORT.rounds + 1}
    arrays = saved.arrays | broken.get(change, {change: [np.full(3, np.nan)]})
    replace(saved, arrays=arrays, round=rounds.get(change, saved.round)).save()
    for batch in (True, False):
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
