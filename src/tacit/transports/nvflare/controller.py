"""The coordinator inside NVFLARE: a job of its server, which asks all parties and runs the study.

It is told nothing by the job. The study, the coordinator's key and the state of the run are in the
coordinator's kit, in which the server's workspace lies; what came of a job is written there too.

Bytes go to parties and back in NVFLARE's messages between the processes of one job. Every party is
asked by a thread of its own, so that a round takes as long as its slowest party. An answer that is
long in coming is waited for until the deadline, as long as the site's process is there.
(``multicast_aux_requests``, made for this, raises ``TypeError`` in NVFLARE 2.9.0.)
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey, ReservedTopic, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from tacit.errors import TacitError
from tacit.files import write_atomically
from tacit.protocol.coordinator import Ended, Paused
from tacit.transports.nvflare.kit import BYTES, TOPIC, Kit, log_to
from tacit.transports.nvflare.server import OUTCOME, end_with_command
from tacit.transports.nvflare.signing import Signer

log = logging.getLogger("tacit.coordinator")
PING = ReservedTopic.JOB_HEART_BEAT  # which the engine's own process answers
OVERDUE = 2.0  # seconds after which a site is looked for
STARTING = 120.0  # seconds until a site's process is up
GONE = 6.0  # seconds until a process that was there, and is not, is given up
RESEND_SECONDS = 5.0  # until a request is sent again; then twice as many
PAUSE = 0.1
FOREVER = 1e9


class Lost(Ended):
    """A site's process is gone: this job cannot go on, another one can when the site is back."""

    def __init__(self, parties: tuple[str, ...]) -> None:
        self.parties = parties
        names = ", ".join(map(repr, parties))
        super().__init__(f"Expected the sites of all parties, lost that of {names}.")


class Stopped(Ended):
    """The engine was told to end this job."""


class EngineLine:
    """A study's line over the engine of a running job."""

    def __init__(self, engine: Any, kit: Kit, stopped: Callable[[], bool]) -> None:
        self._engine, self._kit, self._stopped = engine, kit, stopped
        self._signer = Signer(kit.private_key, kit.digest)
        self._pool = ThreadPoolExecutor(len(kit.agents), thread_name_prefix="ask")
        self._pings = ThreadPoolExecutor(len(kit.agents), thread_name_prefix="ping")
        self._heard: set[str] = set()  # in this job

    def ask(
        self, requests: Mapping[str, bytes], deadline: float | None, heard: Callable[[str], None]
    ) -> dict[str, bytes]:
        end = time.monotonic() + (deadline if deadline is not None else FOREVER)
        asked = {self._pool.submit(self._one, name, requests[name], end): name for name in requests}
        answers: dict[str, bytes] = {}
        since, absent = time.monotonic(), dict[str, float]()  # when a site was first found gone
        try:
            while asked:
                for done in wait(asked, OVERDUE, FIRST_COMPLETED).done:
                    name, answer = asked.pop(done), done.result()
                    if answer is not None:
                        self._heard.add(name)
                        answers[name] = answer
                        heard(name)
                if self._stopped():
                    raise Stopped("The job was stopped. Nothing is lost.")
                if asked and time.monotonic() - since > OVERDUE:
                    self._find_lost(list(asked.values()), absent)
            if lost := tuple(n for n in requests if n not in answers and n in absent):
                raise Lost(lost)
        except Ended as end:
            end.answers = answers
            raise
        return answers

    def _one(self, name: str, request: bytes, end: float) -> bytes | None:
        """A party's answer; None if there is none in time. What is lost on the way is sent again:
        a party repeats what it has answered."""
        signed, again = self._signer.sign(name, request), RESEND_SECONDS
        while not self._stopped() and (left := end - time.monotonic()) > 0:
            answer = self._send(name, TOPIC, {BYTES: signed}, min(left, again))
            if answer is not None and isinstance(answer.get(BYTES), bytes):
                found: bytes = answer[BYTES]
                return found
            again *= 2 if answer is None or answer.get_return_code() == ReturnCode.TIMEOUT else 1
            time.sleep(PAUSE)
        return None

    def _find_lost(self, waiting: list[str], absent: dict[str, float]) -> None:
        """Raise ``Lost`` if a site's process has been gone for a while: it never comes back."""
        now = time.monotonic()
        alive = self._pings.map(lambda name: self._send(name, PING, {}, OVERDUE), waiting)
        for name, answer in zip(waiting, alive, strict=True):
            if answer is not None and answer.get_return_code() == ReturnCode.OK:
                absent.pop(name, None)
            else:
                absent.setdefault(name, now)
        patience = {name: GONE if name in self._heard else STARTING for name in absent}
        lost = tuple(n for n in waiting if n in absent and now - absent[n] > patience[n])
        if lost:
            raise Lost(lost)

    def _send(self, name: str, topic: str, content: Mapping[str, bytes], timeout: float) -> Any:
        """One message to a site's process, and what came back; None if nothing did."""
        site, message = self._kit.site_of(name), Shareable()
        message.update(content)
        with self._engine.new_context() as context:
            about = {"timeout": timeout, "fl_ctx": context, "optional": True}
            found = self._engine.send_aux_request([site], topic, message, **about)
        return (found or {}).get(site)

    def close(self) -> None:
        for pool in (self._pool, self._pings):
            pool.shutdown(wait=False, cancel_futures=True)


class StudyController(Controller):  # type: ignore[misc]
    """Runs the study of its kit once, from where it stands."""

    def start_controller(self, fl_ctx: FLContext) -> None:
        pass

    def stop_controller(self, fl_ctx: FLContext) -> None:
        pass

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """Nothing is asked as a task."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        end_with_command()
        workspace = Path(fl_ctx.get_prop(FLContextKey.WORKSPACE_ROOT))
        kit = Kit.load(workspace.parent).expect("coordinator")
        log_to(kit.log)
        job = fl_ctx.get_job_id()
        line = EngineLine(fl_ctx.get_engine(), kit, lambda: bool(abort_signal.triggered))
        try:
            outcome = run_study(kit, line)
        finally:
            line.close()
        log.info("This job has ended: %s.", outcome["state"], extra={"job": job})
        write_atomically(kit.folder / OUTCOME, json.dumps({"job": job, **outcome}).encode())


def run_study(kit: Kit, line: Any) -> dict[str, Any]:
    """Run the study; what came of it: finished, paused, lost (a site), stopped or failed."""
    from tacit.studies.conduct import conduct
    from tacit.studies.study import Study

    try:
        study = Study.load(kit.study_file)
        conduct(study, kit.run, line, report)
        return {"state": "finished"}
    except TacitError as error:
        states = {Paused: "paused", Lost: "lost", Stopped: "stopped"}
        return {"state": states.get(type(error), "failed"), "words": str(error)}
    except OSError as error:  # such as a full disk
        return {"state": "failed", "words": f"{error.strerror}: {error.filename}"}
    except Exception as error:
        log.exception("The coordinator failed.")
        return {"state": "failed", "words": f"The coordinator failed ({type(error).__name__})."}


def report(status: Any) -> None:
    """Each round, and each stage, in the log."""
    now = status.content
    mark = now["stage"], now["round"]
    if getattr(report, "mark", None) != mark:
        report.mark = mark  # type: ignore[attr-defined]
        about = {name: now[name] for name in ("stage", "run", "round", "rounds", "waiting")}
        log.info("%s", now["stage"], extra=about)
