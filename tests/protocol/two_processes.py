"""Two processes of one agent on one ledger, killed and failing at random moments.

    python tests/protocol/two_processes.py --runs 100

Counts, for every round, what was ever shown (replies that differ, and failures) beside what was
charged. A run has a seeded schedule of requests, kills and failures; when they fall is up to the
machine. Then one process alone, of which the operating system's generator is replaced by a stream
that depends on the round: a run with kills has the replies of a run without.
"""

import argparse
import json
import random
import select
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from forked_agent import SIZE, Process, answer_lines, consensus_after, problem

from tacit.admm.settings import Settings
from tacit.errors import SolverFailure
from tacit.privacy import secure_noise
from tacit.privacy.ledger import Ledger
from tacit.protocol.agent import Agent
from tacit.protocol.messages import Broadcast, Reply

ROUNDS, KILLS = 4, 8  # rounds of a run, and kills at most
MOVES = ("ask", "kill", "wait", "sleep")
WEIGHTS, ALONE = (3, 2, 5, 2), (3, 5, 2, 3)  # of these moves; of one process more kills
LONGEST = 0.02  # seconds that a computation may take on top of its own time
CHOSEN = Settings.for_budget(1.0, 1e-5, ROUNDS, 2, penalty=2.0, step_size=0.2)


def serve(requests, replies, path, seed, local, alone):
    rng = random.Random(seed)
    agent = Agent(local, "grid", CHOSEN, None, "run", SIZE, ledger=Ledger(path))
    compute = agent._round

    def slow_and_failing(*arguments, **others):
        time.sleep(rng.choice([0.0, rng.uniform(0, LONGEST)]))
        result = compute(*arguments, **others)
        if not alone and rng.random() < 0.6:
            raise SolverFailure("injected.")
        return result

    def before(t):
        if alone:
            secure_noise.random_bytes = random.Random(t).randbytes

    agent._round = slow_and_failing
    answer_lines(agent, requests, replies, before)


class Shown:
    """What an observer of both processes has seen."""

    def __init__(self):
        self.replies = {}  # round -> set of replies, each one noisy computation
        self.failures, self.refusals = Counter(), Counter()

    def add(self, lines):
        for t, answer in lines:
            if answer == "failed":
                self.failures[t] += 1
            elif isinstance(answer, str):
                taken = "taken the payment over" in answer
                self.refusals["lost payment" if taken else "other"] += 1
                known = ("taken the payment over", "another request", "expects", "old copy")
                assert any(words in answer for words in known), answer
            else:
                self.replies.setdefault(t, set()).add(tuple(answer))

    def computations(self, t):
        return len(self.replies.get(t, ())) + self.failures[t]


def one_run(path, seed, number=2, most=KILLS):
    """A server that asks all processes at once, not always the same; a killer; an observer."""
    rng = random.Random(seed)
    Ledger.create(path, 1e3, 1e-5).close()
    local = problem()
    births = iter(range(10**6))

    def start():
        return Process(serve, path, rng.random() + next(births), local, number == 1)

    processes, shown, kills = [start() for _ in range(number)], Shown(), 0
    t, w, last, before = 1, np.zeros(SIZE), {}, None
    deadline = time.monotonic() + 60
    asked = [w]
    while t <= ROUNDS:
        assert time.monotonic() < deadline, f"run {seed} hangs in round {t}"
        move = rng.choices(MOVES, WEIGHTS if number > 1 else ALONE)[0]
        if not any(p.waiting for p in processes):
            move = "ask"
        idle = [i for i, p in enumerate(processes) if not p.waiting]
        if move == "ask" and idle:
            process = processes[rng.choice(idle)]
            if before is not None:  # the round before, so that a late process catches up
                process.ask(*before)
            if number > 1 and rng.random() < 0.1:
                asked.append(w + rng.choice([0.0, 0.01]))
            process.ask(t, rng.choice(asked), last)
        elif move == "kill" and kills < most:
            victim = rng.choice(idle if idle and rng.random() < 0.7 else range(number))
            shown.add(processes[victim].end())
            processes[victim], kills = start(), kills + 1
        elif move == "wait":
            select.select([p.up for p in processes], [], [], 2 * LONGEST)
        else:
            time.sleep(rng.uniform(0, LONGEST))
        for process in processes:
            shown.add(process.read())
        if t in shown.replies:
            reply = next(iter(shown.replies[t]))
            book = Ledger(path)
            request = book.answer("run", t).request
            book.close()
            chosen = next(v for v in asked if Broadcast("run", t, np.asarray(v)).digest == request)
            before = (t, chosen, last)
            w, last = consensus_after(t, reply), {"grid": Reply("run", t, np.array(reply)).digest}
            t, asked = t + 1, [w]
    for process in processes:
        shown.add(process.end())
    return shown, count(path, shown, kills)


def count(path, shown, kills):
    """Everything shown beside everything charged, round by round."""
    book = Ledger(path)
    charged = Counter(t for first, last in book.charged("run") for t in range(first, last + 1))
    db = sqlite3.connect(path)
    kinds = Counter(kind for (kind,) in db.execute("SELECT kind FROM entries"))
    db.close()
    book.close()
    rounds = range(1, ROUNDS + 1)
    return {
        "kills": kills,
        "charged": sum(charged[t] for t in rounds),
        "shown": sum(shown.computations(t) for t in rounds),
        "failures": sum(shown.failures.values()),
        "taken_over": kinds["claim"],
        "lost_payment": shown.refusals["lost payment"],
        "unpaid": sum(max(0, shown.computations(t) - charged[t]) for t in rounds),
        "answered_twice": sum(len(shown.replies.get(t, ())) > 1 for t in rounds),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total, bad = Counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for i in range(options.runs):
            seed = options.seed + i
            shown, found = one_run(Path(folder) / f"{seed}.db", seed)
            bad += found["unpaid"] > 0 or found["answered_twice"] > 0
            total.update(found)
            calm, _ = one_run(Path(folder) / f"{seed}-calm.db", seed, 1, 0)
            killed, found = one_run(Path(folder) / f"{seed}-killed.db", seed, 1, 20)
            total.update({f"{name}_alone": found[name] for name in ("kills", "taken_over")})
            # a payment that was made is used in the next life; with other noise replies differ
            bad += found["charged"] != ROUNDS or found["shown"] != ROUNDS
            bad += killed.replies != calm.replies or calm.replies == shown.replies
    print(json.dumps({"runs": options.runs, "bad_runs": bad, **total}))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
