"""What an officer asked of sheets: numbers that a ledger contradicts, limits, and plain words."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
from sheets import Page, html_page, joined, noted, paid, read_pdf, said, solved

import tacit
from tacit.cli.main import main
from tacit.objectives.objective import RELATIONS
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger import Terms
from tacit.report.odds import percent, suspicion
from tacit.report.sheet import pdf_page, sheet
from tacit.report.subject import Subject

LOUD = "THE LEDGER PAID MORE FOR THIS RUN THAN ITS RESULT SAYS"


@pytest.fixture(scope="module")
def result():
    return solved()


def about(*words, **options):
    """Facts and sections of a sheet, and the sheet."""
    page = sheet(Subject.read(*words, **options))
    return dict(page.facts), {s.title: " ".join(s.lines) for s in page.sections}, page


# --- what the ledger contradicts --------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A classifier of two agents, whose rows were centred by a private mean: two entries."""
    place = tmp_path_factory.mktemp("learned")
    rows = [f"{'Zug' if i % 2 else 'Bern'},{i % 7 / 7},{i % 5 / 5},{i % 2}" for i in range(80)]
    (place / "t.csv").write_text("\n".join(["who,a,b,y", *rows]))
    (place / "ledgers").mkdir()
    for name in ("Zug", "Bern"):
        tacit.Ledger.create(place / "ledgers" / f"{name}.db", 3.0, 1e-5).close()
    words = "--target y --classes 0,1 --agent-column who --range *=0:1 --total-epsilon 1.5 "
    words += "--total-delta 1e-5 --rounds 4 --centring-share 0.1 --ledgers"
    command = ["learn", str(place / "t.csv"), *words.split(), str(place / "ledgers")]
    assert main([*command, "--out", str(place / "r")]) == 0
    return place / "r"


def forge(folder, out, **changes):
    shutil.copytree(folder, out)
    document = json.loads((out / "result.json").read_text())
    document["privacy"].update(changes)
    (out / "result.json").write_text(json.dumps(document))
    return out


def test_a_mean_and_its_rounds_are_one_run(learned, tmp_path):
    facts, _, page = about(learned, "Zug")
    assert page.promised and page.verdict.startswith("Certified: ")
    assert facts["Spent in all runs"].endswith("in one run (2 entries: the mean, and the rounds)")
    alone, _, _ = about(forge(learned, tmp_path / "forged", before=""), "Zug")  # another reading
    assert "in one release of the data and one run of rounds" in alone["Spent in all runs"]


@pytest.mark.parametrize("epsilon", [0.1, 1.3, 1.45])  # 1.45: the rounds alone cost no more
def test_a_budget_that_the_ledger_contradicts_is_not_certified(learned, tmp_path, epsilon):
    facts, sections, page = about(forge(learned, tmp_path / "r", epsilon=epsilon), "Zug")
    assert page.verdict.startswith(f"{LOUD} (1.5 against {epsilon}): its result was changed")
    assert not page.promised and "Certified" not in page.verdict
    says = f"ε ≤ 1.5 by the ledger; its result says ε ≤ {epsilon}"
    assert facts["Budget of this run"].startswith(says)
    assert page.odds.header[1] == "this run, as paid"
    assert page.odds.rows[1][1] == percent(suspicion(0.1, 1.5, 1e-5))
    assert sections["May be published"].startswith("Nothing") and "promise" not in str(sections)
    assert "model.json" in sections["Must be kept"]
    assert (
        joined(LOUD) in Page(html_page(page)).words and joined(LOUD) in read_pdf(pdf_page(page))[0]
    )


def test_a_control_that_says_more_is_certified(learned, tmp_path):
    for i, epsilon in enumerate((1.495, 1.6)):  # within a hundredth, and more than was paid
        page = about(forge(learned, tmp_path / str(i), epsilon=epsilon), "Zug")[2]
        assert page.verdict.startswith("Certified: ")


def test_no_delta_at_which_nothing_is_bounded(learned, tmp_path):
    facts, _, page = about(forge(learned, tmp_path / "r", delta=0.0), "Zug")
    assert page.verdict.startswith(f"{LOUD} (no bound against 1.5)") and page.odds is None
    assert facts["Budget of this run"].startswith("no bound by the ledger")


