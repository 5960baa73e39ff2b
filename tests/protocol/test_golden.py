"""Bytes that never change: messages, keys of noise, terms and names of releases, entries, JSON.

What was written down once is in ``tests/golden/protocol.json``. Another byte here is another
protocol: ledgers would not know their own requests again, or be charged a second time. What
compiled programs compute is compared by ``tests/same_bits.py`` instead.
"""

import dataclasses
import json
from pathlib import Path

import jax
import numpy as np
import pytest

import tacit
from tacit.privacy.ledger import Entry, Terms
from tacit.privacy.seeded_noise import agent_key, jax_key, root_key
from tacit.protocol.facts import facts_of
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Curvature,
    Finish,
    Invite,
    Propose,
    Refusal,
    ReleaseOnce,
    Reply,
    Start,
    digest_of,
)
from tacit.protocol.release import Reader
from tacit.protocol.statement import privacy_statement, release_statement

WRITTEN = Path(__file__).parents[1] / "golden" / "protocol.json"
SETTINGS = tacit.Settings(4, 2, tacit.Gaussian(3.0), 1e-5, penalty=0.5, step_size=0.25)
w = np.array([0.5, -2.0, 1e-300])


def agents():
    X = np.array([[0.25, -0.5], [0.125, 0.75], [-0.5, 0.5]])
    public = {"feature_norm": 1.0, "target_bound": 1.0, "normaliser": 6.0, "record_bound": 3}
    squares = tacit.LeastSquares(X, [0.5, -0.25, 1.0], **public)
    logistic = tacit.LogisticRegression(X, [0, 1, 1], feature_norm=1.0, normaliser=6.0)
    box = tacit.Box(-1.0, 1.0, size=2)
    return [tacit.LocalProblem(squares, box), tacit.LocalProblem(logistic, box)]


def messages():
    exact = tacit.Settings(9, tolerance=1e-3)
    found = [
        Broadcast("winter", 3, w, {"b": "x", "a": "y"}),
        Broadcast("winter", 3, w.astype("<f4"), instructions=w),
        Reply("winter", 3, w),
        Reply("winter", 3, w, True),
        Refusal("winter", 3, "ledger", "no: \udcff"),
        Invite("digest"),
        Invite("digest", True),
        Propose("digest", "winter", 3, SETTINGS, 1e-5),
        Propose("digest", "winter", 3, exact, 0, tacit.Laplace(2.0), exact=True),
        ReleaseOnce("winter"),
        Curvature("winter", 0.5),
        Start("winter", np.array([1.0, 2.0]), np.array([0, 1])),
        Finish("winter", 4, w),
        Agreed("winter"),
        *(
            facts_of(a, f"agent {i}", sizes)
            for i, a in enumerate(agents())
            for sizes in (True, False)
        ),
    ]
    return {f"{i} {type(m).kind}": m.to_bytes().hex() for i, m in enumerate(found)}


def digests():
    return {
        "broadcast": Broadcast("winter", 3, w, {"a": "y"}).digest,
        "reply": Reply("winter", 3, w).digest,
        "version 0.1.0": digest_of("winter", 3, w),
    }


def keys():
    root = root_key(7)
    found = {"root": root.tolist()}
    for run, index in (("run", 0), ("run", 1), ("centring", 1), ("größe", 12)):
        key = agent_key(jax_key(root), run, index)
        found[f"{run} {index}"] = np.asarray(jax.random.key_data(key)).tolist()
    return found


def releases():
    """δ as an integer and as a number are different terms, and so they stay."""
    found = {}
    for delta in (0, 0.0, 1e-5):
        for noise, law in (("seeded", tacit.Laplace(2.0)), ("secure", tacit.Gaussian(3.0))):
            if noise == "secure" and not delta:
                continue
            about = Reader("north", law, delta, noise, from_seed=noise == "seeded")
            terms = about.terms(agents()[0])
            found[f"{delta!r} {noise}"] = [terms.release(1), terms.to_json()]
    return found


def agreed(folder):
    """What an agent writes into its ledger when it agrees to a run of rounds."""
    found = {}
    for noise in ("seeded", "secure"):
        ledger = tacit.Ledger.create(folder / f"{noise}.db", 50.0, 1e-3)
        key = agent_key(jax_key(root_key(7)), "winter", 0) if noise == "seeded" else None
        about = agents()[1], "north", SETTINGS, key, "winter", 2
        tacit.Agent(*about, ledger=ledger, noise=noise)
        found[noise] = ledger.terms("winter").to_json()
        ledger.close()
    return found


def entries():
    """The chain over one entry of each kind."""
    rows = [
        Entry(kind="budget", event='{"delta":1e-05,"epsilon":8.0}', time="2026-01-01T00:00:00Z"),
        Entry(
            kind="run",
            run="r",
            event=Terms("a", tacit.Gaussian(2.0), 9, 1, 0.0, "seeded", "n", "d").to_json(),
        ),
        Entry(kind="charge", run="r", first=1, last=1, owner="me", payment=3),
        Entry(kind="claim", run="r", first=1, last=1, owner="you", payment=3),
        Entry(kind="answer", run="r", first=1, last=1, digest="q", reply=b"a", state=b"s"),
        Entry(kind="failed", run="r", first=2, last=2, owner="you", payment=3),
    ]
    head, found = bytes(32), []
    for serial, row in enumerate(rows, 1):
        head = row._replace(serial=serial).sealed(head).chain
        found.append(head.hex())
    return found


def statements():
    """Without epsilon, whose last bits are a library's."""
    problem = tacit.Problem(agents())
    found = {
        "rounds": privacy_statement(problem, SETTINGS, True),
        "secure": privacy_statement(problem, SETTINGS, False, True, 12),
        "release": release_statement(problem, tacit.Laplace(2.0), 0.0, True, False),
        "nothing": privacy_statement(problem, tacit.Settings(3), False),
        "before": dataclasses.replace(
            privacy_statement(problem, SETTINGS, False), before="a mean", assumed="Words."
        ),
    }
    said = {name: statement.to_dict() for name, statement in found.items()}
    for one in said.values():
        one["epsilon"] = one["epsilon"] and round(one["epsilon"], 9)
    return said


def results():
    """The keys of result.json, and the names of files and arrays."""
    result = tacit.solve(agents(), SETTINGS, seed=1)
    found = {key: sorted(v) if isinstance(v, dict) else None for key, v in result.to_dict().items()}
    return {"keys": found, "order": list(found), "trace": list(result.trace)}


MADE = {
    "messages": messages,
    "digests": digests,
    "keys": keys,
    "releases": releases,
    "entries": entries,
    "statements": statements,
    "results": results,
}


@pytest.mark.parametrize("what", [*MADE, "agreed"])
def test_what_was_written_down_is_still_made(what, tmp_path):
    made = agreed(tmp_path) if what == "agreed" else MADE[what]()
    assert json.loads(json.dumps(made)) == json.loads(WRITTEN.read_text())[what]


def write(folder):
    """Write it down anew: for what is new here, never for what was there."""
    made = {what: make() for what, make in MADE.items()} | {"agreed": agreed(folder)}
    WRITTEN.write_text(json.dumps(made, indent=1) + "\n")


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as there:
        write(Path(there))
