"""The folder that a party, or the coordinator, works in, and the names of what lies there."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from tacit.errors import InvalidInput, positive, printable, shown
from tacit.files import locked, read_json, reading, typed

FORMAT = 2
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,62}[A-Za-z0-9])?")
DIGEST = re.compile("[0-9a-f]{64}")
ORGANISATION = "tacit"
PROJECT = "study"  # as the engine calls it
ADMIN = "coordinator@tacit.study"
CLASSES = {
    "controller": "tacit.transports.nvflare.controller.StudyController",
    "executor": "tacit.transports.nvflare.site.PartyExecutor",
}
# At a party, the path of its party.toml: set by itself, inherited by the engine's processes
PARTY_FILE = "TACIT_PARTY_FILE"
TOPIC, BYTES = "tacit", "bytes"  # of a message: what it is about, and its one field
FIELDS = ("party", "run", "round", "rounds", "stage", "waiting", "seconds", "job", "code")


@dataclass(frozen=True)
class Kit:
    """What ``kit.json`` says; all of it is public.

    Guarantee of ``load``: every text is printable and bounded, the names of sites and the address
    can be nothing else in a command or a path, and no file of the kit is a link: what is written
    to the kit, or read from it, is nothing else of the party's.
    """

    folder: Path
    role: str  # party or coordinator
    study: str  # the study's name
    digest: str  # of study.toml
    deadline: float  # seconds that a round may take
    server: str  # host:port
    agents: tuple[str, ...]  # of the study, in its order
    agent: str | None  # whose kit it is
    tacit: str  # the version that made it

    @classmethod
    def load(cls, folder: str | Path) -> Kit:
        folder = Path(os.path.realpath(folder))
        path = folder / "kit.json"
        if not os.path.isfile(path):
            raise InvalidInput(
                f"Expected a kit that `tacit federation init` made, got {folder} without kit.json."
            )
        what = f"a kit of format {FORMAT}"
        with reading(path, what, "Nothing was done.", own=False):
            _refuse_links(folder)
        with reading(path, what, "Nothing was done."):
            content = read_json(path, what)
            if content.pop("format") != FORMAT:
                raise InvalidInput("another format")
            kit = typed(cls(folder=folder, **{**content, "agents": tuple(content["agents"])}))
            kit._check()
            return kit

    def _check(self) -> None:
        """Raise where it is not as ``init`` writes it."""
        for text in (self.study, self.tacit, self.digest, self.server, *self.agents):
            printable("every text", text, 300)
        positive("deadline", self.deadline)
        address(self.server)
        whose = {"party": self.agents, "coordinator": (None,)}[self.role]
        if self.agent not in whose or not DIGEST.fullmatch(self.digest):
            raise ValueError("nobody's kit, or of no study")

    def to_json(self) -> str:
        content = asdict(self)
        del content["folder"]
        return json.dumps({"format": FORMAT, **content}, indent=2) + "\n"

    @cached_property
    def sites(self) -> tuple[str, ...]:
        """The agents' names in the engine."""
        return site_names(self.agents, self.identity)

    @property
    def tls(self) -> Path:
        """Certificates and keys of TLS: all that the engine gets of a kit."""
        return self.folder / "tls"

    @property
    def engine(self) -> Path:
        """The engine's workspace: of the server, or of this party's site. ``join`` and ``run``
        write it anew."""
        return self.folder / ("server" if self.role == "coordinator" else "engine")

    @property
    def site(self) -> str:
        assert self.agent is not None
        return self.sites[self.agents.index(self.agent)]

    @property
    def identity(self) -> str:
        """The server's name in its certificate."""
        return self.server.rpartition(":")[0]

    @property
    def host(self) -> str:
        """Where to reach the server from here."""
        return self.identity if self.role == "party" else "localhost"

    @property
    def port(self) -> int:
        return int(self.server.rpartition(":")[2])

    @property
    def study_file(self) -> Path:
        return self.folder / "study" / "study.toml"

    @property
    def public_key(self) -> Path:
        """The coordinator's; pinned: requests that it did not sign are refused."""
        return self.folder / "coordinator.pem"

    @property
    def private_key(self) -> Path:
        return self.folder / "coordinator.key"

    @property
    def run(self) -> Path:
        """Where a coordinator keeps status, checkpoint and result."""
        return self.folder / "run"

    @property
    def log(self) -> Path:
        return self.folder / "log.jsonl"

    def agent_of(self, site: str) -> str:
        return self.agents[self.sites.index(site)]

    def site_of(self, agent: str) -> str:
        return self.sites[self.agents.index(agent)]

    def held(self) -> AbstractContextManager[None]:
        """By this process alone."""
        what = f"Expected a kit that no other command uses, got {self.folder}."
        return locked(self.folder / "kit.json", what)

    def in_use(self) -> bool:
        try:
            with self.held():
                return False
        except InvalidInput:
            return True

    def expect(self, role: str) -> Kit:
        if self.role != role:
            raise InvalidInput(f"Expected the kit of a {role}, got a {self.role}'s: {self.folder}.")
        return self


def address(server: str) -> tuple[str, int]:
    """Host and port of ``host:port``."""
    host, _, port = server.rpartition(":")
    if not HOST.fullmatch(host) or not port.isdecimal() or not 0 < int(port) < 65536:
        raise InvalidInput(
            f"Expected the server as host:port, such as study.example.org:8002, got "
            f"{shown(server)}."
        )
    return host, int(port)


def site_names(agents: Sequence[str], server: str) -> tuple[str, ...]:
    """Names that the engine, a certificate and a folder can have: the agents' own if they are.

    None is the server's, which is its host: with that name in its certificate a party could pose
    as the server.
    """
    plain = [re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") for name in agents]
    used = len(set(plain)) == len(plain) and all(0 < len(name) <= 40 for name in plain)
    if not used or {"server", "coordinator", "admin", server.lower()} & set(plain):
        kind = "site" if server.lower().startswith("party-") else "party"
        plain = [f"{kind}-{i + 1}" for i in range(len(agents))]
    return tuple(plain)


def _refuse_links(folder: Path) -> None:
    """Raise ``InvalidInput`` where a kit has a link, or anything but files and folders."""
    for place, folders, files in os.walk(folder):
        for path in (Path(place, name) for name in (*folders, *files)):
            with suppress(FileNotFoundError):  # of a run that writes
                about = path.lstat()
                if stat.S_ISDIR(about.st_mode):
                    continue
                if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
                    raise InvalidInput(
                        f"Expected files and folders only in the kit {folder}, got "
                        f"{str(path.relative_to(folder))!r}, a link or a device: it may stand for "
                        "any file of yours. Nothing was done."
                    )


class JsonLines(logging.Handler):
    """Appends to a private file. A log that cannot be written stops nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def emit(self, record: logging.LogRecord) -> None:
        said = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "source": record.name,
            "words": record.getMessage(),
            **{name: getattr(record, name) for name in FIELDS if hasattr(record, name)},
        }
        try:
            line = json.dumps(said, default=str).encode() + b"\n"
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
            file = os.open(self.path, flags, 0o600)
            try:
                os.write(file, line)
            finally:
                os.close(file)
        except OSError:
            pass  # such as a full disk: what matters is in ledgers and checkpoints


def log_to(path: Path) -> logging.Logger:
    """Our logger, which writes here and nowhere else: the engine's logs hold nothing of ours."""
    logger = logging.getLogger("tacit")
    for handler in [h for h in logger.handlers if isinstance(h, JsonLines)]:
        logger.removeHandler(handler)
    logger.addHandler(JsonLines(path))
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger
