"""A benchmark's function in a process of its own, on so many threads."""

import os
import subprocess
import sys


def in_fresh_process(module, function, threads):
    environment = dict(os.environ, OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    if threads == 1:
        environment["XLA_FLAGS"] = (
            "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        )
    command = [sys.executable, "-c", f"import {module} as b; print(b.{function}())"]
    if hasattr(os, "sched_setaffinity"):
        command = ["taskset", "-c", f"0-{threads - 1}", *command]
    done = subprocess.run(
        command,
        cwd=os.path.dirname(__file__),
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    return eval(done.stdout.splitlines()[-1], {"nan": float("nan")})
