"""The engine's server as a process of the coordinator's, and what its admin can ask it.

``python -m tacit.transports.nvflare.server`` is that process. It ends with the command that
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
from typing import Any

from tacit.errors import EngineFailure
from tacit.files import open_private
from tacit.transports.nvflare.job import write_job
from tacit.transports.nvflare.kit import ADMIN, ORGANISATION, Kit

STARTING = 90.0  # seconds that a server may take to be there
ENDING = 10.0  # and that one whose command was killed may take to be gone
MODULE = "nvflare.private.fed.app.server.server_train"


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
            with contextlib.suppress(TimeoutError):
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


if __name__ == "__main__":
    end_with_command()
    runpy.run_module(MODULE, run_name="__main__", alter_sys=True)
