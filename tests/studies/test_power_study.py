"""Studies of a grid: a zone's problem comes from the public case and its own loads, no more."""

import dataclasses
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pypower.case14 import case14
from test_study import refused, same, told

import tacit
from tacit.cli.main import parse
from tacit.cli.power import _plan
from tacit.files import read_pandas
from tacit.power import build, load_case
from tacit.power.model import starting_penalties
from tacit.studies import PartyFile, Study

GRID = Path(__file__).parents[2] / "examples" / "federation" / "grid"
STUDY = (GRID / "study.toml").read_text()
EVERY_ROUND = STUDY + "[algorithm]\nnoise_every_round = true\nrounds = 6\nlocal_updates = 2\n"


def with_loads(case="case14"):
    """The full case, as one process would have it: all zones' tables together, in per unit."""
    grid = load_case(case)
    tables = pd.concat([pd.read_csv(GRID / f"zone-{k}.csv") for k in (1, 2, 3)])
    loads = tables.set_index("bus").sort_index() / grid.base_mva
    bus = grid.bus.assign(p_demand=loads["p"], q_demand=loads["q"])
    return dataclasses.replace(grid, bus=bus)


def exactly(path):
    return read_pandas(path, index_col=0, float_precision="round_trip")


def parties():
    return [PartyFile.load(GRID / f"zone-{k}.toml") for k in (1, 2, 3)]


def written(folder, text):
    folder.mkdir(exist_ok=True)
    shutil.copy(GRID / "zones.csv", folder)
    (folder / "study.toml").write_text(text)
    return Study.load(folder)


