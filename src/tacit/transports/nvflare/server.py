"""NVFLARE's server, as a process of the coordinator's command, which runs a study to its end.

    server ─▶ all parties there ─▶ job ─▶ finished, or: a site was lost ─▶ once more

A job of the engine ends when one of its processes does. The study does not: its state is in the
kit and in the parties' ledgers, so another job goes on where the last one was.

``python -m tacit.transports.nvflare.server`` is the server's process. It ends with the command that
started it, and its jobs with it, however that ends: each reads from a pipe into which nothing is
ever written.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import runpy
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol

from tacit.errors import CorruptFile, EngineFailure, Refused
from tacit.files import open_private, parse_json, read_json, read_text, read_toml, reading
from tacit.privacy.accounting import rounded_up
from tacit.transports.nvflare.kit import ADMIN, ORGANISATION, Kit

log = logging.getLogger("tacit.run")
MODULE = "nvflare.private.fed.app.server.server_train"
OUTCOME = "outcome.json"
STARTING = 90.0  # seconds that a server may take to be there
ENDING = 10.0  # and that one whose command was killed may take to be gone
LOOK = 0.5  # seconds between looks at a running job
ASK = 2.0  # seconds between questions to the server
LAST = 5  # lines of a party's log


class EngineServer:
    """The server of one kit. It holds nothing that a run would miss."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit
        self._process: subprocess.Popen[bytes] | None = None
        self._session: Any = None

    # --- the process --------------------------------------------------------------------------

    def alive(self) -> bool:
        """Whether it runs: as this command's own process, or as another's."""
        if self._process is not None:
            return self._process.poll() is None
        return self.kit.in_use() and reachable(self.kit)

    def start(self) -> None:
        """Start it, unless this process has. The study's state is not in it."""
        from tacit.transports.nvflare.provisioning import write_server

        if self._process is not None and self.alive():
            return
        self.stop()
        workspace = self.kit.engine
        _refuse_taken_port(self.kit)
        write_server(self.kit)
        options = ["secure_train=true", f"org={ORGANISATION}", "config_folder=config"]
        command = [sys.executable, "-P", "-m", __name__]
        command += ["-m", str(workspace), "-s", "fed_server.json"]
        with open_private(workspace / "output.txt") as output:
            self._process = subprocess.Popen(
                [*command, "--set", *options],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.PIPE,
                cwd=workspace,
                env={**os.environ, "PYTHONSAFEPATH": "1"},
                umask=0o077,
                start_new_session=True,  # Ctrl-C is for the command, which then stops it
            )

    def stop(self) -> None:
        """End it, and its job, at once. The caller holds the kit: no other command uses it."""
        self.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()  # its job's process sees the end of the pipe
            self._process = None

    # --- its admin ----------------------------------------------------------------------------

    def parties(self) -> list[str]:
        """Who is connected."""
        names = {client.name for client in self._ask("get_system_info").client_info}
        return [self.kit.agent_of(site) for site in self.kit.sites if site in names]

    def submit(self) -> str:
        from tacit.transports.nvflare.provisioning import write_job

        job = write_job(self.kit.folder / "job", self.kit.sites).resolve()
        return str(self._ask("submit_job", str(job)))

    def state(self, job: str) -> tuple[str, str]:
        """How the engine calls a job's state, and what sites said to it."""
        meta = self._ask("get_job_meta", job)
        detail = [line for line in meta.get("job_deploy_detail") or () if not line.endswith("OK")]
        return str(meta.get("status", "")), "; ".join(detail).replace("NVFLARE_ERROR: ", "")

    def close(self) -> None:
        if self._session is not None:
            with quiet(), suppress(Exception):
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
            late = time.monotonic() > end
            try:
                if reachable(self.kit):
                    self._session = new_secure_session(ADMIN, admin, timeout=10.0)
                    continue
            except Exception:
                if late:
                    raise
            if late:
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
    context = ssl.create_default_context(cafile=kit.tls / "rootCA.pem")
    context.load_cert_chain(kit.tls / "client.crt", kit.tls / "client.key")
    context.check_hostname = False  # the name is that in kit.json, whatever the address
    try:
        with (
            socket.create_connection((kit.host, kit.port), timeout=5.0) as plain,
            context.wrap_socket(plain, server_hostname=kit.host) as secure,
        ):
            seen: Any = secure.getpeercert()
            name = dict(part[0] for part in seen["subject"]).get("commonName")
            if name != kit.identity:
                raise EngineFailure(
                    f"Expected the certificate of {kit.identity!r} at {kit.server}, got that of "
                    f"{name!r}, which poses as the server: tell the coordinator, and do not join"
                )
            secure.settimeout(1.0)  # a certificate that is refused is so after the handshake
            with suppress(TimeoutError):
                if not secure.recv(1):
                    raise EngineFailure(f"{kit.server} does not take this kit's certificate")
            return f"{secure.version()}"
    except ssl.SSLError as error:
        why = getattr(error, "verify_message", error.reason)  # date, purpose, authority
        raise EngineFailure(
            f"TLS with {kit.server} failed: {why}. Compare clocks and kits with the coordinator's"
        ) from None
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


