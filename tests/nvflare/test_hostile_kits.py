"""Kits that someone changed on the way, or that their maker meant to harm; and killed commands."""

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from nvflare.lighter.utils import (
    Identity,
    generate_cert,
    generate_keys,
    serialize_cert,
    serialize_pri_key,
)
from processes import Processes, free_port, through, until
from small_study import write_study

import tacit
import tacit.files
from tacit.cli.console import Escaped
from tacit.cli.main import main
from tacit.errors import CorruptFile, EngineFailure, InvalidInput, plain
from tacit.protocol.statement import PrivacyStatement
from tacit.studies.job import load_job
from tacit.transports.nvflare.checking import check
from tacit.transports.nvflare.kit import PARTY_FILE, Kit
from tacit.transports.nvflare.provisioning import init, write_site
from tacit.transports.nvflare.server import handshake

ROOT = Path(__file__).parents[2]
STARTS = "import pathlib; pathlib.Path({marker!r}).touch()\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    write_study(folder)
    return folder, init(folder / "study.toml", f"localhost:{free_port()}", folder / "kits")


@pytest.fixture
def kits(made, tmp_path):
    """The coordinator's, north's and south's, to be changed; and north's own file."""
    paths = [shutil.copytree(path, tmp_path / path.name) for path in made[1][:3]]
    return [*paths, made[0] / "north.toml"]


def words(folder, what, party=None):
    found = {f.what: f for f in check(Kit.load(folder), party, connect=what == "server")}[what]
    assert found.sound is False, found
    return found.words


def test_no_code_comes_with_a_kit(kits, tmp_path):
    """Whatever the engine would load of its folder."""
    _, north, _, party = kits
    marker = tmp_path / "ran"
    code = STARTS.format(marker=str(marker))
    local, startup = north / "engine" / "local", north / "engine" / "startup"
    (local / "custom" / "decomposer_module").mkdir(parents=True)
    startup.mkdir(exist_ok=True)
    for path in (local / "custom" / "hostile.py", local / "custom" / "decomposer_module" / "x.py"):
        path.write_text(f"{code}class Hostile: ...\n")
    hostile = {"components": [{"id": "x", "path": "hostile.Hostile", "args": {}}]}
    handler = {"()": "os.system", "command": f"touch {marker}"}
    logs = {"version": 1, "handlers": {"x": handler}, "root": {"handlers": ["x"]}}
    for folder in (local, startup):
        (folder / "x__resources.json").write_text(json.dumps(hostile))
    (local / "log_config.json").write_text(json.dumps(logs))
    (local / "privacy.json").write_text(json.dumps({"scopes": [hostile]}))
    processes = Processes(tmp_path / "said")
    try:
        joined = processes.join(Kit.load(north), party)
        log = north / "engine" / "log.txt"
        until(lambda: marker.exists() or (log.exists() and "north" in log.read_text()), 60, joined)
    finally:
        processes.end()
    assert not marker.exists(), processes.said("north")
    left = {str(p.relative_to(north / "engine")) for p in (north / "engine").glob("*/*")}
    assert left == {
        *("startup/fed_client.json", "startup/rootCA.pem"),
        *("startup/client.crt", "startup/client.key"),
        *(f"local/{n}.json" for n in ("resources", "authorization", "log_config", "comm_config")),
    }
    assert json.loads((local / "log_config.json").read_text())["handlers"].keys() == {"file"}


def test_code_where_a_command_is_started(kits, tmp_path, monkeypatch):
    """The command itself does not look there; nor may the engine, which it becomes."""
    _, north, _, party = kits
    marker = tmp_path / "ran"
    for name in ("nvflare", "tacit", "argparse"):
        (tmp_path / "here" / name).mkdir(parents=True)
        (tmp_path / "here" / name / "__init__.py").write_text(STARTS.format(marker=str(marker)))
    became = []
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    monkeypatch.setenv(PARTY_FILE, "")
    monkeypatch.setattr(os, "execv", lambda *command: became.append(command))
    assert main(["federation", "join", str(north), "--party", str(party)]) is None
    assert Path.cwd() == north / "engine" and os.environ["PYTHONSAFEPATH"]
    monkeypatch.chdir(tmp_path / "here")
    command = [*became[0][1][:-3], "-c", "import argparse, nvflare"]  # without -m ...
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    subprocess.run(command, check=True, timeout=60)
    assert not marker.exists()


def test_a_folder_s_name_is_no_part_of_a_command(kits, tmp_path):
    """The engine splits the command of a job's process at spaces."""
    north = kits[1].rename(tmp_path / "kit --set x=y")
    with pytest.raises(InvalidInput, match="without spaces"):
        write_site(Kit.load(north))


