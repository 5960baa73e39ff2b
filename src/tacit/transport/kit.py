"""The folder that a party, or the coordinator, works in, and the names of what lies there."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.reading import read_json, reading, typed

FORMAT = 1
ORGANISATION = "tacit"
ADMIN = "coordinator@tacit.study"
CLASSES = {
    "controller": "tacit.transport.controller.StudyController",
    "executor": "tacit.transport.executor.PartyExecutor",
    "validator": "tacit.transport.policy.OnlyThisJob",
}
# At a party, the path of its party.toml: set by itself, inherited by the engine's processes
PARTY_FILE = "TACIT_PARTY_FILE"


@dataclass(frozen=True)
class Kit:
    """What ``kit.json`` says; all of it is public."""

    folder: Path
    role: str  # party or coordinator
    study: str  # the study's name
    digest: str  # of study.toml
    deadline: float  # seconds that a round may take
    server: str  # host:port
    agents: tuple[str, ...]  # of the study, in its order
    sites: tuple[str, ...]  # their names in the engine
    agent: str | None  # whose kit it is
    tacit: str  # the version that made it

    @classmethod
    def load(cls, folder: str | Path) -> Kit:
        folder = Path(folder).resolve()
        path = folder / "kit.json"
        if not os.path.isfile(path):
            raise InvalidInput(
                f"Expected a kit that `tacit federation init` made, got {folder} without kit.json."
            )
        what = f"a kit of format {FORMAT}"
        with reading(path, what, "Nothing was done."):
            content = read_json(path, what)
            if content.pop("format") != FORMAT:
                raise InvalidInput("another format")
            content["agents"], content["sites"] = map(tuple, (content["agents"], content["sites"]))
            return typed(cls(folder=folder, **content))

    def to_json(self) -> str:
        content = asdict(self)
        del content["folder"]
        return json.dumps({"format": FORMAT, **content}, indent=2) + "\n"

    @property
    def engine(self) -> Path:
        """The engine's workspace: of the server, or of this party's site."""
        return self.folder / ("server" if self.role == "coordinator" else "engine")

    @property
    def site(self) -> str:
        assert self.agent is not None
        return self.sites[self.agents.index(self.agent)]

    @property
    def host(self) -> str:
        """Where to reach the server from here."""
        return self.server.rpartition(":")[0] if self.role == "party" else "localhost"

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

    @contextmanager
    def held(self) -> Iterator[None]:
        """By this process alone; the operating system lets go if it dies."""
        import fcntl

        file = os.open(self.folder / "kit.json", os.O_RDONLY)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InvalidInput(
                    f"Expected a kit that no other command uses, got {self.folder}. Nothing was "
                    "started."
                ) from None
            yield
        finally:
            os.close(file)

    def expect(self, role: str) -> Kit:
        if self.role != role:
            whose = {"party": "a party's kit", "coordinator": "the coordinator's kit"}
            raise InvalidInput(f"Expected {whose[role]}, got {whose[self.role]}: {self.folder}.")
        return self
