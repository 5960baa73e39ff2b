"""Parties of a secure sum asked by hand, and by a server that has two of them for itself."""

import dataclasses
import hashlib

import numpy as np
from small_study import NAMES, party, write_study

from tacit.admm.settings import Settings
from tacit.privacy.mechanisms import Gaussian
from tacit.protocol import masks
from tacit.protocol.messages import (
    Agreed,
    Broadcast,
    Finish,
    Keys,
    Propose,
    Refusal,
    ReleaseOnce,
    Sum,
    answer_from,
)
from tacit.protocol.participant import answer_bytes

FOUR = (*NAMES, "east")


def asked(one, request):
    return answer_from(answer_bytes(one, request.to_bytes()))


SETTINGS = Settings(4, mechanism=Gaussian(20.0), delta=1e-5, penalty=1.0, step_size=0.1)


def proposal(of, settings=SETTINGS, **changes):
    summed = {"epoch": 1, "names": of.agents, "colluding": of.colluding, "sensitivity": 1.0}
    mine = {key: changes.pop(key) for key in [*changes] if key in summed}
    summed = changes.pop("summed", Sum(**summed | mine))
    about = {"study": of.digest, "run": "r", "size": 3, "settings": settings, "delta": 1e-5}
    return Propose(**about | changes, summed=summed)


def meet(parties, study, epoch=1, twist=lambda told: told, **changes):
    """Everybody's answers until masks are there, or the refusals of those that refuse."""
    asking = proposal(study, epoch=epoch, **changes)
    agreed = {one.name: asked(one, asking) for one in parties}
    told = {name: answer.told[name] for name, answer in agreed.items()}
    met = {p.name: asked(p, Keys("r", epoch, twist(dict(told)))) for p in parties}
    for p in parties:
        sealed = {q: a.told[p.name] for q, a in met.items() if p.name in getattr(a, "told", ())}
        done = asked(p, Keys("r", epoch, sealed, True))
        if isinstance(done, Refusal):
            met[p.name] = done
    return met