@pytest.mark.parametrize("kind", ["symlink", "link", "mkfifo"])
@pytest.mark.parametrize("name", ["log.jsonl", "engine/output.txt", "study/study.toml"])
def test_no_file_of_a_kit_is_followed(kits, tmp_path, name, kind):
    """It may stand for any file of the party, which would be read, or emptied."""
    _, north, _, party = kits
    mine, place = tmp_path / "mine", north / name
    place.parent.mkdir(exist_ok=True)
    mine.write_bytes(place.read_bytes() if place.exists() else b"kept")
    before = mine.read_bytes()
    place.unlink(missing_ok=True)
    getattr(os, kind)(*([place] if kind == "mkfifo" else [mine, place]))
    with pytest.raises(InvalidInput, match="a link or a device"):
        Kit.load(north)
    assert main(["federation", "join", str(north), "--party", str(party)]) == 2
    assert mine.read_bytes() == before


@pytest.mark.parametrize("name", ["study", "own"])
def test_no_folder_of_a_kit_is_followed(kits, tmp_path, name):
    mine, place = tmp_path / "mine", kits[1] / name
    if place.exists():
        place.rename(mine)
    mine.mkdir(exist_ok=True)
    place.symlink_to(mine)
    with pytest.raises(InvalidInput, match="a link or a device"):
        Kit.load(kits[1])


ESCAPE = "\r\x1b[2K\x1b[1A"


@pytest.mark.parametrize(
    "change",
    [
        {"study": f"x{ESCAPE}ok    coordinator's key: fingerprint of another"},
        {"agents": [f"north{ESCAPE}", "south", "west"], "agent": f"north{ESCAPE}"},
        {"sites": ["../../x", "south", "west"]},
        {"agent": "nobody"},
        {"role": "coordinator"},
        {"server": f"localhost:1{ESCAPE}"},
        {"server": "localhost --set x=y:1"},
        {"digest": f"{'0' * 60}{ESCAPE}"},
        {"tacit": f"0.2.0{ESCAPE}"},
        {"deadline": float("nan")},
        {"format": 1},
        {"more": 1},
    ],
)
def test_what_a_kit_says_is_validated(kits, change, capsys):
    path = kits[1] / "kit.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(CorruptFile, match="kit of format 2"):
        Kit.load(kits[1])
    assert main(["federation", "check", str(kits[1])]) == 1
    said = capsys.readouterr()
    assert plain(said.out + said.err) == said.out + said.err


def test_no_text_commands_the_terminal(kits, capsys, tmp_path):
    """Errors, findings and tables, whoever wrote the words in them."""
    ours, north, _, _ = kits
    study = north / "study" / "study.toml"
    study.write_text(f'"{plain(ESCAPE)}\\n" = 1\n{study.read_text()}'.replace("\\x1b", "\\u001b"))
    assert main(["federation", "check", str(north)]) == 1
    (ours / "run").mkdir()
    why = {"north": f"{ESCAPE}[red]all is well"}
    (ours / "run" / "status.json").write_text(json.dumps({"stage": ESCAPE, "why": why}))
    assert main(["federation", "status", str(ours)]) == 0
    assert main(["show", str(tmp_path / ESCAPE)]) != 0
    assert main(["show", str(tmp_path), f"--{ESCAPE}"]) == 2
    said = capsys.readouterr()
    assert "\\x1b[2K" in said.out and "\\x1b[2K" in said.err and "[red]" in said.out
    assert plain(said.out + said.err) == said.out + said.err and "\r" not in said.out
    print(ESCAPE, file=Escaped(sys.stderr))  # of another library, say
    assert "\x1b" not in capsys.readouterr().err


def authority():
    key, public = generate_keys()
    us = Identity("study")
    return key, generate_cert(us, us, key, public, ca=True)


def certify(kit, ca, name, **about):
    """Another authority's certificate in place of the kit's."""
    secret, public = generate_keys()
    made = generate_cert(Identity(name), Identity("study"), ca[0], public, **about)
    (kit / "tls" / "rootCA.pem").write_bytes(serialize_cert(ca[1]))
    (kit / "tls" / "client.crt").write_bytes(serialize_cert(made))
    (kit / "tls" / "client.key").write_bytes(serialize_pri_key(secret))


def test_certificates_of_another_name_or_time(kits):
    _, north, south, _ = kits
    ca = authority()
    certify(north, ca, "north")
    assert {f.what: f for f in check(Kit.load(north), connect=False)}["certificates"].sound
    for file in ("client.crt", "client.key", "rootCA.pem"):
        shutil.copyfile(south / "tls" / file, north / "tls" / file)
    said = words(north, "certificates")
    assert "CN=south" in said and "not of north" in said and "tacit federation init" in said
    past = datetime.now(UTC) - timedelta(days=400)
    certify(north, ca, "north", not_valid_before=past, not_valid_after=past + timedelta(days=9))
    assert "set the clock" in words(north, "certificates")


