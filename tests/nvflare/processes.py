"""Sites, a coordinator and a broken network as processes and threads of a test."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time

from tacit.transports.nvflare.kit import Kit

TACIT = [sys.executable, "-m", "tacit", "federation"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def until(condition, seconds=120.0, process=None):
    """Wait for it, as long as ``process`` lives."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        assert process is None or process.poll() is None, "the process has ended"
        time.sleep(0.05)


class Processes:
    """All that a test starts, ended with it; what they print is in files."""

    def __init__(self, folder):
        self.folder, self.running = folder, {}
        self.folder.mkdir()
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # in the background of a shell, which
            signal.signal(signal.SIGINT, signal.default_int_handler)  # its children would inherit

    def start(self, name, *words, **environment):
        with open(self.folder / f"{name}.txt", "a") as output:
            about = {"stdout": output, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
            process = subprocess.Popen([*words], env={**os.environ, **environment}, **about)
        self.running[name] = process
        return process

    def join(self, kit, party):
        return self.start(kit.site, *TACIT, "join", str(kit.folder), "--party", str(party))

    def said(self, name):
        return (self.folder / f"{name}.txt").read_text()

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def interrupt(self, name):
        process = self.running.pop(name)
        process.send_signal(signal.SIGINT)
        return process.wait(30)

    def end(self):
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()


class Proxy:
    """A wire to a port that can be cut: open connections are gone, new ones are taken.

    What it carries waits for ``delay`` seconds, so that a run cannot end before a test has looked.
    """

    def __init__(self, port):
        self.target, self.delay, self.open, self.lock = port, 0.0, [], threading.Lock()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                near, _ = self.socket.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                near.close()
                continue
            with self.lock:
                self.open += [near, far]
            for source, drain in ((near, far), (far, near)):
                threading.Thread(target=self._carry, args=(source, drain), daemon=True).start()

    def _carry(self, source, drain):
        try:
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                drain.sendall(data)
        except OSError:
            pass
        _close(source)
        _close(drain)

    def cut(self):
        with self.lock:
            for one in self.open:
                _close(one)
            self.open.clear()

    def close(self):
        self.socket.close()
        self.cut()


def _close(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


def through(folder, port):
    """A kit, with its server at another port."""
    path, kit = folder / "kit.json", Kit.load(folder)
    path.write_text(path.read_text().replace(kit.server, f"{kit.identity}:{port}"))
    return Kit.load(folder)
