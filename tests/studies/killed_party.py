"""A party as a process that is killed (SIGKILL) at given steps of a round, and lives again.

    python tests/studies/killed_party.py FOLDER NAME STEP:ROUND ...

Requests come on standard input, answers go to standard output, each as its number, its length and
its bytes. The process that is started forks one life after another, and says when one has ended
(number 0): JAX is imported there but never started, as it does not survive a fork.
"""

import os
import signal
import struct
import sys
from pathlib import Path

from small_study import Study, party

from tacit.privacy.ledger import Payments
from tacit.protocol.masks import Epoch
from tacit.protocol.participant import answer_bytes
from tacit.protocol.summed import Summand

HEAD = struct.Struct("<II")
STEPS = {  # right after: the charge, the part's file, its answer in the ledger, the mask, sending
    "pay": (Payments, "pay", lambda t, *_: t),
    "part": (Summand, "_kept", lambda *_: 0),
    "store": (Payments, "store", lambda t, *_: t),
    "mask": (Epoch, "mask", lambda y, t, *_: t),
    "send": (None, "", None),
}


def main(folder, name, *kills):
    kills = dict(kill.split(":") for kill in kills)
    while True:
        life = os.fork()
        if life == 0:
            serve(Path(folder), name, {step: int(t) for step, t in kills.items()})
            os._exit(0)
        if os.waitpid(life, 0)[1] == 0:
            return
        say(0, b"")
        kills = {k: t for k, t in kills.items() if not (Path(folder) / f"killed-{k}").exists()}


def serve(folder, name, kills):
    now = [0]  # the round of the request that is answered

    def die(step, t):
        if kills.get(step) == t:
            (folder / f"killed-{step}").touch()
            os.kill(os.getpid(), signal.SIGKILL)

    def hooked(step, owner, method, round):
        real = getattr(owner, method)

        def after(self, *about):
            found = real(self, *about)
            die(step, round(*about) or now[0])
            return found

        setattr(owner, method, after)

    for step, (owner, method, round) in STEPS.items():
        if owner is not None:
            hooked(step, owner, method, round)
    respond = Summand._computed

    def computed(self, t, *about):
        now[0] = t
        return respond(self, t, *about)

    Summand._computed = computed
    one = party(Study.load(folder), folder, name)
    while (head := sys.stdin.buffer.read(HEAD.size)) and len(head) == HEAD.size:
        number, size = HEAD.unpack(head)
        say(number, answer_bytes(one, sys.stdin.buffer.read(size)))
        die("send", getattr(getattr(one.run, "rounds", None), "rounds_done", 0))


def say(number, data):
    sys.stdout.buffer.write(HEAD.pack(number, len(data)) + data)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