class Listener:
    """A TLS server with the certificate of a kit."""

    def __init__(self, kit, name):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=kit / "tls/rootCA.pem")
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(kit / f"tls/{name}.crt", kit / f"tls/{name}.key")
        self.socket, self.context = socket.create_server(("localhost", 0)), context
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                one, _ = self.socket.accept()
                with self.context.wrap_socket(one, server_side=True) as secure:
                    secure.recv(1)
            except OSError:
                if self.socket.fileno() < 0:
                    return


def test_a_party_that_poses_as_the_server(kits):
    ours, north, south, _ = kits
    true = Listener(ours, "server")
    assert handshake(through(north, true.port)).startswith("TLS")
    posing = Listener(south, "client")
    with pytest.raises(EngineFailure, match="'south'"):
        handshake(through(north, posing.port))
    assert "do not join" in words(north, "server")
    ca = authority()
    for folder in (north, south):
        certify(folder, ca, folder.name[4:])
    begins, ends = (datetime.now(UTC) - timedelta(days=days) for days in (9, 1))
    certify(south, ca, "localhost", not_valid_before=begins, not_valid_after=ends)
    with pytest.raises(EngineFailure, match=r"expired.*[Cc]locks"):
        handshake(through(north, Listener(south, "client").port))
    for listener in (true, posing):
        listener.socket.close()


def test_a_copy_of_the_result_is_private_at_every_moment(kits, tmp_path, monkeypatch):
    ours, out = Kit.load(kits[0]), tmp_path / "out"
    job = load_job(ROOT / "examples" / "hospitals.toml")
    tacit.solve(job.problem, job.settings, seed=1).save(ours.run)
    (ours.run / "tables").mkdir()
    (ours.run / "tables" / "x.csv").write_text("1\n")
    seen, replace, copystat = [], os.replace, shutil.copystat

    def replaced(source, to):
        seen.append((Path(to).name, os.stat(source).st_mode & 0o777))
        replace(source, to)

    def copied(source, to, **about):
        seen.append((Path(to).name, os.stat(to).st_mode & 0o777))
        copystat(source, to, **about)

    monkeypatch.setattr(tacit.files.os, "replace", replaced)
    monkeypatch.setattr(shutil, "copystat", copied)
    before = os.umask(0)
    try:
        assert main(["federation", "run", str(ours.folder), "--out", str(out)]) == 0
    finally:
        os.umask(before)
    assert "x.csv" in dict(seen) and {mode for _, mode in seen} == {0o600}
    for path in (out, *out.rglob("*")):
        assert path.stat().st_mode & 0o077 == 0, path


def encrypted(kit):
    path = kit / "tls" / "client.key"
    key = load_pem_private_key(path.read_bytes(), None)
    form = Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")
    path.write_bytes(key.private_bytes(*form))


def endless(kit):
    os.truncate(kit / "tls" / "client.key", 2**40)


def another_key(kit):
    form = Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    (kit / "coordinator.pem").write_bytes(
        Ed448PrivateKey.generate().public_key().public_bytes(*form)
    )


def mistyped(kit):
    path = kit / "study" / "study.toml"
    path.write_text(path.read_text().replace("total_epsilon = 2.0", "total_epsilon = []"))


@pytest.mark.parametrize("harm", [encrypted, endless, another_key, mistyped])
def test_no_file_of_a_kit_ends_a_check(kits, harm, capsys):
    """Each ended in a traceback, but for a key of another kind, which was said to be sound."""
    _, north, _, party = kits
    harm(north)
    assert main(["federation", "check", str(north), "--party", str(party)]) == 1
    out, error = capsys.readouterr()
    assert "WRONG" in out and error == ""


def test_a_statement_that_came_with_a_kit_is_on_no_sheet(kits, tmp_path, capsys):
    """Nothing was paid for it: the sheet said "Certified ... with ε = 0.001"."""
    _, north, _, party = kits
    hidden = (("adding or removing one record", ("north",)),)
    said = PrivacyStatement(0.001, 1e-9, "gaussian", 1, hidden, False, secure=True, once=True)
    (north / "own").mkdir()
    told = {"run": "clinics", "study": "d", **said.to_dict()}
    (north / "own" / "statement.json").write_text(json.dumps(told))
    assert (
        main(["sheet", str(north), "--party", str(party), "--out", str(tmp_path / "s.html")]) == 1
    )
    assert "ledger" in capsys.readouterr().err and not (tmp_path / "s.html").exists()
