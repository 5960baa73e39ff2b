"""What is wrong, in plain words: certificates, keys, versions, the study, the server, the data.

Nothing is sent but a TLS handshake, and nothing is charged.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit.errors import EngineFailure, InvalidInput, TacitError, digits
from tacit.files import read_bytes, read_toml, reading
from tacit.privacy.accounting import exact, rounded_down, rounded_up
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Gaussian, share_of
from tacit.protocol.masks import fingerprint
from tacit.studies.party import identity_of
from tacit.studies.party_file import PartyFile
from tacit.studies.study import Study
from tacit.transports.nvflare.kit import ADMIN, Kit

ANEW = "the coordinator makes new kits (tacit federation init)"
SOON = datetime.timedelta(days=30)
PEM = 2**20  # most bytes of a certificate or a key


# what would only repeat that the study, or the party's file, is wrong
RESTS = ("party file", "data", "limits", "secure sum")
Step = Callable[[Kit, Any], tuple[bool | None, str]]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at. ``sound`` None: nothing is wrong, but read it."""

    what: str
    sound: bool | None
    words: str


def check(kit: Kit, party: str | Path | None = None, connect: bool = True) -> list[Finding]:
    """All that can be known from here, and whether it is in order."""
    steps: dict[str, Step] = {
        "certificates": certificates,
        "coordinator's key": coordinator_key,
        "private files": private_files,
        "versions": versions,
        "study": study,
    }
    file = None
    if party is not None:
        try:
            file = PartyFile.load(party)
        except TacitError as error:  # all else would say the same in other words
            return [Finding("party file", False, str(error))]
        steps |= {"party file": party_file, "ledger": ledger, "data": data, "limits": limits}
    steps["secure sum"] = secure_sum
    found: list[Finding] = []
    for what, step in steps.items():
        wrong = {one.what for one in found if one.sound is False} & {"study", "party file"}
        if not (wrong and what in RESTS):
            found.append(_finding(what, step, kit, file))
    found = [one for one in found if one.words]
    if connect and found[0].sound is not False:  # certificates: TLS would read any file, or ask
        found.append(_finding("server", server, kit, file))
    return found


def _finding(what: str, step: Step, kit: Kit, file: PartyFile | None) -> Finding:
    try:
        with reading(what, "what a kit of ours has", own=False):  # whatever is wrong with a file
            return Finding(what, *step(kit, file))
    except TacitError as error:
        return Finding(what, False, str(error))


def certificates(kit: Kit, _: Any) -> tuple[bool | None, str]:
    """Signed by the kit's authority, for the kit's key and name, and valid now. Their use is seen
    in the handshake with the server."""
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from cryptography.x509.oid import NameOID

    now, until, folder = datetime.datetime.now(datetime.UTC), None, kit.tls
    root = x509.load_pem_x509_certificate(read_bytes(folder / "rootCA.pem", most=PEM))
    for name, whose in _certified(kit).items():
        file = folder / f"{name}.crt"
        certificate = x509.load_pem_x509_certificate(read_bytes(file, most=PEM))
        key = load_pem_private_key(read_bytes(folder / f"{name}.key", most=PEM), None)
        if key.public_key() != certificate.public_key():
            return False, f"{name}.key is not the key of {file}."
        try:
            certificate.verify_directly_issued_by(root)
        except Exception:
            return False, f"{file} was not signed by rootCA.pem beside it."
        names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        if [one.value for one in names] != [whose]:
            got = certificate.subject.rfc4514_string()
            return False, f"{file} is of {got}, not of {whose}: {ANEW}."
        begins = max(certificate.not_valid_before_utc, root.not_valid_before_utc)
        ends = min(certificate.not_valid_after_utc, root.not_valid_after_utc)
        if not begins <= now <= ends:
            when = f"from {begins:%Y-%m-%d} to {ends:%Y-%m-%d}"
            return False, f"{file} is valid {when}: set the clock, or {ANEW}."
        until = min(until or ends, ends)
    assert until is not None
    words = f"valid until {until:%Y-%m-%d}"
    if until - now < SOON:
        return None, f"{words}: soon after, the study needs new kits (tacit federation init)."
    return True, f"{words}."


