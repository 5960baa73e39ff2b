"""An agent's process, forked, for programs that kill it: its problem, and pipes to it.

JAX is imported but never started, as it does not survive a fork.
"""

import json
import os
import select
import signal
import traceback
from decimal import Decimal

import numpy as np

from tacit.admm.problem import LocalProblem
from tacit.errors import Refused, SolverFailure
from tacit.objectives.residual import Residual
from tacit.privacy import secure_noise
from tacit.protocol.messages import Broadcast
from tacit.sets import Polyhedron

SIZE = 3
# its lower tables are those of all wide laws: every life's
secure_noise.discrete_gaussian(Decimal(2) ** 60)


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


def consensus_after(round, primal):
    """A server of its own: the next w depends on the last reply and on the round."""
    return 0.5 * np.asarray(primal) + 0.1 * np.sin(round + np.arange(SIZE))


def fork(serve, *arguments):
    """Start ``serve(requests, replies, *arguments)``; its process, and our ends of both pipes."""
    down, up = os.pipe(), os.pipe()
    process = os.fork()
    if process == 0:
        try:
            os.close(down[1])
            os.close(up[0])
            serve(os.fdopen(down[0], "rb"), os.fdopen(up[1], "wb"), *arguments)
        except BrokenPipeError:
            pass
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(0)
    os.close(down[0])
    os.close(up[1])
    return process, down[1], up[0]


def answer_lines(agent, requests, replies, before=lambda t: None):
    """The agent's process: a line in, a line out for all that is shown, until it is killed."""
    while line := requests.readline():
        t, w, last = json.loads(line)
        before(t)
        try:
            answer = agent.respond(Broadcast("run", t, np.array(w), last)).primal.tolist()
        except SolverFailure:
            answer = "failed"
        except Refused as refusal:
            answer = f"refused: {refusal}"
        replies.write(json.dumps([t, answer]).encode() + b"\n")
        replies.flush()


class Process:
    """A forked process that is sent lines, and shows lines."""

    def __init__(self, serve, *arguments):
        self.pid, self.down, self.up = fork(serve, *arguments)
        self.partial, self.waiting = b"", 0

    def ask(self, t, w, last):
        os.write(self.down, json.dumps([t, list(w), last]).encode() + b"\n")
        self.waiting += 1

    def read(self, seconds=0.0):
        """Whole lines that have arrived, or that arrive first within so many seconds."""
        shown = []
        while select.select([self.up], [], [], seconds)[0] and (more := os.read(self.up, 1 << 16)):
            *lines, self.partial = (self.partial + more).split(b"\n")
            shown += [json.loads(line) for line in lines]
            seconds = 0.0 if shown else seconds
        self.waiting -= len(shown)
        return shown

    def end(self, kill=True):
        """Kill it, or wait for its end; what it had shown by then."""
        if kill:
            os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        left = self.read()
        os.close(self.down)
        os.close(self.up)
        return left
