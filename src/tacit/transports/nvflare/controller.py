"""The coordinator in the engine: a job process of the server that runs the study.

It is told nothing by the job. The study, the coordinator's key and the state of the run are in the
coordinator's kit, in which the server's workspace lies; what came of a job is written there too.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.signal import Signal

from tacit.errors import TacitError
from tacit.files import write_atomically
from tacit.transports.nvflare.kit import Kit, log_to
from tacit.transports.nvflare.line import EngineLine, Lost, Stopped
from tacit.transports.nvflare.server import OUTCOME, end_with_command

log = logging.getLogger("tacit.coordinator")


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
            outcome = conduct(kit, line)
        finally:
            line.close()
        log.info("This job has ended: %s.", outcome["state"], extra={"job": job})
        write_atomically(kit.folder / OUTCOME, json.dumps({"job": job, **outcome}).encode())


def conduct(kit: Kit, line: Any) -> dict[str, Any]:
    """Run the study; what came of it: finished, paused, lost (a site), stopped or failed."""
    from tacit.studies.coordinator import Coordinator, Paused
    from tacit.studies.study import Study

    try:
        study = Study.load(kit.study_file)
        Coordinator(study, kit.run, line, report).run()
        return {"state": "finished"}
    except Paused as error:
        return {"state": "paused", "words": str(error), "parties": error.parties}
    except Lost as error:
        return {"state": "lost", "words": str(error), "parties": list(error.parties)}
    except Stopped as error:
        return {"state": "stopped", "words": str(error)}
    except TacitError as error:
        return {"state": "failed", "words": str(error)}
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