def _certified(kit: Kit) -> dict[str, str]:
    """The certificates of a kit, and whose names they have."""
    ours = {"server": kit.identity, "client": ADMIN}
    return ours if kit.role == "coordinator" else {"client": kit.site}


def coordinator_key(kit: Kit, file: PartyFile | None) -> tuple[bool | None, str]:
    from tacit.transports.nvflare.signing import Signer, fingerprint

    mark = fingerprint(kit.public_key)
    if kit.role == "coordinator":
        if not Signer(kit.private_key, kit.digest).matches(kit.public_key):
            return False, "coordinator.key is not the key of coordinator.pem."
        return True, f"fingerprint {mark}: parties compare it with theirs."
    pinned = file.coordinator if file is not None else None
    if pinned is not None and pinned != mark:
        return False, f"the party's file expects {pinned}, the kit holds {mark}."
    asked = "as the party's own file says" if pinned else "compare it with the coordinator's"
    return True, f"fingerprint {mark}, {asked}."


def private_files(kit: Kit, file: PartyFile | None) -> tuple[bool | None, str]:
    """Keys are for their owner only."""
    own = [file.identity] if file is not None and file.identity is not None else []
    for path in [*kit.folder.rglob("*.key"), *own]:
        if path.stat().st_mode & 0o077:
            return False, f"others may read {path}: chmod 600."
    return True, "keys are readable by their owner only."


def versions(kit: Kit, _: Any) -> tuple[bool | None, str]:
    here = metadata.version("tacit")
    engine = metadata.version("nvflare")
    words = f"tacit {here} and NVFLARE {engine} here; the kit was made by tacit {kit.tacit}"
    if not engine.startswith("2.9."):
        return False, f"{words}. Expected NVFLARE 2.9: pip install 'tacit[federation]'."
    if here != kit.tacit:
        return False, f"{words}: install the same version on all sides."
    return True, f"{words}."


def study(kit: Kit, _: Any) -> tuple[bool | None, str]:
    found = Study.load(kit.study_file)
    if found.digest != kit.digest:
        mine, theirs = found.digest[:16], kit.digest[:16]
        return False, f"study.toml has the digest {mine}, not that of the kit, {theirs}."
    if (found.name, found.agents) != (kit.study, kit.agents):
        return False, "kit.json has another name or other parties than study.toml."
    asked = ", ".join(f"{k} {digits(v)}" for k, v in _asked(kit).items()) or "see study.toml"
    words = f"{found.name}, digest {found.digest[:16]}, {len(found.agents)} parties"
    words = f"{words}, asks for {asked}."
    if found.rehearsal is None:
        return True, words
    alone = "It is charged, too: use a ledger of its own."
    return None, f"{words} A REHEARSAL: everybody can subtract its noise. {alone}"


def _asked(kit: Kit) -> dict[str, float]:
    """The budget that the study asks for, in its own words."""
    privacy = read_toml(kit.study_file)["privacy"]
    names = "total_epsilon", "total_delta", "epsilon", "delta"
    return {name: float(privacy[name]) for name in names if name in privacy}


def secure_sum(kit: Kit, file: PartyFile | None) -> tuple[bool | None, str]:
    """Whom a party's masks are with: people compare fingerprints, by telephone."""
    found = Study.load(kit.study_file)
    if found.roster is None:
        return True, ""
    if file is not None:
        identity_of(found, file)
    marks = zip(found.roster.names, map(fingerprint, found.roster.identities), strict=True)
    words = ", ".join(f"{name} {mark}" for name, mark in marks)
    most = f"up to {found.colluding} of {len(found.agents)} parties may collude"
    return True, f"{most}; compare with each of them, by telephone: {words}."


def party_file(kit: Kit, file: Any) -> tuple[bool | None, str]:
    if kit.agent is not None and file.agent != kit.agent:
        return False, f"this is the kit of {kit.agent!r}; the party's file names {file.agent!r}."
    Study.load(kit.study_file).refuse_file(file.agent, file)
    return True, f"{file.path}."


