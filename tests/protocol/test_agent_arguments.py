"""What an agent is given, as numbers or as messages: used only if it is what it seems."""

import jax
import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput, Refused, SolverFailure
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast

SETTINGS = tacit.Settings.for_budget(1.0, 1e-5, 4, penalty=1.0, step_size=0.1)


def part(dtype=np.float64, **options):
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(dtype)
    common = {"feature_norm": 1.0, "normaliser": 100.0, "neighbours": "zero-out", **options}
    f = tacit.LogisticRegression(x, x[:, 0] > 0, **common)
    return tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, 3), name="a")


def agent(ledger=None, key=0, **options):
    key = None if ledger else jax.random.key(key)
    return Agent(part(**options), "a", SETTINGS, key, "run", 3, ledger=ledger)


@pytest.mark.parametrize("noise", ["seeded", "secure"])
def test_noise_that_float32_would_flush_to_zero_is_refused(noise):
    tiny = part(np.float32, feature_norm=1e-8, normaliser=5e29)
    with pytest.raises(InvalidInput, match="noise of scale between 1e-30 and 1e30 for float32"):
        tacit.solve([tiny], SETTINGS, noise=noise)


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
