"""The one job that a site runs: two files that name our classes, and no code.

They are the same in every study. What is asked and of whom is in signed requests; where data are
is in the party's own file.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE

from tacit.transports.nvflare.kit import CLASSES

MOST_BYTES = 2**16  # of a signature, or of a certificate
TOPIC = "tacit"
# the field of a message that holds its bytes; there is no other
BYTES = "bytes"

RUNS = {"tasks": [TOPIC], "executor": {"path": CLASSES["executor"], "args": {}}}
CONFIGS: dict[str, dict[str, Any]] = {
    "coordinator": {"workflows": [{"id": "study", "path": CLASSES["controller"], "args": {}}]},
    "party": {"executors": [RUNS]},
}
FILES = {"coordinator": "config_fed_server.json", "party": "config_fed_client.json"}
OURS, SIGNED = f"config/{FILES['party']}", (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
BESIDE = ("config/", *(folder + name for folder in ("", "config/") for name in SIGNED))


def config_bytes(role: str) -> bytes:
    none = dict.fromkeys(("components", "task_data_filters", "task_result_filters"), ())
    return json.dumps({"format_version": 2, **CONFIGS[role], **none}, indent=2).encode()


def is_ours(job: Any) -> bool:
    """Whether a ZIP archive is, byte for byte, what this version of Tacit submits for a site, but
    for signatures."""
    try:
        with zipfile.ZipFile(io.BytesIO(job)) as found:
            names = [one.filename for one in found.infolist() if one.file_size <= MOST_BYTES]
            known = len(set(names)) == len(found.infolist()) and set(names) <= {OURS, *BESIDE}
            return known and found.read(OURS) == config_bytes("party")
    except Exception:  # whatever another archive makes zipfile raise
        return False


def write_job(folder: Path, sites: Sequence[str]) -> Path:
    """The job as the engine takes it; every site must be there."""
    meta = {
        "name": TOPIC,
        "resource_spec": {},
        "deploy_map": {"coordinator": ["server"], "party": list(sites)},
        "min_clients": len(sites),
        "mandatory_clients": list(sites),
    }
    for role, name in FILES.items():
        config = folder / role / "config"
        config.mkdir(parents=True, exist_ok=True)
        (config / name).write_bytes(config_bytes(role))
    (folder / "meta.json").write_text(json.dumps(meta, indent=2) + "\n")
    return folder
