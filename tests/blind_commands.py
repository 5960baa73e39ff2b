"""Cases of the blind test by commands, and of studies between organisations."""

import json
import re
import shlex

import numpy as np
import pytest
from blind import command, covered, declared, ledgers_in, rows_of, spoken, told_by
from grids import EVERYTHING
from small_study import NAMES, Here, party, write_grid, write_party, write_study

from tacit.cli.run_folder import RunFolder
from tacit.privacy.ledger import Ledger
from tacit.studies.conduct import conduct
from tacit.studies.study import Study


def job(world, objective, privacy, algorithm="", feasible="", relation="add-remove"):
    """job.toml and the tables of two agents."""
    text = (
        f'evaluate_every = 2\n[objective]\nkind = "{objective}"\nfeature_norm = 1.0\n'
        f'normaliser = 30\nrecord_bound = 20\nneighbours = "{relation}"\n'
        + ("target_bound = 1.0\n" if objective in ("least-squares", "huber") else "")
        + ("threshold = 0.3\n" if objective == "huber" else "")
        + (feasible or '[set]\nkind = "box"\nlower = -1.0\nupper = 1.0\n')
        + f"[privacy]\n{privacy}\n[algorithm]\n{algorithm}\n"
    )
    files = {}
    for agent, name in enumerate(("north", "south")):
        text += f'[[agents]]\nname = "{name}"\ndata = "{name}.csv"\ntarget = "y"\n'
        X, y = rows_of(world, agent, relation)
        y = (y > 0).astype(int) if objective in ("logistic", "hinge") else y
        lines = [",".join(map(repr, [*x, v])) for x, v in zip(X.tolist(), y.tolist(), strict=True)]
        files[f"{name}.csv"] = "\n".join(["a,b,c,y", *lines]) + "\n"
    return {"job.toml": text, **files}


def table(world):
    """A table of 24 records of two hospitals, and one to predict, the same in both worlds."""
    rng, lines = np.random.default_rng([world, 5]), []
    for i in range(24):
        age, fee, city = rng.uniform(20, 80), rng.uniform(0, 10), rng.choice(["Bern", "Zug"])
        churn = "yes" if age > 50 else "no"
        if world:
            age, fee = ("", "NA", 1e300, -5.0, age)[i % 5], 10 * fee
            city, churn = ("Rom", "", "Bern")[i % 3], "yes"
        lines.append(f"{age},{fee},{city},{churn},{fee},{'north' if i % 2 else 'south'}")
    lines.insert(0, "age,fee,city,churn,price,hospital")
    header = [",".join(line.split(",")[i] for i in (0, 1, 3)) for line in lines]
    own = {f"{h}.csv": [header[0], *header[k::2]] for k, h in ((1, "south"), (2, "north"))}
    rules = [
        'target = "churn"\nclasses = ["no", "yes"]\ndrop = ["price"]\n[ranges]\nage = [20, 80]',
        'fee = [0, 10]\n[categories]\ncity = ["Bern", "Zug"]\n[fill]\nage = 50',
        'city = "Bern"\nfee = 1',
    ]
    files = {"t.csv": lines, "new.csv": ["age,fee,city", "30,5,Bern", "70,2,Rom"], **own}
    files["columns.toml"] = rules
    return {name: "\n".join(rows) + "\n" for name, rows in files.items()}


def grid(world):
    """A grid of three buses; no load of the second world is as in the first."""
    piecewise, linear = (
        "1	0	0	3	0	0	20	200	40	600;",
        "2	0	0	3	0	2	0;",
    )
    text = EVERYTHING.replace(piecewise, linear)
    if world:
        for old, new in (
            ("10	3	0	0", "10	3	7	-3"),
            ("25	1	60	20", "25	1	0	0"),
            ("3	2	15	-5", "3	2	-40	33"),
            ("9	4	99	99", "9	4	1	0"),
        ):
            assert old in text
            text = text.replace(old, new)
    public = {"z.csv": "bus,zone\n10,a\n25,b\n3,b\n", "nominal.m": EVERYTHING}
    return {"g.m": text, **public}


def pandapower(world):
    """Case 9 of pandapower, without limits of its external grid; its loads are others."""
    import pandapower as pp
    from pandapower.networks import case9

    net = case9()
    net.ext_grid[["min_p_mw", "max_p_mw", "min_q_mvar", "max_q_mvar"]] = float("nan")
    net.bus["min_vm_pu"] = float("nan")
    if world:
        net.load["p_mw"], net.load["q_mvar"] = [270.0, 0.0, -60.0], [-30.0, 200.0, 0.0]
    return {"n.json": pp.to_json(net)}


