"""``tacit power`` and ``tacit reproduce`` from end to end."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import EXHAUSTIVE, repeat
from grids import EVERYTHING
from test_reproduce import threads

import tacit
from tacit.errors import SolverFailure

TACIT = Path(sys.executable).with_name("tacit")
BUDGET = "--total-epsilon 1 --total-delta 1e-5"


@pytest.fixture
def run(tmp_path, monkeypatch, command):
    """What a command prints, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return lambda words: command(*words.split())


def test_solve_writes_result_tables_and_picture(tmp_path, run, refused):
    budget = "--total-epsilon 1 --total-delta 1e-5"
    command = f"power solve case14 --zones 3 {budget} --rounds 10 --seed 5 --json --out r"
    document = json.loads(run(command))
    assert document["privacy"]["certified"] and document["privacy"]["epsilon"] <= 1
    assert document["summary"]["violation"] <= 1e-6
    assert document["case"] == "case14" and sum(document["zones"].values()) == 14
    names = {p.name for p in (tmp_path / "r").iterdir()}
    assert names >= {"bus.csv", "line.csv", "generator.csv", "grid.png", "result.json"}
    assert "checkpoint.npz" not in names
    header = (tmp_path / "r" / "bus.csv").read_text().splitlines()[0]
    assert header == "bus,zone,voltage_pu,p_demand_pu,q_demand_pu,p_shed_pu,q_shed_pu"
    for private in ("bus.csv", "grid.png", "run.json"):
        assert (tmp_path / "r" / private).stat().st_mode & 0o077 == 0
    assert "budget is spent" in refused("power solve case14 --no-noise --out r")
    assert "total epsilon" in run("show r")


def test_bound(tmp_path, command):
    done = command("power", "bound", "case118_ieee", "--json")
    assert json.loads(done)["objective"] == pytest.approx(96336, rel=1e-5)
    (tmp_path / "mine.m").write_text(EVERYTHING)
    assert "$/h" in command("power", "bound", tmp_path / "mine.m")


def test_attack(tmp_path, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = f"power attack case14 --total-epsilons 1 --rounds {repeat(6, 20)} --seeds 1 --json"
    document = json.loads(command(*words.split()))
    assert document["error"]["no privacy"] < 1e-3 < 0.05 < document["error"]["epsilon 1"]
    assert 0.015 < document["error"]["epsilon 1, released once"] < 0.045  # the noise of one reading
    assert (tmp_path / "case14-attack" / "attack.png").exists()
    assert (tmp_path / "case14-attack" / "loads.csv").stat().st_mode & 0o077 == 0


def test_check_says_what_would_happen_with_a_dispatch(tmp_path, command, refused, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.m").write_text(EVERYTHING)
    words = "power solve mine.m --zones 2 --no-noise --rounds 30 --out r"
    command(*words.split())
    found = json.loads(command("power", "check", "r", "--json"))
    assert found["converged"] and found["load_mw"] == 75 and found["slack_buses"] == [10]
    assert found["dispatched_mw"] + found["slack_mw"] > 75 + found["losses_mw"] > 75
    assert (tmp_path / "r" / "check.png").stat().st_mode & 0o077 == 0
    said = command("power", "check", "r")
    assert "keep secret" in said and "slack bus 10" in said
    (tmp_path / "mine.m").rename(tmp_path / "other.m")
    assert "Expected a MATPOWER file" in refused("power check r")
    again = json.loads(command("power", "check", "r", "--case", "other.m", "--json"))
    assert again == {**found, "case": "other"}
    (tmp_path / "r" / "run.json").rename("note")  # as of a folder of 0.1.0
    command("power", "check", "r", "--case", "other.m")
    assert "folder of tacit power solve" in refused("power check r")
    Path("note").rename(tmp_path / "r" / "run.json")
    assert "each generator of case14" in refused("power check r --case case14")
    assert "folder of tacit power solve" in refused("power check elsewhere")
    table = tmp_path / "r" / "generator.csv"
    table.write_text(table.read_text().replace(",p_pu,", ",p,"))  # as 0.2.0 wrote it
    command("power", "check", "r", "--case", "other.m")
    table.write_text(table.read_text().replace(",p,", ",x,"))
    assert "a column p of numbers" in refused("power check r --case other.m")
    table.unlink()
    assert "found no generator.csv" in refused("power check r --case other.m")


def test_reproduce(tmp_path, run, monkeypatch):
    if not EXHAUSTIVE:  # tests/reproduce has processes
        monkeypatch.setattr("tacit.lab.reproduce.power.ProcessPoolExecutor", threads)
    command = f"reproduce case14 --rounds 1 --seeds {repeat(1, 2)} --workers 1 --json"
    command += repeat(" --case case9", "")
    document = json.loads(run(command))
    assert len(document["claims"]) == 11 and len(document["table1"]) == 4
    assert {c["verdict"] for c in document["claims"]} >= repeat(
        {"undecided"}, {"undecided", "holds"}
    )
    assert (tmp_path / "reproduce-case14" / "figure.pdf").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("solve case14", "one of total_epsilon"),
        ("solve case14 --total-epsilon 1 --noise-every-round", "total_delta for gaussian"),
        ("solve case14 --epsilon 1", "delta for gaussian"),
        ("solve case14 --epsilon 1 --total-delta 1e-5", "delta beside epsilon"),
        ("solve case14 --total-epsilon 1 --delta 1e-5", "total_delta beside"),
        ("solve case15 --no-noise", "got 'case15'"),
        ("solve absent.m --no-noise", "absent.m"),
        ("solve case14 --no-noise --zones absent.csv", "absent.csv"),
        ("solve case14 --no-noise --zones 40", "between 2 and 14 zones"),
        ("solve case14 --no-noise --beta much", "got 'much'"),
        ("solve", "--resume DIR"),
        ("solve --resume nowhere", "no run.json"),
        ("bound absent.m", "absent.m"),
        ("solve case14 --no-noise --zones -1", "Expected as zones a number"),
        ("solve --resume nowhere --rounds 3", "--resume without other options"),
        (f"solve case14 {BUDGET} --local-updates 5", "local_updates beside noise_every_round"),
        (f"solve case14 {BUDGET} --noise-on gradient", "noise_on beside noise_every_round"),
        (f"solve case14 {BUDGET} --noise-every-round --tolerance 1e-3", "tolerance where"),
        (f"solve case14 {BUDGET} --noise-every-round --objective cost", "objective where"),
        ("solve case14 --no-noise --publish", "publish"),
        ("solve case14 --epsilon 1 --delta 1e-5 --tolerance 1e-3", "tolerance where"),
    ],
)
def test_bad_input_gets_one_line_and_leaves_nothing(tmp_path, refused, options, words):
    said = refused(f"power {options}")
    assert words in said and len(said.strip().splitlines()) == 1
    assert not any(tmp_path.iterdir())


