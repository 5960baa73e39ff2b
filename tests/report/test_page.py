"""The report as a file: what is in it whatever folders hold, who may read it, what it replaces."""

import html
import json
import os
import re
import shlex
import shutil
import stat
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import tacit
from tacit.cli.main import main
from tacit.cli.report import repeat
from tacit.html import plain
from tacit.report.contents import Contents
from tacit.report.page import MARK, kind_of, privacy_facts, render

FIXTURES = Path(__file__).parents[1] / "fixtures"
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "\"'`${document.title}{{ 7 * 7 }}{% raw %}\u2028\u2029\x00\ufeff",
    "<!--<script>",
    "]]>&lt;b&gt;&amp;",
    "\ud800 half a pair, \u202e and \" onload='x",
    "",
)


def page_of(folder):
    return render(Contents.read(folder)).decode()


def rows_of(page, name):
    """Of a folded table: cells as they are read."""
    found = re.search(f'id="{name}-table">(.*?)</table>', page, flags=re.DOTALL)[1]
    rows = re.findall("<tr>(.*?)</tr>", found.split("<tbody>")[1], flags=re.DOTALL)
    return [[html.unescape(c) for c in re.findall("<t[hd][^>]*>(.*?)</t", row)] for row in rows]


def charts_of(page):
    """By their ids, read as XML: what is drawn is well formed, whatever names hold."""
    found = re.findall(r'<svg class="chart.*?</svg>', page, flags=re.DOTALL)
    return {chart.get("id"): chart for chart in map(ElementTree.fromstring, found)}


def titles(chart):
    return [title.text for title in chart.iter("title")]


def rewritten(folder, file, change):
    path = folder / file
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    return folder


# --- self-contained --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["grid", "model", "job"])
def test_nothing_is_fetched(kind, folders):
    page = page_of(folders[kind])
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r"""(src|href)=["'](?!#|data:,)""", own)
    assert "url(" not in own and "@import" not in own
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "unsafe" not in rules["script-src"] and rules["script-src"].count("sha256-") == 1
    assert len(page) < 60_000


# --- hostile content -------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_names_are_text(name, folders, tmp_path):
    folder = folders.copy("model", tmp_path)

    def agents(document):
        document["agents"] = [name, f"{name} 2"]
        document["privacy"]["neighbours"] = [{"change": name, "agents": [name, f"{name} 2"]}]
        document["plan"] = document["versions"]["jax"] = name

    def columns(document):
        score = document["scores"][0]
        document["columns"] = [name, "b"]
        score["coefficients"] = {name: 1e300, "b": -0.5}
        score["class"] = name

    rewritten(rewritten(folder, "result.json", agents), "model.json", columns)
    rewritten(folder, "run.json", lambda d: d["options"].update(target=name, agent_column=name))
    contents = Contents.read(folder)
    bare = page_of(folders["model"])
    for made in (contents, contents.public()):
        page = render(made, repeat(made)).decode()
        for element in ("<script", "</script", "<img", "<!--", "<b>"):
            assert page.count(element) == bare.count(element), element
        assert "\u202e" not in dict(privacy_facts(made))["Whose data"]
        assert rows_of(page, "coefficients")[1][0] == plain(name)
        [bars] = [chart for of, chart in charts_of(page).items() if of.startswith("coefficients")]
        assert f"{plain(name)}: " in [said.rpartition(": ")[0] + ": " for said in titles(bars)]
        assert "49" not in re.findall(r"\{\{ 7.*?\}\}", page)  # no template in a template


def test_numbers_that_are_none(folders, tmp_path):
    folder = folders.copy("noisy job", tmp_path)
    rows = ["1,nan,inf,-inf,1e300", "2,1,1e-300,0,-0.0"]
    (folder / "trace.csv").write_text(
        "\n".join(["round,objective,residual,noise,violation", *rows])
    )
    with np.load(folder / "arrays.npz") as held:
        changed = {**held, "solution": np.array([np.nan, np.inf])}
    np.savez(folder / "arrays.npz", **changed)
    page = page_of(folder)
    drawn = "".join(path.get("d", "") for c in charts_of(page).values() for path in c.iter())
    assert "nan" not in drawn and "inf" not in drawn
    assert rows_of(page, "trace")[0] == ["1", "NaN", "inf", "-inf", "1e300"]
    assert [row[1] for row in rows_of(page, "solution")] == ["NaN", "inf"]