def data(kit: Kit, file: Any) -> tuple[bool | None, str]:
    return True, f"fit the study; what is hidden: {_hidden(kit, file)}."


def _hidden(kit: Kit, file: Any) -> str:
    """What the study hides of the party's data, whatever the limits say of that."""
    study, own = Study.load(kit.study_file), replace(file, limits=replace(file.limits, hides=None))
    return study.hidden(study.problem_of(own.agent, own), own)


def limits(kit: Kit, file: Any) -> tuple[bool | None, str]:
    own, asked = file.limits, _asked(kit)
    words = f"agrees to total epsilon {digits(own.total_epsilon)} at delta {own.total_delta!r}"
    if own.rounds is not None:
        words += f" in up to {own.rounds} rounds"
    study = Study.load(kit.study_file)
    if study.roster is not None and study.colluding < (own.colluding or 0):
        return False, f"{words}; the study has {study.colluding} that may collude."
    if study.roster is not None and {"total_epsilon", "total_delta"} <= asked.keys():
        most, alone = own.total_epsilon_alone, alone_of(study, asked)
        words += f"; whatever others do, the study costs epsilon {rounded_up(alone, 4)}"
        if most is not None and alone > most:
            return False, f"{words}, more than total_epsilon_alone = {digits(most)}."
    for name in ("total_epsilon", "total_delta"):
        if asked.get(name, 0.0) > getattr(own, name):
            return False, f"{words}; the study asks for {name} {digits(asked[name])}."
    with suppress(TacitError):  # what is wrong with the data stands in their own line
        if own.hides is not None and own.hides != (hidden := _hidden(kit, file)):
            return False, (
                f"hides = {own.hides!r} in the party's file, and the study hides another change. "
                f"If that is agreed: hides = {hidden!r}."
            )
    rounds = read_toml(kit.study_file).get("algorithm", {}).get("rounds", 0)
    if own.rounds is not None and rounds > own.rounds:
        return False, f"{words}; the study asks for {rounds} rounds."
    return True, f"{words}."


def alone_of(study: Study, asked: dict[str, float]) -> float:
    """What the budget of a secure sum costs a party if all others collude."""
    noise = Gaussian.analytic(asked["total_epsilon"], delta := asked["total_delta"])
    return exact(share_of(noise, len(study.agents) - study.colluding), 1, delta).epsilon


def ledger(kit: Kit, file: Any) -> tuple[bool | None, str]:
    path = file.ledger
    if not path.exists():
        raise InvalidInput(
            f"there is none at {path}: tacit ledger budget {path} --total-epsilon ... "
            "--total-delta ..."
        )
    found, asked = Ledger(path), _asked(kit).get("total_epsilon", 0.0)
    for run in found.runs():
        terms = found.terms(run["run"])
        if terms is not None and terms.agent != kit.agent:
            return False, f"{path} is the ledger of {terms.agent!r}, not of {kit.agent!r}."
    budget, left = found.budget, found.left
    words = f"budget epsilon {digits(budget.epsilon)} at delta {digits(budget.delta)}, spent "
    words += f"{rounded_up(found.spent.epsilon, 4)}"
    if left is not None:
        words += f", room for a run of epsilon {rounded_down(left, 4)}"
    # what is charged for a run of this study counts as spent, and a release is given again for free
    begun = any(run["run"].startswith(kit.study) or run["read_once"] for run in found.runs())
    if left is not None and left < asked * (1 - 1e-5) and not begun:  # left is rounded down
        return False, f"{words}; the study asks for {digits(asked)}."
    return True, f"{words}."


def server(kit: Kit, _: Any) -> tuple[bool | None, str]:
    from tacit.transports.nvflare.server import handshake

    try:
        return True, f"{kit.server} answers with {handshake(kit)} and a certificate of this study."
    except EngineFailure as error:
        if "cannot be reached" not in str(error):
            return False, f"{error}."
        if kit.role == "coordinator":
            return None, "not running: tacit federation run starts it."
        return None, f"{error}: it listens while the coordinator runs the study."
