"""Files that are cut, changed or retyped: each is one error, by every public way to read it."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import JOB
from grids import EVERYTHING
from small_study import write_study

import tacit
from tacit.cli.main import main
from tacit.cli.run_folder import Note
from tacit.errors import CorruptFile, TacitError
from tacit.learn import load_model
from tacit.power import load_case
from tacit.privacy.mechanisms import Gaussian
from tacit.protocol.coordinator import PER_AGENT
from tacit.protocol.journal import Journal
from tacit.protocol.release import Release, SavedReleases
from tacit.protocol.statement import PrivacyStatement
from tacit.report.contents import Contents
from tacit.report.page import render
from tacit.report.subject import Subject
from tacit.studies.job import load_job
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Study
from tacit.tables import read_arrays, read_table
from tacit.transports.nvflare.kit import Kit

OLD = Path(__file__).parent / "fixtures" / "0.2.0"
MEASURES = "share", "short_mw", "load_mw", "surplus_mw", "buses"
STATEMENT = PrivacyStatement(1.0, 1e-5, "gaussian", 3, (("a record", ("a",)),), False)


# --- one sound file of every kind, and what loads it ---------------------------------------------


def result(folder, name="result.json"):
    shutil.copytree(OLD / "result", folder / "r")
    return folder / "r" / name, lambda path: shown(tacit.Result.load(path.parent))


def arrays(folder):
    return result(folder, "arrays.npz")


def trace(folder):
    return result(folder, "trace.csv")


def shown(found):
    return repr(found), found.summary, found.privacy.words, found.noise_source


def page(folder, name="run.json"):
    """Of a report, which reads whatever lies in a folder."""
    shutil.copytree(OLD / "power", folder / "r")
    figures = {"answer": {"served": {"p": dict.fromkeys(MEASURES, 1), "of_buses": 1}, "cost": 3}}
    (folder / "r" / "figures.json").write_text(json.dumps(figures))
    return folder / "r" / name, lambda path: render(Contents.read(path.parent))


def figures(folder):
    return page(folder, "figures.json")


def buses(folder):
    return page(folder, "bus.csv")


def note(folder):
    (folder / "run.json").write_text(json.dumps(asdict(Note("learn", "r", {"seed": 3}))))
    return folder / "run.json", lambda path: Note.read(path.parent)


def model(folder):
    shutil.copytree(OLD / "model", folder / "m")
    return folder / "m" / "model.json", lambda path: load_model(path.parent)


def checkpoint(folder):
    arrays = {name: [np.zeros(3), np.ones(2)] for name in PER_AGENT}
    agreed, key = {"settings": tacit.Settings(4).to_dict()}, np.zeros(2, np.uint32)
    Journal(folder / "c.npz", "r", agreed, key, "d").after(2, arrays, np.zeros((2, 5)))
    return folder / "c.npz", Journal.load


def releases(folder):
    path = folder / "r.npz"
    held = [Release(np.arange(5.0), b"\1" * 32)]
    SavedReleases(("a",), tuple(held), Gaussian(2.0), None, 1e-6, False).save(path)
    return path, SavedReleases.load


def kit(folder):
    about = "party", "s", "d" * 64, 5.0, "h:80", ("a", "b"), "a", "0.2.0"
    (folder / "kit.json").write_text(Kit(folder, *about).to_json())
    return folder / "kit.json", lambda path: Kit.load(path.parent)


def statement(folder):
    (folder / "own").mkdir()
    (folder / "own" / "statement.json").write_text(json.dumps({**STATEMENT.to_dict(), "run": "r"}))
    return folder / "own" / "statement.json", lambda path: Subject.read(path.parent.parent)


def job(folder):
    (folder / "job.toml").write_text(JOB)
    (folder / "north.csv").write_text("a,y,b\n" + "0.1,0.2,0.3\n" * 30)
    np.savez(folder / "south.npz", features=np.full((30, 2), 0.1), targets=np.zeros(30))
    return folder / "job.toml", load_job


def study(folder):
    write_study(folder)
    return folder / "study.toml", Study.load


def party(folder):
    write_study(folder)
    return folder / "north.toml", PartyFile.load


def grid(folder):
    (folder / "g.m").write_text(EVERYTHING)
    return folder / "g.m", load_case


def data(folder):
    np.savez_compressed(folder / "d.npz", features=np.eye(9), targets=np.arange(9.0))
    return folder / "d.npz", lambda path: read_arrays(path, None)


def table(folder):
    (folder / "t.csv").write_text('a,"b c",y\n' + "1,2,0.5\n" * 9)
    return folder / "t.csv", lambda path: read_arrays(path, "y")


def parquet(folder):
    pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"]}).to_parquet(folder / "t.parquet")
    return folder / "t.parquet", lambda path: read_table(path).numbers(["a"])


KINDS = [result, arrays, trace, page, note, model, checkpoint, releases, kit, job, study]
KINDS += [party, grid, data, table, parquet, statement, figures, buses]


def outcome(load, path):
    """Whether it was refused; anything but one error of ours fails the test."""
    try:
        load(path)
    except TacitError as error:
        assert str(path.parent) in str(error) or len(str(error)) < 2000
        assert "Traceback" not in str(error) and "\n" not in str(error).strip()
        return True
    return False


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_cut_and_changed(tmp_path, kind):
    path, load = kind(tmp_path)
    content = path.read_bytes()
    load(path)  # it is sound
    rng = np.random.default_rng(3)
    n, refused = len(content), 0
    changed = [content[:cut] for cut in sorted({*rng.integers(0, n, 6).tolist(), 0, 1, n - 1})]
    for _ in range(12):
        bytes_ = bytearray(content)
        for at in rng.integers(0, n, rng.integers(1, 6)).tolist():
            bytes_[at] = rng.integers(256)
        changed.append(bytes(bytes_))
    changed += [rng.bytes(500), b"\0" * 500, b"[" * 5000, content * 2, b"{}", b"[]", b"\xff\xfe"]
    for other in changed:
        path.write_bytes(other)
        refused += outcome(load, path)
    assert refused > 5
    path.unlink()
    assert outcome(load, path) or kind in (figures, buses, page, note)  # a folder may lack them
    path.mkdir()
    outcome(load, path)


VALUES = [None, True, -1, 0, 1e308, float("nan"), float("inf"), 10**400, "x", "", "\0", "\ud800"]
VALUES += [[], {}, [[]], {"a": 1}, [1, "a"], "9" * 5000]
JSON_KINDS = [result, page, note, model, kit, statement, figures]
HEADERS = {checkpoint: "header", releases: "about"}


def places(value, found=()):
    """Ways to every value inside of one."""
    held = isinstance(value, dict | list)
    inside = value.items() if isinstance(value, dict) else enumerate(value if held else ())
    for key, one in inside:
        yield (*found, key)
        yield from places(one, (*found, key))


def retyped(content, rng, many=80):
    """JSON with another value, or none, at one place."""
    ways = list(places(json.loads(content)))
    picks = [(way, v) for way in ways for v in (*VALUES, ...)]
    chosen = rng.permutation(len(picks))[:many]
    for way, value in (picks[i] for i in chosen):
        made = json.loads(content)
        inner = made
        for key in way[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[way[-1]]
        else:
            inner[way[-1]] = value
        yield json.dumps(made)


@pytest.mark.parametrize("kind", [*JSON_KINDS, *HEADERS], ids=lambda kind: kind.__name__)
def test_values_of_other_types(tmp_path, kind):
    path, load = kind(tmp_path)
    header, refused = HEADERS.get(kind), 0
    if header:
        with np.load(path) as held:
            sound = dict(held)
    content = str(sound[header]) if header else path.read_text()
    others = [*retyped(content, np.random.default_rng(4)), "", "3", "null", '"x"', "[" * 10**5]
    others += ['{"a":' * 10**5, '{"format":' + "9" * 10**5 + "}", content.replace("1", "NaN", 1)]
    for other in others:
        if header:
            np.savez(path, **{**sound, header: np.array(other)})
        else:
            path.write_text(other)
        refused += outcome(load, path)
    assert refused > 5


@pytest.mark.parametrize("kind", [checkpoint, releases, arrays, data])
def test_arrays_of_other_kinds(tmp_path, kind):
    path, load = kind(tmp_path)
    with np.load(path) as held:
        sound = dict(held)
    refused = 0
    others = [np.array([{}], object), np.array("x"), np.array(["a", "b"]), np.zeros((0, 10**9))]
    others += [np.zeros(3, "M8[s]"), np.zeros(3, [("a", float)]), np.full(3, np.nan), np.zeros(())]
    for name in list(sound)[:4]:
        for other in [*others, None]:
            held = {k: v for k, v in {**sound, name: other}.items() if v is not None}
            np.savez(path, **held)
            refused += outcome(load, path)
    assert refused >= 3 * min(len(sound), 4)


# --- the same through the command -----------------------------------------------------------------


COMMANDS = {
    result: "show {folder}",
    arrays: "report {folder}",
    trace: "sheet {folder}",
    model: "predict {folder} table.csv",
    note: "learn --resume {folder}",
    job: "solve {path} --out out",
    study: "federation init {path} --server localhost:8002 --out kits",
    kit: "federation status {folder}",
    grid: "power solve {path} --zones 2 --no-noise",
}


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("damage", ["cut", "retyped", "deep"])
def test_a_command_says_one_line(tmp_path, kind, damage, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    path, _ = kind(tmp_path)
    content = path.read_bytes()
    keys = {".json": b"[1]", ".toml": b"agents = 3\nprivacy = 4\nobjective = 'x'", ".csv": b"a\nb"}
    other = {"cut": content[: len(content) // 3], "deep": b"[" * 10**5, "retyped": b"mpc.bus = x;"}
    path.write_bytes(keys.get(path.suffix, other[damage]) if damage == "retyped" else other[damage])
    words = COMMANDS[kind].format(folder=path.parent, path=path).split()
    assert main(words) in (1, 2)
    out, error = capsys.readouterr()
    assert out == "" and len(error.splitlines()) == 1 and error.startswith("tacit: ")


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("epsilon", [float("nan"), "1", [1.0], True]),
        ("delta", [float("nan"), "1", [1.0], True]),
        ("mechanism", ["$\\frac{$", "x" * 10**6, "\ud800"]),  # in the picture: it took minutes
    ],
)
def test_a_statement_has_numbers_and_a_mechanism(tmp_path, name, values):
    path, load = result(tmp_path)
    data = json.loads(path.read_text())
    for value in values:
        path.write_text(json.dumps({**data, "privacy": {**data["privacy"], name: value}}))
        with pytest.raises(CorruptFile):
            load(path)


def test_numbers_that_cannot_be_drawn(tmp_path, capsys, drawn):
    path, _ = trace(tmp_path)
    header = path.read_text().splitlines()[0]
    rows = [",".join([str(i + 1), *["1e308"] * header.count(",")]) for i in range(3)]
    path.write_text("\n".join([header, *rows]))
    assert main(["show", str(path.parent)]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_folder_that_links_to_itself(tmp_path, capsys):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert main(["federation", "status", str(tmp_path / "loop")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    with pytest.raises(tacit.InvalidInput, match="Nothing was sent"):
        PartyFile.load(tmp_path / "loop")
