"""Files: written whole, for their owner's eyes from the first moment; read within bounds.

What is written of a run is for its owner's eyes. What is read has one reader for each format.

Guarantee: size and depth are bounded before anything is parsed, and whatever is wrong is one
``CorruptFile``, which names the file and never what is in it. What is read is interpreted within
``reading``, and ``typed`` compares the fields of a dataclass with their types.
"""

from __future__ import annotations

import csv
import errno
import io
import json
import math
import os
import re
import secrets
import stat
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, TypeVar, Union, get_args, get_origin, get_type_hints

from tacit._types import Vector
from tacit.errors import CorruptFile, InvalidInput, TacitError


def open_private(path: str | Path) -> BinaryIO:
    """A new file to write to, mode 0600 from its creation on.

    Guarantee: whatever the umask, at no moment may anyone but the owner read what is written. What
    had the name before, a file that others may read or a link, is removed, not written to.
    """
    Path(path).unlink(missing_ok=True)
    # exclusive: nothing that someone puts there meanwhile is opened, and no link is followed
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write a private file, flush it to the disk, then rename: a crash leaves the old or the new.

    The folder is flushed too, so that the new one is there after a failure of power.
    """
    path = Path(path)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        with open_private(temporary) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError) or error.errno is None:
            raise
        # such as a full disk, which names no file
        raise OSError(error.errno, f"{error.strerror}; not written", str(path)) from None
    sync_folder(path.parent)


@contextmanager
def locked(path: str | Path, refusal: str) -> Iterator[None]:
    """Hold a file or folder for this process alone; the operating system lets go if it dies."""
    if os.name == "nt":  # where no folder can be opened
        yield
        return
    import fcntl

    opened = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.samestat(os.fstat(opened), os.stat(path)):
                raise BlockingIOError  # removed by who held it, and made again
        except BlockingIOError:
            raise InvalidInput(refusal, "Nothing was started.") from None
        yield
    finally:
        os.close(opened)


def save_figure(path: str | Path, figure: Any, **options: Any) -> None:
    """Draw first, then write a private file: a plot that fails leaves nothing."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format=Path(path).suffix.removeprefix("."), **options)
    write_atomically(path, drawn.getvalue())


def sync_file(path: str | Path) -> None:
    """Flush a file that is written."""
    _sync(path, os.O_RDWR)


def sync_folder(folder: str | Path) -> None:
    """Flush the names in a folder: after this, a new file is found there in any case."""
    if os.name != "nt":  # Windows opens no folders, and has no need to
        _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: str | Path, flags: int) -> None:
    opened = os.open(path, flags)
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(opened)


def mount_points() -> set[str]:
    """Paths at which something is mounted here, files too; none where the system does not say."""
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as table:
            points = [line.split(" ")[4] for line in table]
    except OSError:
        return set()
    return {re.sub(r"\\([0-7]{3})", lambda c: chr(int(c[1], 8)), point) for point in points}


PER_UNIT = (  # columns of tables of a grid
    *("voltage", "limit", "c", "s", "p", "q", "p_demand", "q_demand", "p_shed", "q_shed"),
    *("p_from", "q_from", "p_to", "q_to"),
)
T = TypeVar("T")
TOML, JSON, TABLE, TEXT = 2**22, 2**25, 2**26, 2**28  # most bytes of a file of a kind
ARRAYS, PER_BYTE = 2**28, 32  # most bytes of arrays, and more for each byte of their file
MEMBERS = 2**16
# a key of many parts: tomllib takes memory with the square of their number
PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
DEEP = re.compile(rf"(?<![\w-]){PART}(?:[ \t]*+\.[ \t]*+{PART}){{50}}")


@contextmanager
def reading(path: str | Path, what: str, then: str = "", own: bool = True) -> Iterator[None]:
    """Turn whatever is raised while a file is read or interpreted into one ``CorruptFile``.

    what   is expected in the file
    then   what was therefore not done
    own    whether Tacit wrote the file: then a value that is refused means that it is damaged
    """
    try:
        yield
    except CorruptFile as error:
        raise CorruptFile(error.args[0], then or error.undone) from None
    except Exception as error:
        refused = isinstance(error, TacitError) and not (own and isinstance(error, ValueError))
        if refused or isinstance(error, ImportError):
            raise
        raise CorruptFile(f"Expected {what} in {path}: {_why(error)}.", then) from None


def _why(error: Exception) -> str:
    if isinstance(error, TacitError):
        return str(error).rstrip(".")
    words = {
        UnicodeDecodeError: "it is no text in UTF-8",
        csv.Error: "its quotes do not match",
        json.JSONDecodeError: "it is no JSON, or cut off",
        zipfile.BadZipFile: "it is no archive of arrays, or cut off",
    }
    return getattr(error, "strerror", None) or words.get(type(error), type(error).__name__)


