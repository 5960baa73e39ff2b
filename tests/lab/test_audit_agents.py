"""The audit through agents, ledgers and secure noise: correct code passes, broken code does not."""

import json
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import repeat
from test_audit import DELTA, small_worlds

from tacit.admm import algorithm
from tacit.admm.problem import LocalProblem, start_point
from tacit.admm.settings import Settings
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.lab.audit import (
    audit_agents,
    ball_worlds,
    hostile,
    ordinary,
    paying,
    simplex_worlds,
)
from tacit.lab.audit.trials import size_of
from tacit.privacy.seeded_noise import agent_key
from tacit.protocol import agent
from tacit.protocol.agent import Agent
from tacit.pytree import pytree, store
from tacit.sets import closed_form
from tacit.sets.closed_form import L1Ball, onto_simplex

# Most faults planted below show in every trial: the distribution-free bound is then 2.44 for 100
# trials in each world, beside claims of 1 and 2.
TRIALS = repeat(100, 300)
ROUNDS = repeat(2, 4)


def settings(epsilon=4.0, rounds=ROUNDS, **others):
    return Settings.for_budget(epsilon, DELTA, rounds, 1, **others)


def run(worlds, plans=(), trials=TRIALS, rounds=ROUNDS, epsilon=4.0, begin=paying):
    return audit_agents(worlds, settings(epsilon, rounds), plans, trials=trials, begin=begin)


# --- correct code -----------------------------------------------------------------------------


def test_agents_are_consistent_and_seen():
    found = run(small_worlds(), trials=repeat(100, 200), epsilon=10.0)
    assert not found.violated and found.refutable and found.through == "agents"
    assert 0.99 * 10.0 < found.claim.epsilon <= 10.0  # what the ledgers say
    assert max(found.epsilons) > 0.5  # without a seed: room for chance


def test_the_canaries_reach_the_sensitivity():
    """0.98 of it at the start, in the norms of both mechanisms; and it never is exceeded."""
    for worlds in (ball_worlds(), simplex_worlds(), ball_worlds(np.float32)):
        start = start_point(worlds.without)
        change = [np.asarray(p.objective.statistic(start)) for p in worlds.problems]
        for norm in (1, 2):
            Δ = worlds.without.objective.sensitivity(norm, worlds.without.feasible_set)
            assert 0.95 * Δ < np.linalg.norm(change[1] - change[0], norm) <= Δ


# --- a projection that can be pushed out -------------------------------------------------------


def pushed_out(v, c, total):
    """As it once was: of a point 1e50 away the projection lay a million times too far out."""
    return onto_simplex(v, c, total) * jnp.where(jnp.max(v) > 1e50, 1e6, 1.0)


def pushed_worlds():
    @pytree
    class Pushed(L1Ball):
        def project(self, point, weight=None):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(closed_form, "onto_simplex", pushed_out)
                return super().project(point, weight)

    worlds, ball = ball_worlds(), Pushed.__new__(Pushed)  # agents of a class share compiled rounds
    store(ball, **vars(worlds.without.feasible_set))
    pair = (LocalProblem(p.objective, ball, name=p.name) for p in worlds.problems)
    return replace(worlds, **dict(zip(("without", "with_canary"), pair, strict=True)))


def test_a_projection_that_can_be_pushed_out_is_caught(monkeypatch):
    for module in (algorithm, agent):
        monkeypatch.setattr(module, "admitted", lambda z, local: z)
    worlds = pushed_worlds()
    found = run(worlds, [hostile(worlds, settings(2.0, 2))], trials=TRIALS, rounds=2, epsilon=2.0)
    assert found.violated and found.white.free > found.claim.epsilon


# --- a restarted seed ---------------------------------------------------------------------------


def restarted():
    """Agents without a ledger, which have the same key again."""
    count = iter(range(1_000_000))
    current = {}

    def begin(problem, chosen, name, ledger):
        if name == "trial-0":
            current["key"] = agent_key(jax.random.key(3), f"{next(count)}", 0)
        return Agent(problem, "a", chosen, current["key"], name, size_of(problem))

    return begin


def test_a_restarted_seed_is_caught():
    worlds = small_worlds()
    plan = ordinary(worlds, 2)
    plans = [plan, plan + 0.01 * np.eye(1, plan.shape[1])]
    found = run(worlds, plans, TRIALS, 2, 1.0, restarted())
    assert found.violated and found.white.free > found.claim.epsilon
    assert found.white.free_rates.attack == "restart"


# --- arguments and the command ---------------------------------------------------------------


def test_agents_are_audited_with_one_local_update():
    with pytest.raises(InvalidInput, match="one local update"):
        audit_agents(ball_worlds(), Settings.for_budget(1.0, DELTA, 2, 2), trials=100)


def test_the_command_through_agents(capsys):
    words = "audit l1-ball --agents --float32 --total-epsilons 10 --trials 100 --rounds 1 --json"
    assert main(words.split()) == 0
    (one,) = json.loads(capsys.readouterr().out)["audits"]
    assert one["through"] == "agents" and one["name"] == "l1-ball" and one["seed"] is None
    assert one["settings"]["local_updates"] == 1
    assert 9.9 < one["claim"]["epsilon"] <= 10 < one["largest_bound"]  # so it can be refuted
    assert not one["violated"] and all(b["epsilon"] <= 10 for b in one["bounds"])
    assert one["bounds"][1]["epsilon"] > 1.0  # without a seed: room for chance
