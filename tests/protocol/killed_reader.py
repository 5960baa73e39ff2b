"""Processes that release the same data from one ledger, and are killed at random moments.

    python tests/protocol/killed_reader.py --kills 500

Every process prints the release of its data. Counted beside the ledger: readings that differ (of
the same data), and charges. The schedule of kills has a seed; where they fall is up to the machine.
Some processes have other data, some are two at a time.
"""

import argparse
import json
import os
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
from forked_agent import SIZE, Process

from tacit.admm.problem import LocalProblem
from tacit.errors import Refused
from tacit.objectives.residual import Residual
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger import Ledger
from tacit.protocol.release import Reader
from tacit.sets import Box

SLOW = 0.02  # seconds that a step may take on top of its own time
MECHANISM = calibrate("gaussian", 1.0, 1e-5, 1)


def problem(state):
    """Data of one state."""
    rng = np.random.default_rng(state)
    matrix, offset = rng.normal(size=(4, SIZE)), rng.normal(size=4)
    return LocalProblem(Residual(matrix, offset, beta=0.1), Box(-1, 1, size=SIZE), name="grid")


def serve(requests, replies, path, state):
    """A process of the agent: it releases its data; one line for each thing shown."""

    def show(*what):
        replies.write(json.dumps([state, *what]).encode() + b"\n")
        replies.flush()

    def slow(self, plan, run):
        """Time to be killed between payment and noise, and between noise and storage."""
        time.sleep(random.choice([0.0, random.uniform(0, SLOW)]))
        release = measured(self, plan, run)
        time.sleep(random.choice([0.0, random.uniform(0, SLOW)]))
        return release

    random.seed(os.getpid())
    measured, Reader._measured = Reader._measured, slow
    show("alive")
    for _ in range(3):  # a refused one asks again
        reader = Reader("grid", MECHANISM, 1e-5, "secure", None, Ledger(path))
        try:
            show("release", reader.read(problem(state)).values.tolist())
        except Refused as refusal:
            show("refused", str(refusal))
            continue
        break


def lines_of(process, after=None):
    """All that it shows until it is killed, so many seconds after its start, or ends; and when that
    start was."""
    lines = process.read(60)  # it is there
    start = time.perf_counter()
    if after is not None:
        time.sleep(after)
    return lines + process.end(kill=after is not None), start


def one_run(path, kills, seed):
    """So many kills on one ledger; everything shown beside everything charged."""
    rng = random.Random(seed)
    Ledger.create(path, 1e3, 1e-5).close()
    shown, found, states, wait, state = {}, Counter(), set(), 0.05, 0
    while found["kills"] < kills:
        if rng.random() < 0.3:  # the data change, and sometimes back
            state = rng.randrange(kills)
        states.add(state)
        together = [Process(serve, path, state) for _ in range(1 + (rng.random() < 0.3))]
        for process in together:
            killing = rng.random() < (0.8 if len(together) == 1 else 0.4)
            lines, start = lines_of(process, rng.uniform(0, wait) if killing else None)
            if not killing and len(together) == 1:
                wait = 0.7 * wait + 0.3 * 1.2 * (time.perf_counter() - start)
            found["kills"] += killing
            for of, what, *more in lines:
                if what == "release":
                    shown.setdefault(of, set()).add(tuple(more[0]))
                elif what == "refused":
                    assert "taken the payment over" in more[0], more
                    found["refused"] += 1
                found[what] += 1
    db = sqlite3.connect(path)
    kinds = Counter(kind for (kind,) in db.execute("SELECT kind FROM entries"))
    db.close()
    for state in states:  # whoever is left gets what was shown
        lines, _ = lines_of(Process(serve, path, state))
        last = {tuple(more[0]) for _, what, *more in lines if what == "release"}
        found["lost"] += not shown.get(state, last) <= last
        shown.setdefault(state, set()).update(last)
    with Ledger(path) as book:
        charges = sum(run["rounds_charged"] for run in book.runs())
    return {
        **found,
        "states": len(states),
        "charges": charges,
        "taken over": kinds["claim"],
        "two readings": sum(len(readings) > 1 for readings in shown.values()),
        "unpaid": max(0, sum(map(len, shown.values())) - charges),
        "one reading twice": sum(map(len, shown.values())) - len(set().union(*shown.values())),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        total = one_run(Path(folder) / "grid.db", options.kills, options.seed)
    print(json.dumps(total))
    wrong = ("two readings", "unpaid", "lost", "one reading twice")
    return 1 if any(total[name] for name in wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
