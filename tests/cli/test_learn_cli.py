"""``tacit learn`` and ``tacit predict``."""

import json
import stat

import numpy as np
import pytest

from tacit import Result
from tacit.cli.main import main as run_learn
from tacit.learn import Dataset, data, load_digits, load_model
from tacit.learn import split as make_split
from tacit.protocol.journal import Journal
from tacit.protocol.release import SavedReleases


def test_command_on_digits(tmp_path, monkeypatch, command, refused):
    monkeypatch.chdir(tmp_path)
    budget = ("--total-epsilon", 4, "--total-delta", 1e-5, "--seed", 1)
    document = json.loads(command("learn", "digits", "--rounds", 40, *budget, "--json"))
    assert set(["epsilon", "delta", "rounds", "local_updates", "seed"]) <= set(document)
    kept = document["not_covered"]  # exact figures of records stand nowhere else
    assert {"test_error", "test_error_of_a_guess", "train_objective"} <= set(kept)
    assert not [name for name in document if "error" in name or "objective" in name]
    price = kept["what_privacy_costs"]  # scikit-learn's own on the pictures' orientations
    assert price["private"] == kept["test_error"] and price["unit"] == "share"
    assert 0.005 < price["without_privacy"] < 0.05 and "LogisticRegression" in price["by"]
    assert kept["test_error"] < 0.3 and document["epsilon"] <= 4 and document["seed"] == 1
    assert document["classes"] == list("0123456789") and document["rounds"] == 40
    test = load_digits("test")
    guesses = load_model(tmp_path / "digits-model").predict(test.features)
    assert np.mean(guesses != test.labels.astype(str)) == pytest.approx(kept["test_error"])
    open_run = command("learn", "digits", "--no-noise", "--rounds", 2, "--out", "open")
    assert "Not private" in open_run and "delta" not in open_run
    assert "privacy costs" not in open_run
    assert "budget is spent" in refused("learn digits --total-epsilon 1")


