"""A command that is interrupted at some moment, and how it ends: one line and status 130."""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
# what the installed script does
TACIT = [sys.executable, "-c", "import sys; from tacit.__main__ import main; sys.exit(main())"]
COMMANDS = {
    "solve": f"solve {ROOT / 'examples' / 'wine.toml'}",
    "power": "power solve case14 --total-epsilon 1 --total-delta 1e-5 --rounds 30 "
    "--noise-every-round",
    "learn": "learn digits --agents 5 --total-epsilon 1 --total-delta 1e-5",
}
PROMPT = 2.0  # seconds in which a process must end


@dataclass(frozen=True)
class Ending:
    moment: float
    status: int | None
    took: float
    errors: str

    @property
    def kind(self):
        """What happened, in a word."""
        said = [line for line in self.errors.splitlines() if line.startswith("tacit:")]
        if self.status == 0 and not said:
            return "done before"
        if self.status is None or self.took > PROMPT:
            return "late"
        started = "/tacit/" in self.errors or "rounds" in self.errors or said
        if self.moment < 1 and self.status in (-2, 1) and not started:
            return "before Tacit"  # Python itself was starting
        if self.status != 130 or len(said) != 1 or not self.errors.endswith(said[0] + "\n"):
            return "BAD"
        return "BAD" if "Traceback" in self.errors else "stopped"


def start(arguments, **options):
    # a background job may ignore interrupts, and its children then do as well
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    try:
        return subprocess.Popen([*TACIT, *arguments], **pipes, **options)
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(command, moment, folder):
    """Start the command, send SIGINT after ``moment`` seconds, and see how it ends."""
    out = Path(folder) / f"{command} {moment:.6f}"
    began = time.monotonic()
    process = start([*COMMANDS[command].split(), "--out", str(out)], cwd=folder)
    time.sleep(max(0.0, moment - (time.monotonic() - began)))
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    try:
        errors = process.communicate(timeout=20)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return Ending(moment, None, 20.0, process.communicate()[1])
    return Ending(moment, process.returncode, time.monotonic() - sent, errors)
