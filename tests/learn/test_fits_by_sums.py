"""Estimators, the command and jobs whose agents' statistics are only added up."""

import json
import math

import numpy as np
import pytest

import tacit
from tacit.cli.main import main
from tacit.cli.run_folder import RunFolder
from tacit.errors import InvalidInput
from tacit.learn import (
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateQuantileRegressor,
    PrivateRidge,
    load_model,
)
from tacit.learn.estimators import owners, prepare
from tacit.learn.first_releases import Sums
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian, gaussian_epsilon, gaussian_multiplier
from tacit.studies.job import load_job

BUDGET = 1.0, 1e-5
SUM = {"aggregation": "sum", "colluding": 1, "random_state": 5}
CLASSES = {"classes": ["no", "yes"]}


def records(parties=4, each=40, numbers=False):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (parties * each, 3))
    score = X @ [1.0, -0.5, 0.2]
    y = score / 2 if numbers else np.where(score > 0, "yes", "no")
    return X, y, np.repeat([f"party {p}" for p in range(parties)], each)


KINDS = [
    (PrivateLogisticRegression, CLASSES),
    (PrivateLinearSVC, CLASSES),
    (PrivateHuberRegressor, {"target_range": (-1, 1)}),
    (PrivateQuantileRegressor, {"target_range": (-1, 1)}),
    (PrivateRidge, {"target_range": (-1, 1), "rounds": 8}),
]


@pytest.mark.parametrize(("kind", "public"), KINDS)
def test_a_fit_is_planned_as_for_one_agent_with_the_noise_of_a_sum(kind, public):
    """At 4 parties of whom 1 colludes: a curator's plan for noise √(4/3) as large."""
    X, y, owner = records(numbers="target_range" in public)
    models = kind(*BUDGET, **public, **SUM), kind(*BUDGET, **public)
    given = (models[0], X, y, owner), (models[1], X, y)
    ours, curators = (prepare(*about, seed=5)[1] for about in given)
    assert ours.local_updates == 1 and ours.delta == curators.delta
    spent = [s.rounds / s.mechanism.noise_multiplier**2 for s in (ours, curators)]
    assert spent[0] == pytest.approx(spent[1], rel=1e-6)

    def path(settings):
        """All steps together; so much more noise allows so much less, or its square."""
        return settings.rounds / (1 / settings.step_size(0) + settings.penalty(1))

    ratio, more = path(curators) / path(ours), math.sqrt(4 / 3)
    assert any(ratio == pytest.approx(more**k, rel=1e-2) for k in (1, 2)), ratio


@pytest.mark.parametrize("kind", [PrivateLogisticRegression, PrivateRidge])
def test_a_fit_has_both_guarantees_and_all_records_in_it(kind):
    number = kind is PrivateRidge
    public = {"target_range": (-1, 1)} if number else CLASSES
    X, y, owner = records(each=400, numbers=number)
    found = kind(*BUDGET, **public, **SUM).fit(X, y, owner)
    privacy = found.privacy_
    assert (privacy.parties, privacy.colluding, privacy.once) == (4, 1, number)
    assert 0.99 < privacy.epsilon <= 1 and privacy.certified
    alone = gaussian_epsilon(math.sqrt(3) / gaussian_multiplier(*BUDGET), BUDGET[1])
    assert privacy.alone == pytest.approx(alone, rel=2e-3)
    assert f"at most {1} of the {4} agents" in str(privacy)
    assert found.score(X, y) > (0.5 if number else 0.8)
    assert found.result_.names == tuple(np.unique(owner)) and found.n_agents_ == 4


def test_the_private_mean_is_a_sum_too(tmp_path):
    X, y, owner = records(each=400)
    X = X + np.array([0.4, 0.0, 0.0])

    model = PrivateLogisticRegression(*BUDGET, **CLASSES)
    prepare(model, X, y, owner, seed=0)
    means = model._means(X, Sums(*owners(owner, len(X))))

    def mean(seed, checkpoint=None, **how):
        sums = Sums(*owners(owner, len(X)), delta=1e-5, how={"seed": seed, **how})
        return sums.mean(means, Gaussian(9.0), "centring", checkpoint=checkpoint)

    def said(**how):
        """The deviation that shrinks it."""
        return Sums(*owners(owner, len(X)), how=how).deviation(means, Gaussian(9.0))

    summed = {"aggregation": "sum", "colluding": 1}
    many = ([mean(seed, **how) for seed in range(60)] for how in ({}, summed))
    apart, ours = (np.std(found, axis=0).mean() for found in many)
    assert apart / ours == pytest.approx(math.sqrt(3), rel=0.2)
    assert said() / said(**summed) == pytest.approx(math.sqrt(3))
    kept = [mean(1, **summed, checkpoint=tmp_path / "mean.npz") for _ in range(2)]
    assert np.array_equal(*kept) and np.array_equal(kept[0], mean(1, **summed))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"colluding": 3}, "colluding <= 2"),
        ({"colluding": 0}, "colluding"),
        ({"mechanism": "laplace"}, "laplace noise"),
        ({"local_updates": 2}, "local_updates=2"),
        ({"calibration": "paper"}, "calibration='paper'"),
        ({"total_epsilon": None}, "no noise"),
        ({"aggregation": "mean"}, "aggregation"),
        ({"parties": 2}, "three parties"),
    ],
)
def test_what_no_sum_covers_is_refused_before_anything_is_paid(tmp_path, wrong, words):
    X, y, owner = records(wrong.pop("parties", 4))
    ledgers = {n: Ledger.create(tmp_path / f"{n}.db", 9.0, 1e-5) for n in np.unique(owner)}
    how = {"total_epsilon": 1.0, "aggregation": "sum", "ledgers": ledgers, **wrong}
    with pytest.raises(InvalidInput, match=words):
        PrivateLogisticRegression(**how, **CLASSES).fit(X, y, owner)
    assert {ledger.spent.epsilon for ledger in ledgers.values()} == {0.0}