def at_the_prompt(files, *lines, agents=(), interrupted=False):
    """What commands say and leave behind; "out" is the folder of the first."""

    def outcome(folder, world):
        for name, text in files(world).items():
            (folder / name).write_text(text)
        if agents:
            ledgers_in(folder / "ledgers", agents)
        found = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            if interrupted:
                with pytest.MonkeyPatch.context() as once:
                    once.setattr(RunFolder, "has_paid", stopped(RunFolder.has_paid))
                    with pytest.raises(KeyboardInterrupt):
                        command(*shlex.split(lines[0]))
                left = [p for p in (folder / "out").iterdir() if p.stat().st_mode & 0o077]
                left += (folder / "out").glob("mean.json")  # covered, as it is kept
                found |= {path.name: path.read_bytes() for path in left}
            for line in lines[interrupted:]:
                said, errors = command(*shlex.split(line))
                if "--json" in line:
                    found[f"{line}: document"] = declared(json.loads(said))
                    said = ""
                found[line] = spoken(f"{said}\n{errors}")
            found |= {"ledgers": told_by(folder / "ledgers")} if agents else {}
            return {**found, **covered(folder / "out")}

    return outcome


def stopped(has_paid):
    """Interrupted after the third round, or after the mean and two."""
    times = []

    def paid(self):
        has_paid(self)
        times.append(1)
        if len(times) == 3:
            raise KeyboardInterrupt

    return paid


EPS = "total_epsilon = 1.0\ntotal_delta = 1e-5"
PURE = 'mechanism = "laplace"\ntotal_epsilon = 1.0'
HALF = '[set]\nkind = "polyhedron"\nmatrix = [[1.0, 1.0, 1.0]]\noffset = [1.0]\nlower = -1.0\n'
HALF += "upper = 1.0\n"
SOLVE = "solve job.toml --out out"
RELEASE = "--out out"
LEARN = "learn t.csv --out out --agent-column hospital"
DEALT = "learn t.csv --out out --drop hospital --agents 3"
RULES = "--range age=20:80 --range fee=0:10 --categories city=Bern,Zug --fill age=50 "
RULES += "--fill city=Bern --fill fee=1"
CHURN = f"{RULES} --target churn --classes no,yes --drop price --total-epsilon 15 --seed 4"
OPEN = CHURN.replace("--total-epsilon 15", "--no-noise")
UNLISTED = CHURN.replace("--classes no,yes", "")
PRICE = f"{RULES} --target price --target-range 0:10 --drop churn --total-epsilon 1 --seed 3"
FEW = "--rounds 4 --evaluate-every 1"
POWER = "power solve g.m --zones z.csv --out out --seed 3"
TOTAL = "--total-epsilon 1 --total-delta 1e-5"
SHARES = "--beta '1% of largest'"
ROUNDS = "--noise-every-round --rounds 3"
ON_Z = f"{ROUNDS} --noise-on gradient"


def solved(*about, **options):
    return lambda world: job(world, *about, **options)


