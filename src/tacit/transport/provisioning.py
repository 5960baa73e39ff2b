"""NVFLARE's provisioning: certificates, start-up files, and what a site lets a job do.

A site runs exactly one job, that of ``job.py``. Its own policy says so three times: the signed job
is compared byte for byte (``app_validator``), only our class may be built (``class_allow_list``),
and custom code is refused to everyone (``authorization``).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.lighter.constants import AdminRole, CtxKey, ParticipantType
from nvflare.lighter.entity import Project
from nvflare.lighter.impl.cert import CertBuilder
from nvflare.lighter.impl.static_file import StaticFileBuilder
from nvflare.lighter.impl.workspace import WorkspaceBuilder
from nvflare.lighter.provisioner import Provisioner
from nvflare.lighter.spec import Builder, ProvisionContext

from tacit.errors import TacitError
from tacit.transport.kit import ADMIN, CLASSES, ORGANISATION

# Start-up scripts of the engine, which would run it without our own guard (see site.py)
UNUSED = ("*.sh", "*.ipynb", "readme.txt", "*.sample", "signature.json")
APP = "nvflare.app_common"
LAUNCHERS = f"{APP}.job_launcher"
GPUS = f"{APP}.resource_managers.gpu_resource_manager.GPUResourceManager"
CONSUMER = f"{APP}.resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
STORAGE = f"{APP}.storages.filesystem_storage.FilesystemStorage"


class Policy(Builder):  # type: ignore[misc]
    """What a server and a site allow, written over the engine's defaults."""

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        for participant in project.get_all_participants():
            local = Path(ctx.get_local_dir(participant))
            if participant.type == ParticipantType.CLIENT:
                _write(local / "resources.json", client_resources())
                _write(local / "authorization.json", authorization(at_site=True))
            elif participant.type == ParticipantType.SERVER:
                # resources.json holds absolute paths, so `run` writes it where the kit then is
                _write(local / "authorization.json", authorization(at_site=False))
            if participant.type != ParticipantType.ADMIN:
                _write(local / "log_config.json", log_config())
                # one connection per process, nothing that other sites could open
                _write(local / "comm_config.json", comm_config())
                for name in ("resources.json", "authorization.json", "log_config.json"):
                    (local / f"{name}.default").unlink(missing_ok=True)


def provision(name: str, host: str, port: int, sites: Sequence[str], workspace: Path) -> Path:
    """Make certificates and start-up files in an empty folder; returns where they lie."""
    project = Project(name, f"tacit {name}")
    project.set_server(host, ORGANISATION, {"fed_learn_port": port, "admin_port": port})
    for site in sites:
        project.add_client(site, ORGANISATION, {})
    project.add_admin(ADMIN, ORGANISATION, {"role": AdminRole.LEAD})
    builders = [
        WorkspaceBuilder(),
        StaticFileBuilder(config_folder="config", scheme="tcp", require_signed_jobs=True),
        CertBuilder(),
        Policy(),
    ]
    context = Provisioner(str(workspace), builders).provision(project, logger=_Silent())
    made = context.get(CtxKey.CURRENT_PROD_DIR)
    if context.get(CtxKey.BUILD_ERROR) or not made:
        raise TacitError("Expected NVFLARE to make certificates and start-up files, but it failed.")
    _listen(Path(made), host, port)
    for pattern in UNUSED:
        for path in Path(made).rglob(pattern):
            path.unlink()
    for path in Path(made).rglob("transfer"):
        shutil.rmtree(path)
    return Path(made)


def _listen(made: Path, host: str, port: int) -> None:
    """Let the server listen on all addresses of its machine, whatever others call that one, but
    for a study on one machine; and let its admin, who is on the same one, call it localhost."""
    admin, server = made / ADMIN / "startup/fed_admin.json", made / host / "startup/fed_server.json"
    content = json.loads(admin.read_text())
    content["admin"]["host"] = "localhost"
    _write(admin, content)
    if host not in ("localhost", "127.0.0.1"):
        content = json.loads(server.read_text())
        content["servers"][0]["service"]["target"] = f"0.0.0.0:{port}"
        _write(server, content)


class _Silent:
    """Errors are raised; the rest is of no use to anyone who runs init."""

    def debug(self, *_: Any) -> None: ...

    info = warning = error = debug


def _write(path: Path, document: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(document, indent=2) + "\n")


def client_resources() -> dict[str, Any]:
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CLASSES["executor"]],
        "allow_log_streaming": False,
        "app_validator": {"path": CLASSES["validator"], "args": {"role": "party"}},
        # site_config: what a site tells of itself when it registers
        "client": {"retry_timeout": 30, "compression": "Gzip", "site_config": {}},
        "components": [
            {
                "id": "resource_manager",
                "path": GPUS,
                "args": {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300},
            },
            {
                "id": "resource_consumer",
                "path": CONSUMER,
                "args": {},
            },
            {
                "id": "process_launcher",
                "path": f"{LAUNCHERS}.client_process_launcher.ClientProcessJobLauncher",
                "args": {},
            },
        ],
    }


def server_resources(workspace: Path) -> dict[str, Any]:
    """Of the engine's server; it keeps nothing of a run that ours would need."""
    return {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": [CLASSES["controller"]],
        "app_validator": {"path": CLASSES["validator"], "args": {"role": "coordinator"}},
        "servers": [
            {
                "admin_storage": "transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": 30,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": f"{APP}.state_persistors.storage_state_persistor.StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": STORAGE,
                    "args": {"root_dir": str(workspace / "snapshots"), "uri_root": "/"},
                },
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": f"{APP}.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {"max_jobs": 4, "min_schedule_interval": 0.5, "max_schedule_interval": 1.0},
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": str(workspace / "jobs"), "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": STORAGE},
            {
                "id": "process_launcher",
                "path": f"{LAUNCHERS}.server_process_launcher.ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }


def authorization(at_site: bool) -> dict[str, Any]:
    """Rights of the one admin, who is the coordinator. Everyone else has none."""
    us, rights = f"n:{ADMIN}", ("submit_job", "manage_job", "view")
    allowed = {right: us for right in rights if not at_site or right != "view"}
    denied = dict.fromkeys(("clone_job", "download_job", "operate", "shell_commands"), "none")
    denied |= dict.fromkeys(("byoc", "server-predeployed-flwr"), "none")
    if not at_site:
        denied["operate"] = us  # to stop the server
    return {"format_version": "1.0", "permissions": {AdminRole.LEAD: {**denied, **allowed}}}


def comm_config() -> dict[str, Any]:
    """No connections between sites; those between a site's own processes are authenticated too.

    The engine keeps one thread for each answer that it got, for as long as it would be sent again
    (65 seconds by default: thousands of threads). Requests are repeated by ``line.py`` anyway.
    """
    own = {"host": "localhost", "connection_security": "mtls"}
    return {
        "allow_adhoc_conns": False,
        "backbone_conn_gen": 2,
        "internal": {"scheme": "tcp", "resources": own},
        "streaming_retry_wait": 3.0,
        "streaming_retry_timeout": 3.0,
    }


def log_config() -> dict[str, Any]:
    """One file of the engine's own words, in its workspace; nothing of ours is in it."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {
                "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
                "fmt": "%(asctime)s - %(name)s - %(levelname)s - %(message)s",
            }
        },
        "handlers": {
            "file": {
                "class": "logging.handlers.RotatingFileHandler",
                "level": "DEBUG",
                "formatter": "plain",
                "filename": "log.txt",
                "mode": "a",
                "maxBytes": 20_000_000,
                "backupCount": 3,
            }
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["file"]}},
    }
