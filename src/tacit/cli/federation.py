"""The command ``tacit federation``: one study between organisations."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from pathlib import Path
from typing import Any

from tacit.cli.console import hints, print_result, progress_bar, tell
from tacit.cli.options import Add
from tacit.cli.report import draw
from tacit.errors import InvalidInput, plain, positive
from tacit.files import write_atomically


def add_federation(add: Add) -> None:
    init = add(
        "init",
        _init,
        "Make certificates and keys: one kit for each party, and the coordinator's.",
        "tacit federation init study.toml --server study.example.org:8002 --out kits",
    )
    init.add_argument("study", help="the public study file (TOML)")
    init.add_argument("--server", required=True, metavar="HOST:PORT", help="where it will listen")
    init.add_argument("--out", default="kits", help="folder for the kits (default: kits)")
    identity = add(
        "identity",
        _identity,
        "Show a party's own key for secure sums; make it, here, if there is none.",
        "tacit federation identity north.pem",
    )
    identity.add_argument("file", help="the private key: it stays on this machine")
    join = add(
        "join",
        _join,
        "Take part in a study, until Ctrl-C. Data, ledger and limits stay here.",
        "tacit federation join kit-north --party north.toml",
    )
    join.add_argument("kit", help="this party's kit")
    join.add_argument("--party", required=True, help="this party's own file (TOML)")
    run = add(
        "run",
        _run,
        "Run a study, or go on with it, and write its result.",
        "tacit federation run kit-coordinator --out result",
    )
    run.add_argument("kit", help="the coordinator's kit")
    run.add_argument("--out", help="also copy the result to this folder (default: KIT/run only)")
    run.add_argument(
        "--wait",
        type=float,
        metavar="SECONDS",
        help="how long to wait for a missing party (default: the study's deadline)",
    )
    status = add(
        "status",
        _status,
        "Where a study is: who is there, which round, who is waited for, since when.",
        "tacit federation status kit-coordinator",
    )
    status.add_argument("kit", nargs="?", default=".", help="a kit (default: this folder)")
    check = add(
        "check",
        _check,
        "What is wrong, in plain words: certificates, keys, versions, server, data, ledger.",
        "tacit federation check kit-north --party north.toml",
    )
    check.add_argument("kit", nargs="?", default=".", help="a kit (default: this folder)")
    check.add_argument("--party", help="this party's own file: checks data, limits and ledger too")


def _init(options: argparse.Namespace) -> int:
    from tacit.transports.nvflare.provisioning import init
    from tacit.transports.nvflare.signing import fingerprint

    ours, *others = init(options.study, options.server, options.out)
    mark = fingerprint(ours / "coordinator.pem")
    parties = [str(path) for path in others]
    return tell(
        options.json,
        {"coordinator": str(ours), "parties": parties, "fingerprint": mark},
        f"{ours}: stays here, and holds the coordinator's private key.",
        *(f"{path}: to this party, over a channel that nobody else reads." for path in parties),
        f"coordinator's key: {mark}",
        f"next: tacit federation run {shlex.quote(str(ours))}",
    )


def _identity(options: argparse.Namespace) -> int:
    from tacit.protocol.masks import fingerprint, new_identity, read_identity

    path = Path(options.file)
    key = read_identity(path) if os.path.lexists(path) else new_identity(path)
    public = key.public_key().public_bytes_raw()
    return tell(
        options.json,
        {"file": str(path), "identity": public.hex(), "fingerprint": fingerprint(public)},
        f"{path}: stays here; whoever has it is this party in secure sums.",
        f"identity, for [identities] in the study: {public.hex()}",
        f"fingerprint, for the other parties to compare: {fingerprint(public)}",
    )


def _join(options: argparse.Namespace) -> int:
    from tacit.transports.nvflare.kit import PARTY_FILE, Kit
    from tacit.transports.nvflare.provisioning import write_site

    kit = Kit.load(options.kit).expect("party")
    hints.append(lambda: "nothing was sent")
    if not _sound(kit, options):
        print("tacit: not joined; nothing was sent.", file=sys.stderr)
        return 2
    os.environ[PARTY_FILE] = str(Path(options.party).resolve())
    os.environ["PYTHONSAFEPATH"] = "1"  # for the engine's own processes too
    with kit.held():
        write_site(kit)
    print(f"joining the study at {kit.server}; Ctrl-C leaves it", file=sys.stderr, flush=True)
    os.chdir(kit.engine)  # nothing that lies where this was started is code
    # in this process, so that whoever ends it ends the engine; and without what the check loaded
    command = [sys.executable, "-P", "-m", "tacit.transports.nvflare.site", str(kit.folder)]
    os.execv(sys.executable, command)


def _run(options: argparse.Namespace) -> int:
    from tacit.transports.nvflare.kit import Kit, log_to

    if options.wait is not None:
        positive("wait", options.wait, (0.1, 1e7))
    kit = Kit.load(options.kit).expect("coordinator")
    if options.out is not None:
        _refuse_used(Path(options.out))
    again = f"tacit federation run {shlex.quote(options.kit)}"
    log_to(kit.log)
    if not (kit.run / "result.json").exists():
        patience = options.wait if options.wait is not None else kit.deadline
        with kit.held():
            _conduct(kit, patience, again)
    else:
        print(f"tacit: the result is there: {kit.run}", file=sys.stderr)
    from tacit.protocol.result import Result

    result = Result.load(kit.run)
    folder = kit.run
    if options.out is not None:
        folder = Path(options.out)
        _copy_private(kit.run, folder)
    result.save_plot(folder)
    draw(folder)
    print_result(result, folder, options.json)
    return 0


def _conduct(kit: Any, patience: float, again: str) -> None:
    """The study to its end; what starts is stopped, whatever happens."""
    from tacit.errors import TacitError
    from tacit.transports.nvflare.server import EngineServer, run

    server = EngineServer(kit)

    def paused() -> str:
        server.stop()
        return f"the study is paused; to go on: {again}"

    hints.append(paused)
    bar = _Bar(kit.study)
    try:
        run(kit, patience, bar, server)
    except TacitError as error:
        error.add_note(f"To go on: {again}")
        raise
    finally:
        bar.stop()
        server.stop()
        hints.append(lambda: "")


class _Bar:
    """Rounds done and the time left; lines about parties stand above."""

    def __init__(self, label: str) -> None:
        self.label, self.bar = label, progress_bar("rounds")
        self.task = self.bar.add_task(label, total=None)

    def tell(self, words: str) -> None:
        self.bar.console.print(plain(words), soft_wrap=True, highlight=False, markup=False)

    def show(self, status: dict[str, Any]) -> None:
        if not status.get("rounds"):
            return
        self.bar.start()
        waiting = status.get("waiting") or []
        few = len(waiting) < len(status.get("parties", ()))
        words = f"{self.label}, waiting for {', '.join(waiting)}" if waiting and few else self.label
        done = {"completed": status["round"], "total": status["rounds"]}
        self.bar.update(self.task, description=words, **done)

    def stop(self) -> None:
        if self.bar.live.is_started:
            self.bar.stop()


def _status(options: argparse.Namespace) -> int:
    from tacit.transports.nvflare.kit import Kit
    from tacit.transports.nvflare.server import state_of

    state = state_of(Kit.load(options.kit))
    rows = [(name, _said(value)) for name, value in state.items() if value not in (None, [], {})]
    return tell(options.json, state, (f"study {state['study']}", ("", ""), rows[1:]))


def _said(value: Any) -> str:
    if isinstance(value, dict):
        return "\n".join(f"{name}: {said}" for name, said in value.items())
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _check(options: argparse.Namespace) -> int:
    from tacit.transports.nvflare.kit import Kit

    kit = Kit.load(options.kit)
    if options.party is not None:
        kit.expect("party")
    return 0 if _sound(kit, options) else 1


def _sound(kit: Any, options: argparse.Namespace) -> bool:
    """Tell what a check of the kit found, and of the party's own file, if it was given."""
    from tacit.transports.nvflare.checking import check

    findings = [vars(found) for found in check(kit, options.party, connect=True)]
    mark = {True: "ok", None: "note", False: "WRONG"}
    lines = (f"{mark[found['sound']]:6}{found['what']}: {found['words']}" for found in findings)
    document = {"kit": str(kit.folder), "findings": findings}
    tell(options.json, document, *(plain(line, "") for line in lines))
    sys.stdout.flush()
    return not any(found["sound"] is False for found in findings)


def _copy_private(run: Path, out: Path) -> None:
    """For the owner's eyes from the first moment; ``result.json`` last: with it, all is there."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != "status.json"]
    for path in sorted(files, key=lambda path: path.name == "result.json"):
        to = out / path.relative_to(run)
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(to, path.read_bytes())


def _refuse_used(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        raise InvalidInput(f"Expected a new folder as --out, got {out}. Nothing was started.")
