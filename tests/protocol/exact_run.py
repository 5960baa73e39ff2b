"""A run with exact local steps in one process, and small problems for it."""

import numpy as np

import tacit
from tacit.admm.algorithm import Holders, average_over_holders
from tacit.admm.fixed_point import MEMORY, LocalRounds, ServerRounds
from tacit.admm.problem import LocalProblem, Problem
from tacit.objectives import PublicQuadratic
from tacit.objectives.public import without_noise


def sides(problem, penalty=None, group=None, memory=MEMORY):
    """The server's side and the agents', at the start."""
    publics = [without_noise(a.objective) for a in problem.agents]
    couplings = [np.asarray(a.coupling) for a in problem.agents]
    held = [np.flatnonzero(c >= 0) for c in couplings]
    mine = [c[h] for c, h in zip(couplings, held, strict=True)]
    start = [np.asarray(a.feasible_set.project(np.zeros(a.dimension))) for a in problem.agents]
    copies = np.concatenate([z[h] for z, h in zip(start, held, strict=True)])
    w = average_over_holders(copies, Holders.of(mine, problem.size, np.float64))
    if penalty is None:
        penalty = np.mean([f.mean_curvature for f in publics])
    penalty = np.broadcast_to(np.asarray(penalty, float), w.shape)
    group = np.zeros(len(w), int) if group is None else group
    server = ServerRounds.start(mine, w, penalty, group, memory)
    agents = [
        LocalRounds(f.prox(a.feasible_set), h, z, penalty[m], group[m], memory, f.mean_curvature)
        for f, a, h, m, z in zip(publics, problem.agents, held, mine, start, strict=True)
    ]
    return server, agents, mine


def exact_run(problem, rounds=300, tolerance=1e-8, watch=None, **options):
    """The server's and the agents' sides at the end, and the residuals of every round."""
    server, agents, mine = sides(problem, **options)
    trace = []
    for _ in range(rounds):
        told = server.instructions
        agents = [a.answer(server.w[m], told) for a, m in zip(agents, mine, strict=True)]
        if watch is not None:
            watch(server, agents)
        server, found = server.receive(np.concatenate([a.z[a.held] for a in agents]))
        trace.append(found)
        if server.converged(found, tolerance):
            break
    return server, agents, trace


def random_quadratics(seed, agents=3, shared=4, private=2, feasible=None):
    """Agents with a few coordinates in common, each with some of its own."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(agents):
        coupling = np.full(shared + private, -1)
        who = rng.permutation(shared)[: max(2, shared - 1)]
        coupling[rng.permutation(shared + private)[: len(who)]] = who
        rows = rng.integers(2, 9)
        A = rng.normal(size=(rows, shared + private)) * np.exp(rng.normal(size=shared + private))
        W = tacit.Box(-1.0, 1.0, size=shared + private) if feasible is None else feasible
        made.append(LocalProblem(PublicQuadratic(A, rng.normal(size=rows)), W, coupling))
    unheld = np.setdiff1d(np.arange(shared), np.concatenate([a.coupling for a in made]))
    return (
        random_quadratics(seed + 10**7, agents, shared, private, feasible)
        if unheld.size
        else (Problem(made))
    )
