"""Labelled data: tables, MNIST's idx files, LEAF's JSON folders, and how agents share them.

A ``Dataset`` holds one row of features per record, a label 0, 1, ... for each, and, where the data
come from several writers or hospitals, whose record it is.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import urllib.request
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput, choice, count, positive
from tacit.files import parse_json, reading
from tacit.tables import ANY, Records, Rules

LEAF = 2**30  # most bytes of a file
MIRROR = "https://ossci-datasets.s3.amazonaws.com/mnist"
# SHA-256 of the files without compression, which the mirrors do not all compress alike.
FILES = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
PIECE = 1 << 16  # bytes of a download at a time


@dataclass(frozen=True)
class Dataset:
    """Features (records × columns), labels 0..K−1, the K names, and the group of each record.

    Without names the labels are numbers to be predicted, and there are no classes.
    """

    features: Vector
    labels: Vector
    names: tuple[str, ...]
    groups: Vector | None = None
    columns: tuple[str, ...] = ()

    @property
    def classes(self) -> int:
        return len(self.names)

    @property
    def targets(self) -> Vector:
        """What an estimator is fitted to: the name of each record's class, or its number."""
        return np.array(self.names)[self.labels] if self.names else self.labels

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, rows: Vector) -> Dataset:
        groups = None if self.groups is None else self.groups[rows]
        return Dataset(self.features[rows], self.labels[rows], self.names, groups, self.columns)


def load_mnist(folder: str | Path, part: str = "train") -> Dataset:
    """MNIST's original files, plain or gzipped; pixels as float32 in [0, 1].

    folder  where the four files are
    part    "train" or "test"

    Returns a ``Dataset``. Raises ``InvalidInput`` for another part, ``CorruptFile`` for a file that
    is damaged or not there.
    """
    prefix = {"train": "train", "test": "t10k"}[choice("part", part, ("train", "test"))]
    images = _read_idx(_find(Path(folder), f"{prefix}-images-idx3-ubyte"), 3)
    labels = _read_idx(_find(Path(folder), f"{prefix}-labels-idx1-ubyte"), 1)
    if len(images) != len(labels):
        raise CorruptFile(
            f"Expected as many labels as images in {folder}, got {len(labels)} and {len(images)}."
        )
    pixels = images.reshape(len(images), -1).astype(np.float32)
    pixels /= 255
    return Dataset(pixels, labels.astype(np.int64), tuple(map(str, range(10))))