def _refuse_taken_port(kit: Kit) -> None:
    end = time.monotonic() + ENDING
    while reachable(kit):
        if time.monotonic() > end:
            raise EngineFailure(
                f"Expected {kit.server} to be free, but another program listens there. Nothing was "
                "started."
            )
        time.sleep(0.1)


def end_with_command() -> None:
    """End this process, whatever it does, when the command that started the server is gone."""

    def wait() -> None:
        os.read(0, 1)  # the one other end of this pipe is the command's
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


# --- a study to its end --------------------------------------------------------------------------


class NotNow(Refused):
    """The study is paused: what is missing, and that nothing is lost."""


class Watch(Protocol):
    """What a run tells: lines, and its status."""

    def tell(self, words: str) -> None: ...
    def show(self, status: dict[str, Any]) -> None: ...


def run(kit: Kit, patience: float, watch: Watch, server: EngineServer) -> None:
    """Until the result is in the kit; ``NotNow`` or another error if it cannot be now.

    patience   seconds that a missing party is waited for
    """
    since, last = time.monotonic(), -1  # of the last progress
    while not (kit.run / "result.json").exists():
        server.start()
        try:
            wait_for_all(kit, since + patience, watch, server)
            job = server.submit()
        except EngineFailure:
            if server.alive() or time.monotonic() > since + patience:
                raise
            continue
        log.info("A job was submitted.", extra={"job": job})
        outcome = attend(kit, job, watch, server)
        state = outcome["state"]
        log.info("The job has ended: %s.", state, extra={"job": job})
        if state == "paused":
            raise NotNow(outcome["words"])
        if state in ("failed", "refused"):
            raise EngineFailure(outcome["words"])
        done = status_of(kit).get("round", 0)
        if done > last:
            last, since = done, time.monotonic()
        if state != "finished":
            watch.tell(f"{outcome['words']} Going on when all are there.")
            if time.monotonic() > since + patience:
                raise NotNow(f"{outcome['words']} Nothing is lost.")


def wait_for_all(kit: Kit, end: float, watch: Watch, server: EngineServer) -> None:
    """Until every party is connected; says who is and who is not whenever that changes."""
    told: list[str] = []
    while True:
        there = server.parties()
        missing = [name for name in kit.agents if name not in there]
        if not missing:
            return
        if told != missing:
            told = missing
            here = f"There: {', '.join(there)}. " if there else ""
            watch.tell(f"{here}Waiting for {', '.join(missing)} at {kit.server}.")
        if time.monotonic() > end:
            raise NotNow(
                f"The study is paused: {', '.join(missing)} did not come. Nothing is lost."
            )
        time.sleep(LOOK)


def attend(kit: Kit, job: str, watch: Watch, server: EngineServer) -> dict[str, Any]:
    """Show how a job goes, until it has ended; what came of it."""
    asked = time.monotonic()
    while True:
        watch.show(status_of(kit))
        if (found := outcome_of(kit, job)) is not None:
            return found
        if not server.alive():
            return {"state": "lost", "words": "The engine's server was lost."}
        if time.monotonic() - asked > ASK:
            asked = time.monotonic()
            if (ended := _ended(job, server)) is not None:
                time.sleep(LOOK)
                return outcome_of(kit, job) or ended
        time.sleep(LOOK)


