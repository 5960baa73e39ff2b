"""Kits of a study: certificates, keys and policies, one folder for each party and one for the
coordinator.

The key that signed the certificates is not kept: nobody can add a party, or a person with other
rights, later on. A study with other parties, or with certificates that last longer, is a new init.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import metadata
from pathlib import Path

from tacit.errors import InvalidInput
from tacit.files import sync_folder
from tacit.reading import read_toml
from tacit.studies.study import Study
from tacit.transports.nvflare.kit import Kit, address, site_names
from tacit.transports.nvflare.signing import write_keys

COORDINATOR = "kit-coordinator"
EXAMPLE = """\
# Stays with this party: fill it in, and guard it. Paths are relative to this file.
agent = {agent}
data = "data.csv"            # {data}
{extra}ledger = "ledger.db"         # make it: tacit ledger budget ledger.db --total-epsilon ...
{rehearsal}
[limits]                     # of this study, whatever its coordinator asks for
total_epsilon = {epsilon}
total_delta = {delta}
# rounds = 1000              # at most; optional
# hides = "..."              # the change that must be hidden; optional, tacit federation check says
"""


def init(study_file: str | Path, server: str, out: str | Path) -> list[Path]:
    """Write the kits of a study; the coordinator's is the first."""
    study = Study.load(study_file)
    host, port = address(server)
    out = Path(out)
    sites = site_names(study.agents, host)
    names = [COORDINATOR, *(f"kit-{site}" for site in sites)]
    used = [out / name for name in names if os.path.lexists(out / name)]
    if used:
        raise InvalidInput(
            f"Expected a folder without kits as --out, got {out} with {used[0].name}: keys in use "
            "are not written over. Nothing was written."
        )
    from tacit.transports.nvflare.provisioning import write_certificates

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
        ours = Kit(ready / COORDINATOR, "coordinator", agent=None, **about)  # type: ignore[arg-type]
        _fill(ours, study)
        write_keys(ours.private_key, ours.public_key)
        parties = []
        for agent, site in zip(study.agents, sites, strict=True):
            kit = Kit(ready / f"kit-{site}", "party", agent=agent, **about)  # type: ignore[arg-type]
            _fill(kit, study)
            shutil.copyfile(ours.public_key, kit.public_key)
            parties.append(kit)
            (kit.folder / "party.example.toml").write_text(example(study, agent))
        write_certificates(ours, parties)
        for name in names:
            _keep_private(ready / name)
            (ready / name).rename(out / name)
        sync_folder(out)
    return [out / name for name in names]


def example(study: Study, agent: str) -> str:
    """A party's own file, to fill in."""
    content = read_toml(study.folder / "study.toml")
    privacy = content["privacy"]
    kind = next(key for key in ("power", "learn", "objective") if key in content)
    data, extra = {
        "power": ("a table with columns bus, p and q", 'unit = "MW"\n'),
        "learn": (
            "CSV or Parquet, one line per record",
            'target = "label"             # its column\n',
        ),
        "objective": (
            "CSV, Parquet or NPZ",
            'target = "y"                 # its column; optional\n',
        ),
    }[kind]
    rehearsal = (
        "" if study.rehearsal is None else "rehearsal = true             # no secrets here!\n"
    )
    name = (
        '"' + "".join(rf"\u{ord(c):04x}" if c in '"\\' or ord(c) < 32 else c for c in agent) + '"'
    )
    return EXAMPLE.format(
        agent=name,
        data=data,
        extra=extra,
        rehearsal=rehearsal,
        epsilon=float(privacy.get("total_epsilon", 1.0)),
        delta=float(privacy.get("total_delta", 1e-5)),
    )


def _fill(kit: Kit, study: Study) -> None:
    kit.folder.mkdir(parents=True)
    (kit.folder / "kit.json").write_text(kit.to_json())
    study.copy_to(kit.study_file.parent)


def _keep_private(folder: Path) -> None:
    """For the owner's eyes only: all of it, as a workspace will hold more than keys."""
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o700 if path.is_dir() else 0o600)
