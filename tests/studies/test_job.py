"""Job files: what they may say, and one clear line for what they may not."""

import json

import numpy as np
import pytest
from conftest import JOB

import tacit
from tacit.cli.main import main
from tacit.errors import InvalidInput
from tacit.studies.job import load_job


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('kind = "least-squares"', 'kind = "cubic"', "'cubic'"),
        ("feature_norm = 2.0", "colour = 2.0", "colour"),
        ('target = "y"', 'target = "z"', "column 'z'"),
        ("north.csv", "gone.csv", "gone.csv"),
        ("offset = [1.0]", "offset = [-9.0]", "empty"),
        ('name = "south"', 'name = "north"', "'north' twice"),
        ("matrix = [[1.0, 1.0]]", "matrix = [[1.0, 1.0], [1.0]]", "equal length"),
        ("total_delta = 1e-5", 'mechanism = "none"', "without noise"),
        (
            "local_updates = 2",
            'step_size = { kind = "geometric", initial = 1, ratio = "a" }',
            "ratio",
        ),
        ('data = "north.csv"', "data = 5", "data file as text"),
        ("total_delta = 1e-5\n", "", "total_delta"),
        ('target = "y"', 'target = "y"\nobjective = "x"', "table objective"),
    ],
)
def test_bad_jobs_are_refused_with_one_clear_line(old, new, words, job, refused):
    assert old in JOB
    job.write_text(JOB.replace(old, new, 1))
    assert words in refused("solve job.toml --out result")
    assert not job.with_name("result").exists()


@pytest.mark.parametrize(
    ("south", "words"),
    [
        ("a,y,b\n0.1,0.2,0.3\n1,nan,2", "a finite number in line 3 of south.csv, column 'y'"),
        ("a,y,b\n0.1,0.2,0.3\n1,x,2", "a finite number in line 3 of south.csv, column 'y'"),
        ("a,y,b\n0.1,0.2,0.3\n0.1,,0.3", "line 3 of"),
        ("a,y,b\n0.1,0.2,0.3\n1,2", "Expected 3 cells in line 3 of south.csv, got 2"),
        ("b,y,a\n0.1,0.2,0.3", "in this order"),
        ("a,y,a\n0.1,0.2,0.3", "one twice"),
        ("1,y,2\n0.1,0.2,0.3", "found numbers"),
    ],
)
def test_bad_data_are_refused(job, tmp_path, refused, south, words):
    named = 'data = "south.csv"\ntarget = "y"'
    job.write_text(job.read_text().replace('data = "south.npz"', named))
    (tmp_path / "south.csv").write_text(south)
    assert words in refused("solve job.toml --out r")
    assert not (tmp_path / "r").exists()


def test_a_data_file_cannot_set_public_bounds(job, tmp_path, refused):
    with np.load(tmp_path / "south.npz") as data:
        np.savez(tmp_path / "south.npz", feature_norm=np.array(0.001), **data)
    said = refused("solve job.toml --out r")
    assert "feature_norm" in said and "Public bounds belong in the job file" in said
    assert main(["solve", "job.toml", "--out", "r"]) == 2  # the status of bad input


COUPLED = """
[objective]
kind = "residual"
beta = 0.01
[set]
kind = "box"
lower = -1.0
upper = 1.0
[privacy]
mechanism = "laplace"
epsilon = 0.5
perturbation = "projected-output"
[algorithm]
rounds = 6
local_updates = 2
penalty = { kind = "constant", value = 2.0 }
step_size = { kind = "nonsmooth", scale = 0.1 }
[[agents]]
name = "left"
data = "left.npz"
coupling = [0, 1, -1]
[[agents]]
name = "right"
data = "right.npz"
coupling = [-1, 1, 0]
set = { upper = 0.5 }
"""


def test_a_job_with_coupling_schedules_and_a_budget_per_update(tmp_path, command):
    rng = np.random.default_rng(0)
    for name in ("left", "right"):
        np.savez(tmp_path / f"{name}.npz", matrix=rng.normal(size=(4, 3)), data=rng.normal(size=4))
    (tmp_path / "grid.toml").write_text(COUPLED)
    job = load_job(tmp_path / "grid.toml")
    settings = job.settings.settings
    assert job.problem.size == 2 and not job.problem.is_global
    assert job.problem.agents[1].feasible_set.project(np.ones(3)).max() == 0.5
    assert settings.mechanism == tacit.Laplace.of_epsilon(0.5)
    assert settings.perturbation == "projected-output"
    assert settings.penalty == tacit.ConstantPenalty(2.0)
    out = tmp_path / "out"
    document = json.loads(command("solve", tmp_path / "grid.toml", "--out", out, "--json"))
    assert document["privacy"]["epsilon"] == pytest.approx(6)  # 12 updates of 0.5, delta 0
    assert document["noise_source"] == "operating system key, Threefry"
    assert "0.01" in document["privacy"]["statement"]
    for key in ("change", "unit", "doubt"):  # words of its own could promise more than beta does
        words = COUPLED.replace("beta = 0.01", f'beta = 0.01\n{key} = "all data"')
        (tmp_path / "words.toml").write_text(words)
        with pytest.raises(InvalidInput, match=key):
            load_job(tmp_path / "words.toml")


def test_a_matrix_beside_the_data_does_not_replace_the_public_one(tmp_path):
    """What the job says is public, and bounds are of it, whatever a data file holds besides."""
    said = COUPLED.replace(
        "beta = 0.01", "beta = 0.01\nmatrix = [[1.0, 0.0, 2.0], [0.0, 1.0, 0.0]]"
    )
    (tmp_path / "grid.toml").write_text(said)
    for name in ("left", "right"):
        np.savez(tmp_path / f"{name}.npz", matrix=np.full((2, 3), 7.0), data=np.array([3.0, 4.0]))
    for agent in load_job(tmp_path / "grid.toml").problem.agents:
        np.testing.assert_array_equal(agent.objective.matrix, [[1, 0, 2], [0, 1, 0]])
        np.testing.assert_array_equal(agent.objective.data, [3, 4])


@pytest.mark.parametrize("way", ["name", "path", "link", "hard link"])
def test_two_agents_cannot_have_one_data_file(job, way):
    """Its records would be released twice, and each agent's ledger count once."""
    south, other = job.parent / "south.npz", job.parent / "other.npz"
    (job.parent / "below").mkdir()
    make = {"link": other.symlink_to, "hard link": other.hardlink_to}
    if way in make:
        make[way](south)
    named = {"name": "south.npz", "path": "below/../south.npz"}.get(way, "other.npz")
    job.write_text(job.read_text().replace('"north.csv"', f'"{named}"'))
    with pytest.raises(InvalidInput, match="a data file of its own for every agent"):
        load_job(job)
