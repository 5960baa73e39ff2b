"""An agent's process, forked, for programs that kill it: its problem, and pipes to it.

JAX is imported but never started, as it does not survive a fork.
"""

import os
import traceback
from decimal import Decimal

import numpy as np

from tacit.admm.problem import LocalProblem
from tacit.objectives.residual import Residual
from tacit.privacy import secure_noise
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
