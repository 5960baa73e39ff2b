"""Runs that no proof about rounding covers say so, and points outside of a set end a run."""

import jax
import numpy as np
import pytest
from conftest import repeat
from rounded_models import FEATURES, problem, records

import tacit
from tacit.admm.algorithm import Round, certified_sensitivity, local_side, local_update
from tacit.errors import InvalidInput, Refused, SolverFailure
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast
from tacit.protocol.statement import privacy_statement
from tacit.pytree import register


@pytest.mark.parametrize("noise", repeat(["secure"], ["seeded", "secure"]))  # no matter which
def test_sixteen_bits_are_not_certified(noise, tmp_path):
    settings = tacit.Settings.for_budget(1.0, 1e-5, 2)
    result = tacit.solve([problem(np.float32, sixteen=True)], settings, noise=noise)
    assert not result.privacy.certified
    assert "16 bits" in result.privacy.words and "Not certified" in result.privacy.words
    assert tacit.solve([problem(np.float32)], settings, noise=noise).privacy.certified
    ledger = tacit.Ledger.create(tmp_path / "a.db", 9.0, 1e-5)
    with pytest.raises(Refused, match="only for what is proven"):
        tacit.solve([problem(np.float32, sixteen=True)], settings, ledgers={"a": ledger})
    assert ledger.spent.epsilon == 0


def test_a_class_may_doubt_its_own_bound():
    class Rough(tacit.LogisticRegression):
        doubt = "its bound is a guess."

    x, y = records(np.float32)
    rough = Rough(x[:40], y[:40], feature_norm=2.0, normaliser=6000.0)
    part = tacit.LocalProblem(rough, tacit.Box(-1.0, 1.0, FEATURES))
    settings = tacit.Settings.for_budget(1.0, 1e-5, 2)
    stated = privacy_statement(tacit.Problem([part]), settings, seeded=False)
    assert stated.uncertified == rough.uncertified == Rough.doubt and not stated.certified


@pytest.mark.filterwarnings("ignore")  # JAX says that numbers are shortened
def test_numbers_of_32_bits_only_are_noticed():
    """By sets, objectives, agents and runs: nothing is computed."""
    settings = tacit.Settings.for_budget(1.0, 1e-5, 2, penalty=1.0, step_size=0.1)
    part, ball, point = problem(), tacit.Ball([0.0, 0.0], 1.0), np.array([3.0, 4.0], np.float32)
    agent = Agent(part, "a", settings, jax.random.key(0), "run", FEATURES)
    jax.config.update("jax_enable_x64", False)
    try:
        for asked in (
            lambda: agent.respond(Broadcast("run", 1, np.zeros(FEATURES))),
            lambda: tacit.solve([part], settings, seed=0),
            problem,
            lambda: tacit.Residual(np.eye(2), np.zeros(2), 0.1),
            lambda: ball.project(point),
            lambda: ball.violation(point),
        ):
            with pytest.raises(InvalidInput, match="jax_enable_x64"):
                asked()
    finally:
        jax.config.update("jax_enable_x64", True)
    assert agent.rounds_done == 0


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize(
    ("dtype", "penalty", "step"),
    [(np.float32, 1e-50, 1.0), (np.float32, 1e30, 1.0), (np.float32, 1.0, 1e-40)],
)
def test_penalties_and_steps_that_the_format_cannot_hold_are_refused(dtype, penalty, step, batch):
    settings = tacit.Settings(2, 1, tacit.Gaussian(1.0), penalty=penalty, step_size=step)
    with pytest.raises(InvalidInput, match="penalties and step sizes that float32 can hold"):
        tacit.solve([problem(dtype)], settings, seed=0, batch=batch)


@pytest.mark.parametrize("batch", [True, False])
def test_a_point_outside_of_the_set_ends_a_run_without_a_result(batch):
    settings = tacit.Settings(3, 1, tacit.Gaussian(1.0), penalty=1.0, step_size=0.1)

    class Beyond(tacit.Box):
        def project(self, point, weight=None):  # right at the start, wrong afterwards
            z = super().project(point, weight)
            return z if weight is None else z + 1.5

    register(Beyond)
    part = problem(W=Beyond(-1.0, 1.0, FEATURES))
    seen = []
    with pytest.raises(SolverFailure, match=r"'a', round.* outside of the set\. Nothing of"):
        tacit.solve([part], settings, seed=0, batch=batch, callback=seen.append)
    assert not seen


def test_an_agent_does_not_go_on_from_a_point_outside_of_its_set():
    settings = tacit.Settings(3, 1, tacit.Gaussian(1.0), penalty=1.0, step_size=0.1)
    agent = Agent(problem(), "a", settings, jax.random.key(0), "run", FEATURES)
    inside, outside = np.zeros(FEATURES), np.full(FEATURES, 1.0 + 1e-9)
    for point, average in ((outside, inside), (inside, outside)):
        with pytest.raises(InvalidInput, match="within the feasible set"):
            agent.restore(point, average, inside, 1)
    assert agent.rounds_done == 0
    agent.restore(inside, inside, inside, 1)
    assert agent.rounds_done == 1


def test_no_gradient_is_taken_outside_of_the_set():
    """Whatever the projection did before: compiled code gives NaN, the host an error."""
    settings = tacit.Settings(3, 1, tacit.Gaussian(1.0), penalty=1.0, step_size=0.1)
    zero = np.zeros(FEATURES)
    now = Round(1, zero, zero, 1.0, 0.1)
    box = problem()
    solved = problem(W=tacit.Polyhedron(lower=zero - 1, upper=zero + 1))
    sides = [local_side(p, settings, jax.random.key(0), zero.dtype) for p in (box, solved)]
    rule = settings.rule(True)
    compiled = jax.jit(local_update, static_argnames="rule")
    assert np.isfinite(compiled(zero, 0, now, sides[0], rule)[0]).all()
    assert np.isnan(compiled(zero + 1 + 1e-9, 0, now, sides[0], rule)[0]).all()
    assert np.isfinite(local_update(zero, 0, now, sides[1], rule)[0]).all()
    with pytest.raises(SolverFailure, match="outside of the feasible set"):
        local_update(zero + 1.001, 0, now, sides[1], rule)


def test_the_scale_of_float32_noise_is_never_less_than_certified():
    rng = np.random.default_rng(0)
    for _ in range(repeat(60, 200)):  # of nearest numbers, half would be too small
        multiplier, norm = 10.0 ** rng.uniform(-2, 3), 10.0 ** rng.uniform(-3, 3)
        part = problem(np.float32, feature_norm=norm)
        settings = tacit.Settings(1, 1, tacit.Gaussian(multiplier), penalty=1.0, step_size=0.1)
        side = local_side(part, settings, jax.random.key(0), part.dtype)
        scale = np.float32(multiplier) * side.Δ
        assert float(scale) >= multiplier * certified_sensitivity(part, settings) * (1 - 1e-9)
