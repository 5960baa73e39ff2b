"""The engine's server as a process of the coordinator's, and what its admin can ask it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tacit.errors import CorruptFile, EngineFailure
from tacit.files import open_private, write_atomically
from tacit.reading import read_json, reading
from tacit.transport.job import write_job
from tacit.transport.kit import ADMIN, ORGANISATION, Kit

PROCESS = "server.pid"
STARTING = 90.0  # seconds that a server may take to be there
MODULE = "nvflare.private.fed.app.server.server_train"


class EngineServer:
    """The server of one kit. It holds nothing that a run would miss."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Any = None

    # --- the process --------------------------------------------------------------------------

    def alive(self) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        return self._other() is not None

    def start(self) -> None:
        """Start it, unless this process has. One that a killed command left is ended, its job with
        it: the study's state is not in it."""
        from tacit.transport.provisioning import server_resources

        if self._process is not None and self.alive():
            return
        self.stop()
        workspace = self.kit.engine
        _refuse_taken_port(self.kit)
        for leftover in ("jobs", "snapshots"):
            shutil.rmtree(workspace / leftover, ignore_errors=True)
        resources = json.dumps(server_resources(workspace), indent=2)
        write_atomically(workspace / "local" / "resources.json", resources.encode())
        options = ["secure_train=true", f"org={ORGANISATION}", "config_folder=config"]
        command = [sys.executable, "-m", MODULE, "-m", str(workspace), "-s", "fed_server.json"]
        with open_private(workspace / "output.txt") as output:
            self._process = subprocess.Popen(
                [*command, "--set", *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the command, which then stops it
            )
        note = {"pid": self._process.pid, "began": _began(self._process.pid)}
        write_atomically(self.kit.folder / PROCESS, json.dumps(note).encode())

    def stop(self) -> None:
        """End it, and its job, at once. The caller holds the kit: no other command uses it."""
        self.close()
        if (pid := self._process.pid if self._process is not None else self._other()) is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None
        (self.kit.folder / PROCESS).unlink(missing_ok=True)

    def _other(self) -> int | None:
        """The process of a server that another command started from this kit."""
        path = self.kit.folder / PROCESS
        with contextlib.suppress(CorruptFile), reading(path, "a process"):
            note = read_json(path)
            if _began(note["pid"]) == note["began"]:
                return int(note["pid"])
        return None

    # --- its admin ----------------------------------------------------------------------------

    def parties(self) -> list[str]:
        """Who is connected."""
        names = {client.name for client in self._ask("get_system_info").client_info}
        return [self.kit.agent_of(site) for site in self.kit.sites if site in names]

    def submit(self) -> str:
        job = write_job(self.kit.folder / "job", self.kit.sites).resolve()
        return str(self._ask("submit_job", str(job)))

    def state(self, job: str) -> tuple[str, str]:
        """How the engine calls a job's state, and what sites said to it."""
        meta = self._ask("get_job_meta", job)
        detail = [line for line in meta.get("job_deploy_detail") or () if not line.endswith("OK")]
        return str(meta.get("status", "")), "; ".join(detail).replace("NVFLARE_ERROR: ", "")

    def abort(self, job: str) -> None:
        self._ask("abort_job", job)

    def close(self) -> None:
        if self._session is not None:
            with quiet(), contextlib.suppress(Exception):
                self._session.close()
            self._session = None

    def _ask(self, what: str, *about: Any) -> Any:
        """Ask the server; once more on a new session, as the old one may be of an old server."""
        for last in (False, True):
            try:
                with quiet():
                    return getattr(self._connected(), what)(*about)
            except EngineFailure:
                raise
            except Exception as error:
                self.close()
                if last or not self.alive():
                    raise EngineFailure(
                        f"Expected the engine's server to do {what}, got {type(error).__name__}: "
                        f"{error}."
                    ) from None
        raise AssertionError

    def _connected(self) -> Any:
        from nvflare.fuel.flare_api.flare_api import new_secure_session
        from nvflare.fuel.utils.config_service import ConfigService

        admin = str(self.kit.folder / "admin")
        # otherwise a session takes its settings from any file of the right name below the current
        # folder, and looks through all of it
        ConfigService.initialize({}, [admin])
        end = time.monotonic() + STARTING
        while self._session is None:
            if not self.alive():
                raise EngineFailure(
                    f"The engine's server has ended: see {self.kit.engine / 'log.txt'}."
                )
            try:
                if reachable(self.kit):
                    self._session = new_secure_session(ADMIN, admin, timeout=10.0)
                    continue
            except Exception:
                if time.monotonic() > end:
                    raise
            if time.monotonic() > end:
                raise EngineFailure(f"Expected a server at {self.kit.server}, found none.")
            time.sleep(0.2)
        return self._session


def reachable(kit: Kit) -> bool:
    """Whether something listens at the server's address."""
    try:
        with socket.create_connection((kit.host, kit.port), timeout=5.0):
            return True
    except OSError:
        return False


def handshake(kit: Kit) -> str:
    """Words on a mutual TLS handshake with the server, with the kit's own certificate."""
    folder = kit.engine / "startup" if kit.role == "party" else kit.folder / "admin" / "startup"
    context = ssl.create_default_context(cafile=folder / "rootCA.pem")
    context.load_cert_chain(folder / "client.crt", folder / "client.key")
    context.check_hostname = False  # the engine compares names by itself
    try:
        with (
            socket.create_connection((kit.host, kit.port), timeout=5.0) as plain,
            context.wrap_socket(plain, server_hostname=kit.host) as secure,
        ):
            secure.settimeout(1.0)  # a certificate that is refused is so after the handshake
            with contextlib.suppress(TimeoutError):
                if not secure.recv(1):
                    raise EngineFailure(f"{kit.server} does not take this kit's certificate")
            return f"{secure.version()}"
    except ssl.SSLError as error:
        raise EngineFailure(f"TLS with {kit.server} failed: {error.reason}") from None
    except OSError as error:
        raise EngineFailure(f"{kit.server} cannot be reached: {error.strerror or error}") from None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The engine's admin prints and logs; standard output is for results."""
    root = logging.getLogger()
    if not root.handlers:  # its threads log later too: this stays
        root.addHandler(logging.NullHandler())
    with contextlib.redirect_stdout(io.StringIO()):
        yield


def _began(pid: int) -> str:
    """When a process began, so that its number is not mistaken for another's."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return ""
        return f"{process.create_time():.2f}"
    except psutil.Error:
        return ""


def _refuse_taken_port(kit: Kit) -> None:
    if reachable(kit):
        raise EngineFailure(
            f"Expected {kit.server} to be free, but another program listens there. Nothing was "
            "started."
        )
