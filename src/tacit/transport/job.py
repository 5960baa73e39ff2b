"""The one job that a site runs: two files that name our classes, and no code.

They are the same in every study. What is asked and of whom is in signed requests; where data are
is in the party's own file.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.transport.kit import CLASSES

TOPIC = "tacit"
# the field of a message that holds its bytes; there is no other
BYTES = "bytes"

CONFIGS: dict[str, dict[str, Any]] = {
    "coordinator": {
        "format_version": 2,
        "workflows": [{"id": "study", "path": CLASSES["controller"], "args": {}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    },
    "party": {
        "format_version": 2,
        "executors": [{"tasks": [TOPIC], "executor": {"path": CLASSES["executor"], "args": {}}}],
        "components": [],
        "task_data_filters": [],
        "task_result_filters": [],
    },
}
FILES = {"coordinator": "config_fed_server.json", "party": "config_fed_client.json"}


def config_bytes(role: str) -> bytes:
    return (json.dumps(CONFIGS[role], indent=2) + "\n").encode()


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
