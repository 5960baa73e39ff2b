"""Noise alone in place of every noisy sum: what then differs between neighbours, no noise covers.

    statistic(data) + noise  ─▶  noise        in rounds, releases and the private mean, by the
                                              same draws: the rest of the library is as it is

A statement covers what is computed from noisy sums and public things. Without the sums it must be
the same, byte by byte, for neighbours, and so for any two data sets that a chain of neighbours
joins. What is not covered is left out as the library itself declares it: ``not_covered`` in
documents, ``Contents.public``, files that a sheet says must be kept. Whatever is not declared
counts as covered.
"""

import dataclasses
import io
import json
import os
import re
import secrets
import shutil
import sys
from collections import defaultdict
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from datetime import UTC, datetime

import jax.numpy as jnp
import numpy as np
import pytest

import tacit
import tacit.admm.algorithm
import tacit.admm.settings
import tacit.cli.console
import tacit.privacy.ledger
import tacit.privacy.secure_noise
import tacit.protocol.release
import tacit.protocol.summed
from tacit.admm.algorithm import Rule, noisy
from tacit.cli.main import main
from tacit.cli.report import repeat as again
from tacit.report.contents import Contents
from tacit.report.page import render
from tacit.report.sheet import OWN, handed_on, sheet
from tacit.report.subject import Subject

TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:\+00:00)?)?|\d+:\d\d:\d\d"
)
# of a line; at the end of one, of those below it too
SECRET = re.compile(r"[(;] ?not covered[):]", re.IGNORECASE)
NOTHING = re.compile(r"^(Not certified|Not private|computed from the true loads): ", re.MULTILINE)
ENDS = ("The ", "Noise ", "For ", "Not ")  # the plan, or the statement: these are covered


class Blind(Rule):
    """Another rule to the compiler: programs with the sums in them are not taken for it."""

    __slots__ = ()

    def __eq__(self, other):
        return type(other) is Blind and tuple(self) == tuple(other)

    def __hash__(self):
        return hash(("blind", *self))


def noise_alone(φ, ξ, mechanism):
    zeros = np.zeros_like if isinstance(φ, np.ndarray) else jnp.zeros_like
    return noisy(zeros(φ), ξ, mechanism)


@contextmanager
def draws(blind):
    """The operating system's generator always gives the same; with ``blind`` sums are left out."""
    os_draws, noise = np.random.default_rng(0), np.random.default_rng(1)
    names = defaultdict(lambda: np.random.default_rng(2))

    def named(n=32):  # by who asks: how often a file is written depends on the time
        return names[sys._getframe(1).f_code.co_filename].bytes(n).hex()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "urandom", os_draws.bytes)
        patch.setattr(tacit.cli.console, "EVERY", 1e9)  # lines that a slow machine says
        patch.setattr(os, "cpu_count", lambda: 1)  # draws in the order of agents
        patch.setattr(tacit.privacy.secure_noise, "random_bytes", noise.bytes)
        patch.setattr(secrets, "token_hex", named)
        now = "2026-01-01T00:00:00.000+00:00"
        patch.setattr(tacit.privacy.ledger, "now", lambda: now)
        patch.setattr(tacit.protocol.masks, "_stream", lambda key, tag, size: bytes(size))
        if blind:
            patch.setattr(tacit.admm.settings, "Rule", Blind)
            patch.setattr(tacit.admm.algorithm, "noisy", noise_alone)
            patch.setattr(tacit.protocol.release, "noisy", noise_alone)
            # what a party adds its share of a sum's noise to
            patch.setattr(tacit.protocol.summed, "cut", lambda x, _: np.zeros(len(x), np.int64))
            # data under a key of 256 bits that stays with the agent: the key is its noise
            patch.setattr(tacit.protocol.release, "_seal", lambda reading, key: key + bytes(32))
        patch.setenv("COLUMNS", "300")  # a line of a table is a line
        yield


def command(*words):
    """What a command says, on both streams."""
    out, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(errors):
        code = main([str(word) for word in words])
    assert code == 0 or words[:2] == ("power", "check"), (words, errors.getvalue())
    return out.getvalue(), errors.getvalue()


