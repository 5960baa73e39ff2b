"""A party inside NVFLARE: its process, what it refuses the server, and its participant.

``python -P -m tacit.transports.nvflare.site KIT``: ``join`` does so once it has written the
engine's folder.

A site of NVFLARE 2.9 asks its policy about a command only if the server asks it to
(``FedAdminAgent``: the header ``REQUIRE_AUTHZ``), and believes the server who the user is. So the
commands that show a site's files, its memory or its environment are taken away altogether.

A job's name is that of a folder in the site's workspace, which is removed before the job is written
there: one called "local" or "startup" would take the site's policy or its keys away. So only names
that the engine itself makes are let through.

What a job is made of is compared before any of it is on the disk. The engine would unpack it first,
into a folder from which the process of another job may be starting.

The job's process hands bytes to the party's participant (``PartyExecutor``).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from tacit.errors import TacitError, plain
from tacit.files import open_private
from tacit.transports.nvflare.kit import BYTES, ORGANISATION, PARTY_FILE, TOPIC, Kit, log_to
from tacit.transports.nvflare.signing import Verifier

log = logging.getLogger("tacit.site")
EVERY = 5.0  # seconds between lines about rounds
# Requests to a site that a study needs: see whether it is free, bring the job, start and end it
SITE = {
    "CheckResourceProcessor",
    "CancelResourceProcessor",
    "DeployProcessor",
    "StartJobProcessor",
    "AbortAppProcessor",
    "ClientStatusProcessor",
    "NotifyJobStatusProcessor",
}
REFUSED = "this site runs no other job than tacit's own"
# Commands to its job process
JOB = {"CheckStatusCommand", "AbortCommand", "ByeCommand"}

# What the engine's network agent would tell of a process, or do with it, that no study needs
NETWORK = (
    *("process_info", "config_vars", "comm_config", "list_pools", "show_pool", "msg_stats"),
    *("change_root", "speed", "echo", "stress", "bulk_test", "bulk_item", "start_route"),
)


def main(folder: str) -> int:
    kit = Kit.load(folder).expect("party")
    with kit.held():
        return _take_part(kit)


def _take_part(kit: Kit) -> int:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _leave)
    os.umask(0o077)
    ours = os.dup(1)
    with open_private(kit.engine / "output.txt") as file:  # what the engine prints
        for output in (1, 2):
            os.dup2(file.fileno(), output)
    threading.Thread(target=_tell, args=(kit.log, ours), daemon=True).start()
    from nvflare.fuel.f3.mpm import MainProcessMonitor
    from nvflare.private.fed.app.client import client_train

    guard_site()
    options = argparse.Namespace(
        workspace=str(kit.engine),
        fed_client="fed_client.json",
        set=["secure_train=true", f"uid={kit.site}", f"org={ORGANISATION}", "config_folder=config"],
        local_rank=0,
    )
    code = MainProcessMonitor.run(client_train.main, run_dir=str(kit.engine), args=options)
    os.write(ours, b"tacit: the engine has ended; see engine/log.txt in the kit\n")
    return int(code or 1)


def _leave(number: int, frame: Any) -> None:
    """At once: what was paid for is in the ledger. The job's process sees it, and ends too."""
    os._exit(0 if number == signal.SIGTERM else 128 + number)


def _tell(log: Path, to: int) -> None:
    """The party's own log, as it grows, in words; of rounds only some."""
    place, said = log.stat().st_size if log.exists() else 0, 0.0
    while True:
        time.sleep(0.5)
        if not log.exists() or log.stat().st_size <= place:
            continue
        with open(log, "rb") as file:
            file.seek(place)
            lines = file.read().splitlines(keepends=True)
        for line in lines:
            if not line.endswith(b"\n"):
                break
            place += len(line)
            words = plain(str(json.loads(line).get("words")), "")
            if "answered round" not in words or time.monotonic() - said > EVERY:
                said = time.monotonic() if "answered round" in words else said
                os.write(to, f"{words}\n".encode())


def guard_site() -> None:
    """In the site's own process, before it connects."""
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    _keep(ClientRequestProcessors.request_processors, SITE)
    for one in ClientRequestProcessors.request_processors:
        one.process = _of_a_job(one.process, type(one).__name__ == "DeployProcessor")


def _of_a_job(process: Callable[[Any, Any], Any], brings: bool) -> Callable[[Any, Any], Any]:
    """The same, refused where the job that the request is about has another name than a UUID, or
    is, where it brings one, another than ours.

    Guarantee: no file of a job that brings code, names another class, or gives ours other arguments
    is written at this site, whoever signed it and whatever role that person has.
    """
    from nvflare.private.admin_defs import error_reply
    from nvflare.private.defs import RequestHeader

    from tacit.transports.nvflare.provisioning import is_ours

    def checked(request: Any, context: Any) -> Any:
        name = request.get_header(RequestHeader.JOB_ID)
        try:
            known = not name or str(uuid.UUID(name)) == name
        except (ValueError, AttributeError, TypeError):
            known = False
        if not known or (brings and not is_ours(request.body)):
            return error_reply(REFUSED if known else "no name of a job")
        return process(request, context)

    return checked


