"""What the engine reads: kits of ``init``, its folders at ``join`` and ``run``, its one job.

A kit is one folder for each party and one for the coordinator. Of what the engine reads it brings
certificates and keys alone. Every other file is written anew where it is used, by the version of
Tacit that is installed there, from the names and the address in ``kit.json``: no configuration,
class or code comes with a kit. The key that signed the certificates is not kept: nobody can add a
party, or a person with other rights, later on.

A site runs exactly one job: two files that name our classes, and no code, the same in every study.
It is compared byte for byte (``site.py``), only our class may be built (``class_allow_list``), and
code is refused to all (``authorization``).
"""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cryptography.x509 import ExtendedKeyUsage
from cryptography.x509.oid import ExtendedKeyUsageOID
from nvflare.lighter.constants import AdminRole
from nvflare.lighter.tool_consts import NVFLARE_SIG_FILE, NVFLARE_SUBMITTER_CRT_FILE
from nvflare.lighter.utils import (
    Identity,
    generate_cert,
    generate_keys,
    serialize_cert,
    serialize_pri_key,
)

from tacit.errors import InvalidInput
from tacit.files import read_toml, sync_folder, write_atomically
from tacit.transports.nvflare.kit import (
    ADMIN,
    CLASSES,
    ORGANISATION,
    PROJECT,
    TOPIC,
    Kit,
    address,
    site_names,
)
from tacit.transports.nvflare.signing import write_keys

if TYPE_CHECKING:
    from tacit.studies.study import Study

PURPOSES = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
COORDINATOR = "kit-coordinator"
EXAMPLE = """\
# Stays with this party: fill it in, and guard it. Paths are relative to this file.
agent = {agent}
data = "data.csv"            # {data}
{extra}
ledger = "ledger.db"         # make it: tacit ledger budget ledger.db --total-epsilon ...
{identity}{rehearsal}
[limits]                     # of each run of the study; the ledger's budget is of all
total_epsilon = {epsilon}
total_delta = {delta}
# rounds = 1000              # at most; optional
# hides = "..."              # the change that must be hidden; optional, tacit federation check says
{sums}"""
OWN_KEY = 'identity = "identity.pem"    # make it: tacit federation identity identity.pem\n'
OF_SUMS = """\
# total_epsilon_alone = 5.0  # at most, in all runs, whatever all others do; optional
# colluding = 1              # at least this many parties may collude; optional
"""


def init(study_file: str | Path, server: str, out: str | Path) -> list[Path]:
    """Write the kits of a study; the coordinator's is the first."""
    from tacit.studies.study import Study

    study = Study.load(study_file)
    host, port = address(server)
    out = Path(out)
    sites = site_names(study.agents, host)
    names = [COORDINATOR, *(f"kit-{site}" for site in sites)]
    if used := [name for name in names if os.path.lexists(out / name)]:
        raise InvalidInput(
            f"Expected a folder without kits as --out, got {out} with {used[0]}: keys in use are "
            "not written over. Nothing was written."
        )
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out, prefix=".init-") as scratch:
        ready = Path(scratch)
        about = {
            "study": study.name,
            "digest": study.digest,
            "deadline": study.deadline,
            "server": f"{host}:{port}",
            "agents": study.agents,
            "tacit": metadata.version("tacit"),
        }
        whose = zip(names, (None, *study.agents), strict=True)
        ours, *parties = (
            Kit(ready / name, "party" if agent else "coordinator", agent=agent, **about)  # type: ignore[arg-type]
            for name, agent in whose
        )
        for kit in (ours, *parties):
            kit.folder.mkdir()
            (kit.folder / "kit.json").write_text(kit.to_json())
            study.copy_to(kit.study_file.parent)
        write_keys(ours.private_key, ours.public_key)
        for kit in parties:
            shutil.copyfile(ours.public_key, kit.public_key)
            party = example(Study.load(kit.study_file), str(kit.agent))
            (kit.folder / "party.example.toml").write_text(party)
        write_certificates(ours, parties)
        for path in ready.rglob("*"):  # for the owner's eyes only
            path.chmod(0o700 if path.is_dir() else 0o600)
        for name in names:
            (ready / name).rename(out / name)
        sync_folder(out)
    return [out / name for name in names]