@contextmanager
def opened(path: str | Path, most: int | None = None) -> Iterator[BinaryIO]:
    """A file, not a folder, pipe or device, of at most this many bytes."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise CorruptFile(f"Expected a file at {path}, got something else of this name.")
        if most is not None and found.st_size > most:
            raise CorruptFile(f"Expected at most {most >> 20} MB in {path}, got more.")
        yield file


def read_bytes(path: str | Path, what: str = "a file", most: int = TEXT) -> bytes:
    with reading(path, what), opened(path, most) as file:
        return file.read(most)


def read_text(path: str | Path, what: str = "text", most: int = TEXT) -> str:
    with reading(path, what):
        return read_bytes(path, what, most).decode("utf-8-sig")


def read_json(path: str | Path, what: str = "JSON") -> dict[str, Any]:
    """The table of a JSON file."""
    with reading(path, what):
        found = parse_json(read_bytes(path, what, JSON))
        if not isinstance(found, dict):
            raise InvalidInput("it is no table")
        return found


def parse_json(text: str | bytes, most: int = JSON) -> Any:
    """JSON inside of something else. Python itself bounds its depth and the digits of integers."""
    return json.loads(text[:most])


def read_toml(path: str | Path, what: str = "TOML") -> dict[str, Any]:
    """The tables of a TOML file."""
    text = read_text(path, what, TOML)
    with reading(path, "TOML of ordinary size"):
        if DEEP.search(text):
            raise InvalidInput("a key of over 50 parts")
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise CorruptFile(f"Expected TOML in {path}: {error}.") from None
        json.loads(json.dumps(found, default=str), parse_int=_of_64_bits)
        return found


def _of_64_bits(digits: str) -> int:
    """As TOML's integers are; others may be no floating-point number."""
    if abs(number := int(digits)) >= 2**63:
        raise InvalidInput("an integer of over 64 bits")
    return number


def read_rows(path: str | Path, what: str = "a CSV table") -> list[list[str]]:
    """The rows of a CSV file that Tacit wrote, its header first."""
    with reading(path, what):
        text = io.StringIO(read_bytes(path, what, TABLE).decode("utf-8-sig"), newline="")
        return list(csv.reader(text))


def lines_of(file: BinaryIO) -> Iterator[str]:
    """Lines of text; one that is too long comes in parts, which are no rows."""
    with io.TextIOWrapper(file, encoding="utf-8-sig", newline="") as text:
        while line := text.readline(TABLE):
            yield line


def as_csv(table: Any) -> bytes:
    """A table of pandas as CSV; the header says which columns are in per unit."""
    units = {name: f"{name}_pu" for name in PER_UNIT}
    written: str = table.rename(columns=units).to_csv()
    return written.encode()


def read_pandas(path: str | Path, **options: Any) -> Any:
    """A CSV file that Tacit wrote, as a table of pandas; units are not in its names."""
    import pandas as pd

    found = pd.read_csv(io.BytesIO(read_bytes(path, "a CSV table", TABLE)), **options)
    return found.rename(columns=lambda name: name.removesuffix("_pu"))


def read_npz(path: str | Path, what: str = "arrays") -> dict[str, Vector]:
    """All arrays of an .npz file: of numbers, truth values or text, of the sizes that it says."""
    from numpy.lib import format as npy

    with reading(path, what), opened(path) as file, zipfile.ZipFile(file) as archive:
        members = {one.filename.removesuffix(".npy"): one for one in archive.infolist()}
        if len(members) < len(archive.infolist()) or len(members) > MEMBERS:
            raise ValueError("two arrays of the same name, or too many")
        _refuse_more(path, file, sum(one.file_size for one in members.values()))
        arrays = {}
        for name, member in members.items():
            with archive.open(member) as content:
                _check_array(member, content)
            with archive.open(member) as content:
                arrays[name] = npy.read_array(content, allow_pickle=False)
        return arrays


def _check_array(member: zipfile.ZipInfo, content: Any) -> None:
    """Refuse a member that is no plain array of just as many bytes as it has."""
    from numpy.lib import format as npy

    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("another compression")  # whose dictionaries alone may take gigabytes
    if not member.filename.endswith(".npy") or npy.read_magic(content) != (1, 0):
        raise ValueError("no array")
    shape, _, dtype = npy.read_array_header_1_0(content)
    bytes_of = math.prod(shape) * dtype.itemsize
    if dtype.kind not in "biufcUS" or not dtype.itemsize or any(n < 0 for n in shape):
        raise ValueError("no array of numbers or text")
    if content.tell() + bytes_of != member.file_size:
        raise ValueError("an array of another size")


def check_parquet(path: str | Path) -> None:
    """Refuse a table whose numbers would take far more memory than the file has bytes."""
    from pyarrow.parquet import ParquetFile

    with opened(path) as file:
        about = ParquetFile(file).metadata
        _refuse_more(path, file, 8 * about.num_rows * about.num_columns)


def _refuse_more(path: str | Path, file: BinaryIO, declared: int) -> None:
    size = os.fstat(file.fileno()).st_size
    if declared > (room := ARRAYS + PER_BYTE * size):
        raise CorruptFile(
            f"Expected at most {room >> 20} MB in the {size >> 10} kB of {path}, got "
            f"{declared >> 20} MB. Save it without compression."
        )


def typed(value: T) -> T:
    """A dataclass that was filled from a file, if all of its fields have their types."""
    for name, hint in get_type_hints(type(value)).items():
        if not _is(getattr(value, name), hint):
            raise TypeError(f"{name} has another type")
    return value


def _is(value: Any, hint: Any) -> bool:
    """Whether a value has a type; a number is one, and no NaN."""
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Any:
        return True
    if kind in (Union, UnionType):
        return any(_is(value, one) for one in inner)
    if kind in (float, int, bool):
        return type(value) in (kind, {float: int}.get(kind, kind)) and value == value
    if not isinstance(value, kind):
        return False
    if kind is tuple and inner[-1:] != (...,):
        return len(value) == len(inner) and all(map(_is, value, inner))
    if kind in (tuple, list):
        return all(_is(one, inner[0]) for one in value)
    if isinstance(value, Mapping) and inner:
        return all(_is(k, inner[0]) and _is(v, inner[1]) for k, v in value.items())
    return True
