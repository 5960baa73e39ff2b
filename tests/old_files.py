"""Files that older versions left behind: results, a model, ledgers, runs that were interrupted.

    PYTHONPATH=OLD/src python tests/old_files.py tests/fixtures/0.1.0      (OLD is at 993c186)
    PYTHONPATH=OLD/src python tests/old_files.py tests/fixtures/flat       (OLD is at 20675d7)

0.1.0 is the last commit of that version. "flat" is the last commit before modules moved into
rooms: it computes what the rooms compute, so that its checkpoints can go on.

    job.toml, north.csv, south.csv, table.csv    what was run
    result/  power/  model/                      finished: tacit solve, power solve, learn
    paid/                                        finished, with north's ledger
    stopped/  stopped-power/                     interrupted after round 3 of 6, without ledgers
    stopped-paid/                                with a ledger, after its third answer was stored:
                                                 the last checkpoint is of round 2
    said.json                                    what that version said about them
"""

import contextlib
import hashlib
import io
import json
import os
import shutil
import sys
from importlib import import_module, metadata
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import tacit

JOB = """evaluate_every = {every}
{seed}
[objective]
kind = "least-squares"
feature_norm = 1.0
target_bound = 1.0
normaliser = 24
record_bound = 20

[set]
kind = "box"
lower = -1.0
upper = 1.0

[privacy]
mechanism = "gaussian"
total_epsilon = 1.0
total_delta = 1e-5

[algorithm]
rounds = 6
local_updates = 2
penalty = {{ kind = "constant", value = 0.5 }}
step_size = {{ kind = "constant", value = 0.5 }}
"""
AGENT = '\n[[agents]]\nname = "{0}"\ndata = "{0}.csv"\ntarget = "y"\n'
SEED = "seed = 7\n"
POWER = "power solve case14 --zones 2 --rounds 6 --total-epsilon 10 --total-delta 1e-5 --seed 3"
LEARN = (
    "learn table.csv --target label --agents 2 --range *=-2:2 --classes no,yes --rounds 4 "
    "--total-epsilon 5 --total-delta 1e-5 --seed 2 --out model"
)


def machine():
    """Versions, and what the last bits of a computation depend on besides."""
    rows = np.random.default_rng(0).normal(size=(7, 33))
    bits = np.asarray(jax.jit(lambda a: jnp.exp(a @ a.T / 9).sum(0))(rows)).tobytes()
    used = [metadata.version(name) for name in ("jax", "jaxlib", "numpy", "scipy", "clarabel")]
    return [*used, hashlib.sha256(bits).hexdigest()]


def data():
    rng = np.random.default_rng(11)
    for name in ("north", "south"):
        x = rng.uniform(-0.5, 0.5, (12, 3))
        y = x @ [0.5, -0.2, 0.1] + rng.uniform(-0.1, 0.1, 12)
        write_table(f"{name}.csv", "a,b,c,y", np.column_stack([x, y]))
    x = rng.uniform(-2, 2, (30, 2))
    labels = np.where(x @ [1.0, -0.5] > 0, "yes", "no")
    rows = [[*row, label] for row, label in zip(x.round(3), labels, strict=True)]
    write_table("table.csv", "age,fee,label", rows)


def write_table(name, header, rows):
    lines = [",".join(v if isinstance(v, str) else f"{v:.3f}" for v in row) for row in rows]
    Path(name).write_text("\n".join([header, *lines]) + "\n")


def run(line):
    """What a command prints as JSON."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert import_module("tacit.cli").main([*line.split(), "--json"]) == 0, line
    return json.loads(out.getvalue())


class Stop(BaseException):
    pass


def interrupted(line, rounds=3):
    """Run a command until it has saved its state, or stored an answer, after so many rounds."""
    checkpoint = import_module("tacit.checkpoint").Checkpoint
    save = checkpoint.save

    def saved(self, path):
        save(self, path)
        if self.round == rounds:
            raise Stop

    store, stored = tacit.Ledger.store, []

    def keep(self, *arguments):
        stored.append(store(self, *arguments))
        if len(stored) == rounds:
            raise Stop
        return stored[-1]

    with (
        mock.patch.object(checkpoint, "save", saved),
        mock.patch.object(tacit.Ledger, "store", keep),
        contextlib.suppress(Stop),
    ):
        import_module("tacit.cli").main(line.split())
        raise AssertionError(f"{line} was not interrupted")


def solution(folder):
    found = tacit.Result.load(folder)
    return {"solution": found.solution.tolist(), "privacy": found.privacy.to_dict()}


def make():
    data()
    Path("job.toml").write_text(
        JOB.format(seed=SEED, every=1) + "".join(map(AGENT.format, ["north", "south"]))
    )
    Path("paid.toml").write_text(JOB.format(seed="", every=2) + AGENT.format("north"))
    opened = []
    init = tacit.Ledger.__init__

    def remembered(self, path):
        opened.append(self)
        init(self, path)

    said = {"machine": machine(), "ledgers": {}}
    with mock.patch.object(tacit.Ledger, "__init__", remembered):
        run("solve job.toml --out result")
        interrupted("solve job.toml --out stopped")
        run(f"{POWER} --out power")
        interrupted(f"{POWER} --out stopped-power")
        run(LEARN)
        said["predictions"] = run("predict model table.csv")
        for folder in ("paid", "stopped-paid"):
            run(f"ledger budget {folder}/ledgers/north.db --total-epsilon 4 --total-delta 1e-5")
        run("solve paid.toml --out paid --ledgers paid/ledgers")
        interrupted("solve paid.toml --out stopped-paid --ledgers stopped-paid/ledgers")
        for folder in ("paid", "stopped-paid"):
            said["ledgers"][folder] = run(f"ledger show {folder}/ledgers/north.db")
    for ledger in opened:
        ledger.close()
    for folder in ("result", "power", "model", "paid"):
        said[folder] = solution(folder)
    Path("said.json").write_text(json.dumps(said, indent=1) + "\n")
    for picture in Path().rglob("*.png"):
        picture.unlink()
    for note in Path().rglob("job.json"):  # where it was made is nobody's concern
        note.write_text(note.read_text().replace(f"{Path().resolve()}/", ""))
    left = [str(path) for path in Path().rglob("*.db-*")]
    assert not left, left


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    os.chdir(folder)
    make()
