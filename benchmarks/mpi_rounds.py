"""Rounds on the ranks of a cluster, for ``bench_mpi.py``: ``mpiexec -n R python mpi_rounds.py ...``

    overhead P n T R    R times T rounds of trivial work: the engine, beside loops without one
    agents P n T        rounds of P agents with n coordinates each, and the bytes that travel
    grid ZONES T        rounds of case10000_goc in so many zones, and what it takes to make them

One JSON document on rank 0.
"""

import json
import sys
import time

import numpy as np

import tacit
from tacit.admm.algorithm import Holders, agent_round, dual_step, local_side, server_step
from tacit.admm.problem import start_point
from tacit.privacy.seeded_noise import agent_key, jax_key, root_key
from tacit.protocol.agent import compiled_round
from tacit.protocol.facts import members_of
from tacit.protocol.messages import Broadcast, Own, Propose
from tacit.protocol.server import Member, Server
from tacit.pytree import pytree, static
from tacit.transports import mpi

ROOT = root_key(1)


@pytree
class Nothing(tacit.Objective):
    """f(z) = 0: nothing to compute but the algorithm itself."""

    size: int = static()
    everywhere = True
    neighbours = "nothing at all"
    smoothness = 1.0
    strong_convexity = 0.0

    @property
    def dimension(self):
        return self.size

    def value(self, z):
        return 0.0 * z[0]

    def statistic(self, z):
        return 0.0 * z

    def sensitivity(self, norm, feasible_set):
        return 1.0

    def gradient_bound(self, feasible_set):
        return 1.0


def agents(many, n):
    box = tacit.Box(-1.0, 1.0, size=n)
    return [tacit.LocalProblem(Nothing(n), box) for _ in range(many)]


def of_rounds(many):
    return tacit.Settings(many, penalty=1.0, step_size=0.5)


def bare(comm, P, n, T):
    """Transport alone: n numbers to all, one addition each, P·n numbers back, their mean."""
    mine, z = mpi.share(P, comm), np.zeros(P * n)
    counts = [n * len(mpi.share_of(P, rank, comm.size)) for rank in range(comm.size)]
    own, w = np.zeros((len(mine), n)), np.zeros(n)
    times = []
    for _ in range(T):
        begun = time.perf_counter()
        comm.Bcast(w)
        own[:] = w + 1
        comm.Gatherv(own, [z, counts] if comm.rank == 0 else None)
        w = z.reshape(P, n).mean(axis=0)
        times.append(time.perf_counter() - begun)
    return times


def by_hand(comm, P, n, T):
    """The same with Algorithm 1: what one would write for these agents with mpi4py alone."""
    mine = mpi.share(P, comm)
    counts = [n * len(mpi.share_of(P, rank, comm.size)) for rank in range(comm.size)]
    settings, dtype = of_rounds(T), np.dtype(np.float64)
    parts = agents(len(mine), n)
    keys = [agent_key(jax_key(ROOT), "run", i) for i in mine]
    sides = [local_side(p, settings, k, dtype) for p, k in zip(parts, keys, strict=True)]
    points = [start_point(p) for p in parts]
    duals, own = [np.zeros(n) for _ in parts], np.zeros((len(parts), n))
    z, λ, w = np.zeros(P * n), np.zeros(P * n), np.zeros(n)
    holders, index = Holders.of([np.arange(n)] * P, n, dtype), np.tile(np.arange(n), P)
    rule, times = settings.rule(True), []
    ρ, η = np.float64(1.0), np.float64(0.5)
    for t in range(1, T + 1):
        begun = time.perf_counter()
        if comm.rank == 0:
            w = server_step(z, λ, ρ, holders)
        comm.Bcast(w)
        for i, side in enumerate(sides):
            held = points[i], duals[i], parts[i].coupling
            points[i], own[i], duals[i], _ = agent_round(
                t, w, ρ, η, *held, side, rule, compiled_round
            )
        comm.Gatherv(own, [z, counts] if comm.rank == 0 else None)
        if comm.rank == 0:
            λ = dual_step(λ, ρ, w[index], z)
        times.append(time.perf_counter() - begun)
    return times


class Bare:
    """The least that carries Tacit's own rounds: numbers out, numbers back, no messages."""

    def __init__(self, comm, P, n, own):
        self.comm, self.own, self.z = comm, own, np.zeros((P, n))
        self.counts = [n * len(mpi.share_of(P, rank, comm.size)) for rank in range(comm.size)]

    def ask(self, requests, deadline=None):
        broadcast = next(iter(requests.values()))
        w = np.array(broadcast.consensus)
        self.round(w, broadcast.round)
        replies = (tacit.Reply("run", broadcast.round, z) for z in self.z)
        return {f"agent {i + 1}": reply for i, reply in enumerate(replies)}

    def round(self, w, t):
        self.comm.Bcast(w)
        own = [agent.respond(Broadcast("run", t, w)).primal for agent in self.own]
        self.comm.Gatherv(np.array(own), [self.z, self.counts] if self.comm.rank == 0 else None)


def loop(comm, P, n, T):
    """Tacit's server and agents, on a bare loop."""
    mine, settings = mpi.share(P, comm), of_rounds(T)
    parts, times = agents(len(mine), n), []
    own = [
        tacit.Agent(part, f"agent {i + 1}", settings, agent_key(jax_key(ROOT), "run", i), "run", n)
        for i, part in zip(mine, parts, strict=True)
    ]
    bare = Bare(comm, P, n, own)
    if comm.rank:
        for t in range(1, T + 1):
            bare.round(np.zeros(n), t)
        return []
    members = [Member(f"agent {i + 1}", np.arange(n), np.zeros(n)) for i in range(P)]
    server = Server(members, settings, "run", reminds=False)
    for _ in range(T):
        begun = time.perf_counter()
        assert not server.step(bare)
        times.append(time.perf_counter() - begun)
    return times