def table(folder, parties=3):
    X, y, owner = records(parties, 60)
    lines = [",".join([*map(str, row), a, b]) for row, a, b in zip(X, y, owner, strict=True)]
    (folder / "t.csv").write_text("\n".join(["a,b,c,churn,site", *lines]))
    return "learn t.csv --target churn --classes no,yes --agent-column site --range *=-1:1"


def test_the_command_says_both_guarantees_and_goes_on_where_it_stopped(
    tmp_path, monkeypatch, command, refused
):
    monkeypatch.chdir(tmp_path)
    line = f"{table(tmp_path)} --total-epsilon 1 --aggregation sum --rounds 8 --evaluate-every 2"
    whole = json.loads(command(*line.split(), "--seed", 4, "--out", "whole", "--json"))
    assert (whole["parties"], whole["colluding"]) == (3, 1) and whole["alone"] > whole["epsilon"]
    assert "whatever others do" in whole["statement"]
    paid, done = RunFolder.has_paid, []

    def stop(self):
        paid(self)
        done.append(1)
        if len(done) == 3:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "has_paid", stop)
        with pytest.raises(KeyboardInterrupt):
            main([*line.split(), "--seed", "4", "--out", "part"])
    command("learn", "--resume", "part")
    results = [load_model(tmp_path / name)[-1].coef_ for name in ("whole", "part")]
    assert np.array_equal(*results)
    held = "as long as at most 1 of the 3 agents collude"
    assert held in command("sheet", "whole")
    command("report", "whole")
    assert (tmp_path / "whole" / "report.html").read_text().count(held) >= 2
    privacy = tacit.Result.load(tmp_path / "whole").privacy
    assert (privacy.parties, privacy.alone) == (3, whole["alone"]) and held in privacy._repr_html_()
    assert "whatever others do" in command("show", "whole").lower()
    for more, words in (
        ("--colluding 2", "colluding <= 1"),
        ("--mechanism laplace", "laplace noise"),
        ("--local-updates 3", "local_updates=3"),
    ):
        assert words in refused(f"{line} {more} --out no")
    assert not (tmp_path / "no").exists()


def test_ledgers_pay_for_the_mean_and_the_sums_of_a_command(tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "books").mkdir()
    books = [Ledger.create(tmp_path / "books" / f"party {p}.db", 3.0, 1e-5) for p in range(3)]
    line = f"{table(tmp_path)} --total-epsilon 1 --aggregation sum --rounds 4 --ledgers books"
    found = json.loads(command(*line.split(), "--json"))
    for ledger in books:
        assert found["epsilon"] * 0.99 < ledger.spent.epsilon <= 1
        assert ledger.spent_alone.epsilon == pytest.approx(found["alone"], rel=1e-2)


def test_a_job_says_that_parts_are_added_up(tmp_path, monkeypatch, command, refused):
    """Once; in rounds: tests/transports/test_mpi.py."""
    monkeypatch.chdir(tmp_path)
    X, y, owner = records(3, 60, numbers=True)
    text = (
        '[objective]\nkind = "least-squares"\nfeature_norm = 2.0\ntarget_bound = 1.0\n'
        'normaliser = 180\nneighbours = "zero-out"\n[set]\nkind = "box"\nlower = -1.0\n'
        "upper = 1.0\n[privacy]\ntotal_epsilon = 5.0\ntotal_delta = 1e-5\n"
    )
    for name in np.unique(owner):
        np.savez(tmp_path / f"{name}.npz", features=X[owner == name], targets=y[owner == name])
        text += f'[[agents]]\nname = "{name}"\ndata = "{name}.npz"\n'
    (tmp_path / "job.toml").write_text(f'aggregation = "sum"\ncolluding = 1\n{text}')
    words = "solve job.toml --seed 2 --json --publish --out r"
    found = json.loads(command(*words.split()))
    privacy = found["privacy"]
    assert (privacy["parties"], privacy["colluding"], privacy["once"]) == (3, 1, True)
    same = load_job(tmp_path / "job.toml")
    how = {"seed": 2, "run": "job", "aggregation": "sum", "batch": False}
    ours = tacit.solve(same.problem, same.settings, **how)
    assert np.array_equal(ours.solution, found["solution"])
    with np.load(tmp_path / "r" / "release.npz") as released:
        assert released.files == ["sum"] and len(released["sum"]) == 3 * 4 // 2 + 3
    (tmp_path / "job.toml").write_text(f"colluding = 1\n{text}")
    assert 'aggregation = "sum"' in refused("solve job.toml --out other")
