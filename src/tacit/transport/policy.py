"""What a site lets a job do: nothing but our own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nvflare.apis.app_validation import AppValidator
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE

from tacit.transport.job import FILES, config_bytes

SIGNATURES = (NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE)
REFUSED = "this site runs no other job than tacit's own"


class OnlyThisJob(AppValidator):  # type: ignore[misc]
    """Refuses any job that is not, byte for byte, the one that this version of Tacit submits.

    Guarantee: a job that brings code, names another class, or gives ours other arguments is refused
    by the site itself, whoever signed it and whatever role that person has.
    """

    def __init__(self, role: str) -> None:
        self.role = role

    def validate(self, app_folder: str) -> tuple[str, dict[str, Any]]:
        root = Path(app_folder)
        expected = root / "config" / FILES[self.role]
        found = {path for path in root.rglob("*") if path.name not in SIGNATURES}
        if found != {expected, expected.parent} or expected.is_symlink():
            return REFUSED, {}
        return ("" if expected.read_bytes() == config_bytes(self.role) else REFUSED), {}
