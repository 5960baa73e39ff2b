"""A party in the engine: a job process of its site that hands bytes to its participant.

Guarantee: all that this class gives to the engine is, in the one field of a reply, what
``answer_bytes`` returned or a ``Refusal`` in a fixed sentence. A request reaches the party only if
the key that is pinned in its kit has signed it. Errors, with their words, stay in the party's log.
"""

from __future__ import annotations

import logging
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal

from tacit.transports.nvflare.kit import BYTES, PARTY_FILE, TOPIC, Kit, log_to
from tacit.transports.nvflare.signing import Verifier
from tacit.transports.nvflare.site import guard_cell, guard_job

log = logging.getLogger("tacit.site")


class PartyExecutor(Executor):  # type: ignore[misc]
    """One party, in one thread of its own: a ledger is not shared between threads."""

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
            kit = Kit.load(Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT)).parent).expect(
                "party"
            )
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
        code = "signature"
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
        return refusal(name, "", 0, code).to_bytes()

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


def load(kit: Kit) -> Any:
    """The party of this kit, with the file that it named itself when it joined."""
    from tacit.errors import TacitError
    from tacit.studies.party import party
    from tacit.studies.party_file import PartyFile
    from tacit.studies.study import Study

    try:
        file = PartyFile.load(os.environ[PARTY_FILE])
        found = party(Study.load(kit.study_file), file, kit.folder / "own")
    except TacitError as error:  # in our own words
        log.error("The party cannot take part: %s", error)
        raise
    except Exception as error:
        log.error("The party cannot take part (%s).", type(error).__name__)
        raise
    log.info("The party is ready.", extra={"party": kit.agent})
    return found