def covered(folder):
    """All of a result folder that is not declared private; of a released table all there is."""
    if not (folder / "result.json").is_file():
        return {path.name: path.read_bytes() for path in folder.iterdir()}
    contents, subject = Contents.read(folder), Subject.read(folder)
    public, (names, kept) = contents.public(), (words for _, [words] in handed_on(subject))
    page = TIME.sub("", render(public, again(public)).decode())
    found = {"public": flat(public), "page": page}
    if contents.result.privacy.certified:  # else nothing is covered, nor made from what is
        html = contents.result._repr_html_().split("<tr>")
        found["repr"] = repr(contents.result), [row for row in html if not SECRET.search(row)]
        found["result.json"] = declared(json.loads((folder / "result.json").read_text()))
    for path in folder.iterdir():
        if listed(path.name, names) or path.stat().st_mode & 0o077:  # that others may read
            found[path.name] = path.read_bytes()
        elif contents.result.privacy.certified:
            assert listed(path.name, kept) or OWN.fullmatch(path.name), path.name
    for agent in (None, *contents.result.names):
        page = sheet(Subject.read(folder, agent), datetime(2026, 1, 1, tzinfo=UTC))
        found[f"sheet of {agent}"] = TIME.sub("", json.dumps(page.to_dict()))
    return found


def listed(name, words):
    return re.search(rf"(^|[ ,]){re.escape(name)}(,|\.?$| )", words) is not None


def declared(document):
    """A JSON document without what it names under ``not_covered``, there or in a part of it."""
    if isinstance(document, list):
        return [declared(one) for one in document]
    if not isinstance(document, dict):
        return TIME.sub("", document) if isinstance(document, str) else document
    left = {name: declared(one) for name, one in document.items()}
    names = left.get("not_covered", [])
    if isinstance(names, dict):  # it is there itself
        del left["not_covered"]
        return left
    for name in names:
        *above, last = name.split(".")
        place = left
        for part in above:
            place = place.get(part, {})
        place.pop(last, None)
    return left


def spoken(text):
    """What a command says, without what it declares to be secret, and without times."""
    found, hidden = [], False
    if NOTHING.search(text):
        return found
    for line in TIME.sub("", text).splitlines():
        secret = SECRET.search(line) is not None
        hidden = (hidden or (secret and line.endswith(":"))) and not line.startswith(ENDS)
        if not (hidden or secret):
            found.append(line)
    return found


def flat(value, where=""):
    """{place: text} of all that a value holds; arrays as bytes."""
    if isinstance(value, np.ndarray):
        return {where: f"{value.dtype}{value.shape}{value.tobytes()}"}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if not isinstance(value, dict | list | tuple):
        return {where: repr(value)}
    parts = value if isinstance(value, dict) else {**dict(enumerate(value)), "length": len(value)}
    return {k: v for name, one in parts.items() for k, v in flat(one, f"{where}/{name}").items()}


def differences(one, other):
    """{place: both} where two values differ."""
    one, other = flat(one), flat(other)
    both = {place: (one.get(place), other.get(place)) for place in {**one, **other}}
    return {place: (a, b) for place, (a, b) in both.items() if a != b}


def fresh(folder):
    """An empty folder of this name: both worlds are at one place, which options name."""
    if folder.is_dir():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def rows_of(world, agent, relation="zero-out", columns=3):
    """Features and targets of an agent in one of the two worlds."""
    rng = np.random.default_rng([world, agent])
    records = 7 if world and relation == "add-remove" else 12
    X = rng.normal(size=(records, columns)) / 3
    y = X[:, 0] + 0.1 * rng.normal(size=records)
    if world:
        X[0], X[1], X[2] = 1e6, 0.0, -X[2]
        y = np.abs(y) + 0.1
        y[0] = 1e9
    return X, y


def ledgers_in(folder, names):
    place = fresh(folder)
    for name in names:
        tacit.Ledger.create(place / f"{name}.db", 16.0, 1e-5).close()
    return place


def told_by(ledgers):
    """What the ledgers in a folder say of runs and budgets, and the hash of all of it."""
    books = sorted(ledgers.glob("*.db"))
    return {path.name: json.loads(command("ledger", "show", path, "--json")[0]) for path in books}