PROMPT = {
    "solve once": (solved("least-squares", EPS), f"{SOLVE} --publish --seed 3"),
    "solve once, json": (solved("least-squares", PURE), f"{SOLVE} --publish --seed 3 --json"),
    "solve": (solved("logistic", EPS, "rounds = 4"), f"{SOLVE} --seed 3", "show out"),
    "solve, json": (
        solved("huber", PURE, "rounds = 4", relation="replace"),
        f"{SOLVE} --seed 3 --json",
    ),
    "solve, planned": (solved("hinge", EPS, relation="zero-out"), f"{SOLVE} --seed 3"),
    "solve, solver": (solved("least-squares", EPS, "rounds = 3", HALF), f"{SOLVE} --noise secure"),
    "learn": (table, f"{LEARN} {CHURN} {FEW}", "predict out new.csv", "show out"),
    "learn, planned": (table, f"{LEARN} {CHURN} --test-share 0"),
    "learn, svm": (table, f"{LEARN} {CHURN} {FEW} --model svm --mechanism laplace"),
    "learn, three classes": (table, f"{LEARN} {CHURN.replace('no,yes', 'maybe,no,yes')} {FEW}"),
    "learn, fourier": (table, f"{LEARN} {CHURN} {FEW} --features fourier --centring-share none"),
    "learn, agents": (table, f"{DEALT} {CHURN} {FEW}"),
    "learn, sum": (table, f"{DEALT} {CHURN} {FEW} --aggregation sum --colluding 1", "show out"),
    "learn, sum, ridge": (table, f"{DEALT} {PRICE} --model ridge --aggregation sum --json"),
    "learn, huber": (table, f"{LEARN} {PRICE} {FEW}", "predict out new.csv --json"),
    "learn, ridge": (table, f"{LEARN} {PRICE} --model ridge"),
    "learn, quantile": (table, f"{LEARN} {PRICE} {FEW} --model quantile --level 0.8"),
    "learn, files": (
        table,
        "learn north.csv south.csv --out out --target churn --classes no,yes --total-epsilon 1 "
        f"--range *=0:10 --fill *=1 {FEW} --seed 3",
    ),
    "learn, json": (table, f"{LEARN} {CHURN} {FEW} --json"),
    "learn, evaluated": (table, f"{LEARN} {CHURN} {FEW} --test-epsilon 1 --json", "show out"),
    "learn, huber, evaluated": (table, f"{LEARN} {PRICE} {FEW} --test-epsilon 1"),
    "learn, wide ranges": (
        table,
        f"{LEARN} {CHURN.replace('15', '100').replace('fee=0:10', 'fee=auto:0:99')} {FEW}",
    ),
    "learn, wide target": (
        table,
        f"{LEARN} {PRICE.replace('0:10 --d', 'auto:0:99 --d').replace('1 --s', '250 --s')} {FEW}",
    ),
    "learn, columns": (
        table,
        f"{LEARN} --columns columns.toml --total-epsilon 2 --seed 4 {FEW}",
        "columns t.csv --target churn --json",
    ),
    "moments": (
        table,
        f"moments t.csv {RELEASE} --range price=0:10 --drop churn {RULES} --categories hospital="
        "north,south --total-epsilon 15 --seed 4",
        "regress out --target price --on age,city=Bern,hospital=north --l2 0.1",
        "regress out --target fee --on age --level 0.9 --json",
    ),
    "moments, secure": (
        table,
        f"moments north.csv south.csv {RELEASE} --range *=0:10 --fill *=1 --categories churn=no,yes"
        " --noise secure --total-epsilon 1 --json",
    ),
    "counts": (
        table,
        f"counts t.csv {RELEASE} --agent-column hospital --by city,churn --categories churn=no,yes "
        "--categories city=Bern,Zug --fill city=Bern --total-epsilon 1 --seed 4",
    ),
    "counts, json": (
        table,
        f"counts t.csv {RELEASE} --by churn --categories churn=no,yes --total-epsilon 1 --json",
    ),
    "power": (grid, f"{POWER} {TOTAL} --publish --central", "show out"),
    "power, json": (
        grid,
        f"{POWER} {TOTAL} --mechanism gaussian --central --json",
        "power check out --json",
        "power check out",
        "report out --public --json",
        "sheet out --purpose research --recipients 'the operators' --json",
        "show out --json",
    ),
    "power, not certified": (grid, f"{POWER} {TOTAL} {ON_Z} --calibration paper"),
    "power, nominal": (grid, f"{POWER} {TOTAL} {SHARES} --nominal nominal.m --nominal-spread 0.1"),
    "power, shares, not certified": (grid, f"{POWER} {TOTAL} {SHARES}"),
    "learn, not private": (table, f"{LEARN} {OPEN} --rounds 3"),
    "power, network": (
        pandapower,
        f"power solve n.json --zones 2 --out out --seed 3 {TOTAL} --objective cost",
        "power check out --json",
    ),
    "power, rounds": (grid, f"{POWER} {TOTAL} {ROUNDS}"),
    "power, gradient": (grid, f"{POWER} --epsilon 1 --mechanism laplace {ON_Z}"),
}
RESUME = {"learn": "learn --resume", "power": "power solve --resume"}
RESUME |= dict.fromkeys(("solve", "solve once"), "solve --resume")
AT_THE_PROMPT = {name: at_the_prompt(*about) for name, about in PROMPT.items()}
for name, agents in (
    ("solve once", ("north", "south")),
    ("solve", ("north", "south")),
    ("learn", ("north", "south")),
    ("counts", ("north", "south")),
    ("power", ("zone a", "zone b")),
    ("power, rounds", ("zone a", "zone b")),
):
    files, line, *_ = PROMPT[name]
    line = re.sub(" --seed .", "", line) + " --ledgers ledgers"
    AT_THE_PROMPT[f"{name}, ledgers"] = at_the_prompt(files, line, agents=agents)
for name in ("solve once", "solve, json", "learn", "power", "power, rounds"):
    files, line, *_ = PROMPT[name]
    lines = line.replace("--json", "--evaluate-every 1"), f"{RESUME[name.split(',')[0]]} out"
    AT_THE_PROMPT[f"{name}, resumed"] = at_the_prompt(files, *lines, interrupted=True)


# --- studies between organisations ---------------------------------------------------------------


