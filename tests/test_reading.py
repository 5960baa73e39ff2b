"""Files made to harm are one error, in bounded memory; and nobody reads a file in another way."""

import ast
import dataclasses
import math
import os
import struct
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit.errors import CorruptFile
from tacit.files import read_json, read_npz, read_rows, read_text, read_toml, typed

SOURCE = Path(tacit.__file__).parent


# --- files made to harm ---------------------------------------------------------------------------


def npz(path, *members, compress=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return path


def npy(shape="(3,)", dtype="<f8", content=bytes(24), version=b"\1\0"):
    head = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    size = struct.pack("<H" if version == b"\1\0" else "<I", len(head))
    return b"\x93NUMPY" + version + size + head + content


def patched(path, before, after):
    path.write_bytes(path.read_bytes().replace(before, after))
    return path


def bomb(path):
    """4 GB of zeros, in a few MB."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy("(536870912,)", content=b""))
        for _ in range(40):  # of 512: the rest is promised only
            file.write(bytes(2**23))
    return path


SOUND = b"PK\1\2\x14\3\x14\0\0"  # of a member; the next bit says that it is encrypted
HOSTILE = {
    "bomb": bomb,
    "huge shape": lambda p: npz(p, ("a.npy", npy("(10**15,)".replace("10**15", "1" + "0" * 15)))),
    "overflowing shape": lambda p: npz(p, ("a.npy", npy(f"({2**62}, {2**62})"))),
    "negative shape": lambda p: npz(p, ("a.npy", npy("(-3, -1)"))),
    "shape of text": lambda p: npz(p, ("a.npy", npy("('a',)"))),
    "code as shape": lambda p: npz(p, ("a.npy", npy("__import__('os').abort()"))),
    "deep shape": lambda p: npz(p, ("a.npy", npy("(" * 3000))),
    "objects": lambda p: npz(p, ("a.npy", npy(dtype="|O"))),
    "no items": lambda p: npz(p, ("a.npy", npy("(100000000000000,)", "<U0", b""))),
    "records": lambda p: npz(p, ("a.npy", npy(dtype=[("a", "<f8")]))),
    "long header": lambda p: npz(p, ("a.npy", npy(version=b"\2\0"))),
    "cut": lambda p: npz(p, ("a.npy", npy(content=bytes(20)))),
    "more": lambda p: npz(p, ("a.npy", npy(content=bytes(40)))),
    "no array": lambda p: npz(p, ("a.txt", b"text")),
    "empty member": lambda p: npz(p, ("a.npy", b"")),
    "other compression": lambda p: npz(p, ("a.npy", npy()), compress=zipfile.ZIP_LZMA),
    "encrypted": lambda p: patched(
        npz(p, ("a.npy", npy())), b"PK\1\2\x14\3\x14\0\0", b"PK\1\2\x14\3\x14\0\1"
    ),
    "no file": lambda p: p,
    "no ZIP": lambda p: p.write_bytes(b"PK\3\4" + bytes(90)) and p,
    "single array": lambda p: p.write_bytes(npy()) and p,
    "two of one name": lambda p: npz(p, ("a.npy", npy()), ("a", npy())),
    "two of one name, the last sound": lambda p: npz(p, ("a", npy()), ("a.npy", npy())),
    "a folder": lambda p: p.mkdir() or p,
    "a device": lambda p: Path("/dev/zero"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_arrays(tmp_path, kind):
    with pytest.raises(CorruptFile):
        read_npz(HOSTILE[kind](tmp_path / "a.npz"))


def test_sound_arrays_are_read_as_they_are(tmp_path, rng):
    """Of every kind of numbers, also in Fortran's order, empty, compressed or many."""
    kinds = [
        rng.normal(size=(3, 4)),
        np.asfortranarray(rng.normal(size=(2, 3), scale=9)),
        np.eye(0),
    ]
    kinds += [np.arange(2).astype(t) for t in ("?", "u1", ">i4", "f4", "c16")] + [np.array("é x")]
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", **{f"n{i}": value for i, value in enumerate(kinds)})
        found = read_npz(tmp_path / "a.npz")
        for i, value in enumerate(kinds):
            np.testing.assert_array_equal(found[f"n{i}"], value)
            assert found[f"n{i}"].dtype == value.dtype


LIMITED = """
    import resource, sys, tracemalloc
    import numpy as np, pyarrow.parquet, tacit.studies, tacit.tables
    from pathlib import Path
    from tacit.errors import CorruptFile
    from tacit import files
    reads = {".npz": files.read_npz, ".toml": files.read_toml, ".json": files.read_json,
             ".csv": tacit.tables.read_table, ".parquet": files.check_parquet}
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**28, used + 2**28))
    for path in map(Path, sys.argv[1:]):
        try:
            reads[path.suffix](path)
        except CorruptFile as error:
            print(path.name, error)
"""


@dataclasses.dataclass
class Filled:
    """What may be in a file that Tacit wrote."""

    pair: tuple[str, float] = ("a", 1.0)
    many: tuple[tuple[str, tuple[int, ...]], ...] = (("a", (1, 2)),)
    named: dict[str, float | None] = dataclasses.field(default_factory=dict)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"pair": pair} for pair in [("a",), ("a", 1.0, 2.0), (), ("a", "b"), ("a", math.nan)]),
        *({"many": many} for many in [(("a",),), (("a", (1,), 2),), (("a", (1, True)),)]),
        *({"named": named} for named in [{1: 1.0}, {"a": "b"}, {"a": math.nan}, [("a", 1.0)]]),
    ],
    ids=str,
)
def test_fields_have_all_their_parts_and_no_others(wrong):
    typed(Filled(named={"a": None, "b": 2}))
    with pytest.raises(TypeError, match=f"{next(iter(wrong))} has another type"):
        typed(Filled(**wrong))


