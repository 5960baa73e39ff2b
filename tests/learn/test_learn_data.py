"""Statistics data, and sharing them out to agents."""

import gzip
import hashlib
import io
import json
import struct

import numpy as np
import pandas as pd
import pytest

from tacit.errors import CorruptFile, InvalidInput
from tacit.learn import Dataset, load_leaf, load_mnist, load_table, split
from tacit.learn import data as reading


def idx(array):
    head = bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return head + array.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path, rng):
    """Thirty images in MNIST's format: training files plain, test files gzipped."""
    images, labels = rng.integers(0, 256, (30, 28, 28)), rng.integers(0, 10, 30)
    for part, rows, suffix in (("train", slice(0, 20), ""), ("t10k", slice(20, 30), ".gz")):
        for name, values in (("images-idx3", images), ("labels-idx1", labels)):
            content = idx(values[rows])
            path = tmp_path / f"{part}-{name}-ubyte{suffix}"
            path.write_bytes(gzip.compress(content) if suffix else content)
    return tmp_path, images, labels


def test_idx_files_plain_and_gzipped(mnist):
    folder, images, labels = mnist
    train, test = load_mnist(folder), load_mnist(folder, "test")
    assert train.features.dtype == np.float32 and train.features.shape == (20, 784)
    np.testing.assert_allclose(train.features, images[:20].reshape(20, -1) / 255, rtol=1e-6)
    assert (test.labels == labels[20:]).all() and test.classes == 10


def test_broken_idx_files(mnist):
    folder, _, _ = mnist
    path = folder / "train-images-idx3-ubyte"
    whole = path.read_bytes()
    for content, words in (
        (whole[:-1], "15680 bytes of data"),
        (b"\0\0\x0d\x03" + whole[4:], "idx file of 3-dimensional bytes"),
        (whole[:7], "idx file"),
    ):
        path.write_bytes(content)
        with pytest.raises(CorruptFile, match=words):
            load_mnist(folder)
    path.unlink()
    with pytest.raises(CorruptFile, match="found neither"):
        load_mnist(folder)
    broken = folder / "t10k-images-idx3-ubyte.gz"
    broken.write_bytes(broken.read_bytes()[:100])
    with pytest.raises(CorruptFile, match="t10k-images"):
        load_mnist(folder, "test")


def leaf(path, users, *, first="user_data"):
    """LEAF's JSON, with its keys in either order."""
    document = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {u: {"x": x.tolist(), "y": y.tolist()} for u, (x, y) in users.items()},
    }
    document = {first: document.pop(first), **document}
    text = json.dumps(document)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def writers(rng, names, width=9):
    return {n: (rng.random((k, width)).round(4), rng.integers(0, 4, k)) for n, k in names.items()}


@pytest.mark.parametrize("first", ["user_data", "users"])
def test_leaf_folders(tmp_path, rng, first):
    one, two = writers(rng, {"b": 5, "a": 1}), writers(rng, {"c": 1200})
    leaf(tmp_path / "1.json", one, first=first)
    leaf(tmp_path / "2.json.gz", two, first=first)
    data = load_leaf(tmp_path, classes=4)
    assert len(data) == 1206 and data.features.dtype == np.float32
    for name, (x, y) in {**one, **two}.items():
        mine = data.groups == name
        np.testing.assert_allclose(data.features[mine], 1 - x, atol=1e-7)
        assert (data.labels[mine] == y).all()
    again = load_leaf(tmp_path, 4, invert=False).features
    np.testing.assert_allclose(again, 1 - data.features, atol=1e-6)