def example(study: Study, agent: str) -> str:
    """A party's own file, to fill in."""
    privacy = read_toml(study.folder / "study.toml")["privacy"]
    data = "CSV or Parquet, one line per record; of an [objective] also npz"
    extra = 'target = "y"                 # its column, if it has one'
    if study.kind.TAKES == "unit":
        data, extra = "a table with columns bus, p and q", 'unit = "MW"'
    real, alone = study.rehearsal is None, study.roster is None
    return EXAMPLE.format(
        agent=json.dumps(agent, ensure_ascii=False),
        data=data,
        extra=extra,
        identity="" if alone else OWN_KEY,
        sums="" if alone else OF_SUMS,
        rehearsal="" if real else "rehearsal = true             # no secrets here!\n",
        epsilon=float(privacy.get("total_epsilon", 1.0)),
        delta=float(privacy.get("total_delta", 1e-5)),
    )


# --- the engine's folders ---------------------------------------------------------------------


def write_certificates(coordinator: Kit, parties: Sequence[Kit]) -> None:
    """Into the folder ``tls`` of each kit, signed by a key that is then forgotten.

    They are for both ends of TLS, as a site's own processes speak to each other too; whose one is,
    its name says.
    """
    key, public = generate_keys()
    us = Identity(PROJECT)
    root = generate_cert(us, us, key, public, ca=True)

    def issue(kit: Kit, file: str, whose: Identity) -> None:
        secret, own = generate_keys()
        end, usage = root.not_valid_after_utc, [(ExtendedKeyUsage(PURPOSES), False)]
        made = generate_cert(whose, us, key, own, not_valid_after=end, extra_extensions=usage)
        kit.tls.mkdir(exist_ok=True)
        write_atomically(kit.tls / "rootCA.pem", serialize_cert(root))
        write_atomically(kit.tls / f"{file}.crt", serialize_cert(made))
        write_atomically(kit.tls / f"{file}.key", serialize_pri_key(secret))

    issue(coordinator, "server", Identity(coordinator.identity, ORGANISATION))
    issue(coordinator, "client", Identity(ADMIN, ORGANISATION, AdminRole.LEAD))
    for kit in parties:
        issue(kit, "client", Identity(kit.site, ORGANISATION))


def write_site(kit: Kit) -> None:
    """The engine's folder at a party, anew."""
    server = {"service": {"target": kit.server, "scheme": "tcp"}, "identity": kit.identity}
    own = {"fqsn": kit.site, "is_leaf": True, **tls("client")}
    startup = {"servers": [{"name": PROJECT, **server}], "client": own}
    _write(kit, kit.engine, "client", startup, client_resources(), authorization(at_site=True))


def write_server(kit: Kit) -> None:
    """The folders of the engine's server and of its admin, anew.

    It listens on all addresses of its machine, whatever others call that one, but for a study on
    one machine. Its admin is on the same one, and calls it localhost.
    """
    host, port = address(kit.server)
    here = host if host in ("localhost", "127.0.0.1") else "0.0.0.0"
    service = {"target": f"{here}:{port}", "scheme": "tcp"}
    own = {"name": PROJECT, "service": service, "admin_server": host, "admin_port": port}
    resources, rights = server_resources(kit.engine), authorization(at_site=False)
    _write(kit, kit.engine, "server", {"servers": [own | tls("server")]}, resources, rights)
    admin = {
        **{"project_name": PROJECT, "username": ADMIN, "uid_source": "user_input"},
        **{"scheme": "tcp", "host": "localhost", "port": port, "server_identity": kit.identity},
        **{"upload_dir": "transfer", "download_dir": "transfer", "with_file_transfer": True},
        **{"client_key": "client.key", "client_cert": "client.crt", "ca_cert": "rootCA.pem"},
        "connection_security": "mtls",
    }
    asks = {"idle_timeout": 900.0, "login_timeout": 10.0, "authenticate_msg_timeout": 2.0}
    _write(kit, kit.folder / "admin", "client", {"admin": admin}, {"admin": asks}, {})


def tls(name: str) -> dict[str, Any]:
    """The certificate of the engine's server, or of a site, in its start-up file."""
    pair = {"ssl_private_key": f"{name}.key", "ssl_cert": f"{name}.crt"}
    return {**pair, "ssl_root_cert": "rootCA.pem", "connection_security": "mtls"}