@pytest.mark.parametrize(
    ("more", "options"),
    [
        ("", {}),
        (
            'nominal = "case14"\nnominal_spread = 0.2\n',
            {"nominal": "case14", "nominal_spread": 0.2},
        ),
    ],
    ids=["plain", "nominal"],
)
@pytest.mark.parametrize("objective", ["shed", "cost"])
def test_a_zone_is_that_of_the_full_case(tmp_path, objective, more, options):
    text = STUDY.replace('objective = "shed"', f'objective = "{objective}"')
    study = written(tmp_path / "s", text.replace("[privacy]", more + "[privacy]"))
    options |= {"nominal": "case14"} if more else {}
    case = build(with_loads(), 3, objective=objective, **options)
    assert study.agents == case.problem.names
    for mine, theirs in zip(study.kind.penalties, starting_penalties(case), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for party, agent in zip(parties(), case.agents, strict=True):
        assert same(study.problem_of(party.agent, party), agent)


@cache
def known():
    """What a coordinator is told of the zones' problem: widths of sets take a second."""
    study = Study.load(GRID)
    problem = tacit.Problem([study.problem_of(p.agent, p) for p in parties()], study.kind.penalties)
    return told(problem, study)


@pytest.mark.parametrize("text", [STUDY, EVERY_ROUND], ids=["once", "every round"])
def test_a_study_is_the_run_of_one_process(tmp_path, text):
    study = written(tmp_path / "s", text)
    plan = study.plan(known())
    case = build(with_loads(), 3)
    every = ["--noise-every-round", "--rounds", "6", "--local-updates", "2"] * (text != STUDY)
    budget = ["--total-epsilon", "1", "--total-delta", "1e-5"]
    assert plan == _plan(parse(["power", "solve", "case14", *budget, *every]), case)


def test_own_tables_are_those_of_the_whole_grid(tmp_path):
    study, case = Study.load(GRID), build(with_loads(), 3)
    result = tacit.solve(case, tacit.Settings(300, tolerance=1e-6))
    whole, cut = case.tables(result.local), set(case.cut_lines)
    columns = {
        "bus": ["voltage", "p_demand", "q_demand", "p_shed", "q_shed"],
        "line": ["loading"],
        "generator": ["p", "q"],
    }
    for party, z in zip(parties(), result.local, strict=True):
        names = study.kind.write_own(tmp_path, study.problem_of(party.agent, party), z, None)
        assert names == ["bus.csv", "line.csv", "generator.csv"]
        own = {name: exactly(tmp_path / f"{name}.csv") for name in columns}
        assert list(own["bus"].index) == study.kind.model.zones[party.agent]
        ends = own["line"]["cut"]
        assert set(ends.index[ends]) == set(ends.index) & cut
        own["line"] = own["line"][~ends]
        for name, those in columns.items():
            expected = whole[name].loc[own[name].index, those]
            np.testing.assert_array_equal(own[name][those], expected)
        assert (tmp_path / "bus.csv").stat().st_mode & 0o777 == 0o600
    assert study.kind.write_outcome(tmp_path, result) == ["cut_lines.csv"]
    agreed = exactly(tmp_path / "cut_lines.csv")
    assert set(agreed.index) == cut
    flows = ["p_from", "q_to"]
    np.testing.assert_allclose(agreed[flows], whole["line"].loc[agreed.index, flows], atol=1e-4)


def test_units(tmp_path):
    study, party = Study.load(GRID), PartyFile.load(GRID / "zone-2.toml")
    table = pd.read_csv(GRID / "zone-2.csv").sample(frac=1, random_state=0)  # in another order
    table[["p", "q"]] /= 100.0
    table.to_csv(tmp_path / "loads.csv", index=False)
    limits = dataclasses.replace(party.limits, hides=party.limits.hides.removesuffix(" of 100 MVA"))
    per_unit = dataclasses.replace(
        party, data=tmp_path / "loads.csv", unit="per unit", limits=limits
    )
    assert same(study.problem_of("zone 2", per_unit), study.problem_of("zone 2", party))
    neither = dataclasses.replace(party, unit=None)
    assert "unit" in refused(lambda: study.problem_of("zone 2", neither))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("bus,p\n6,1\n", "no 'q'"),
        ("bus,p,q\n6,7193,1\n10,1,1\n11,1,1\n", "bus 12"),
        ("bus,p,q\n6,7193,1\n6,1,1\n10,1,1\n11,1,1\n12,1,1\n", "bus 6"),
        ("bus,p,q\n6,7193,1\n10,1,1\n11,1,1\n12,1,1\n1,7193,1\n", "line 6"),
        ("bus,p,q\n6,Xq7193,1\n10,1,1\n11,1,1\n12,1,1\n", "line 2"),
        ("bus,p,q\n6.5,7193,1\n", "line 2"),
    ],
)
def test_tables_that_do_not_fit_the_zone(tmp_path, table, words):
    (tmp_path / "loads.csv").write_text(table)
    party = PartyFile.load(GRID / "zone-2.toml")
    party = dataclasses.replace(party, data=tmp_path / "loads.csv")
    said = refused(lambda: Study.load(GRID).problem_of("zone 2", party))
    assert words in said and "7193" not in said


CASE = """
function mpc = g
mpc.baseMVA = 100;
mpc.bus = [
1 3 0 0 0 0 1 1 0 0 1 1.1 0.9;
2 1 {load} 0 0 0 1 1 0 0 1 1.1 0.9;
3 1 0 0 0 0 1 1 0 0 1 1.1 0.9;
];
mpc.gen = [1 0 0 100 -100 1 100 1 200 0];
mpc.branch = [
1 2 0.01 0.1 0 0 0 0 0 0 1 -30 30;
2 3 0.01 0.1 0 0 0 0 0 0 1 -30 30;
];
"""


OWN_CASE = STUDY.replace('"case14"', '"grid.m"').replace('zones = "zones.csv"', "zones = 2")


def test_a_case_that_travels_has_no_loads(tmp_path):
    (tmp_path / "study.toml").write_text(OWN_CASE)
    (tmp_path / "grid.m").write_text(CASE.format(load=0))
    study = Study.load(tmp_path)
    assert study.kind.files == ("grid.m",)
    assert Study.load(study.copy_to(tmp_path / "kit")).digest == study.digest
    reactive = CASE.format(load=0).replace("2 1 0 0", "2 1 0 71.93")
    for content in (reactive, CASE.format(load=71.93)):
        (tmp_path / "grid.m").write_text(content)
        said = refused(lambda: Study.load(tmp_path))
        assert "loads" in said and "71" not in said
    public = OWN_CASE.replace("[privacy]", 'nominal = "grid.m"\n[privacy]')
    (tmp_path / "study.toml").write_text(public.replace("beta = 0.01", 'beta = "1% of bus"'))
    study = Study.load(tmp_path)
    assert study.kind.files == ("grid.m",) and not study.kind.model.grid.bus["p_demand"].any()
    assert study.kind.model.bounds[1, 0] == pytest.approx(0.007193)