def test_reproduce_refuses_before_it_writes(tmp_path, refused):
    for wrong, words in (("--case nofile.m", "nofile.m"), ("--workers 0", "workers >= 1")):
        assert words in refused(f"reproduce case14 --rounds 1 --seeds 1 {wrong}")
        assert not any(tmp_path.iterdir())


def test_nominal_loads_make_a_percentage_public():
    from argparse import Namespace

    from tacit.cli.power import build_case

    options = {"case": "case9", "zones": "3", "beta": "1% of bus"}
    certain = build_case(Namespace(**options, nominal="case9"))
    assert not any(a.objective.uncertified for a in certain.agents)
    unproven = build_case(Namespace(**options, nominal=None))
    assert all("private loads" in a.objective.uncertified for a in unproven.agents)


# --- loads that are read once: interrupted, paid, and refused ------------------------------------


def test_what_is_not_certified_is_not_published(tmp_path, refused):
    words = f"power solve case14 {BUDGET} --publish --out r --beta"
    assert "certified beside --publish" in refused(words, "1% of bus")
    assert not (tmp_path / "r").exists()


def test_a_failure_after_the_payment_leaves_the_release(tmp_path, refused, monkeypatch):
    """It is paid for: its folder is not that of a start that was refused."""
    (tmp_path / "ledgers").mkdir()
    for i in (1, 2, 3):
        tacit.Ledger.create(tmp_path / "ledgers" / f"zone {i}.db", 1.0, 1e-5)

    def fails(*_):
        raise SolverFailure("planted")

    monkeypatch.setattr("tacit.protocol.agent.ExactRounds.respond", fails)
    said = refused(f"power solve case14 {BUDGET} --ledgers ledgers --out r")
    assert "Continue with: tacit power solve --resume r" in said
    assert (tmp_path / "r" / "checkpoint.npz").exists()


def test_least_cost_beside_one_solver(tmp_path, command):
    words = f"power solve case14_ieee {BUDGET} --seed 1 --objective cost --central --json"
    found = json.loads(command(*words.split(), "--out", tmp_path / "c"))
    zones, one = found["answer"], found["central"]
    assert zones["cost"] == pytest.approx(one["cost"], rel=1e-3)
    assert one["published"] == 2178.1 and one["bound"] == pytest.approx(2175.7, abs=0.1)
    assert found["shed_price"] > 0 and "answer" in found["not_covered"]


def sums(bus, kind):
    """Load, what is short and what is too much, of a table by bus."""
    demand, shed = (np.array(bus[f"{kind}_{what}"]) for what in ("demand", "shed"))
    parts = demand, shed, -shed
    return [float(x[x > 0].sum()) for x in parts], int((shed > 1e-3).sum())