def _write(kit: Kit, folder: Path, who: str, startup: Any, resources: Any, rights: Any) -> None:
    """These documents and the certificates of ``who``; of what was there the log alone stays."""
    if shlex.split(str(folder), comments=True) != [str(folder)]:  # as the engine reads its commands
        raise InvalidInput(
            f"Expected the path of a kit without spaces, quotes and #, got {str(kit.folder)!r}. "
            "Nothing was started."
        )
    folder.mkdir(mode=0o700, exist_ok=True)
    for old in folder.iterdir():
        if old.is_dir():
            shutil.rmtree(old)
        elif not old.name.startswith("log.txt"):
            old.unlink()
    named = "admin" if "admin" in startup else who
    documents = {
        f"startup/fed_{named}.json": {"format_version": 2, "require_signed_jobs": True, **startup},
        "local/resources.json": {"format_version": 2, **resources},
        "local/authorization.json": rights,
    }
    if named != "admin":
        documents["local/log_config.json"] = log_config()
        documents["local/comm_config.json"] = comm_config()
    contents = {name: json.dumps(about, indent=2).encode() for name, about in documents.items()}
    for name in ("rootCA.pem", f"{who}.crt", f"{who}.key"):
        contents[f"startup/{name}"] = (kit.tls / name).read_bytes()
    for name, content in contents.items():
        (folder / name).parent.mkdir(mode=0o700, exist_ok=True)
        write_atomically(folder / name, content)


def component(name: str, path: str, **args: Any) -> dict[str, Any]:
    return {"id": name, "path": f"nvflare.{path}", "args": args}


def client_resources() -> dict[str, Any]:
    gpus = {"num_of_gpus": 0, "mem_per_gpu_in_GiB": 0, "expiration_period": 300}
    manager = "resource_managers.gpu_resource_manager.GPUResourceManager"
    consumer = "resource_consumers.gpu_resource_consumer.GPUResourceConsumer"
    launcher = "job_launcher.client_process_launcher.ClientProcessJobLauncher"
    return {
        **only(CLASSES["executor"]),
        "allow_log_streaming": False,
        # site_config: what a site tells of itself when it registers
        "client": {"retry_timeout": 30, "compression": "Gzip", "site_config": {}},
        "components": [
            component("resource_manager", f"app_common.{manager}", **gpus),
            component("resource_consumer", f"app_common.{consumer}"),
            component("process_launcher", f"app_common.{launcher}"),
        ],
    }


def server_resources(workspace: Path) -> dict[str, Any]:
    """Of the engine's server; it keeps nothing of a run that ours would need."""
    storage = "app_common.storages.filesystem_storage.FilesystemStorage"
    persistor = "app_common.state_persistors.storage_state_persistor.StorageStatePersistor"
    scheduler = "app_common.job_schedulers.job_scheduler.DefaultJobScheduler"
    launcher = "app_common.job_launcher.server_process_launcher.ServerProcessJobLauncher"
    jobs = {"uri_root": str(workspace / "jobs"), "job_store_id": "job_store"}
    paces = {"max_jobs": 4, "min_schedule_interval": 0.5, "max_schedule_interval": 1.0}
    about = {"max_num_clients": 1000, "heart_beat_timeout": 30, "admin_timeout": 10.0}
    snapshots = component("", storage, root_dir=str(workspace / "snapshots"), uri_root="/")
    return {
        **only(CLASSES["controller"]),
        "servers": [{"admin_storage": "transfer", **about}],
        "snapshot_persistor": component("", persistor, uri_root="/", storage=snapshots),
        "components": [
            component("job_scheduler", scheduler, **paces),
            component("job_manager", "apis.impl.job_def_manager.SimpleJobDefManager", **jobs),
            component("job_store", storage),
            component("process_launcher", launcher),
        ],
    }


def only(ours: str) -> dict[str, Any]:
    """Of all classes that a job may name, one of ours."""
    return {"class_list_enforcement_mode": "enforce", "class_allow_list": [ours]}


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
    (65 seconds by default: thousands of threads). Our requests are repeated anyway.
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
    words, line = (
        "nvflare.fuel.utils.log_utils",
        "%(asctime)s - %(name)s - %(levelname)s - %(message)s",
    )
    size = {"maxBytes": 20_000_000, "backupCount": 3}
    file = {"class": "logging.handlers.RotatingFileHandler", "level": "DEBUG", **size}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"()": f"{words}.BaseFormatter", "fmt": line}},
        "handlers": {"file": {**file, "filename": "log.txt", "formatter": "plain"}},
        "loggers": {"root": {"level": "INFO", "handlers": ["file"]}},
    }


# --- the one job ------------------------------------------------------------------------------

MOST_BYTES = 2**16  # of a signature, or of a certificate
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