def _ended(job: str, server: EngineServer) -> dict[str, Any] | None:
    """What the engine says of a job that it ended by itself."""
    try:
        state, detail = server.state(job)
        if state.startswith("FINISHED") and not detail:  # it comes a moment later
            time.sleep(LOOK)
            state, detail = server.state(job)
    except EngineFailure:
        return None  # the next look finds the server gone, or there again
    if not state.startswith("FINISHED"):
        return None
    if state == "FINISHED:FAILED_TO_RUN":
        return {"state": "refused", "words": f"The job was refused: {detail or state}."}
    return {"state": "lost", "words": "A site was lost."}


def status_of(kit: Kit) -> dict[str, Any]:
    return _read(kit.run / "status.json")


def outcome_of(kit: Kit, job: str) -> dict[str, Any] | None:
    """What came of this job, if it has ended."""
    found = _read(kit.folder / OUTCOME)
    return found if found.get("job") == job else None


def _read(path: Path) -> dict[str, Any]:
    with suppress(CorruptFile):
        return read_json(path)
    return {}


# --- where it is ---------------------------------------------------------------------------------


def state_of(kit: Kit) -> dict[str, Any]:
    """For people and programs: the same keys for a coordinator, and those for a party."""
    if kit.role == "party":
        return _of_party(kit)
    status, server = status_of(kit), EngineServer(kit)
    there = None
    if server.alive():
        with suppress(EngineFailure), closing(server):
            there = server.parties()
    finished = (kit.run / "result.json").exists()
    first = "waiting for parties" if server.alive() else "not begun"
    running = server.alive() and status.get("stage") not in (None, "finished", "paused")
    return {
        "study": kit.study,
        "stage": "finished" if finished else status.get("stage", first),
        "running": running and not finished,
        "server": f"{kit.server}{'' if server.alive() else _down(finished)}",
        "there": there,
        "missing": None if there is None else [n for n in kit.agents if n not in there],
        "run": status.get("run"),
        "round": status.get("round"),
        "rounds": status.get("rounds"),
        "waiting": [] if finished else status.get("waiting", []),
        "since": status.get("since"),
        "why": status.get("why") or {},
        "result": str(kit.run) if finished else None,
        "epsilon": _totals(_read(kit.run / "result.json").get("privacy", {})),
    }


def _totals(privacy: dict[str, Any]) -> str | None:
    """Once there is a statement; of a secure sum both."""
    if privacy.get("epsilon") is None:
        return None
    total = rounded_up(privacy["epsilon"], 4)
    if "alone" not in privacy:
        return total
    return f"{total}; whatever other parties do {rounded_up(privacy['alone'], 4)}"


def _down(finished: bool) -> str:
    return ", not running, as the study is finished" if finished else ", not running"


def _of_party(kit: Kit) -> dict[str, Any]:
    log: list[str] = []
    with suppress(CorruptFile), reading(kit.log, "a log"):
        lines = [parse_json(line) for line in read_text(kit.log).splitlines()[-LAST:]]
        log = [f"{line.get('time')} {line.get('words')}" for line in lines]
    said = _read(kit.folder / "own" / "statement.json")
    more = kit.study_file.is_file() and "evaluation" in read_toml(kit.study_file)
    finished = bool(said) and (not more or (kit.folder / "own" / "evaluation.json").exists())
    down = _down(True) if finished else ", cannot be reached"
    return {
        "study": kit.study,
        "party": kit.agent,
        "stage": "finished" if finished else "before its evaluation" if said else None,
        "run": said.get("run"),
        "server": f"{kit.server}{'' if reachable(kit) else down}",
        "own part": str(kit.folder / "own") if (kit.folder / "own").is_dir() else None,
        "epsilon": _totals(said),
        "log": log,
    }


if __name__ == "__main__":
    end_with_command()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
