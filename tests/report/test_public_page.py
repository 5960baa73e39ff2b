"""A public page holds nothing that the statement does not cover, of any kind of run.

A number or word that occurs nowhere else is planted in one place of a folder, one place after the
other. Where the place is not covered, the public page must not have it, and the other page must.
"""

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

import numpy as np
import pytest

from tacit.cli.report import repeat
from tacit.privacy.ledger import Ledger
from tacit.report.contents import Contents
from tacit.report.page import render

NUMBER, WHOLE, WORD = 7.183e123, 718253, "Xq718253"
# as a page would show them
MARKS = (
    b"7.183e+123",
    b"7.183e123",
    b"7,183,000,000",
    b"7183000000000",
    b"7.183e-77",
    b"718253",
    b">9071<",
    b"9071.0",
)


def pages(folder):
    contents = Contents.read(folder)
    public = contents.public()
    return render(contents, repeat(contents)), render(public, repeat(public))


def marked(page):
    return any(mark in page for mark in MARKS)


def held(value):
    """All that a value holds, as text."""
    if is_dataclass(value):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        value = [x for pair in value.items() for x in pair]
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return b"\n".join(map(held, value))
    return str(value).encode()


def column(of, file="trace.csv", rows=slice(None)):
    """Plant in a column of a table; one that is not there is added."""

    def plant(folder):
        path = folder / file
        header, *body = csv.reader(io.StringIO(path.read_text()))
        name = of if of in header or f"{of}_pu" not in header else f"{of}_pu"
        if name not in header:
            header, body = [*header, name], [[*row, "1"] for row in body]
        for row in body[rows]:
            row[header.index(name)] = str(NUMBER)
        text = io.StringIO(newline="")
        csv.writer(text).writerows([header, *body])
        path.write_text(text.getvalue())

    return plant


def entry(file, *keys, value=NUMBER, start="{}"):
    """Plant in a JSON file; one that is not there is made."""

    def plant(folder):
        path = folder / file
        document = json.loads(path.read_text() if path.exists() else start)
        place = document
        for key in keys[:-1]:
            place = place[key] if isinstance(place, list) else place.setdefault(key, {})
        place[keys[-1]] = value
        path.write_text(json.dumps(document))

    return plant


def figures(**values):
    return lambda folder: (folder / "figures.json").write_text(json.dumps(values))


def seconds(folder):
    """The trace of a server between organisations."""
    path = folder / "trace.csv"
    path.write_text(f"round,residual,server_seconds,wait_seconds\n1,0.5,{NUMBER},1\n")


def ledger(folder):
    with Ledger(folder.parent / "x" / "north.db") as paid:
        paid.set_budget(9071.0, 1e-5)


def arrays(name):
    def plant(folder):
        with np.load(folder / "arrays.npz") as found:
            held = dict(found)
        held[name] = np.full_like(held[name], NUMBER)
        np.savez(folder / "arrays.npz", **held)

    return plant


CHECK = json.dumps(
    {
        **{
            "case": "x",
            "converged": True,
            "slack_mw": 1.0,
            "losses_mw": 1.0,
            "load_mw": 1.0,
            "dispatched_mw": 1.0,
            "slack_buses": [1],
        },
        **{"lowest_voltage": 1.0, "highest_voltage": 1.0, "highest_loading": 0.1},
        **{"voltages": [], "overloads": [], "reactive": []},
    }
)
SERVED = {
    "p": {"share": 0.9, "short_mw": NUMBER, "load_mw": 1.0, "surplus_mw": 0.0, "buses": 1},
    "of_buses": 1,
}
RUN = {
    "seed in result.json": entry("result.json", "seed", value=WHOLE),
    "seed in run.json": entry("run.json", "options", "seed", value=WHOLE),
    "timing.json": entry("timing.json", "compute"),
    "seconds": seconds,
    "ledgers' folder": entry("run.json", "options", "ledgers", value=f"/home/{WORD}"),
}
NOISY = {"objective": column("objective"), "noise": column("noise")}
GRID = {
    **{f"bus {name}": column(name, "bus.csv") for name in ("p_demand", "q_demand")},
    **{f"bus {name}": column(name, "bus.csv") for name in ("p_shed", "q_shed")},
    "load served": entry("figures.json", "answer", value={"served": SERVED}),
    "cost": entry("figures.json", "answer", value={"served": {}, "cost": 7.183e12}),
    "one solver's": entry("figures.json", "central", value={"served": SERVED}),
    "what privacy costs": entry(
        "figures.json",
        "what_privacy_costs",
        value={"what": "cost", "unit": "$/h", "private": 7.183e12, "without_privacy": 7.183e12},
    ),
    "shed price": entry("figures.json", "shed_price"),
    "AC check": entry("check.json", "losses_mw", start=CHECK),
    "a bus in the AC check": entry("check.json", "voltages", value=[{"bus": WHOLE}], start=CHECK),
    "case's place": entry("run.json", "options", "case", value=f"/home/{WORD}/g.m"),
    "a place nearby": entry("run.json", "options", "case", value=f"customers/{WORD}.m"),
    "zones' file": entry("run.json", "options", "zones", value=f"{WORD}.csv"),
    "zones' place": entry("run.json", "options", "zones", value=f"/home/{WORD}/z.csv"),
}
MODEL = {
    "test error": figures(test_error=NUMBER),
    "what privacy costs": figures(
        test_error=1.0,
        what_privacy_costs={
            **{"what": "error", "unit": "", "by": "scikit-learn"},
            **{"private": NUMBER, "without_privacy": NUMBER},
        },
    ),
    "error of a guess": figures(test_error=1.0, test_error_of_a_guess=NUMBER),
    "data's place": entry("run.json", "options", "data_set", value=f"/home/{WORD}/t.csv"),
    "more data": entry("run.json", "options", "more", value=[f"/home/{WORD}/t.csv"]),
}
JOB = {
    "job's place": entry("run.json", "options", "job", value=f"/home/{WORD}/job.toml"),
    "workers": entry("run.json", "options", "workers", value=WHOLE),
}
SCHEDULE = {"kind": "constant", "value": 7.183e-77}
UNCERTIFIED = {
    **{f"trace {n}": column(n) for n in ("objective", "noise", "residual", "violation")},
    **{f"line {n}": column(n, "line.csv") for n in ("p_from", "q_from", "p_to", "q_to", "loading")},
    **{f"generator {n}": column(n, "generator.csv") for n in ("p", "q")},
    "voltage": column("voltage", "bus.csv"),
    "size of what is hidden": entry(
        "result.json", "privacy", "neighbours", 0, "change", value=f"moving by {NUMBER}"
    ),
    "step size": entry("result.json", "settings", "step_size", value=SCHEDULE),
    "penalty": entry("result.json", "settings", "penalty", value=SCHEDULE),
    "plan": entry("result.json", "plan", value=WORD),
    "penalty that was asked for": entry("run.json", "options", "penalty", value=WHOLE),
}
OPEN_MODEL = {
    "coefficient": entry("model.json", "scores", 0, "intercept"),
    "released": lambda folder: np.savez(folder / "release.npz", north=np.full(3, NUMBER)),
}
OPEN_GRID = {"residual": column("residual"), "dual residual": column("dual_residual")}
PLACES = [
    (kind, name, plant)
    for kind, places in {
        "job": {**RUN, **JOB, "ledger": ledger},
        "noisy job": {**RUN, **JOB, **NOISY},
        "grid": {**RUN, **GRID},
        "noisy grid": {**RUN, **GRID, **NOISY},
        "model": {**RUN, **MODEL, **NOISY},
        "uncertified grid": {**GRID, **UNCERTIFIED},
        "open grid": OPEN_GRID,
        "open model": {**OPEN_MODEL, **MODEL},
    }.items()
    for name, plant in places.items()
]