def guard_job() -> None:
    """In the job's process, before it answers anyone."""
    from nvflare.private.fed.client.admin_commands import AdminCommands

    _keep(AdminCommands.commands, JOB)


def guard_cell(cell: Any) -> None:
    """In the job's process, before data are read: the engine's network agent, which any process of
    the engine may ask, tells nothing of the memory and the configuration here."""
    from nvflare.fuel.f3.cellnet.defs import ReturnCode
    from nvflare.fuel.f3.cellnet.utils import make_reply

    for topic in NETWORK:
        cell.register_request_cb(
            channel="_net_manager",
            topic=topic,
            cb=lambda request: make_reply(ReturnCode.INVALID_REQUEST, "not at this site"),
        )


def _keep(known: list[object], allowed: set[str]) -> None:
    """The list itself is changed: others hold it."""
    known[:] = [one for one in known if type(one).__name__ in allowed]
    missing = allowed - {type(one).__name__ for one in known}
    if missing:  # another version of the engine: what it does is not known
        raise RuntimeError(f"Expected NVFLARE 2.9, whose requests have {sorted(missing)[0]}.")


class PartyExecutor(Executor):  # type: ignore[misc]
    """One party, in one thread of its own: a ledger is not shared between threads.

    Guarantee: all that this class gives to the engine is, in the one field of a reply, what
    ``answer_bytes`` returned or a ``Refusal`` in a fixed sentence. A request reaches the party only
    if the key that is pinned in its kit has signed it. Errors, with their words, stay in the
    party's log, unless its own file says ``tell_why = true``.
    """

    def __init__(self) -> None:
        super().__init__()
        guard_job()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="party")
        self._party: Future[Any] | None = None
        self._last: tuple[bytes, Future[bytes]] | None = None  # the last request and its answer
        self._one_by_one = threading.Lock()
        self._ended = False
        self._kit: Kit | None = None
        self._verifier: Verifier | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.START_RUN:
            workspace = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
            kit = Kit.load(workspace.parent).expect("party")
            log_to(kit.log)
            guard_cell(fl_ctx.get_engine().get_cell())
            assert kit.agent is not None
            self._kit, self._verifier = kit, Verifier(kit.public_key, kit.digest, kit.agent)
            self._party = self._thread.submit(load, kit)
            fl_ctx.get_engine().register_aux_message_handler(TOPIC, self.answer)
        elif event_type == EventType.END_RUN:
            self._ended = True
            self._thread.shutdown(wait=False, cancel_futures=True)

    def answer(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """What the party says to a request, and nothing else. A job that ends says nothing: the
        coordinator asks the next one."""
        answer = self._answered(request.get(BYTES))
        if answer is None:
            return make_reply(ReturnCode.TASK_ABORTED)
        reply = make_reply(ReturnCode.OK)
        reply[BYTES] = answer
        return reply

    def _answered(self, signed: Any) -> bytes | None:
        from tacit.protocol.participant import refusal

        assert self._kit is not None and self._verifier is not None and self._party is not None
        name = self._kit.agent or ""
        code, why = "signature", ""
        try:
            request = self._verifier.request(signed) if isinstance(signed, bytes) else None
            if request is not None:
                code = "absent"
                return self._once(self._party.result(), request).result()
            log.warning("A request without the coordinator's signature was refused.")
        except Exception as error:  # its words may be about the data
            if self._ended:
                return None
            log.error("The party cannot answer (%s).", type(error).__name__)
            with suppress(TacitError):
                if isinstance(error, TacitError) and own_file().tell_why:
                    why = str(error)
        return refusal(name, "", 0, code, why).to_bytes()

    def _once(self, party: Any, request: bytes) -> Future[bytes]:
        """The answer to a request, or to the same one that is being answered."""
        from tacit.protocol.participant import answer_bytes

        with self._one_by_one:
            if self._last is None or self._last[0] != request:
                self._last = request, self._thread.submit(answer_bytes, party, request)
            return self._last[1]

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Nothing is asked as a task."""
        return make_reply(ReturnCode.TASK_UNKNOWN)


def own_file() -> Any:
    """The party's own file, which it named when it joined."""
    from tacit.studies.party_file import PartyFile

    return PartyFile.load(os.environ[PARTY_FILE])


def load(kit: Kit) -> Any:
    """The party of this kit, with the file that it named itself when it joined."""
    from tacit.studies.party import party
    from tacit.studies.study import Study

    try:
        file = own_file()
        found = party(Study.load(kit.study_file), file, kit.folder / "own")
    except TacitError as error:  # in our own words
        log.error("The party cannot take part: %s", error)
        raise
    except Exception as error:
        log.error("The party cannot take part (%s).", type(error).__name__)
        raise
    log.info("The party is ready.", extra={"party": kit.agent})
    return found


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except TacitError as error:
        sys.exit(f"tacit: {plain(str(error))}")