def study(write, **options):
    """Every byte that a party sends, what the coordinator writes, and the party's own statement."""

    def outcome(folder, world):
        found = write(folder, **options)
        study = found[0] if isinstance(found, tuple) else found
        if world:
            for k, name in enumerate(study.agents):
                path = folder / f"{name}.csv"
                header, *lines = path.read_text().splitlines()
                if "add-remove" in (folder / "study.toml").read_text():
                    lines = lines[k + 3 :]
                rng = np.random.default_rng(k)
                rows = [others(line.split(","), rng, header) for line in lines]
                path.write_text("\n".join([header, *map(",".join, rows)]) + "\n")
        line = Here([party(study, folder, name) for name in study.agents])
        conduct(study, folder / "out", line)
        (folder / "out" / "status.json").unlink()  # ``run --out`` gives the folder without it
        own = [json.loads(p.read_text()) for p in sorted(folder.glob("own-*/statement.json"))]
        sent = [data for data in line.answers if b"told" not in data]  # keys for masks are random
        return {"sent": sent, "own": own, **covered(folder / "out")}

    return outcome


def others(cells, rng, header):
    """A row of other numbers; of a grid's tables the bus stays."""
    if header.startswith("bus"):
        return [cells[0], *map(repr, rng.normal(size=len(cells) - 1).tolist())]
    numbers = (100 * rng.normal(size=len(cells) - 1)).tolist()
    return [*map(repr, numbers), "1"]


def write_model(folder, target="classes = [0, 1]", more="", low="-1", colluding=None, epsilon=1.0):
    """The same parties, who fit a model, and evaluate it with ``more`` in the study."""
    write_study(folder, rehearsal=None, colluding=colluding)
    sections = (folder / "study.toml").read_text()
    people = sections[sections.index("[identities]" if colluding else "[[agents]]") :]
    sizes = "normaliser = 90\nrecord_bound = 40\n"
    if more:
        sizes, people = "", people.replace("[[agents]]\n", "[[agents]]\nrecords = 30\n")
    sums = f'aggregation = "sum"\ncolluding = {colluding}\n' if colluding else ""
    about = (
        sums + f'[learn]\nfeatures = ["age", "dose", "weight"]\ntarget = "y"\n{target}\n'
        f'{sizes}bound = 4.0\n{more}[learn.ranges]\n"*" = [{low}, 1]\n'
        f"[privacy]\ntotal_epsilon = {epsilon}\ntotal_delta = 1e-5\n"
        + ("" if "ridge" in more else "[algorithm]\nrounds = 4\n")
    )
    if more:
        about += "[evaluation]\nepsilon = 0.5\n"
    for name in NAMES if epsilon > 1 else ():
        write_party(folder, name, rehearsal=False, epsilon=epsilon)
        (folder / f"{name}.db").unlink()
        Ledger.create(folder / f"{name}.db", epsilon, 1e-5)
    (folder / "study.toml").write_text(about + people)
    return Study.load(folder / "study.toml")


def write_moments(folder):
    """The same parties, who release a table's moments."""
    write_study(folder, rehearsal=None)
    agents = "".join(f'[[agents]]\nname = "{n}"\nrecords = 30\n' for n in NAMES)
    rules = "[moments.ranges]\nage = [-1, 1]\ndose = [-1, 1]\nweight = [-1, 1]\n"
    rules += '[moments.categories]\ny = ["0", "1"]\n'
    (folder / "study.toml").write_text(f"{rules}[privacy]\n{EPS}\n{agents}")
    for name in NAMES:
        path = folder / f"{name}.toml"
        path.write_text(path.read_text().replace('target = "y"\n', ""))
    return Study.load(folder / "study.toml")


STUDIES = {
    "study, moments": study(write_moments),
    "study, model": study(write_model),
    "study, model, evaluated": study(write_model, more='feature_map = "fourier"\n'),
    "study, model, first steps": study(
        write_model, more='centring_share = "auto"\n', low='"auto", -9', epsilon=38.0
    ),
    "study, sum, evaluated": study(
        write_model, target="target_range = [-1, 3]", more='model = "ridge"\n', colluding=1
    ),
    "study, regression": study(write_model, target="target_range = [-1, 3]"),
    "study": study(write_study, rehearsal=None),
    "study, rehearsal": study(write_study),
    "study, once": study(write_study, kind="least-squares", rehearsal=None),
    "study, sum": study(write_study, rehearsal=None, colluding=1),
    "study, sum, once": study(write_study, kind="least-squares", rehearsal=None, colluding=1),
    "study, grid": study(write_grid, every_round=False),
    "study, grid, rounds": study(write_grid, every_round=True),
}