@pytest.mark.parametrize("epsilon, delta", [(None, 1e-5), (-1.0, 1e-5), (1.0, 2.0), (1.0, -1e-9)])
def test_numbers_that_are_no_budget_promise_nothing(folders, tmp_path, epsilon, delta):
    folder = folders.copy("noisy job", tmp_path)
    rewritten(folder, "result.json", lambda d: d["privacy"].update(epsilon=epsilon, delta=delta))
    contents = Contents.read(folder)
    assert contents.result.privacy.certified  # as the file says
    assert kind_of(contents.privacy) != "certified"
    public = contents.public()
    assert not public.result.trace and not public.result.solution.size


# --- folders of all kinds --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["result", "paid", "once", "power", "model", "ridge"])
def test_old_folders(name, tmp_path, command):
    folder = shutil.copytree(FIXTURES / "0.2.0" / name, tmp_path / name)
    before = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for more in ([], ["--public"]):
        said = json.loads(command("report", folder, "--json", *more))
        assert Path(said["report"]).read_bytes().startswith(MARK)
    after = {p.name: p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    assert {k: v for k, v in after.items() if not k.startswith("report")} == before


def test_folders_that_hold_no_finished_run(refused, tmp_path):
    for folder, why in (
        (FIXTURES / "0.2.0" / "stopped", "is not finished. No report was made"),
        (tmp_path / "nowhere", "found none at"),
        (tmp_path, "has no result.json"),
    ):
        assert why in refused("report", folder)


def test_kinds_of_statements(folders):
    for name, seal in (("uncertified grid", "Not certified"), ("open grid", "Not private")):
        for page in (Contents.read(folders[name]), Contents.read(folders[name]).public()):
            said = render(page).decode()
            assert f"<strong>{seal}</strong>" in said and "<strong>Certified</strong>" not in said
            assert "it was given" not in said and "<dt>calibration</dt>" not in said
    said = page_of(folders["noisy grid"])
    assert "<strong>Certified</strong>" in said and "it was given" in said


def test_a_statement_is_never_told_as_less(folders, tmp_path):
    folder = folders.copy("job", tmp_path)
    rewritten(folder, "result.json", lambda d: d["privacy"].update(epsilon=1.2301, delta=1.2301e-9))
    assert "ε ≤ 1.24, δ ≤ 1.2301e-09" in page_of(folder)
    rewritten(folder, "result.json", lambda d: d["privacy"].update(delta=1.23456431e-5))
    assert "ε ≤ 1.24, δ ≤ 1.23457e-05" in page_of(folder)


def test_ledgers_are_only_read(folders, tmp_path):
    contents = Contents.read(folders["job"])
    assert list(contents.accounts) == ["north", "south"]
    for agent, account in contents.accounts.items():
        with tacit.Ledger(folders.place / "ledgers" / f"{agent}.db") as ledger:
            assert (account.budget, account.spent) == (ledger.budget, ledger.spent)
            assert account.left == ledger.left and account.head == ledger.head
            assert len(account.runs) == 1
    old = shutil.copytree(FIXTURES / "0.1.0" / "paid", tmp_path / "ledgers")
    before = (old / "north.db").read_bytes()
    folder = folders.copy("job", tmp_path)
    rewritten(folder, "run.json", lambda d: d["options"].update(ledgers=str(old)))
    found = Contents.read(folder).accounts
    assert found["north"].runs and "not there" in found["south"]
    assert (old / "north.db").read_bytes() == before
    (old / "north.db").write_bytes(b"no database")
    assert "cannot be read" in Contents.read(folder).accounts["north"]
    with tacit.Ledger(folders.place / "ledgers" / "north.db") as paid:
        paid.backup(old / "south.db")
    assert "another agent" in Contents.read(folder).accounts["south"]
    rewritten(folder, "result.json", lambda d: d.update(agents=["../north", "south"]))
    assert list(Contents.read(folder).accounts) == ["south"]


# --- writing it ------------------------------------------------------------------------------


TROUBLES = (ValueError("0.718253"), RecursionError())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_who_may_read_it(folders, tmp_path, command):
    folder = folders.copy("grid", tmp_path)
    assert mode(folder / "report.html") == 0o600  # as the run left it
    command("report", folder)
    assert mode(folder / "report.html") == 0o600
    said = command("report", folder, "--public")
    assert "the seed, if there was one" in said
    assert mode(folder / "report-public.html") == 0o644
    command("report", folder, "--out", folder / "report-public.html")  # no longer public
    assert mode(folder / "report-public.html") == 0o600


def test_what_is_there_is_not_replaced(folders, tmp_path, refused):
    folder = folders["job"]
    other = tmp_path / "thesis.html"
    other.write_text("<!doctype html>\n<html lang=en>mine")
    (tmp_path / "link.html").symlink_to(other)
    for name in ("thesis.html", "link.html"):
        assert "It was not replaced" in refused(f"report {folder} --out {name}")
    assert other.read_text().endswith("mine")
    os.mkfifo(tmp_path / "pipe")
    assert "It was not replaced" in refused(f"report {folder} --out pipe")
    (tmp_path / "pipe").unlink()
    assert "it is a folder" in refused(f"report {folder} --out .")
    assert "its folder is not there" in refused(f"report {folder} --out no/where.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["link.html", "thesis.html"]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_page_that_fails_spoils_no_result(trouble, folders, monkeypatch, capsys):
    def fail(*_):
        raise trouble

    monkeypatch.setattr("tacit.report.page.render", fail)
    monkeypatch.chdir(folders.place)
    out = f"spoilt-{type(trouble).__name__}"
    assert main(["solve", "noisy.toml", "--out", out, "--json"]) == 0
    said = capsys.readouterr()
    assert "but no report was drawn" in said.err and "718253" not in said.err
    assert json.loads(said.out)["folder"] == out
    assert tacit.Result.load(out) and not Path(out, "report.html").exists()


def test_a_file_of_the_users_stays(folders, monkeypatch, capsys):
    monkeypatch.chdir(folders.place)
    Path("mine").mkdir(exist_ok=True)
    Path("mine", "report.html").write_text("mine")
    main(["solve", "noisy.toml", "--out", "mine"])
    assert "report.html" in capsys.readouterr().err
    assert Path("mine", "report.html").read_text() == "mine"


@pytest.mark.parametrize(
    ("step", "trouble"),
    [("fsync", OSError(28, "No space left on device")), ("replace", KeyboardInterrupt())],
)
def test_a_failure_leaves_the_old_page(folders, tmp_path, monkeypatch, capsys, step, trouble):
    folder = folders.copy("job", tmp_path)
    before = (folder / "report.html").read_bytes()

    def fail(*_):
        raise trouble

    monkeypatch.setattr(os, step, fail)
    if step == "fsync":
        assert main(["report", str(folder)]) == 1
        assert "No space left" in capsys.readouterr().err
    else:
        with pytest.raises(KeyboardInterrupt):
            main(["report", str(folder)])
    assert (folder / "report.html").read_bytes() == before and not list(folder.glob("*.tmp"))


# --- words -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["noisy grid", "model", "noisy job"])
def test_the_command_repeats_the_run(kind, folders):
    """What the page says to type has the options of the run; without its seed where public."""
    from tacit.cli.main import parse

    contents = Contents.read(folders[kind])
    said = repeat(contents)
    options = vars(parse(shlex.split(said)[1:]))
    for name, value in contents.options.items():
        if name not in ("total_epsilon", "total_delta") or name in options:
            assert options[name] == value, name
    public = repeat(contents.public())
    assert "--seed" in said and "--seed" not in public and str(folders.place) not in public