@pytest.mark.parametrize(
    ("kind", "plant"), [(k, p) for k, _, p in PLACES], ids=[f"{k}: {n}" for k, n, _ in PLACES]
)
def test_what_is_not_covered_is_not_there(kind, plant, folders, tmp_path):
    folder = folders.copy(kind, tmp_path)
    if plant is ledger:  # the run's own ledgers stay as they are
        (tmp_path / "x").mkdir()
        with Ledger(folders.place / "ledgers" / "north.db") as paid:
            paid.backup(tmp_path / "x" / "north.db")
        entry("run.json", "options", "ledgers", value=str(tmp_path / "x"))(folder)
    if kind not in folders.unmarked:
        assert not any(map(marked, pages(folder)))  # it occurs nowhere else
        folders.unmarked.add(kind)
    plant(folder)
    own, public = pages(folder)
    assert marked(own), "the control: an owner's page shows it"
    assert not marked(public)
    contents = Contents.read(folder)
    assert marked(held(contents)) and not marked(held(contents.public())), "not merely hidden"


COVERED = {
    "job": {
        "residual": column("residual"),
        "objective of what was read": column("objective"),
        "solution": arrays("solution"),
        "release": lambda folder: np.savez(folder / "release.npz", north=np.full(3, NUMBER)),
    },
    "grid": {
        "case": entry("run.json", "options", "case", value=WORD),
        "voltage": column("voltage", "bus.csv"),
        "loading": column("loading", "line.csv"),
        "generation": column("p", "generator.csv"),
        "release": column("p_demand", "release.csv"),
    },
    "model": {
        "coefficient": entry("model.json", "scores", 0, "intercept"),
        "violation": column("violation"),
    },
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, places in COVERED.items() for name in places]
)
def test_what_is_covered_is_there(kind, name, folders, tmp_path):
    """Else the page would be safe by being empty."""
    folder = folders.copy(kind, tmp_path)
    COVERED[kind][name](folder)
    assert all(map(marked, pages(folder)))


@pytest.mark.parametrize("kind", ["job", "noisy job", "grid", "noisy grid", "model"])
def test_all_that_is_not_covered_at_once(kind, folders, tmp_path):
    """Two folders that differ in all of it have the same public page, byte by byte."""
    folder = folders.copy(kind, tmp_path)
    own, public = pages(folder)
    for of, name, plant in PLACES:
        # not where an option would be said to be there, or columns are others
        if of == kind and name not in ("seconds", "ledger", "ledgers' folder", "more data"):
            plant(folder)
    others, same = pages(folder)
    assert others != own and same == public


def test_no_option_is_a_path(folders, tmp_path):
    """Also one that no command of today has."""
    folder = folders.copy("grid", tmp_path)
    entry("run.json", "options", "weather", value=f"/home/{WORD}")(folder)
    contents = Contents.read(folder)
    assert contents.options["weather"] == f"/home/{WORD}"
    assert contents.public().options["weather"] == "WEATHER"