def test_a_reading_that_cost_more(tmp_path, result):
    """Only in the ledger that the run noted; of any other it is not known."""
    hides = RELATIONS["add-remove"]
    terms = Terms("agent 1", tacit.Gaussian(3.74), 1, 1, 0.0, "secure", hides, "d" * 64)
    path = tmp_path / "agent 1.db"
    with tacit.Ledger.create(path, 9.0, 1e-5) as ledger:
        ledger.begin(terms.release(1), terms)
        ledger.charge(terms.release(1), 1, 1)
    forged = said(result, once=True, secure=True, seeded=False, epsilon=0.1)
    folder = noted(forged.save(tmp_path / "r"), ledgers=str(tmp_path))
    facts, _, page = about(folder, "agent 1")
    assert page.verdict.startswith(f"{LOUD} (0.998 against 0.1)")
    assert "NOT IN IT" not in facts["Ledger"]
    assert len(page.odds.header) == 4
    with tacit.Ledger(path) as ledger:  # a reading that cost less: no longer sure
        small = dataclasses.replace(terms, mechanism=tacit.Gaussian(60.0), settings="e" * 64)
        ledger.begin(small.release(1), small)
        ledger.charge(small.release(1), 1, 1)
    facts, _, page = about(folder, "agent 1")
    assert LOUD not in page.verdict and "THIS RUN IS NOT IN IT" in facts["Ledger"]
    assert facts["Spent in all runs"].endswith("in 2 releases of the data")
    noted(folder)
    assert LOUD not in about(folder, "agent 1", path)[2].verdict


def test_rounds_that_were_paid_for_again(tmp_path, result):
    """Nothing was changed: what was answered costs no more, but all that was paid is shown."""
    folder, ledger = noted(result.save(tmp_path / "r")), paid(tmp_path / "a.db", charge=8)
    _, sections, page = about(folder, "agent 1", ledger)
    assert page.verdict.startswith(LOUD) and "paid for again" in page.verdict and page.promised
    assert page.odds.header[1] == "this run, as paid"
    assert float(page.odds.rows[6][1].removesuffix("\u00a0%")) > 74
    assert sections["May be published"].startswith("arrays.npz")


# --- ledgers ----------------------------------------------------------------------------------


def test_a_limit_that_was_raised(tmp_path, result):
    folder, path = noted(result.save(tmp_path / "r")), paid(tmp_path / "a.db")
    assert "limit of 4, at" in about(folder, "agent 1", path)[0]["Spent in all runs"]
    with tacit.Ledger(path) as ledger:
        ledger.set_budget(30.0, 1e-5)
        today = ledger.budgets[-1].when[:10]
    spent = about(folder, "agent 1", path)[0]["Spent in all runs"]
    assert f"of a limit of 30 (raised from 4 on {today}), at δ" in spent
    with tacit.Ledger(path) as ledger:
        ledger.set_budget(29.0, 1e-5)
        ledger.set_budget(29.0, 1e-4)
    spent = about(folder, "agent 1", path)[0]["Spent in all runs"]
    words = f"lowered from 30 on {today}, raised from 29 at δ = 0.00001 on {today}"
    assert f"of a limit of 29 (one earlier change, {words})" in spent


def test_what_is_left_of_laplace_noise(tmp_path, result):
    path = tmp_path / "a.db"
    with tacit.Ledger.create(path, 4.0, 1e-5) as ledger:
        terms = Terms("agent 1", tacit.Laplace(50.0), 9, 2, 0.0, "seeded", "x", "d")
        ledger.begin("winter", terms)
        ledger.charge("winter", 1, 3)
        less = 4.0 - ledger.spent.epsilon
    words = about(noted(result.save(tmp_path / "r")), "agent 1", path)[0]["Left"]
    assert "the limit less what is spent" in words and "less than their sum" in words
    assert less - 0.01 <= float(words.split("ε = ")[1].split(":")[0]) <= less


def test_without_a_ledger_there_is_nothing_to_check(tmp_path, result):
    folder = noted(result.save(tmp_path / "r"))
    bare = about(folder, "agent 1")[1]["How to check"]
    assert bare.startswith(
        "There is no ledger to check this page against: it says what result.json"
    )
    assert "ledger show" not in bare
    checked = about(folder, "agent 1", paid(tmp_path / "a.db"))[1]["How to check"]
    assert "ledger show FILE --expect" in checked and "no ledger" not in checked


