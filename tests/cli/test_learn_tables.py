"""Tables of ``tacit learn`` and ``tacit predict``: agents' own files, text, gaps, and what of them
is for the owner's eyes."""

import csv
import json
import sys
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from ranks import mpiexec
from sklearn.dummy import DummyClassifier

from tacit.cli import learn
from tacit.cli.learn import Data, load, look
from tacit.cli.main import main, parse
from tacit.errors import InvalidInput
from tacit.learn import load_model
from tacit.learn.data import Dataset
from tacit.tables import Rules

RULES = (
    *("--range", "age=20:80", "--range", "fee=0:10", "--id", "id"),
    *("--categories", 'city=Bern,"Zug, ZG"', "--fill", "age=50", "--fill", "city=Bern"),
)
FAST = ("--rounds", 3, "--seed", 1, "--total-epsilon", 8)


def write(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


@pytest.fixture
def parties(tmp_path, rng, monkeypatch):
    """Three files; the columns of each are in an order of their own."""
    monkeypatch.chdir(tmp_path)
    columns = ["id", "age", "fee", "city", "churn"]
    for name, records in (("north", 40), ("south", 30), ("west", 50)):
        rows = []
        for i in range(records):
            age, fee = rng.uniform(10, 90), rng.uniform(0, 10)
            city = rng.choice(["Bern", "Zug, ZG", "Paris"])
            rows.append([f"{name}{i}", age, fee, city, "yes" if age > 50 else "no"])
        rows[0][1], rows[1][3] = "", " "
        order = rng.permutation(5)
        write(f"{name}.csv", [columns[j] for j in order], [[row[j] for j in order] for row in rows])
    return "north.csv", "south.csv", "west.csv"


def test_each_party_has_a_file(parties, tmp_path, command):
    """Read by one process or, with the same result, by two ranks."""
    words = ("learn", *parties, "--target", "churn", *RULES, "--seed", 1, "--total-epsilon", 8)
    said = json.loads(command(*words, "--json"))
    assert said["agents"] == 3 and said["records"] == 96 and said["not_covered"]["test_error"] < 0.3
    assert said["folder"] == "north-and-2-more-model"
    assert set(said["columns"]) == {"age", "fee", "city=Bern", "city=Zug, ZG"}
    published = json.loads((tmp_path / said["folder"] / "model.json").read_text())
    assert said["scores"]["yes"]["coefficients"] == published["scores"][0]["coefficients"]
    result = json.loads((tmp_path / said["folder"] / "result.json").read_text())
    assert result["agents"] == ["north", "south", "west"]
    hidden = said["not_covered"]
    assert hidden["records"] == 96 and 0 < hidden["scaled_down"] <= 96
    assert 0 < hidden["filled"]["age"] <= 3 and 0 < hidden["filled"]["city"] <= 3
    assert hidden["unknown"].keys() == {"city"} and hidden["clipped"].keys() == {"age"}
    for path in (tmp_path / said["folder"]).iterdir():  # no file of the run tells
        assert not any(word in path.read_bytes() for word in (b"scaled_down", b"values clipped"))
    ranks = (sys.executable, "-m", "tacit", *words, "--json", "--out", "r", "--engine", "mpi")
    done = mpiexec(2, *ranks, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    there = json.loads(done.stdout)
    assert there["not_covered"].keys() == hidden.keys() and there["agents"] == 3
    assert there["not_covered"]["scaled_down"] == hidden["scaled_down"]
    assert there["scores"]["yes"]["coefficients"] == pytest.approx(
        said["scores"]["yes"]["coefficients"], rel=1e-9
    )


def test_what_was_changed_is_counted(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    rows = [(1e300, "u", 0), (-3, "U", 1), (5, " u ", 0), ("NA", "v", 1), (10, "", 0), (0, "u", 1)]
    write("t.csv", ["[red]x", "c", "y"], rows)
    rules = ("--range", "[red]x=0:10", "--categories", "c=u", "--fill", "*=5", "--fill", "c=u")
    words = ("learn", "t.csv", "--target", "y", "--agents", 2, "--test-share", 0, *rules, *FAST)
    said = command(*words)
    assert "(not covered: keep secret): 3 of 6 rows scaled down to 1;" in said
    assert "values clipped to their range: [red]x 2" in said
    assert "values of no known category: c 2" in said
    assert "missing values filled in: [red]x 1, c 1" in said
    assert "test records" not in said and "\n[red]x  " in said and "\nc=u  " in said
    document = json.loads(command(*words, "--json", "--out", "again"))
    assert document["not_covered"]["test_error"] is None and document["records"] == 6
    assert document["not_covered"]["unknown"] == {"c": 2}


def test_rules_that_do_not_fit_are_pointed_at(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    rows = [(40 + k, "Mm"[k < 5], k, k % 2) for k in range(10)]
    write("t.csv", ["age", "sex", "x", "y"], rows)
    rules = ("--range", "age=0:1", "--range", "x=1:9", "--categories")
    words = ("learn", "t.csv", "--target", "y", "--agents", 2, "--test-share", 0, *rules)
    said = command(*words, "sex=f,M", *FAST)  # half of them known
    (line,) = [line for line in said.splitlines() if line.startswith("Look: ")]
    assert "every value of age is clipped" in line and line.endswith("(Not covered: keep secret.)")
    assert "sex" not in line and " x " not in line
    said = command(*words, "sex=f,w", *FAST, "--out", "again")
    assert "10 of 10 values of sex are of no known category" in said
    hidden = {"records": 4, "clipped": {}, "unknown": {"c": 2}}
    assert look(hidden, 0.5, 0.5, 900) == look(hidden, None, None, 900) == []
    assert look(hidden, 0.6, 0.5, 900) == ["the test error is larger than that of a guess"]
    assert look(hidden, 0.6, 0.5, 40) == []  # by chance


def test_predictions_of_other_tables(parties, tmp_path, command, refused):
    command("learn", *parties, "--target", "churn", *RULES, *FAST, "--out", "m")
    write("new.csv", ["note", "city", "id", "fee", "age"], [["", "Rom", "٣,4", 3, ""]] * 2)
    said = json.loads(command("predict", "m", "new.csv", "--id", "id", "--json"))
    assert said["ids"] == ["٣,4"] * 2 and len(said["predictions"]) == 2
    command("predict", "m", "new.csv", "--id", "id", "--out", "p.csv")
    with open("p.csv", newline="") as file:
        (first, *_) = csv.DictReader(file)
    assert first["id"] == "٣,4" and first["prediction"] == said["predictions"][0]
    write("few.csv", ["city", "id"], [["Rom", "1"]])
    write("text.csv", ["city", "age", "fee"], [["Rom", 3, "x"]])
    write("gap.csv", ["city", "age", "fee"], [["Rom", 3, ""]])
    for wrong, words in (
        ("few.csv", "a column 'fee' in few.csv"),
        ("text.csv", "in line 2 of text.csv, column 'fee'"),
        ("gap.csv", "line 2 of gap.csv, column 'fee'"),
        ("new.csv --id name", "a column 'name' in new.csv"),
        ("new.csv --id age", "does not learn from, got 'age'"),
    ):
        said = refused(f"predict m {wrong}")
        assert words in said and "--fill" not in said


@pytest.fixture
def made(tmp_path, monkeypatch, command):
    """A model m of a table with numbers, text and gaps."""
    monkeypatch.chdir(tmp_path)
    rows = [(30 + k, "fm"[k % 2], k % 3, k % 2) for k in range(40)]
    write("t.csv", ["age", "sex", "ward", "y"], rows)
    rules = ("--range", "age=20:80", "--categories", "sex=f,m", "--categories", "ward=0,1,2")
    command(
        *("learn", "t.csv", "--target", "y", "--agents", 2, *rules, "--fill", "age=50", *FAST),
        *("--out", "m"),
    )


def test_predictions_replace_predictions_only(made, tmp_path, command, refused):
    write("new.csv", ["n", "age", "sex", "ward"], [(k, 30, "f", 1) for k in range(3)])
    words = ("predict", "m", "new.csv", "--out")
    assert command(*words, "p.csv") == "files: p.csv (3 predictions)\n"
    plain = Path("p.csv").read_text()
    assert plain == command("predict", "m", "new.csv")
    command(*words, "p.csv", "--id", "n")  # another of the same kind
    assert Path("p.csv").read_text().splitlines()[0].startswith("n,prediction,probability of 0,")
    assert json.loads(command(*words, "p.csv", "--json"))["classes"] == ["0", "1"]
    assert Path("p.csv").read_text() == plain
    Path("mine.csv").write_text("a,b,prediction\n1,2,3\n")
    Path("scores.csv").write_text("prediction,age\n1,2\n")
    Path("empty").touch()
    Path("link").symlink_to("absent")
    for kept in ("m/model.json", "new.csv", "mine.csv", "scores.csv", "empty", "m", "/dev/null"):
        before = Path(kept).read_bytes() if Path(kept).is_file() else None
        for json_too in ((), ("--json",)):
            said = refused("", *words, kept, *json_too)
            assert said.endswith("It was not replaced: choose another --out.\n")
        assert before is None or Path(kept).read_bytes() == before
    assert "not replaced" in refused("", *words, "link") and Path("link").is_symlink()
    assert "a folder no for --out" in refused("", *words, "no/p.csv")
    write("ids.csv", ["prediction", "age", "sex", "ward"], [(7, 30, "f", 1)])
    said = refused("", "predict", "m", "ids.csv", "--id", "prediction", "--out", "ids-p.csv")
    assert "'prediction'" in said and not Path("ids-p.csv").exists()
    assert not list(tmp_path.glob("*.tmp"))


def test_predictions_say_what_was_changed(made, capsys):
    def notice(*rows):
        write("new.csv", ["age", "sex", "ward"], rows)
        assert main(["predict", "m", "new.csv"]) == 0
        said = capsys.readouterr()
        assert said.out.startswith("prediction,probability of 0,")
        return said.err

    assert notice((30, "f", 1), (20, "m", 2)) == ""
    assert notice((300, "x", 9)) == (
        "tacit: 1 of 1 records changed: values clipped to their range: age 1; values of no "
        "known category: sex 1, ward 1.\n"
    )
    assert notice((1, "f", 1), ("", "m", 0), (30, "f", 0)) == (
        "tacit: 2 of 3 records changed: values clipped to their range: age 1; missing "
        "values filled in: age 1.\n"
    )


def test_what_is_refused_before_anything_is_spent(parties, tmp_path, refused):
    write("more.csv", ["age", "fee", "city", "churn", "id", "x"], [[30, 1, "Bern", "no", 1, 2]] * 3)
    write("bare.csv", ["churn"], [["no"], ["yes"]])
    write("less.csv", ["age", "city", "churn", "id"], [[30, "Bern", "no", 1]] * 3)
    write("one.csv", ["age", "fee", "city", "churn", "id"], [[30, 1, "Bern", "no", 1]])
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "north.csv").write_text("x\n1\n")
    base = ("--target", "churn", *RULES, *FAST, "--out", "r")
    files = ("north.csv", "south.csv")
    bare = ("--target", "churn", *FAST, "--out", "r")
    for names, more, words in (
        ((*files, "more.csv"), base, "and more.csv, got no 'x' in north.csv"),
        ((*files, "less.csv"), base, "got no 'fee' in less.csv"),
        ((*files, "one.csv"), (*base, "--test-share", 0.9), "--test-share 0 keeps all"),
        ((*files, "sub/north.csv"), base, "got 'north' more than once"),
        (("bare.csv",), bare, "columns to learn from"),
        (("one.csv",), (*bare, *RULES), "beside those for the test"),
        ((*files, "absent.csv"), base, "got 'absent.csv'"),
        ((*files, "digits"), base, "got 'digits'"),
        (("digits", "south.csv"), FAST, "digits alone, got 'south.csv'"),
        (files, (*base, "--agents", 3), "several files without --agents"),
        (files, (*base, "--split", "iid"), "several files without --agents"),
        (files, (*base, "--test-share", 1), "0 <= test-share < 1"),
        (files, (*base, "--categories", "fee"), "COLUMN=A,B,..., once for each column, got 'fee'"),
        (files, (*base, "--categories", "city=a"), "once for each column"),
        (files, (*base, "--categories", 'x="a'), "COLUMN=A,B"),
        (files, (*base, "--categories", "x=a"), "categories of a column that is used"),
        (files, (*base, "--fill", "fee=many"), "COLUMN=VALUE, a number or one of"),
        (files, (*base, "--fill", "fee=nan"), "COLUMN=VALUE"),
        (files, (*base, "--fill", "fee=11"), "a number from 0 to 10"),
        (files, (*base, "--fill", "city=Rom"), "once for each column"),
        (files, (*base, "--target-range", "3"), "--target-range LOW:HIGH, got '3'"),
    ):
        said = refused("learn", *names, *more)
        assert words in said and said.count("\n") == 1, said
    assert not (tmp_path / "r").exists()
    text = ("--target", "churn", "--range", "*=0:10", *FAST, "--out", "r")
    assert "--categories" in (said := refused("learn", *files, *text)) and "--fill" in said
    assert "line 2 of north.csv" in said and "'age'" in said


@pytest.mark.parametrize("name", ["t.csv", "t.parquet"])
def test_all_columns_that_need_a_rule_are_named_at_once(tmp_path, refused, name):
    columns = {
        "pid": ["p1", "p2"],
        "age": [30.0, None],
        "sex": ["f", "m"],
        "bp": [1.0, None],
        "y": [0, 1],
    }
    table = pd.DataFrame(columns)
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    base = ("learn", name, "--target", "y", "--total-epsilon", 1)
    said = refused("", *base, "--range", "bp=0:9")
    assert "got none of 'pid', 'age', 'sex' (3 of 4 have none)" in said
    assert all(option in said for option in ("--range", "--categories", "--id", "--drop"))
    said = refused("", *base, "--range", "*=0:9")
    assert (
        "The same in 'age', 'sex', 'bp'." in said and "column 'pid'" in said and "--id pid" in said
    )
    said = refused("", *base, "--range", "*=0:9", "--id", "pid", "--categories", "sex=f,m")
    where = "line 3" if name == "t.csv" else "record 2"
    assert where in said and "column 'age'. The same in 'bp'." in said
    assert " row " not in said


def test_a_large_epsilon_draws_a_caution(parties, command, capsys):
    words = ["learn", *parties, "--target", "churn", *RULES, "--rounds", "1", "--out"]
    for epsilon, many in (("20", 0), ("20.5", 1)):
        assert main([*words, f"e{epsilon}", "--total-epsilon", epsilon]) == 0
        assert capsys.readouterr().err.count("Caution: a total epsilon of") == many


def test_a_guess_is_the_largest_class_of_the_records_to_learn_from():
    """Of those kept for the test it knows nothing."""
    train, test = (
        Dataset(np.zeros((len(y), 1)), np.array(y), ("no", "yes")) for y in ([0, 0, 1], [1, 1, 0])
    )
    model = DummyClassifier(strategy="constant", constant="yes").fit(train.features, train.targets)
    found = learn.tested_figures(model, Data(train, test))
    assert found["test_error"] == pytest.approx(1 / 3)
    assert found["test_error_of_a_guess"] == pytest.approx(2 / 3)


@pytest.mark.parametrize("model", ["LogisticRegression", "LinearSVC", "Ridge", "QuantileRegressor"])
def test_what_privacy_costs_is_beside_scikit_learn(model):
    """Of numbers a line without noise is found exactly; of one class there is no reference."""
    import tacit.learn

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 1))
    number = model in ("Ridge", "QuantileRegressor")
    y = 5 + 3 * x[:, 0] if number else (x[:, 0] > 0).astype(int)
    names = () if number else (0, 1)
    train, test = Dataset(x[:200], y[:200], names), Dataset(x[200:], y[200:], names)
    public = {"target_range": (0, 10)} if number else {"classes": [0, 1]}
    private = getattr(tacit.learn, f"Private{model}")(total_epsilon=1, **public)
    if not number:
        private.classes_ = np.array([0, 1])
    found = learn.without_privacy(private, Data(train, test))
    assert type(found).__name__ == model
    assert np.mean(np.abs(found.predict(test.features) - test.targets)) < 0.05
    if not number:
        with pytest.raises(ValueError, match="class"):
            learn.without_privacy(private, Data(Dataset(x[:9], y[:9] * 0, names), test))


RULES_IN_A_FILE = """
target = "churn"
classes = ["n", "y"]
drop = ["id"]
[ranges]
age = [18, 90]
[categories]
town = ["Bern", "Zug"]
[fill]
town = "Zug"
"""


def test_rules_in_a_file_are_those_of_options(tmp_path, monkeypatch, command, refused):
    """And options come before them. The draft names columns and has no cell."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [(i, rng.integers(18, 90), "Bern" if i % 3 else "", "ny"[i % 2]) for i in range(40)]
    write("t.csv", ["id", "age", "town", "churn"], rows)
    Path("columns.toml").write_text(RULES_IN_A_FILE)

    def learnt(*words):
        train = load(parse(["learn", "t.csv", "--total-epsilon", "2", *words]), "t.csv").train
        return train.features.tolist(), train.targets.tolist()

    file = learnt("--columns", "columns.toml")
    options = "--target churn --classes n,y --id id --range age=18:90 --categories town=Bern,Zug"
    assert file == learnt(*options.split(), "--fill", "town=Zug")
    for more in ("--log=age", "--range=age=0:200"):
        assert learnt("--columns", "columns.toml", more)[0] != file[0]
    command("columns", "t.csv", "--target", "churn", "--out", "draft.toml")
    draft = tomllib.loads(Path("draft.toml").read_text())
    assert draft["target"] == "churn" and draft["ranges"] == {"id": [], "age": [], "town": []}
    assert "draft.toml" in refused("columns t.csv --out draft.toml")  # it is not replaced
    refused("columns t.csv --target 7193")
    assert "'id'" in refused("learn t.csv --columns draft.toml --total-epsilon 2")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ranges = 3", "ranges"),
        ("target = 3", "target"),
        ("target_range = [0]", "target_range"),
        ('classes = ["a"]', "classes"),
        ('classes = ["a", "b"]\ntarget_range = [0, 1]', "target_range"),
        ("drop = [1]", "drop"),
        ('target = "y"\nfeatures = ["y"]', "'y'"),
        ("[categories]\ntown = []", "'town'"),
        ("other = 1", "other"),
    ],
)
def test_what_a_file_of_rules_may_not_say(tmp_path, text, named):
    path = tmp_path / "columns.toml"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=named):
        Rules.load(path)
    with pytest.raises(InvalidInput, match=named):
        learn.rules_of(parse(["learn", "t.csv", "--columns", str(path), "--range", "a=0:1"]))


def test_a_header_of_numbers_is_taken_for_a_record(tmp_path, capsys):
    (tmp_path / "t.csv").write_text("7193,b\n1,2\n")
    assert main(["columns", str(tmp_path / "t.csv")]) == 2
    assert "7193" not in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_every_number_of_a_fit_follows_from_the_table(tmp_path, monkeypatch, command, kind):
    """What was changed, errors and coefficients, as JSON and in words."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(3)
    X = rng.uniform(-1.5, 1.5, (40, 3))  # of which the range is [-1, 1]
    y = 4 + 3 * X[:, 0] - 5 * X[:, 2] if kind == "numbers" else (X[:, 0] - X[:, 1] > 0).astype(int)
    write("t.csv", ["a", "b", "c", "y"], np.column_stack([X, y]).tolist())
    words = ["learn", "t.csv", "--target", "y", "--range", "*=-1:1", "--agents", 2, "--no-noise"]
    words += ["--feature-norm", 1.25, "--rounds", 5, "--test-share", 0.25]
    words += ["--target-range", "0:8"] if kind == "numbers" else ["--centring-share", "none"]
    found = json.loads(command(*words, "--json", "--out", "r"))
    order = np.random.default_rng(0).permutation(40)  # as the split of the test has always been
    train, test = np.sort(order[10:]), np.sort(order[:10])
    rows = np.clip(X, -1, 1)
    longest = 1.25 * np.sqrt(1 - 0.3**2)
    long = int((np.linalg.norm(rows[train], axis=1) > longest).sum())
    hidden = found["not_covered"]
    assert (found["records"], found["agents"], hidden["records"]) == (30, 2, 30)
    assert 0 < long < 30 and hidden["scaled_down"] == long
    assert hidden["longest_row"] == pytest.approx(longest)
    clipped = {c: int((np.abs(X[train, j]) > 1).sum()) for j, c in enumerate("abc")}
    assert hidden["clipped"] == clipped and min(clipped.values()) > 0
    model = load_model("r")
    predicted = model.predict(pd.DataFrame(X[test], columns=list("abc")))
    if kind == "numbers":
        outside = int(((y[train] < 0) | (y[train] > 8)).sum())
        assert (
            hidden["targets_clipped"] == outside and (y[train] < 0).any() and (y[train] > 8).any()
        )
        error, guess = (
            np.abs(predicted - y[test]).mean(),
            np.abs(y[test] - np.median(y[train])).mean(),
        )
        shown = f"{error:.4g}", f"{guess:.4g}"
    else:
        assert "targets_clipped" not in hidden
        most = str(int(y[train].mean() > 0.5))
        error = np.mean(predicted != y[test].astype(str))
        guess = np.mean(y[test].astype(str) != most)
        shown = f"{100 * error:.2f} %", f"{100 * guess:.2f} %"
    assert hidden["test_error"] == pytest.approx(error)
    assert hidden["test_error_of_a_guess"] == pytest.approx(guess)
    saved = json.loads(Path("r/figures.json").read_text())
    assert saved["test_error"] == hidden["test_error"]
    said = [line.split("│") for line in command(*words, "--out", "again").splitlines()]
    cells = {row[1].strip(): row[2].strip() for row in said if len(row) > 2}
    (own,) = (v for k, v in cells.items() if "rror on test records" in k)
    (other,) = (v for k, v in cells.items() if k.startswith("The same for a constant guess"))
    assert (own, other) == shown
    (score,) = found["scores"].values()
    weights = score["coefficients"] | {"(intercept)": score["intercept"]}
    lines = [line.split() for line in command(*words, "--out", "third").splitlines()]
    shown = {line[0]: line[1] for line in lines if len(line) > 1 and line[0] in weights}
    assert shown == {name: f"{x:.4g}" for name, x in weights.items()}
    assert min(weights.values()) < 0 < max(weights.values())


def test_a_wide_range_is_narrowed_by_what_is_read(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).uniform(20, 40, 4000)
    write("t.csv", ["a", "kind", "y"], [(f"{v:.3f}", "xy"[k % 2], 2 * v) for k, v in enumerate(x)])
    words = ["--target", "y", "--agents", "2", "--total-epsilon", "4", "--seed", "1", "--json"]
    words += ["--categories", "kind=x,y", "--rounds", "4"]
    ends = ["--range", "a=auto:0:1000", "--target-range", "auto:0:1000"]
    assert main(["learn", "t.csv", *words, *ends, "--out", "a"]) == 0
    said = json.loads(capsys.readouterr().out)
    saved = json.loads(Path("a/model.json").read_text())
    assert saved["ranges"]["a"][1] < -0.8 and saved["ranges"]["kind=x"] == [-1, 1]
    assert saved["target_range"][1] < 200 and said["epsilon"] <= 4.0
    assert not [*Path("a").glob("range-*")]  # with which data could be told again
    text = 'target = "y"\ntarget_range = ["auto", 0, 1000]\n[ranges]\n"*" = ["auto", 0, 1000]\n'
    Path("columns.toml").write_text(text + '[categories]\nkind = ["x", "y"]\n')
    assert main(["learn", "t.csv", *words, "--columns", "columns.toml", "--out", "b"]) == 0
    assert json.loads(capsys.readouterr().out)["scores"] == said["scores"]
    wrong = ["--features", "fourier", "--out", "c"]
    assert main(["learn", "t.csv", *words, *ends, *wrong]) == 2
    assert "auto" in capsys.readouterr().err


def test_a_ridge_of_random_waves_has_no_columns_to_name(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    write("t.csv", ["a", "y"], [(k / 60, k % 7) for k in range(60)])
    words = ("--target", "y", "--target-range", "0:7", "--agents", 2, "--range", "a=0:1")
    said = command("learn", "t.csv", *words, "--model", "ridge", "--features", "fourier", *FAST[2:])
    assert "Coefficients by class and column: model.json. Sufficient" in said