def test_broken_leaf_folders(tmp_path, rng):
    with pytest.raises(CorruptFile, match="found none"):
        load_leaf(tmp_path)
    path = tmp_path / "1.json"
    leaf(path, writers(rng, {"a": 3}))
    whole = path.read_text()
    for text, words in (
        (whole[: len(whole) // 2], "cut off"),
        (whole.replace('"y": [', '"y": [1, '), "as many labels as records of 'a'"),
        (whole.replace('"x": [[', '"x": [[0.5], ['), "LEAF data in .*1.json"),
        ("[]", "LEAF data"),
        ('{"users": []}', "LEAF data"),
        ('{"user_data": {}}', "records in the LEAF files"),
    ):
        path.write_text(text)
        with pytest.raises(CorruptFile, match=words):
            load_leaf(tmp_path, classes=4)
    leaf(path, writers(rng, {"a": 30}))
    with pytest.raises(CorruptFile, match="labels 0 to 1"):
        load_leaf(tmp_path, classes=2)


def test_tables(tmp_path):
    table = pd.DataFrame(
        {"age": [30, 40, 50], "fee": [1.5, 2.5, 0.5], "churn": ["no", "yes", "no"]}
    )
    table["hospital"] = ["east", "west", "east"]
    table.to_csv(tmp_path / "t.csv", index=False)
    table.to_parquet(tmp_path / "t.parquet")
    for name, where in (("t.csv", "line 2"), ("t.parquet", "record 1")):
        data = load_table(tmp_path / name, "churn", "hospital")
        assert data.features.tolist() == [[30, 1.5], [40, 2.5], [50, 0.5]]
        assert data.labels.tolist() == [0, 1, 0] and data.names == ("no", "yes")
        assert data.groups.tolist() == ["east", "west", "east"] and data.columns == ("age", "fee")
        with pytest.raises(CorruptFile, match=f"number in {where} of .*, column 'hospital'"):
            load_table(tmp_path / name, "churn")
    assert load_table(tmp_path / "t.csv", "churn", drop=["hospital"]).columns == ("age", "fee")
    (tmp_path / "whole.csv").write_text("a,y\n1,0.0\n2,1.0\n")
    assert load_table(tmp_path / "whole.csv", "y").names == ("0", "1")


@pytest.mark.parametrize(
    ("text", "more", "words"),
    [
        ("a,y\n1,0\ninf,1\n", {}, "finite number in line 3 .* 'a'"),
        ("a,y,h\n1,0,east\n2,1,NA\n", {"agent_column": "h"}, "missing values .* line 3, .* 'h'"),
        ("a,y\n1,0.5\n2,1\n", {}, "got a fraction in line 2"),
        ("a,y\n1,0\n2,1\n", {"drop": ["b"]}, "a column 'b'"),
        ("a,y\n1,0\n2,1\n", {"drop": ["y"]}, "one use of the column 'y'"),
    ],
)
def test_tables_that_are_refused(tmp_path, text, more, words):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises((InvalidInput, CorruptFile), match=words):
        load_table(tmp_path / "bad.csv", "y", **more)
    for name in ("absent.csv", "absent.parquet"):
        with pytest.raises(CorruptFile, match=f"{name}.* No such file"):
            load_table(tmp_path / name, "y")


def test_splits_are_partitions(rng):
    data = Dataset(np.zeros((1000, 2)), rng.integers(0, 5, 1000), tuple("abcde"))
    for how, alpha in (("iid", 1.0), ("dirichlet", 0.1), ("dirichlet", 100.0)):
        parts = split(data, 7, how, alpha=alpha, seed=3)
        assert len(parts) == 7
        again = split(data, 7, how, alpha=alpha, seed=3)
        assert sorted(np.concatenate(parts).tolist()) == list(range(1000))
        assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    assert {len(p) for p in split(data, 7)} == {142, 143}

    def skew(alpha):
        shares = [
            np.bincount(data.labels[p], minlength=5)
            for p in split(data, 7, "dirichlet", alpha=alpha)
        ]
        return np.mean([s.max() / max(s.sum(), 1) for s in shares])

    assert skew(0.1) > 0.5 > 0.35 > skew(100.0)


def test_split_by_group_and_bad_splits():
    groups = np.array(["b", "a", "b"])
    data = Dataset(np.zeros((3, 1)), np.array([0, 1, 0]), ("x", "y"), groups)
    assert [p.tolist() for p in split(data, how="group")] == [[1], [0, 2]]
    for wrong in ({"agents": 4}, {"agents": 0}, {"agents": 2, "how": "odd"}, {}):
        with pytest.raises(InvalidInput):
            split(data, **wrong)
    with pytest.raises(InvalidInput, match="groups"):
        split(Dataset(np.zeros((3, 1)), np.zeros(3, int), ("x",)), how="group")


@pytest.fixture
def mirror(monkeypatch, tmp_path_factory, rng):
    """A folder with MNIST's file names, and its URL."""
    folder = tmp_path_factory.mktemp("mirror")
    contents = {name: rng.bytes(50_000) for name in reading.FILES}
    for name, content in contents.items():
        (folder / f"{name}.gz").write_bytes(gzip.compress(content))
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setattr(reading, "FILES", digests)
    return folder, folder.as_uri()


def test_a_download_that_broke_off_is_done_again(mirror, tmp_path, monkeypatch):
    def broken(url, timeout):
        answer = io.BytesIO(bytes(20_000))
        answer.headers = {"Content-Length": "40000"}
        return answer

    with monkeypatch.context() as patch:
        patch.setattr("urllib.request.urlopen", broken)
        with pytest.raises(CorruptFile, match="20000 of 40000"):
            reading.download_mnist(tmp_path, mirror[1])
    assert [p.name for p in tmp_path.iterdir()] == ["train-images-idx3-ubyte.gz.part"]
    seen = []
    reading.download_mnist(tmp_path, mirror[1], lambda *what: seen.append(what))
    assert seen[0][0] == "train-images-idx3-ubyte"
    names = sorted(p.name for p in tmp_path.iterdir())
    assert names == sorted(f"{n}.gz" for n in reading.FILES)
    reading.download_mnist(tmp_path, "file:///nowhere")  # all is there: nothing is asked for again


def test_wrong_content_is_removed(mirror, tmp_path):
    served, url = mirror
    labels = served / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(b"something else"))
    with pytest.raises(CorruptFile, match="train-labels-idx1-ubyte with SHA-256"):
        reading.download_mnist(tmp_path, url)
    assert [p.name for p in tmp_path.iterdir()] == ["train-images-idx3-ubyte.gz"]
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(b"spoilt")  # is fetched again
    with pytest.raises(CorruptFile, match="train-labels"):
        reading.download_mnist(tmp_path, url)
    assert (tmp_path / "train-images-idx3-ubyte.gz").stat().st_size > 40_000


def test_no_mirror(tmp_path):
    with pytest.raises(CorruptFile, match="Try again"):
        reading.download_mnist(tmp_path, "http://127.0.0.1:9")


def test_no_record_of_a_table_is_both_learnt_and_tested(tmp_path):
    from tacit.cli.learn import load
    from tacit.cli.main import parse

    path = tmp_path / "t.csv"
    path.write_text("x,y\n" + "".join(f"{k},{k % 2}\n" for k in range(50)))
    words = ["learn", str(path), "--target", "y", "--range", "x=0:100", "--test-share", "0.3"]
    options = parse(words)
    data = load(options, str(path))
    records = [
        np.round(50 * (part.features[:, 0] + 1)).astype(int) for part in (data.train, data.test)
    ]
    assert len(records[1]) == 15
    assert sorted(np.concatenate(records)) == list(range(50))
