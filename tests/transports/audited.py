"""The command ``tacit`` on a rank, whose opened files are noted: ``python audited.py FOLDER ...``.

With KILL="RANK ROUND" that rank is killed in the midst of that round, paid and not yet answered.
"""

import os
import signal
import sys
from pathlib import Path

FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def main(folder, *words):
    from tacit.__main__ import main as run
    from tacit.cli.console import launched
    from tacit.protocol import agent

    rank, _ = launched()
    victim, round_ = map(int, os.environ.get("KILL", "-1 0").split())
    compute, notes = agent.agent_round, os.open(Path(folder) / f"opened-{rank}", FLAGS)

    def killed(t, *rest):
        if rank == victim and t == round_:
            os.kill(os.getpid(), signal.SIGKILL)
        return compute(t, *rest)

    def note(event, about):
        if event in ("open", "sqlite3.connect") and Path(folder).name in str(about[0]):
            os.write(notes, f"{about[0]}\n".encode())

    agent.agent_round = killed
    sys.addaudithook(note)
    sys.argv = ["tacit", *words]
    return run()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