@pytest.mark.skipif(sys.platform != "linux", reason="of Linux")
def test_bombs_take_little_memory(tmp_path):
    """A key of 200 kB took 15 GB, and 4 MB of arrays 4.4 GB; here all of it has 256 MB."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = {
        "arrays.npz": bomb,
        "key.toml": lambda p: p.write_text("a." * 10**5 + "a = 1"),
        "spaced.toml": lambda p: p.write_text("a . " * 10**4 + "a = 1"),
        "quoted.toml": lambda p: p.write_text('"\\"" . ' * 10**4 + "a = 1"),
        "header.toml": lambda p: p.write_text("[" + "a." * 10**5 + "a]"),
        "inline.toml": lambda p: p.write_text("x = {" + "'a'." * 10**5 + "a = 1}"),
        "deep.toml": lambda p: p.write_text("a = " + "[" * 10**5),
        "digits.toml": lambda p: p.write_text("a = " + "9" * 10**6),
        "hexadecimal.toml": lambda p: p.write_text("a = 0x" + "f" * 10**6),
        "negative.toml": lambda p: p.write_text("a = [{b = -9223372036854775809}]"),
        "large.toml": lambda p: p.write_text("#" * 2**23),
        "line.csv": lambda p: p.touch() or os.truncate(p, 2**40),
        "deep.json": lambda p: p.write_text('{"a":' * 10**6),
        "digits.json": lambda p: p.write_text('{"a":' + "9" * 10**6 + "}"),
        "large.json": lambda p: p.write_bytes(b"[" + b"[],".ljust(2**26, b" ")),
        "rows.parquet": lambda p: pq.write_table(
            pa.table(
                {
                    f"c{i}": pa.DictionaryArray.from_arrays(
                        pa.array(np.zeros(10**6, np.int8)), pa.array([1.0])
                    )
                    for i in range(50)
                }
            ),
            p,
        ),
    }
    for name, make in files.items():
        make(tmp_path / name)
    paths = [str(tmp_path / name) for name in files]
    code = textwrap.dedent(LIMITED)
    run = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True)
    assert run.returncode == 0 and "MemoryError" not in run.stdout, run.stderr[-2000:]
    assert [line.split()[0] for line in run.stdout.splitlines()] == list(files)


def test_ordinary_toml_is_read(tmp_path):
    """Dots in numbers, texts and comments are no keys."""
    text = (
        'a.b."c.d".e = 1.5\nv = [' + "1.25, " * 5000 + "]\nt = '" + "x. " * 40 + "'\n#" + ". " * 99
    )
    (tmp_path / "a.toml").write_text(text)
    found = read_toml(tmp_path / "a.toml")
    assert found["a"]["b"]["c.d"] == {"e": 1.5} and len(found["v"]) == 5000


@pytest.mark.parametrize("read", [read_npz, read_json, read_toml, read_text, read_rows])
@pytest.mark.parametrize("name", ["none", "x" * 5000, "a\0b", "none/a", "/dev/zero", "."])
def test_paths_that_are_no_file(tmp_path, read, name):
    with pytest.raises(CorruptFile):
        read(tmp_path / name)


# --- nobody reads a file in another way -----------------------------------------------------------

# What parses something else than a file, or a file that no stranger has had
PARSERS = {
    "json.loads": {
        "files",
        "protocol.journal",  # through JSON and back
        "protocol.messages",  # settings in a message
        "privacy.ledger",  # rows, whose hashes were checked
        "lab.reproduce.__init__",
        "transports.nvflare.site",  # a log of its own
    },
    "json.load": set(),
    "tomllib.loads": {"files"},
    "tomllib.load": set(),
    "np.load": set(),
    "np.loadtxt": set(),
    "np.genfromtxt": set(),
    "np.fromfile": set(),
    "pd.read_csv": {"files"},
    "pd.read_parquet": {"tables"},  # after check_parquet
    "zipfile.ZipFile": {
        "files",
        "transports.nvflare.provisioning",
    },  # a job is compared, not unpacked
    "pickle.load": set(),
    "pickle.loads": {"sets.conic", "transports.mpi"},  # of a copy in memory, of other ranks
}


def test_one_reader_for_each_format():
    found = {name: set() for name in PARSERS}
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in PARSERS:
                found[name].add(module)
    for name, modules in PARSERS.items():
        assert found[name] <= modules, f"{name}: {found[name] - modules} has tacit.files"
