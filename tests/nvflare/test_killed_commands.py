"""A server ends with the command that started it, however that was ended."""

import contextlib
import signal
import subprocess
import sys

import psutil
import pytest
from processes import free_port, through, until
from small_study import write_study

from tacit.transports.nvflare import server as servers
from tacit.transports.nvflare.provisioning import init
from tacit.transports.nvflare.server import EngineServer, reachable


@pytest.fixture
def kit(tmp_path):
    write_study(tmp_path)
    return init(tmp_path / "study.toml", "localhost:1", tmp_path / "kits")[0]


START = """
import os, signal, sys
from tacit.transports.nvflare.kit import PARTY_FILE, Kit
from tacit.transports.nvflare.server import EngineServer, reachable
kit = Kit.load(sys.argv[1])
server = EngineServer(kit)
with kit.held():
    server.start()
    while sys.argv[2] == "HUP" and not reachable(kit):
        pass
    os.kill(os.getpid(), getattr(signal, "SIG" + sys.argv[2]))
    signal.pause()
"""


def processes_of(kit):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            found += [process] if str(kit.engine) in process.cmdline() else []
    return found


def test_a_server_ends_with_its_command(kit, monkeypatch):
    """Killed as soon as it has started one, then hung up: the next one starts at once."""
    monkeypatch.setattr(servers, "ENDING", 30.0)  # on a loaded machine
    ours = through(kit, free_port())
    for how in ("KILL", "HUP"):
        done = subprocess.run([sys.executable, "-c", START, str(ours.folder), how], timeout=120)
        assert done.returncode == -getattr(signal, f"SIG{how}")
        try:
            until(lambda: not (reachable(ours) or processes_of(ours)), 10.0)
        finally:
            for process in processes_of(ours):
                process.kill()
    server = EngineServer(ours)
    with ours.held():
        assert ours.in_use()
        server.start()
        try:
            until(lambda: reachable(ours))
        finally:
            server.stop()
    assert not ours.in_use() and not reachable(ours) and not server.alive()


def test_processes_below_the_server_end_too():
    """A job's process, in a session of its own, has the same pipe."""
    job = "import time; from tacit.transports.nvflare.server import end_with_command; "
    job += "end_with_command(); "
    job += "print(1, end='', flush=True); time.sleep(60)"
    started = f"([sys.executable, '-c', {job!r}], start_new_session=True)"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    start = f"import subprocess, sys; subprocess.Popen{started}"
    process = subprocess.Popen([sys.executable, "-c", start], **pipes)
    assert process.stdout.read(1) == b"1"
    process.wait(30)  # the server's own process is gone, the job's is not
    process.stdin.close()
    assert process.stdout.read() == b""  # to its end, that of the job's process
    process.stdout.close()