def download_mnist(
    folder: str | Path,
    mirror: str = MIRROR,
    progress: Callable[[str, int, int], None] = lambda name, done, total: None,
) -> Path:
    """Get what is missing of MNIST's four files into ``folder``.

    A file has its name only once its checksum is right; until then it ends in ``.part``.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, digest in FILES.items():
        path = folder / f"{name}.gz"
        if path.exists() and _checksum(path) == digest:
            continue
        part = folder / f"{name}.gz.part"
        try:
            _fetch(f"{mirror}/{name}.gz", part, partial(progress, name))
        except OSError as error:  # URLError is one
            raise CorruptFile(
                f"Expected {name}.gz from {mirror}: {error}. Try again: what is there stays."
            ) from None
        if _checksum(part) != digest:
            part.unlink()
            raise CorruptFile(
                f"Expected {name} with SHA-256 {digest[:12]}..., got other content. It was removed."
            )
        part.replace(path)
    return folder


def load_digits(part: str = "train") -> Dataset:
    """Scikit-learn's 1,797 digits of 8×8 pixels, a quarter of them for the test.

    part    "train" or "test"

    Returns a ``Dataset``. Raises ``InvalidInput`` for another part.
    """
    try:
        from sklearn.datasets import load_digits as load
    except ImportError:
        raise InvalidInput("Expected scikit-learn: pip install 'tacit[learn]'.") from None
    found = load()
    order = np.random.default_rng(0).permutation(len(found.target))
    cut = 3 * len(order) // 4
    rows = order[:cut] if choice("part", part, ("train", "test")) == "train" else order[cut:]
    pixels = (found.data[rows] / 16).astype(np.float32)
    return Dataset(pixels, found.target[rows].astype(np.int64), tuple(map(str, range(10))))


def load_leaf(folder: str | Path, classes: int = 62, *, invert: bool = True) -> Dataset:
    """All JSON files of a LEAF folder, plain or gzipped; groups are the users.

    folder   where the files are. One at a time is held in memory, in about eight times its size
    classes  how many labels there are, from 0 on
    invert   turn LEAF's pixels (1 = white) into 1 − x, as the experiments use them

    Returns a ``Dataset``. Raises ``CorruptFile`` where there is no file, or a damaged one, or a
    label beyond ``classes``.
    """
    paths = sorted(p for p in Path(folder).glob("*.json*") if p.suffix in (".json", ".gz"))
    if not paths:
        raise CorruptFile(f"Expected LEAF files (*.json or *.json.gz) in {folder}, found none.")
    features: list[Vector] = []
    labels: list[Vector] = []
    groups: list[str] = []
    for path in paths:
        with reading(path, "LEAF data", own=False):
            for user, data in parse_json(_content(path), LEAF)["user_data"].items():
                rows, own = np.array(data["x"], np.float32), np.array(data["y"], np.int64)
                if rows.ndim != 2 or rows.shape[1] != (features or [rows])[0].shape[1]:
                    raise CorruptFile(
                        f"Expected records of one length in {path}, user {user!r}, as in the first."
                    )
                if own.shape != (len(rows),):
                    raise CorruptFile(f"Expected as many labels as records of {user!r} in {path}.")
                features.append(rows)
                labels.append(own)
                groups += [user] * len(rows)
    if not groups:
        raise CorruptFile(f"Expected records in the LEAF files of {folder}, found none.")
    found, pixels = np.concatenate(labels), np.concatenate(features)
    if found.min() < 0 or found.max() >= classes:
        raise CorruptFile(f"Expected labels 0 to {classes - 1} in {folder}, got another one.")
    if invert:
        np.subtract(1, pixels, out=pixels)
    return Dataset(pixels, found, tuple(map(str, range(classes))), np.array(groups))


def load_table(
    path: str | Path,
    target: str,
    agent_column: str | None = None,
    drop: Sequence[str] = (),
    features: Sequence[str] | None = None,
    *,
    numeric_target: bool = False,
) -> Dataset:
    """A CSV or Parquet table: ``target`` has the labels; all other columns must be numbers.

    path            the file
    target          the column of labels
    agent_column    the column that says whose record it is
    drop            columns that are not used
    features        the columns that are, in this order; left out, all others
    numeric_target  the target's own numbers are the labels, and there are no classes

    Returns a ``Dataset``. Raises ``InvalidInput`` for columns that are not there or are no numbers,
    ``CorruptFile`` for a file that is damaged or not there. No error shows a cell.
    """
    number, used = ANY["*"] if numeric_target else None, tuple(features or ()) or None
    rules = Rules(target, None, number, used, tuple(drop), ANY)
    found = rules.records([path], agent_column=agent_column)
    return dataset(found, found.matrix(), [*found.columns])


def dataset(records: Records, features: Vector, names: Sequence[str]) -> Dataset:
    """The records with these features, whose columns are called ``names``."""
    if records.targets.dtype.kind == "f":
        return Dataset(features, records.targets, (), records.groups, tuple(names))
    classes, labels = np.unique(records.targets, return_inverse=True)
    return Dataset(features, labels, tuple(classes.tolist()), records.groups, tuple(names))


def split(
    data: Dataset, agents: int | None = None, how: str = "iid", *, alpha: float = 0.5, seed: int = 0
) -> list[Vector]:
    """The rows of every agent.

    agents  how many; of "group" none
    how     "iid": equal random parts. "group": one agent per group, in order of their names.
            "dirichlet": label skew, every class is shared out by a Dirichlet(alpha) draw. It reads
            the labels, and one of them moves other agents' records: for experiments, as no
            statement of a fit covers it
    alpha   a smaller one skews more
    seed    of the random parts

    Returns an array of row numbers for each agent. Raises ``InvalidInput`` for more agents than
    records.
    """
    how = choice("split", how, ("iid", "group", "dirichlet"))
    if how == "group":
        if data.groups is None:
            raise InvalidInput("Expected data with groups for the split 'group', got none.")
        return [np.flatnonzero(data.groups == g) for g in np.unique(data.groups)]
    if agents is None or count("agents", agents) > len(data):
        raise InvalidInput(f"Expected 1 to {len(data)} agents, got {agents}.")
    rng = np.random.default_rng(seed)
    if how == "iid":
        return [np.sort(part) for part in np.array_split(rng.permutation(len(data)), agents)]
    positive("alpha", alpha)
    if not data.names:
        raise InvalidInput("Expected classes for the split 'dirichlet', got numbers.")
    parts: list[list[Vector]] = [[] for _ in range(agents)]
    for k in range(data.classes):
        rows = rng.permutation(np.flatnonzero(data.labels == k))
        shares = rng.dirichlet(np.full(agents, alpha))
        cuts = np.round(np.cumsum(shares)[:-1] * len(rows)).astype(int)
        for part, piece in zip(parts, np.split(rows, cuts), strict=True):
            part.append(piece)
    return [np.sort(np.concatenate(part)) for part in parts]


def _find(folder: Path, name: str) -> Path:
    for path in (folder / name, folder / f"{name}.gz", folder / name.replace("-idx", ".idx")):
        if path.is_file():
            return path
    raise CorruptFile(f"Expected {name} or {name}.gz in {folder}, found neither.")


def _read_idx(path: Path, dimensions: int) -> Vector:
    """An idx file of bytes: magic number, shape, data."""
    with reading(path, "an idx file"):
        content = _content(path)
    head = 4 * (dimensions + 1)
    if len(content) < head or content[:4] != bytes([0, 0, 8, dimensions]):
        raise CorruptFile(f"Expected an idx file of {dimensions}-dimensional bytes in {path}.")
    shape = struct.unpack(f">{dimensions}I", content[4:head])
    if len(content) - head != int(np.prod(shape)):
        raise CorruptFile(
            f"Expected {int(np.prod(shape))} bytes of data in {path}, got {len(content) - head}."
        )
    return np.frombuffer(content, np.uint8, offset=head).reshape(shape)


def _fetch(url: str, part: Path, progress: Callable[[int, int], None]) -> None:
    have = 0
    with urllib.request.urlopen(url, timeout=60) as answer, open(part, "wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        while piece := answer.read(PIECE):
            file.write(piece)
            have += len(piece)
            progress(have, total)
    if have < total:
        raise OSError(f"the connection broke off after {have} of {total} bytes")


def _checksum(path: Path) -> str:
    digest = hashlib.sha256()
    try:
        with gzip.open(path) as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except (OSError, EOFError, zlib.error):
        return ""
    return digest.hexdigest()


def _content(path: Path) -> bytes:
    with gzip.open(path) if path.suffix == ".gz" else open(path, "rb") as file:
        return bytes(file.read(LEAF))