class Attack:
    """A server that has the keys of west and east, and asks north and south for anything.

    It remembers all that it was told, and says it again: cut, mixed, to others, out of order.
    """

    def __init__(self, folder, seed):
        self.study = write_study(folder, rehearsal=None, colluding=2, names=FOUR, rounds=4)
        self.folder, self.rng = folder, np.random.default_rng(seed)
        self.honest = {name: party(self.study, folder, name) for name in ("north", "south")}
        self.known = {name: masks.read_identity(folder / f"{name}.pem") for name in FOUR[2:]}
        self.public, self.sealed = [], []  # all that was ever told: who, (to whom,) what
        self.epoch, self.run, self.round = 1, "r", 1
        self.count, self.sums, self.restarts = {}, 0, 0

    def watch(self, monkeypatch):
        """What honest parties put masks on, and with which masks: what no attacker sees."""
        self.parts, uses, sent = {name: set() for name in self.honest}, {}, {}
        mask, stream = masks.Epoch.mask, masks._stream
        pairs = {}

        def masked(epoch, values, t, *about):
            me = epoch.roster.names[epoch.me]
            assert epoch.roster == self.study.roster
            content = np.asarray(values, "<i8").tobytes()
            self.parts[me].add((self.honest[me].run.name, t, hashlib.sha256(content).digest()))
            pairs[0] = me, content
            found = mask(epoch, values, t, *about)
            assert not (found == values).any()
            key = epoch._shared[1 - epoch.me]
            tag = masks._said(t, *about)
            sent[key, tag, me] = found
            self.sums += {(key, tag, "north"), (key, tag, "south")} <= sent.keys()
            return found

        def used(key, tag, size):
            me, content = pairs[0]
            assert uses.setdefault((key, tag, me), content) == content
            return stream(key, tag, size)

        monkeypatch.setattr(masks.Epoch, "mask", masked)
        monkeypatch.setattr(masks, "_stream", used)

    def any(self, *these):
        return these[self.rng.integers(len(these))]

    def rarely(self, usual, *others, chance=0.08):
        return self.any(*others) if others and self.rng.random() < chance else usual

    def step(self):
        """One request of a kind to both, or an exchange of keys, as it should be or not."""
        kind = self.any("propose", "meet", "meet", "ask", "ask", "ask", "end", "restart", "noise")
        names = self.rarely(("north", "south"), ("south", "north"), ("north",), ("south", "south"))
        if kind == "restart":
            for name in names:
                if self.rng.random() < 0.15:
                    self.restarts += 1
                    self.honest[name] = party(self.study, self.folder, name)
            return
        if kind == "propose":
            self.epoch = self.any(self.epoch, self.epoch + 1, self.epoch + 1, 1)
            self.run = self.rarely(self.run, "r", "q")
        if kind == "ask":
            done = [getattr(p.run and p.run.rounds, "rounds_done", 0) for p in self.honest.values()]
            self.round = self.any(min(done) + 1, max(done) + 1, max(done))
        if kind == "meet":
            for name in names:
                self.send(name, "meet", self.keys())
            for name in names:
                told = {who: text for who, to, text in self.sealed if to == name}
                texts = [text for *_, text in self.sealed]
                told = {who: self.rarely(text, *texts) for who, text in told.items()}
                self.send(name, "finish", Keys(self.run, self.epoch, told, True))
            return
        for name in names:
            self.send(name, kind, getattr(self, kind)())

    def send(self, name, kind, request):
        data = request if isinstance(request, bytes) else request.to_bytes()
        answer = answer_from(answer_bytes(self.honest[name], data))
        about = kind, type(answer).__name__
        self.count[about] = self.count.get(about, 0) + 1
        if kind == "propose" and isinstance(answer, Agreed):
            self.public.append((name, answer.told[name]))
        if kind == "meet" and isinstance(answer, Agreed):
            self.sealed += [(name, to, text) for to, text in answer.told.items()]

    def propose(self):
        settings = dataclasses.replace(
            SETTINGS, mechanism=self.rarely(Gaussian(20.0), Gaussian(0.01), Gaussian(1e9))
        )
        return proposal(
            self.study,
            settings,
            epoch=self.epoch,
            names=self.rarely(FOUR, FOUR[::-1], FOUR[:3], (*FOUR, "x")),
            colluding=self.rarely(2, 0, 1, 3, -1),
            sensitivity=self.rarely(1.0, 1e-3, 2.0, 1e30, 1e308),
            study=self.rarely(self.study.digest, "0" * 64),
            size=self.rarely(3, 0, 2, 2**40),
            run=self.run,
        )

    def keys(self):
        """Of each party what it last said, or what anybody ever said."""
        told, every = {}, [text for _, text in self.public]
        for who in FOUR:
            said = [text for one, text in self.public if one == who]
            if who in self.known:
                about = self.study.digest, self.run, self.epoch, self.study.roster
                said = [masks.Epoch(*about, who, self.known[who]).public]
            told[who] = self.rarely((said or ["00" * 96])[-1], *said, *every, chance=0.04)
        if self.rng.random() < 0.05:
            told[self.any(*FOUR)] = self.any(*told.values())
        return Keys(self.run, self.epoch, told)

    def ask(self):
        points = np.full(3, 0.5), np.array([0.1, -0.2, 0.3]), np.full(3, 1e300), np.full(3, np.nan)
        run, t = self.rarely(self.run, "q", ""), self.rarely(self.round, 0, -1, 1, 2, 5, 2**40)
        return Broadcast(run, t, self.rarely(np.zeros(3), *points, np.zeros(0)))

    def end(self):
        if self.rng.random() < 0.7:
            return self.any(ReleaseOnce(self.run), self.ask())
        return Finish(self.run, self.any(0, 1, self.round), np.zeros(3))

    def noise(self):
        data = bytearray(self.any(self.ask(), self.keys(), self.propose()).to_bytes())
        data[self.rng.integers(len(data))] ^= 1 << int(self.rng.integers(8))
        return bytes(data)