def test_no_file_of_a_party_is_taken_for_a_case(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text(CASE.format(load=5))
    for name in ("secret", "../secret", "/etc/hostname", "case*", "../grid.m", "case9/../secret"):
        text = STUDY.replace('"case14"', f'"{name}"')
        assert "case" in refused(lambda text=text: written(tmp_path / "s", text))


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("beta = 0.01", 'beta = "1% of largest"', "nominal"),
        ('zones = "zones.csv"', "zones = 1", "zones"),
        ('zones = "zones.csv"', 'zones = "../zones.csv"', "travels"),
        ('zones = "zones.csv"', 'zones = "gone.csv"', "gone.csv"),
        ('objective = "shed"', 'nominal = "case9"', "case9"),
        (
            "total_delta = 1e-5",
            "total_delta = 1e-5\n[algorithm]\nlocal_updates = 2",
            "local_updates",
        ),
        (
            "total_delta = 1e-5",
            "total_delta = 1e-5\n[algorithm]\nnoise_every_round = true\ntolerance = 1e-3",
            "tolerance",
        ),
        ("[privacy]", '[[agents]]\nname = "zone 1"\n[privacy]', "agents"),
    ],
)
def test_what_a_study_of_a_grid_may_not_say(tmp_path, old, new, words):
    assert STUDY.count(old) == 1
    assert words in refused(lambda: written(tmp_path / "s", STUDY.replace(old, new)))


def test_loads_in_public_limits_are_not_run_for_real(tmp_path):
    (tmp_path / "grid.m").write_text(CASE.format(load=0).replace("200 0]", "0 -50]"))
    (tmp_path / "study.toml").write_text(OWN_CASE)
    study = Study.load(tmp_path)
    rows = "".join(f"{bus},1,0\n" for bus in study.kind.model.zones["zone 1"])
    (tmp_path / "loads.csv").write_text("bus,p,q\n" + rows)
    party = dataclasses.replace(PartyFile.load(GRID / "zone-1.toml"), data=tmp_path / "loads.csv")
    assert "dispatchable load" in refused(lambda: study.problem_of("zone 1", party))


def test_the_digest_knows_the_grid_and_the_zones(tmp_path):
    digest = Study.load(GRID).digest
    changed = (GRID / "zones.csv").read_text().replace("13,3", "13,2")
    study = written(tmp_path / "s", STUDY)
    assert study.digest == digest
    (tmp_path / "s" / "zones.csv").write_text(changed)
    assert Study.load(tmp_path / "s").digest != digest
    other = written(tmp_path / "s", STUDY.replace('"case14"', '"case14_ieee"'))
    assert other.kind.digested()["grid"] != study.kind.digested()["grid"]


def test_a_party_agrees_to_a_unit_too(tmp_path):
    """The study says what "per unit" is: 0.01 of 1 MVA is a hundredth of 0.01 of 100 MVA."""
    party = PartyFile.load(GRID / "zone-1.toml")
    assert Study.load(GRID).problem_of("zone 1", party).objective.agreed in party.limits.hides
    case = case14()
    case["bus"][:, 2:4] = 0

    def rows(table):
        return "".join(" ".join(map(repr, row)) + ";\n" for row in case[table].tolist())

    tables = "".join(f"mpc.{t} = [\n{rows(t)}];\n" for t in ("bus", "gen", "branch", "gencost"))
    for base in (100.0, 1.0):
        study = written(tmp_path / str(base), STUDY)
        (study.folder / "grid.m").write_text(f"mpc.baseMVA = {base};\n{tables}")
        study = written(study.folder, STUDY.replace('case = "case14"', 'case = "grid.m"'))
        if base == 100.0:
            assert study.problem_of("zone 1", party).dimension > 0
        else:
            assert "of 1 MVA" in refused(lambda study=study: study.problem_of("zone 1", party))