def test_tables_and_data_sets_that_are_refused(tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    rows = [
        "age,fee,churn,hospital",
        *(f"{20 + k},{k % 9}.25,{('yes', 'no')[k % 2]},east" for k in range(20)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows))
    (tmp_path / "few.csv").write_text("x,y\n0.1,1\n0.2,1\n0.3,1\n")
    (tmp_path / "one.csv").write_text("x,y,a\n0.1,1,east\n")
    ranges = "--range age=20:80 --range fee=0:10"
    base = "learn t.csv --target churn --agent-column hospital --total-epsilon 4 --seed 2"
    for wrong, words in (
        ("learn t.csv --total-epsilon 1 --out r", "--target"),
        ("learn absent.csv --total-epsilon 1", "got 'absent.csv': there is no such file"),
        ("learn t.csv --target churn --out r", "one of --total-epsilon"),
        ("learn mnist --total-epsilon 1", "--data"),
        (f"{base} --out r", "none of 'age', 'fee' (2 of 2 have none)"),
        (
            f"{base} --range age=20 --range fee=0:1 --out r",
            "COLUMN=LOW:HIGH, once for each",
        ),
        (f"{base} {ranges} --clip x", "clip as a number"),
        (f"{base} {ranges} --clip 0", "clip > 0"),
        (f"{base} {ranges} --clip 1e-9", "1e-06 <= clip"),
        (f"{base} {ranges} --centring-share x", "--centring-share as a number"),
        (f"{base} {ranges} --centring-share 2", "centring_share < 1"),
        (f"{base} {ranges} --centring-share 0", "0 < centring_share"),
        (f"{base} {ranges} --model ridge", "target"),
        (f"{base} {ranges} --level 0.3", "level"),
        (f"{base} {ranges} --model svm --clip 1", "clip"),
        (f"{base} {ranges} --features orientations", "for images only"),
        (f"{base} {ranges} --target-range 0:1", "finite number in line 2"),
        (f"{base} {ranges} --drop size --out r", "a column 'size'"),
        (f"{base} {ranges} --agents 4 --out r", "--agent-column without --agents"),
        (f"{base} {ranges} --split iid --out r", "--agent-column without --agents"),
        (f"{base} {ranges} --classes no,never --out r", "got another one in line "),
        (f"{base} {ranges} --alpha 2 --out r", "--split dirichlet only"),
        (
            "learn t.csv --target fee --total-epsilon 1 --drop churn --drop hospital "
            "--range age=20:80 --out r",
            "a fraction in line 2",
        ),
        ("learn few.csv --target y --range *=0:1 --total-epsilon 1", "1 to 2 agents, got 10"),
        ("learn one.csv --target y --agent-column a --range *=0:1 --total-epsilon 1", "got 1 in"),
        ("learn digits --total-epsilon 1 --target churn", "for a table only"),
        ("learn digits --total-epsilon 1 --test-share 0.5", "for a table only"),
        ("learn digits --total-epsilon 1 --split group --agents 3", "no --agents"),
        ("learn digits --total-epsilon 1 --split group", "agent-column"),
        ("predict absent t.csv", "model that tacit saved"),
        ("learn digits --total-epsilon 1 --device gpu", "a gpu that JAX can use"),
        ("reproduce mnist", "--data"),
        ("reproduce mnist --case case14", "no --case"),
    ):
        assert words in refused(wrong)


def test_attack_and_download_are_commands(tmp_path, monkeypatch, command, refused):
    got = []
    monkeypatch.setattr(
        data, "download_mnist", lambda folder, progress: got.append(folder) or folder
    )
    assert command("learn", "download", "here") == "files: here\n"
    assert command("learn", "download", "--data", "there") == "files: there\n"  # as in 0.1.0
    assert got == ["here", "there"]
    assert "Expected DIR" in refused("learn download")
    for word in ("attack", "download"):  # the word must come first
        said = refused(f"learn --json {word}")
        assert f"Expected {word} right after learn" in said and f"./{word}" in said


def test_a_mean_is_released_once(tmp_path, rng, monkeypatch, command, refused):
    """A run that goes on has its mean, or is refused: another one would be a second release."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{a:.3f},{b:.3f},{int(a > 0.7)}" for a, b in rng.uniform(0.4, 1, (400, 2))]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,y", *rows]))
    base = "learn t.csv --target y --classes 0,1 --range *=-1:1 --agents 2 --total-epsilon 1"
    base += " --rounds 6 --evaluate-every 2"

    def killed(when):
        """A process that dies as its checkpoint is written for the ``when``-th time."""
        before, times = Journal.save, iter(range(9))

        def save(self, *words, **options):
            if next(times) == when:
                raise KeyboardInterrupt
            return before(self, *words, **options)

        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(Journal, "save", save)
            run_learn([*base.split(), "--out", "r"])

    killed(2)
    mean = tmp_path / "r" / "mean.npz"
    kept = mean.read_bytes()
    total = sum(release.values for release in SavedReleases.load(mean).releases)
    assert stat.S_IMODE(mean.stat().st_mode) == 0o600
    mean.unlink()
    assert "a second release" in refused("learn --resume r") and not mean.exists()
    mean.write_bytes(kept[:-100])
    assert "Expected a release that tacit saved" in refused("learn --resume r")
    mean.write_bytes(kept)
    command("learn", "--resume", "r")
    # of James and Stein: the mean of what was released, drawn towards 0
    found = [*json.loads((tmp_path / "r" / "model.json").read_text())["mean"].values()]
    np.testing.assert_allclose(found / np.linalg.norm(found), total / np.linalg.norm(total))
    assert np.linalg.norm(found) > 0.1 and not mean.exists()  # data can be known by it
    privacy = Result.load(tmp_path / "r").privacy
    assert privacy.certified and privacy.epsilon <= 1.0
    assert "one noisy sum of its rows" in privacy.words and "was given" not in privacy.words
    (tmp_path / "r").rename(tmp_path / "done")
    killed(0)  # before the first checkpoint
    said = refused("learn --resume r")
    assert "mean.npz was released" in said and "choose another --out" in said
    assert "mean.npz was released" in refused(f"{base} --out r")


@pytest.mark.parametrize("split", ["iid", "dirichlet"])
def test_a_split_that_reads_labels_is_not_certified(
    tmp_path, monkeypatch, command, refused, split, rng
):
    """One flipped label moves more than one record from agent to agent."""
    monkeypatch.chdir(tmp_path)
    labels = rng.integers(0, 2, 400)
    owners = []
    for y in (labels, [1 - labels[0], *labels[1:]]):
        data = Dataset(np.zeros((400, 1)), np.array(y), ("0", "1"))
        owner = np.zeros(400, int)
        for agent, rows in enumerate(make_split(data, 4, split)):
            owner[rows] = agent
        owners.append(owner)
    moved = int((owners[0] != owners[1]).sum())
    assert moved == 0 if split == "iid" else moved > 1
    rows = [f"{x:.3f},{y}" for x, y in zip(rng.uniform(0, 1, 400), labels, strict=True)]
    (tmp_path / "t.csv").write_text("\n".join(["x,y", *rows]))
    base = "learn t.csv --target y --classes 0,1 --range x=0:1 --total-epsilon 4 --rounds 2"
    said = json.loads(command(*f"{base} --agents 4 --split {split} --seed 1 --json".split()))
    for found in said, json.loads((tmp_path / "t-model" / "result.json").read_text())["privacy"]:
        assert found["certified"] == (split == "iid")
        assert ("dealt to agents by their labels" in found["statement"]) == (split != "iid")
    if split != "iid":  # nor does a ledger pay for what is not proven
        assert "not certified" in refused(f"{base} --agents 4 --split {split} --ledgers L --out m")
