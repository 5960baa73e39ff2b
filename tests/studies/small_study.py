"""A small study of three hospitals, on the disk, and a line that stays in this process."""

from __future__ import annotations

import hashlib

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

import tacit
from tacit.admm.problem import Problem
from tacit.files import write_atomically
from tacit.privacy.ledger import Ledger
from tacit.protocol.participant import answer_bytes
from tacit.studies.conduct import conduct
from tacit.studies.job import asked_of
from tacit.studies.party import party as join
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Study

NAMES = ("north", "south", "west")
STUDY = """
name = "clinics"
{sums}
deadline = 5
columns = ["age", "dose", "weight"]
[objective]
kind = "{kind}"
feature_norm = 1.0
normaliser = 90
neighbours = "add-remove"
{bounds}
[set]
kind = "ball"
center = 0.0
radius = 2.0
[privacy]
total_epsilon = 2.0
total_delta = 1e-5
[algorithm]
{rounds}
{algorithm}
{identities}
{agents}
{more}
"""
PARTY = """
agent = "{name}"
data = "{name}.csv"
target = "y"
ledger = "{name}.db"
rehearsal = {rehearsal}
{identity}
[limits]
total_epsilon = {epsilon}
total_delta = 1e-5
{more}
"""


def write_study(
    folder, kind="logistic", rounds=6, rehearsal=7, names=NAMES, algorithm="", colluding=None
):
    """study.toml and each party's files, ledgers too; ``algorithm``: more of that section;
    ``colluding``: of a secure sum."""
    once = kind == "least-squares"
    folder.mkdir(parents=True, exist_ok=True)
    keys = {} if colluding is None else {name: identity(folder, name) for name in names}
    text = STUDY.format(
        sums=f'aggregation = "sum"\ncolluding = {colluding}' if keys else "",
        identities="\n".join(
            ["[identities]"] * bool(keys) + [f'{n} = "{k}"' for n, k in keys.items()]
        ),
        kind=kind,
        bounds="target_bound = 1.0" if once else "",
        rounds="" if once else f"rounds = {rounds}",
        algorithm=algorithm,
        agents="\n".join(f'[[agents]]\nname = "{name}"' for name in names),
        more="" if rehearsal is None else f"[rehearsal]\nseed = {rehearsal}",
    )
    (folder / "study.toml").write_text(text)
    rng = np.random.default_rng(5)
    for name in names:
        X = rng.normal(size=(30, 3)) / 3
        y = X @ [0.6, -0.5, 0.2] + 0.05 * rng.normal(size=30)
        y = np.clip(y, -1, 1) if once else (y > 0).astype(int)
        rows = [",".join(map(repr, row)) for row in np.column_stack([X, y]).tolist()]
        rows = ["age,dose,weight,y", *rows]
        (folder / f"{name}.csv").write_text("\n".join(rows) + "\n")
        write_party(folder, name, rehearsal=rehearsal is not None)
        if not (folder / f"{name}.db").exists():
            Ledger.create(folder / f"{name}.db", 4.0, 1e-4)
    return Study.load(folder / "study.toml")


def identity(folder, name):
    """Of a party, always the same."""
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest())
    pem = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    write_atomically(folder / f"{name}.pem", key.private_bytes(*pem))
    return key.public_key().public_bytes_raw().hex()


def write_party(folder, name, rehearsal=True, epsilon=2.0, more=""):
    known = (folder / f"{name}.pem").exists()
    words = {
        "identity": f'identity = "{name}.pem"' if known else "",
        "name": name,
        "rehearsal": str(rehearsal).lower(),
        "epsilon": epsilon,
        "more": more,
    }
    (folder / f"{name}.toml").write_text(PARTY.format(**words))


def party(study, folder, name):
    return join(study, PartyFile.load(folder / f"{name}.toml"), folder / f"own-{name}")


class Here:
    """A line to parties of this process; ``meddle(name, request) -> request or None`` (silence).

    It keeps every answer.
    """

    def __init__(self, parties, meddle=lambda name, request: request):
        self.parties, self.meddle, self.answers = {p.name: p for p in parties}, meddle, []

    def ask(self, requests, deadline, heard):
        found = {}
        for name, request in requests.items():
            asked = self.meddle(name, request)
            if asked is not None:
                found[name] = answer_bytes(self.parties[name], asked)
                self.answers.append(found[name])
                heard(name)
        return found


def run(study, folder, out="out", meddle=lambda name, request: request):
    line = Here([party(study, folder, name) for name in study.agents], meddle)
    return conduct(study, folder / out, line), line


def in_one_process(study, folder, **sums):
    """``tacit.solve`` of the whole problem, each agent with a ledger of its own."""
    parts = [study.problem_of(n, PartyFile.load(folder / f"{n}.toml")) for n in study.agents]
    problem = Problem(parts)
    ledgers = {n: Ledger.create(folder / f"{n}-alone.db", 4.0, 1e-4) for n in study.agents}
    about = {"seed": study.rehearsal, "run": study.name, "ledgers": ledgers, "noise": "seeded"}
    asked = asked_of(study.kind.sections) if sums else study.plan(problem)
    return tacit.solve(problem, asked, **about, **sums)


def write_grid(folder, every_round, objective="shed"):
    """case14 in three zones, each with a table of loads of its own; and these loads."""
    import pandas as pd

    from tacit.power import load_case, partition

    grid = load_case("case14")
    zones = partition(grid, 3)
    zones = {name: buses for name, buses in zip(("a", "b", "c"), zones.values(), strict=True)}
    rows = [f"{bus},{name}" for name, buses in zones.items() for bus in buses]
    zones = {f"zone {name}": buses for name, buses in zones.items()}
    (folder / "zones.csv").write_text("\n".join(["bus,zone", *rows]) + "\n")
    (folder / "study.toml").write_text(
        'name = "grid"\ndeadline = 5\n[rehearsal]\nseed = 3\n[power]\ncase = "case14"\n'
        f'zones = "zones.csv"\nobjective = "{objective}"\n'
        "[privacy]\ntotal_epsilon = 1.0\ntotal_delta = 1e-5\n[algorithm]\n"
        + ("noise_every_round = true\nrounds = 4\n" if every_round else "tolerance = 1e-3\n")
    )
    rng = np.random.default_rng(1)
    loads = grid.bus[["p_demand", "q_demand"]] * rng.uniform(0.8, 1.2, (len(grid.bus), 2))
    for name, buses in zones.items():
        table = pd.DataFrame(
            {"bus": buses, "p": loads.p_demand[buses].values, "q": loads.q_demand[buses].values}
        )
        table.to_csv(folder / f"{name}.csv", index=False)
        write_party(folder, name, epsilon=1.0)
        path = folder / f"{name}.toml"
        path.write_text(path.read_text().replace('target = "y"', 'unit = "per unit"'))
        Ledger.create(folder / f"{name}.db", 4.0, 1e-4)
    return Study.load(folder), {name: loads[name] for name in loads.columns}
