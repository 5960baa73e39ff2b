"""A server that kills its agent at random moments; run as a program, it prints what happened.

The agent is a forked process with a ledger. Its noise is secure; in some runs the operating
system's generator is replaced by a stream that depends on the round alone, so that a run with kills
can be compared with a run without. JAX is imported but never started: it does not survive a fork.
"""

import json
import os
import pickle
import random
import signal
import sys
import time
import traceback
from pathlib import Path

import numpy as np

from tacit.admm.agent import Agent, Broadcast, digest_of
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import TacitError
from tacit.objectives.residual import Residual
from tacit.privacy import discrete
from tacit.privacy.ledger import Ledger
from tacit.sets.cones import Polyhedron

ROUNDS, SIZE = 50, 3


def problem():
    rng = np.random.default_rng(0)
    matrix, offset = rng.normal(size=(4, SIZE)), rng.normal(size=4)
    W = Polyhedron(
        np.vstack([np.eye(SIZE), -np.eye(SIZE), np.ones((1, SIZE))]),
        np.append(np.ones(2 * SIZE), 1.5),
        lower=-1.0,
        upper=1.0,
    )
    return LocalProblem(Residual(matrix, offset, beta=0.1), W, name="grid")


def settings():
    return Settings.for_budget(3.0, 1e-5, ROUNDS, 2, penalty=2.0, step_size=0.2)


def serve(path, requests, replies, block, fixed):
    """The agent's process: one line in, one line out, until it is killed."""
    ledger = Ledger(path)
    agent = Agent(problem(), "grid", settings(), None, "run", SIZE, ledger=ledger, block=block)
    while line := requests.readline():
        broadcast = pickle.loads(bytes.fromhex(line.decode()))
        if fixed:
            discrete.random_bytes = random.Random(broadcast.round).randbytes
        try:
            reply = agent.respond(broadcast).primal.tolist()
        except TacitError as error:
            reply = str(error)
        replies.write(json.dumps([broadcast.round, reply]).encode() + b"\n")
        replies.flush()


class Process:
    def __init__(self, path, block, fixed):
        down, up = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(down[1])
            os.close(up[0])
            try:
                serve(path, os.fdopen(down[0], "rb"), os.fdopen(up[1], "wb"), block, fixed)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(down[0])
        os.close(up[1])
        self.requests, self.replies = os.fdopen(down[1], "wb", 0), os.fdopen(up[0], "rb")

    def ask(self, broadcast):
        self.requests.write(pickle.dumps(broadcast).hex().encode() + b"\n")

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)

    def close(self):
        self.requests.close()
        self.replies.close()


def consensus_after(round, primal):
    """A server of its own: the next w depends on the last reply and on the round."""
    return 0.5 * np.asarray(primal) + 0.1 * np.sin(round + np.arange(SIZE))


def run(folder, kills, seed, block=1, fixed=True):
    """Rounds 1..T, with so many kills; returns the replies and what the ledger said meanwhile."""
    rng = random.Random(seed)
    path = Path(folder) / f"killed-{seed}.db"
    Ledger.create(path, 3.0 if block == 1 else 1000.0, 1e-5).close()
    answers = {}  # every reply that reached the server, by round
    short, twice, between, refusals, lives, done = 0, 0, 0, [], 0, 0
    w, last = np.zeros(SIZE), {}
    process, wait = Process(path, block, fixed), 0.02
    while done < ROUNDS:
        broadcast = Broadcast("run", done + 1, w, last)
        start = time.perf_counter()
        process.ask(broadcast)
        killing = kills > 0 and rng.random() < 0.9
        if killing:
            time.sleep(rng.uniform(0, wait))
            process.kill()
        line = process.replies.readline()  # what had left the agent when it died
        if killing:
            kills, lives = kills - 1, lives + 1
        if line.endswith(b"\n"):
            round, primal = json.loads(line)
            if isinstance(primal, str):
                refusals.append(primal)
                break
            twice += answers.setdefault(round, primal) != primal
            if not killing:
                wait = 0.5 * wait + 0.8 * (time.perf_counter() - start)
        book = Ledger(path)
        blocks = book.charged("run")
        paid = sum(last - first + 1 for first, last in blocks)
        short += not all(any(a <= t <= b for a, b in blocks) for t in answers)
        stored = book.answer("run")
        between += paid > (stored.round if stored else 0)
        book.close()
        if line.endswith(b"\n") and (kills == 0 or rng.random() < 0.25):
            done, w = round, consensus_after(round, primal)
            last = {"grid": digest_of("run", round, np.array(primal))}
        if killing:
            process.close()
            process = Process(path, block, fixed)
    process.kill()
    process.close()
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
        "blocks": run(folder, kills // 5, 3, block=7, fixed=False),
    }
    print(json.dumps(outcome))
