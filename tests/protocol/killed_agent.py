"""A server that kills its agent at random moments; run as a program, it prints what happened.

The agent is a forked process with a ledger. Its noise is secure; in some runs the operating
system's generator is replaced by a stream that depends on the round alone, so that a run with kills
can be compared with a run without.
"""

import json
import os
import random
import sys
import time
from pathlib import Path

import numpy as np
from forked_agent import SIZE, Process, answer_lines, consensus_after, problem

from tacit.admm.settings import Settings
from tacit.privacy import secure_noise
from tacit.privacy.ledger import Ledger
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Reply

ROUNDS = int(sys.argv[3])
SLOW = 0.05  # seconds that a computation may take on top of its own time, so that kills meet it


def settings():
    return Settings.for_budget(3.0, 1e-5, ROUNDS, 2, penalty=2.0, step_size=0.2)


def serve(requests, replies, path, fixed):
    agent = Agent(problem(), "grid", settings(), None, "run", SIZE, ledger=Ledger(path))
    compute, chance = agent._round, random.Random(os.getpid())

    def slow(*arguments, **others):
        time.sleep(chance.uniform(0, SLOW))
        return compute(*arguments, **others)

    def before(t):
        if fixed:
            secure_noise.random_bytes = random.Random(t).randbytes

    agent._round = slow
    answer_lines(agent, requests, replies, before)


def run(folder, kills, seed, fixed=True):
    """Rounds 1..T, with so many kills; returns the replies and what the ledger said meanwhile."""
    rng = random.Random(seed)
    path = Path(folder) / f"killed-{seed}.db"
    Ledger.create(path, 3.0, 1e-5).close()
    answers = {}  # every reply that reached the server, by round
    short, twice, between, refusals, lives, done = 0, 0, 0, [], 0, 0
    w, last = np.zeros(SIZE), {}
    onwards = min(0.5, ROUNDS / max(kills, 1))  # how often an answered round is not asked again
    # kills fall at any moment of a life's first answer: how long that takes, the first life tells
    process, fresh, wait = Process(serve, path, fixed), True, None
    while done < ROUNDS:
        start = time.perf_counter()
        process.ask(done + 1, w, last)
        killing = kills > 0 and wait is not None and rng.random() < 0.9
        if killing:
            time.sleep(rng.uniform(0, wait))
            kills, lives = kills - 1, lives + 1
        shown = process.end() if killing else process.read(60)
        if shown:
            ((round, primal),) = shown
            if isinstance(primal, str):
                refusals.append(primal)
                break
            twice += answers.setdefault(round, primal) != primal
            if not killing and fresh:
                wait = 1.2 * (time.perf_counter() - start)
            fresh = False
        book = Ledger(path)
        blocks = book.charged("run")
        paid = sum(last - first + 1 for first, last in blocks)
        short += not all(any(a <= t <= b for a, b in blocks) for t in answers)
        stored = book.answer("run")
        between += paid > (stored.round if stored else 0)
        book.close()
        if shown and (kills == 0 or rng.random() < onwards):
            done, w = round, consensus_after(round, primal)
            last = {"grid": Reply("run", round, np.array(primal)).digest}
        if killing:
            process, fresh = Process(serve, path, fixed), True
    process.end()
    book = Ledger(path)
    return {
        "replies": [answers[t] for t in sorted(answers)],
        "short": short,
        "twice": twice,
        "between": between,  # found paid for, but not answered
        "refusals": refusals,
        "lives": lives,
        "spent": book.spent.epsilon,
        "rounds_paid": sum(last - first + 1 for first, last in book.charged("run")),
    }


if __name__ == "__main__":
    folder, kills = sys.argv[1], int(sys.argv[2])
    outcome = {
        "calm": run(folder, 0, 0),
        "killed": run(folder, kills, 1),
        "fresh": run(folder, kills, 2, fixed=False),
    }
    print(json.dumps(outcome))