@pytest.mark.parametrize("epsilon", [1e5, 0.2])
def test_every_number_of_the_answer_follows_from_its_tables(tmp_path, run, epsilon):
    """In a grid of 50 MVA, at hardly any noise and at much; as JSON, in files and in words."""
    (tmp_path / "g.m").write_text(EVERYTHING)
    (tmp_path / "z.csv").write_text("bus,zone\n10,a\n25,b\n3,b\n")
    words = f"power solve g.m --zones z.csv --total-epsilon {epsilon} --total-delta 0 --seed 1 "
    words += "--publish --central --beta 0.05 --tolerance 1e-5"
    found = json.loads(run(f"{words} --json --out r"))
    bus = found["tables"]["bus"]
    assert found["zones"] == {"zone a": 1, "zone b": 2} and found["base_mva"] == 50
    assert bus["bus"] == [10, 25, 3] and bus["p_demand"] == [0.0, 1.2, 0.3]
    assert bus["q_demand"] == [0.0, 0.4, -0.1]
    shed = np.array([bus["p_shed"], bus["q_shed"]])
    answer, one = found["answer"], found["central"]
    assert answer["objective_at_true_loads"] == pytest.approx(np.sum(shed**2), rel=1e-6, abs=1e-9)
    for kind, unit in (("p", "mw"), ("q", "mvar")):
        of, (parts, many) = answer["served"][kind], sums(bus, kind)
        assert [of[n] for n in ("load", "short", "surplus")] == pytest.approx(parts)
        assert [of[f"{n}_{unit}"] / 50 for n in ("load", "short", "surplus")] == pytest.approx(
            parts
        )
        assert (
            of["share"] == pytest.approx(max(0.0, 1 - parts[1] / parts[0])) and of["buses"] == many
        )
    assert answer["served"]["of_buses"] == 3
    # one solver has the same released loads: no better at the true ones than their optimum
    best = tacit.power.build(tmp_path / "g.m", tmp_path / "z.csv", beta=0.05)
    true = sum(
        float(a.objective.value(z)) for a, z in zip(best.agents, best.central(), strict=True)
    )
    assert (one["objective_at_true_loads"] > true + 1e-3) == (epsilon < 1)
    assert answer["objective_at_true_loads"] == pytest.approx(
        one["objective_at_true_loads"], rel=0.05, abs=1e-4
    )
    rows = (tmp_path / "r" / "release.csv").read_text().splitlines()
    assert rows[0] == "bus,p_demand_pu,q_demand_pu"
    released = np.array([row.split(",") for row in rows[1:]], float)
    assert released[:, 0].tolist() == [3, 10, 25]
    apart = np.abs(released[:, 1:] - [[0.3, -0.1], [0.0, 0.0], [1.2, 0.4]]).max()
    assert (apart < 1e-4) if epsilon > 1 else (1e-2 < apart < 10)
    kept = json.loads((tmp_path / "r" / "figures.json").read_text())
    assert kept == {k: v for k, v in found.items() if k in kept} and kept["answer"] == answer
    said = run(f"{words} --out again")
    for name, of in (("Zones together", answer), ("One solver", one)):
        worth = f"{of['objective_at_true_loads']:.6g} p.u.²"
        assert f"{name}: squared load shedding: {worth}" in said
        for kind, word, unit in (("p", "active", "MW"), ("q", "reactive", "MVAr")):
            part = of["served"][kind]
            short, load = (
                f"{round(part[f'{n}_{unit.lower()}'], 6):,.4g}" for n in ("short", "load")
            )
            words = f"{100 * part['share']:.4g} % ({short} of {load} {unit} short"
            assert f"{name}: {word} load served: {words}" in said


def test_a_check_names_the_worst_of_each_kind():
    """Rows of a table, each of one summary: all that is shown, and in which unit."""
    from tacit.cli.power import MOST_ROWS, _of_check

    line = {"line": 3, "from_bus": 1, "to_bus": 2, "loading": 1.25}
    found = {
        **{"case": "c", "converged": True, "load_mw": 75.0, "dispatched_mw": 70.0},
        **{"slack_buses": [10, 25], "slack_mw": 7.5, "losses_mw": 2.5, "highest_loading": 1.25},
        **{"lowest_voltage": 0.91, "highest_voltage": 1.07, "voltages": [], "folder": "r"},
        **{"overloads": [line] * (MOST_ROWS + 2)},
        "reactive": [{"generator": 4, "bus": 2, "q": 0.5, "q_min": -0.1, "q_max": 0.4}],
    }
    _, (_, _, rows), *tables, last = _of_check(found)
    assert dict(rows) == {
        **{"Load": "75 MW", "Dispatched": "70 MW", "Losses": "2.5 MW"},
        **{"More at the slack bus 10, 25": "+7.5 MW", "Voltages": "0.9100 to 1.0700 per unit"},
        **{"Voltages beyond limits": "0", "Highest loading of a line": "125 %"},
        **{"Lines beyond limits": str(MOST_ROWS + 2), "Generators beyond reactive limits": "1"},
    }
    (title, columns, shown), (other, of, [row]) = tables
    assert title == f"lines beyond limits ({MOST_ROWS + 2})" and len(shown) == MOST_ROWS
    assert dict(zip(columns, shown[0], strict=True)) == {k: f"{v:.4g}" for k, v in line.items()}
    assert other == "reactive power (per unit) beyond limits (1)" and last == "files: r/check.png"
    assert dict(zip(of, row, strict=True))["q_max"] == "0.4"
    few = {name: found[name] for name in ("case", "load_mw", "dispatched_mw")}
    _, (_, _, rows) = _of_check({**few, "converged": False})
    assert [name for name, _ in rows] == ["Load", "Dispatched", "AC power flow"]