def test_a_run_again(tmp_path, result):
    for i, (once, ledger, words) in enumerate(
        [
            (True, True, "the same data and budget cost nothing"),
            (False, True, "spends another budget. The ledger adds up"),
            (True, False, "no ledger was read that adds them up"),
            (False, False, "no ledger was read that adds them up"),
        ]
    ):
        folder = noted(said(result, once=once).save(tmp_path / f"r{i}"))
        path = paid(tmp_path / f"{i}.db") if ledger else None
        assert words in about(folder, "agent 1", path)[1]["If it is run again"]
    nothing = said(result, uncertified="it is not.").save(tmp_path / "none")
    assert "If it is run again" not in about(nothing)[1]


# --- names and files --------------------------------------------------------------------------


def test_a_run_without_a_name_is_called_after_what_it_is_of(tmp_path, result):
    folder = noted(result.save(tmp_path / "winter"), "run", case="/grids/case14.m")
    assert about(folder)[0]["Which run"] == "case14 (folder winter)"
    noted(folder, "run", job="/jobs/hospitals.toml")
    assert about(folder)[0]["Which run"] == "hospitals (folder winter)"
    noted(folder, "hospitals-12ab")
    assert about(folder)[0]["Which run"] == "hospitals-12ab"
    (folder / "run.json").unlink()
    assert about(folder)[0]["Which run"] == "folder winter"


def test_files_of_ours_are_known(tmp_path, result):
    folder = noted(result.save(tmp_path / "r"))
    for name in ("check.png", "sheet.html", "sheet.pdf", "sheet-Zug.html", "sheet-Zug.pdf"):
        (folder / name).write_bytes(b"")
    sections = about(folder)[1]
    assert "check.png" in sections["Must be kept"] and "sheet" not in sections["Must be kept"]
    assert "knows nothing" not in sections["Must be kept"]
    assert "check.png" not in sections["May be published"]


def test_every_agent_has_its_own_sheet(tmp_path, result, capsys):
    folder = noted(result.save(tmp_path / "r"))
    for name in ("agent 1", "agent 2"):
        assert main(["sheet", str(folder), "--agent", name]) == 0
    assert f"{folder}/sheet-agent 2.html, {folder}/sheet-agent 2.pdf" in capsys.readouterr().out
    pages = [(folder / f"sheet-agent {i}.html").read_text() for i in (1, 2)]
    assert "Privacy sheet: agent 1" in pages[0] and "Privacy sheet: agent 2" in pages[1]


def test_names_of_agents_as_names_of_files(tmp_path):
    from tacit.cli.sheet import _file_name

    names = ["Zug", "../x", "..", "a/b", "a_b", "a\\b", "n" * 400, "n" * 401, "\ud800", "\x00", ""]
    files = [_file_name(name) for name in names]
    assert files[0] == "Zug" and len(set(files)) == len(names)
    for file in files:
        place = tmp_path / f"sheet-{file}.html"
        place.write_text("")
        assert place.parent == tmp_path and place.resolve().parent == tmp_path.resolve()


# --- plain words ------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS.values())
def test_a_record_is_a_row(tmp_path, result, relation):
    hidden = said(result, neighbours=((relation, result.names),))
    words = about(hidden.save(tmp_path / "r"))[1]["What is hidden"]
    assert words.startswith("Whether any one record (one row of the table, such as a patient's)")
    assert f"exactly: {relation}." in words and "A person with several records" in words
    assert ("or another in its place" in words) == (relation == RELATIONS["replace"])


@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_loads_are_known_to_within_the_noise(tmp_path, result, law):
    change = "the active and the reactive demand of one bus, each moving by at most {} per unit"
    noise = calibrate(law, 1.0, 1e-5, 1)
    bus = tacit.Residual(np.eye(2), [0.1, 0.2], beta=0.02, groups=(0, 0))  # as grids have it
    deviation = math.sqrt(noise.variance(bus.reading().sensitivity(noise.norm)))
    for i, (by, found) in enumerate([("0.02", True), ("its own bound, 0.02 or less", False)]):
        hidden = ((change.format(by), result.names),)
        grid = said(result, neighbours=hidden, once=True, mechanism=law, epsilon=1.0, delta=1e-5)
        folder = noted(grid.save(tmp_path / str(i)))
        assert "loads" not in about(folder)[1]["What is hidden"]
        note = {"command": "power solve", "run": "run", "options": {}, "once": True}
        (folder / "run.json").write_text(json.dumps(note))
        words = about(folder)[1]["What is hidden"]
        assert "The loads themselves are known to within the noise" in words
        assert words.endswith(f"hidden is a move of {'0.02 per unit' if found else 'its bound'}.")
        assert ("±" in words) == found
        if found:
            shown = float(words.split("±")[1].split()[0])
            assert 0.9 * deviation < shown <= deviation
