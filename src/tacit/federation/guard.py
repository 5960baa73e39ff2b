"""What a site does not let the engine's server do, whatever the server says of itself.

A site of NVFLARE 2.9 asks its policy about a command only if the server asks it to
(``FedAdminAgent``: the header ``REQUIRE_AUTHZ``), and believes the server who the user is. So the
commands that show a site's files, its memory or its environment are taken away altogether.
"""

from __future__ import annotations

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
# Commands to its job process
JOB = {"CheckStatusCommand", "AbortCommand", "ByeCommand"}


def guard_site() -> None:
    """In the site's own process, before it connects."""
    from nvflare.private.fed.client.client_req_processors import ClientRequestProcessors

    _keep(ClientRequestProcessors.request_processors, SITE)


def guard_job() -> None:
    """In the job's process, before it answers anyone."""
    from nvflare.private.fed.client.admin_commands import AdminCommands

    _keep(AdminCommands.commands, JOB)


def _keep(known: list[object], allowed: set[str]) -> None:
    """The list itself is changed: others hold it."""
    known[:] = [one for one in known if type(one).__name__ in allowed]
    missing = allowed - {type(one).__name__ for one in known}
    if missing:  # another version of the engine: what it does is not known
        raise RuntimeError(f"Expected NVFLARE 2.9, whose requests have {sorted(missing)[0]}.")