def engine(comm, P, n, T, told=lambda: None):
    """The engine: messages, digests, checks, clock."""

    def part(_, rank, ranks):
        mine = mpi.share_of(P, rank, ranks)
        named = [(f"agent {i + 1}", a) for i, a in zip(mine, agents(len(mine), n), strict=True)]
        return mpi.Part(mine.start, named)

    if comm.rank:
        mpi.serve(comm, {"part": part})
        return [], {}
    with mpi.Ranks(comm, {"part": part}) as everyone:
        everyone.build("part")
        own = Own("seeded", ROOT, True, P)
        proposal = Propose("", "run", n, of_rounds(T), 1e-6, own=own)
        everyone.ask(dict.fromkeys(everyone.names, proposal))
        server = Server(members_of(everyone.problem), of_rounds(T), "run", reminds=False)
        times = []
        for _ in range(T):
            begun = time.perf_counter()
            assert not server.step(everyone)
            times.append(time.perf_counter() - begun)
            told()
        return times, everyone.clock.read()


def overhead(comm, P, n, T, repetitions):
    """Milliseconds a round: the least and the median over all repetitions, taken in turn."""
    found = {"transport": [], "by hand": [], "loop": [], "engine": []}
    for _ in range(repetitions):
        found["transport"] += bare(comm, P, n, T)
        found["by hand"] += by_hand(comm, P, n, T)[1:]
        found["loop"] += loop(comm, P, n, T)[1:]
        found["engine"] += engine(comm, P, n, T)[0][1:]
    if comm.rank:
        return None
    return {name: in_ms(times) for name, times in found.items()}


class Meter:
    """Time on a core, of the agents of this rank and of waiting: independent of who else uses the
    machine. A round takes that of the slowest rank's agents, and that of rank 0 besides."""

    def __init__(self):
        self.spent = {"wait": [0.0]}
        answer, wait = mpi._Rank.answer, mpi._wait

        def timed(rank, what, about, own):
            begun = time.thread_time()
            found = answer(rank, what, about, own)
            name = about[0] if what == "each" else what
            self.spent.setdefault(name, []).append(time.thread_time() - begun)
            return found

        def waited(there):
            begun = time.thread_time()
            wait(there)
            self.spent["wait"][0] += time.thread_time() - begun

        mpi._Rank.answer, mpi._wait = timed, waited

    def now(self):
        """Time on a core so far that was not spent on waiting."""
        return time.thread_time() - self.spent["wait"][0]


def many(comm, P, n, T):
    """Of a round the least and the median, in ms: on the clock, and on the cores."""
    meter, cores = Meter(), []
    times, timing = engine(comm, P, n, T, lambda: cores.append(meter.now()))
    ranks = comm.gather(meter.spent["respond"])
    if comm.rank:
        return None
    length = len(tacit.Reply("run", 1, np.zeros(n)).to_bytes())
    agents_of = np.array(ranks)[:, 1:]
    besides = np.diff(cores) - agents_of[0]
    away = P - len(mpi.share_of(P, 0, comm.size))
    return {
        "ms": in_ms(times[1:]),
        "cores": in_ms(agents_of.max(axis=0) + besides),
        "agents": in_ms(agents_of.mean(axis=0)),
        "besides": in_ms(besides),
        "bytes of replies": away * length,
        "timing": timing,
    }


def in_ms(times):
    return [1e3 * float(np.min(times)), 1e3 * float(np.median(times))]


def grid(comm, zones, T):
    """Seconds of a round, and of all: on the clock, and on the cores."""
    from tacit.cli.main import parse
    from tacit.cli.power import part

    words = f"power solve case10000_goc --zones {zones} --no-noise --engine mpi --workers 1"
    options, meter = parse(words.split()), Meter()
    builders = {"part": lambda _, rank, ranks: part(options, rank, ranks)}
    begun, times = time.perf_counter(), []
    if comm.rank:
        mpi.serve(comm, builders)
        comm.gather(meter.spent)
        return None
    with mpi.Ranks(comm, builders) as everyone:
        everyone.build("part")
        result = everyone.conduct(
            tacit.Settings(T, tolerance=1e-12),
            callback=lambda _: times.append((time.perf_counter(), meter.now())),
        )
    total = time.perf_counter() - begun
    ranks = comm.gather(meter.spent)
    rounds, cores = np.diff(np.array(times), axis=0)[1:].T
    agents_of = np.array([np.add(r["respond"], r["measured"])[2:] for r in ranks])
    cores = agents_of.max(axis=0) + cores - agents_of[0]
    return {
        "round": [float(rounds.min()), float(np.median(rounds))],
        "cores": [float(cores.min()), float(np.median(cores))],
        "total": total,
        "build on a core": max(r["build"][0] for r in ranks),
        "all of rank 0 on a core": meter.now(),
        "timing": result.timing,
    }


if __name__ == "__main__":
    task, *numbers = sys.argv[1:]
    told = {"overhead": overhead, "agents": many, "grid": grid}[task](
        mpi.world(), *map(int, numbers)
    )
    if told is not None:
        print(json.dumps(told))
