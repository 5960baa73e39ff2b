"""Ctrl-C at random moments of three commands, from their first instruction to their last.

    python tests/cli/interrupts.py --moments 200

Prints how the processes ended, and every case that is not as promised: one line, status 130, and
"continue with" only where that works. ``test_interrupts.py`` tries a few with the same code.
"""

import argparse
import collections
import random
import shlex
import signal
import subprocess
import sys
import tempfile
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
    command: str
    moment: float
    status: int | None
    took: float
    errors: str
    resumed: int | None = None  # status of the command it named

    @property
    def kind(self):
        """What happened, in a word; anything but the first five is a fault."""
        said = [line for line in self.errors.splitlines() if line.startswith("tacit:")]
        if self.status == 0 and not said:
            return "done before"
        if self.status is None or self.took > PROMPT:
            return "late"
        started = "/tacit/" in self.errors or "rounds" in self.errors or said
        if self.moment < 1 and self.status in (-2, 1) and not started:
            return "before Tacit"  # Python itself was starting
        if self.status != 130 or len(said) != 1 or "Traceback" in self.errors:
            return "BAD"
        if not self.errors.endswith(said[0] + "\n"):
            return "BAD"
        if self.resumed is not None:
            return "continued" if self.resumed == 0 else "BAD: does not continue"
        return "has a result" if "the result is in" in said[0] else "stopped"


def start(arguments, **options):
    # a background job may ignore interrupts, and its children then do as well
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        return subprocess.Popen(
            [*TACIT, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
    finally:
        signal.signal(signal.SIGINT, before)


def interrupt(command, moment, folder, resume=True):
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
        return Ending(command, moment, None, 20.0, process.communicate()[1])
    took = time.monotonic() - sent
    resumed = None
    if resume and "continue with: tacit " in errors:
        words = shlex.split(errors.split("continue with: tacit ")[1])
        again = start(words, cwd=folder)
        again.communicate(timeout=120)
        resumed = again.returncode
    return Ending(command, moment, process.returncode, took, errors, resumed)


def duration(command, folder):
    began = time.monotonic()
    process = start([*COMMANDS[command].split(), "--out", str(Path(folder) / command)], cwd=folder)
    errors = process.communicate(timeout=300)[1]
    assert process.returncode == 0, errors
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--moments", type=int, default=200, help="in all; default: 200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume-every", type=int, default=1, help="of those that can continue")
    options = parser.parse_args()
    chance = random.Random(options.seed)
    endings = []
    with tempfile.TemporaryDirectory() as folder:
        length = {command: duration(command, folder) for command in COMMANDS}
        print({command: f"{seconds:.1f} s" for command, seconds in length.items()}, flush=True)
        while len(endings) < options.moments:
            command = list(COMMANDS)[len(endings) % len(COMMANDS)]
            resume = len(endings) % options.resume_every == 0
            ending = interrupt(command, chance.uniform(0, length[command]), folder, resume)
            if ending.kind == "done before":  # other work on this machine has ended: no moment
                length[command] *= 0.9
                continue
            endings.append(ending)
            if ending.kind not in ("stopped", "continued", "has a result"):
                print(ending.kind, ending, flush=True)
            if len(endings) % 20 == 0:
                print(
                    len(endings), dict(collections.Counter(e.status for e in endings)), flush=True
                )
    for command in COMMANDS:
        mine = [e for e in endings if e.command == command]
        kinds = dict(collections.Counter(e.kind for e in mine))
        print(f"{command}: {len(mine)} moments, {kinds}, slowest {max(e.took for e in mine):.2f} s")
    print("statuses:", dict(collections.Counter(e.status for e in endings)))
    return int(any(e.kind == "late" or e.kind.startswith("BAD") for e in endings))


if __name__ == "__main__":
    sys.exit(main())
