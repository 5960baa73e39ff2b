"""The eavesdropper finds the loads without noise, and not with it."""

import numpy as np
import pytest

import tacit
from tacit.errors import InvalidInput
from tacit.mechanisms import Gaussian
from tacit.power import build, scheduled
from tacit.power.attack import attack, listen


@pytest.fixture(scope="module")
def found():
    case = build("case14")
    budgets = [("no privacy", tacit.Settings(25))]
    budgets += [
        (f"epsilon {e:g}", tacit.Settings.for_budget(e, 1e-5, 25)) for e in (1000.0, 10.0, 1.0)
    ]
    chosen = [(label, scheduled(case, settings)) for label, settings in budgets]
    return case, attack(case, chosen, seeds=2)


def test_without_noise_every_load_is_found(found):
    """28 loads to better than a hundredth of the smallest change that privacy would hide."""
    case, result = found
    assert result.errors["no privacy"] < 1e-4
    wrong = np.abs(result.loads["no privacy"] - result.loads["true"])
    assert wrong.max() < 5e-4 and len(wrong) == 28
    assert result.loads["true"].sum() == pytest.approx(
        case.grid.bus[["p_demand", "q_demand"]].sum().sum()
    )


def test_the_error_grows_with_the_noise_and_stays_above_the_floor(found):
    _, result = found
    error, floor = result.errors, result.floors
    assert error["no privacy"] < error["epsilon 1000"] < error["epsilon 10"] < error["epsilon 1"]
    for label in list(error)[1:]:
        assert error[label] > floor[label]
    # at epsilon 1 the messages are worth little more than no messages
    assert error["epsilon 1"] > 0.5 * result.prior_error


def test_result_as_plain_data_and_as_a_picture(found, tmp_path):
    _, result = found
    document = result.to_dict()
    assert set(document["loads"][0]) >= {"bus", "zone", "quantity", "true", "no privacy"}
    left, right = result.plot().axes
    assert [t.get_text() for t in right.get_xticklabels()] == result.labels
    assert left.get_xlabel() == "bus"


def test_what_the_attack_cannot_read(found):
    case, _ = found
    for wrong in (
        tacit.Settings(3, 2, Gaussian(1.0), penalty=1.0, step_size=0.1),
        tacit.Settings(3, 1, Gaussian(1.0), perturbation="output", penalty=1.0, step_size=0.1),
    ):
        with pytest.raises(InvalidInput, match="local_updates=1 and objective noise"):
            listen(case, wrong, 0)


def test_messages_are_those_of_the_wire(found):
    """Replies hold the coupled coordinates only: 6 numbers per cut line of the zone."""
    case, _ = found
    settings = scheduled(case, tacit.Settings(2))
    heard = listen(case, settings, 0)
    assert len(heard.consensus) == len(heard.replies) == 2
    for agent, reply in zip(case.agents, heard.replies[0], strict=True):
        assert reply.shape == ((np.asarray(agent.coupling) >= 0).sum(),)
    assert heard.consensus[0].shape == (case.problem.size,)
