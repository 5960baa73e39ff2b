"""Studies of moments: every party has the released table at the end, and asks on its own."""

import numpy as np
import pandas as pd
import pytest
from small_study import Here, identity, party, write_party

import tacit
from tacit.errors import InvalidInput
from tacit.learn import PrivateMoments
from tacit.report.contents import Contents
from tacit.report.page import render
from tacit.report.subject import Subject
from tacit.studies.conduct import conduct
from tacit.studies.study import Study

SIZES = {"north": 300, "south": 500, "west": 200}
STUDY = """
{top}
[moments.ranges]
age = [18, 90]
cost = [0, 1200]
[moments.categories]
sex = ["f", "m"]
[privacy]
total_epsilon = {epsilon}
total_delta = 1e-5
{more}
"""


def write(folder, epsilon=2.0, colluding=None, **sizes):
    rng, frames = np.random.default_rng(0), []
    for name, n in SIZES.items():
        made = pd.DataFrame({"age": rng.uniform(18, 90, n), "sex": rng.choice(["f", "m"], n)})
        cost = 200 + 8 * made["age"] + 50 * (made["sex"] == "f") + rng.normal(0, 20, n)
        frames.append(made.assign(cost=cost))
        frames[-1].to_csv(folder / f"{name}.csv", index=False)
        tacit.Ledger.create(folder / f"{name}.db", 1e6, 1e-4)
    keys = {} if colluding is None else {name: identity(folder, name) for name in SIZES}
    more = [f'[[agents]]\nname = "{n}"\nrecords = {k}' for n, k in {**SIZES, **sizes}.items()]
    more += ["[identities]"] * bool(keys) + [f'{n} = "{k}"' for n, k in keys.items()]
    top = f'aggregation = "sum"\ncolluding = {colluding}' if keys else ""
    text = STUDY.format(top=top, epsilon=epsilon, more="\n".join(more))
    (folder / "study.toml").write_text(text)
    for name in SIZES:
        write_party(folder, name, rehearsal=False, epsilon=epsilon)
        path = folder / f"{name}.toml"
        path.write_text(path.read_text().replace('target = "y"\n', ""))
    return Study.load(folder), pd.concat(frames)


@pytest.mark.parametrize("colluding", [None, 1])
def test_all_parties_can_ask_the_released_table(tmp_path, colluding):
    study, frame = write(tmp_path, 15.0, colluding)
    line = Here([party(study, tmp_path, name) for name in study.agents])
    result = conduct(study, tmp_path / "out", line)
    assert result.privacy.once and "rules of all columns" in result.privacy.assumed
    tables = [PrivateMoments.load(tmp_path / f) for f in ("out", *(f"own-{n}" for n in SIZES))]
    fits = [table.regress("cost", ["age", "sex=f"]) for table in tables]
    X = np.c_[np.ones(len(frame)), frame["age"], frame["sex"] == "f"].astype(float)
    b = np.linalg.lstsq(X, frame["cost"], rcond=None)[0]
    for fit in fits:
        assert (np.abs(fit.coef - b[1:]) <= 5 * fit.std_error).all()
        np.testing.assert_allclose(fit.free, fits[0].free, rtol=1e-6)
        assert not fit.doubt
    # what one process releases on the same terms has noise of the same size
    how = {"aggregation": "sum", "colluding": colluding} if colluding else {}
    rules = {"ranges": {"age": (18, 90), "cost": (0, 1200)}, "categories": {"sex": ["f", "m"]}}
    alone = PrivateMoments(15.0, 1e-5, **rules, random_state=0, **how)
    alone.fit(frame[["age", "cost", "sex"]], agents=np.repeat([*SIZES], [*SIZES.values()]))
    for table in tables:
        assert table.deviation_ == pytest.approx(alone.deviation_, rel=1e-9)
        assert table.layout_ == alone.layout_ and table.records_ == 1000
        off = (table.values_ - alone.values_) / (table.deviation_ * 2**0.5)
        assert np.abs(off).max() < 5 and np.sqrt(np.mean(off**2)) == pytest.approx(1, abs=0.6)
    assert (tables[0].privacy_.parties > 1) == bool(colluding)
    # page and sheet of it: the coordinator's, and a party's own
    contents = Contents.read(tmp_path / "out")
    page = render(contents.public()).decode()
    assert all(f">{cell}<" in page for row in tables[0].cells() for cell in row)
    kit = tmp_path / "kit"
    (kit / "study").mkdir(parents=True)
    (tmp_path / "own-north").rename(kit / "own")
    (tmp_path / "study.toml").rename(kit / "study" / "study.toml")
    used = Subject.read(tmp_path / "out", "north").data, Subject.read(kit).data
    assert used[0].startswith("the columns age (18 to 90), cost (0 to 1200), sex (f, m); 1,000")
    assert used[1] == "the columns age, cost, sex"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (("records = 300", "records = 0"), "records"),
        (("records = 300", ""), "records"),
        (("[0, 1200]", "[0]"), "cost"),
        (("total_epsilon = 2.0", ""), "total_epsilon"),
        (("total_delta = 1e-5", ""), "total_delta"),
        (("[moments.ranges]", "[moments.widths]"), "widths"),
        (("total_delta = 1e-5", 'total_delta = 1e-5\nmechanism = "laplace"'), "mechanism"),
    ],
)
def test_studies_that_are_refused(tmp_path, change, named):
    write(tmp_path)
    path = tmp_path / "study.toml"
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(InvalidInput, match=named):
        Study.load(tmp_path)


def test_a_party_with_another_number_of_records_takes_no_part(tmp_path):
    study, _ = write(tmp_path, north=301)
    with pytest.raises(InvalidInput, match="301 records"):
        party(study, tmp_path, "north")
    party(study, tmp_path, "south")


def test_that_two_studies_make_the_same_rows_of_a_partys_records_does_not_show(tmp_path):
    """A category that nobody has, under another name: whoever writes studies could ask for free
    whether a party has such a record."""
    seen = {}
    for more, name in (('"x"', "first"), ('"y"', "second"), ('"x"', "again")):
        folder = tmp_path / name
        folder.mkdir()
        study, _ = write(folder)
        text = (folder / "study.toml").read_text().replace('"m"]', f'"m", {more}]')
        (folder / "study.toml").write_text(text)
        if seen:
            for agent in SIZES:
                path = folder / f"{agent}.toml"
                path.write_text(path.read_text().replace(f"{agent}.db", f"../first/{agent}.db"))
        study = Study.load(folder)
        conduct(study, folder / "out", Here([party(study, folder, n) for n in study.agents]))
        seen[name] = PrivateMoments.load(folder / "out").values_
    assert np.abs(seen["first"] - seen["second"]).max() > 1
    np.testing.assert_allclose(seen["first"], seen["again"], rtol=1e-6, atol=1e-3)
    assert len(tacit.Ledger(tmp_path / "first" / "north.db").runs()) == 2
