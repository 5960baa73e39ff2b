"""The agent of a clinic, which tests of agents ask."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np

import tacit
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast, Own

SIZE, ROUNDS = 12, 8
SHORT = tacit.Settings.for_budget(1.0, 1e-5, 4, penalty=1.0, step_size=0.1)


def problem(normaliser=60):
    rng = np.random.default_rng(2)
    return tacit.LocalProblem(
        tacit.SoftmaxRegression(
            rng.uniform(0, 0.5, (60, 4)),
            rng.integers(0, 3, 60),
            3,
            feature_norm=1.0,
            normaliser=normaliser,
        ),
        tacit.Box(-1, 1, size=SIZE),
        name="clinic",
    )


def settings(rounds=ROUNDS, **others):
    others = {"penalty": 1.0, "step_size": 0.5, **others}
    return tacit.Settings.for_budget(1.0, 1e-5, rounds, 2, **others)


def make(ledger=None, rounds=ROUNDS, run="june", **others):
    return Agent(
        problem(), "clinic", settings(rounds), jax.random.key(3), run, SIZE, ledger=ledger, **others
    )


def ask(agent, t, w=None, run="june", last=None):
    w = np.linspace(-0.1, 0.1, SIZE) * t if w is None else w
    last = {"clinic": agent.last_digest} if last is None else last
    return agent.respond(Broadcast(run, t, w, last))


class Willing:
    """Rules of a participant that agrees to all it is asked; nothing of its own is kept."""

    def __init__(self, problem=None, own=None):
        self.problem, self.own = problem, own or Own("secure", None, False, 1)

    def invited(self, study):
        return self.problem

    def agree(self, proposal):
        return self.own

    def allow(self, run, terms, release): ...

    def finish(self, participant, run, outcome): ...


def part(dtype=np.float64, **options):
    """A small problem for runs of ``SHORT``."""
    x = np.random.default_rng(0).normal(size=(12, 3)).astype(dtype)
    common = {"feature_norm": 1.0, "normaliser": 100.0, "neighbours": "zero-out", **options}
    f = tacit.LogisticRegression(x, x[:, 0] > 0, **common)
    return tacit.LocalProblem(f, tacit.Box(-1.0, 1.0, 3), name="a")


def counted(program, *options):
    """What a program of this folder counted, whose processes were killed."""
    command = [sys.executable, str(Path(__file__).with_name(program)), *map(str, options)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0 and done.stderr == "", done.stdout + done.stderr
    return json.loads(done.stdout)
