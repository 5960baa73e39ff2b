"""Cases of the blind test in Python: objectives, sets, mechanisms, ways to run, estimators."""

import numpy as np
import pytest
from blind import covered, flat, ledgers_in, rows_of, told_by
from conftest import repeat, squared_loss

import tacit
from tacit.admm.settings import Asked
from tacit.learn import PrivateLinearSVC, PrivateLogisticRegression, PrivateRidge
from tacit.objectives.moments import Mean

RELATIONS = ("add-remove", "zero-out", "replace")


def problem_of(kind, relation, world, agents=2):
    return tacit.Problem(
        tacit.LocalProblem(*part_of(kind, relation, world, agent), name=f"agent {agent}")
        for agent in range(agents)
    )


def part_of(kind, relation, world, agent):
    X, y = rows_of(world, agent, relation)
    public = {"normaliser": 30.0, "record_bound": 20.0, "neighbours": relation}
    bounded = {"feature_norm": 1.0, **public}
    label, box = (y > 0).astype(int), tacit.Box(-1.0, 1.0, size=3)
    if kind == "least-squares":
        return tacit.LeastSquares(X, y, target_bound=1.0, **bounded), box
    if kind == "solved":  # a set that needs a solver
        matrix, offset = np.ones((1, 3)), np.ones(1)
        half = tacit.Polyhedron(matrix, offset, lower=-1.0, upper=1.0)
        return tacit.LogisticRegression(X, label, **bounded), half
    if kind == "logistic":
        return tacit.LogisticRegression(X, label, **bounded), box
    if kind == "limited":
        f = tacit.SoftmaxRegression(X, label, 2, clip=0.3, **bounded)
        return f, tacit.Box(-1.0, 1.0, size=6)
    if kind == "softmax":
        return tacit.SoftmaxRegression(X, label, 3, **bounded), tacit.L1Ball(2.0, 9)
    if kind == "float32":
        return tacit.LogisticRegression(X.astype(np.float32), label, **bounded), box
    if kind == "huber":
        return tacit.Huber(X, y, target_bound=1.0, threshold=0.3, **bounded), tacit.Ball(0, 1, 3)
    if kind == "hinge":
        return tacit.Hinge(X, 2 * label - 1, **bounded), box
    if kind == "quantile":
        return tacit.Quantile(X, y, level=0.3, **bounded), box
    if kind == "per-sample":
        return tacit.PerSample(squared_loss, (X, y), clip=0.5, size=3, **public), box
    if kind == "in units":
        common = {"clip": 0.5, "size": 3, "units": [0.1, 1.0, 20.0], **public}
        return tacit.PerSample(squared_loss, (X, y), **common), box
    if kind == "exchange":  # all that a household has may change: here one of its rows does
        public = {"size": 3, "clip": 0.5, "smoothness": 3.0, "normaliser": 30.0}
        return tacit.Exchange(drawn, (X, y), half_square, **public), box
    if kind == "mean":
        return Mean(X, **bounded), box
    beta, how = MOVES[relation]
    A = np.random.default_rng(9).normal(size=(4, 3))
    data = np.resize(np.clip(y, -5, 5), 4)
    data[2] *= relation != "bounds"
    noise_on = "gradient" if kind == "gradient" else "residual"
    return tacit.Residual(A, data, beta, noise_on=noise_on, **how), box


# how data that are no records move: "bounds" of each, of which one does not
MOVES = {
    "move": (0.01, {}),
    "two": (0.01, {"moved": 2}),
    "group": (0.02, {"groups": (0, 0, 1, 1)}),
    "bounds": ((0.01, 0.02, 0.0, 0.01), {}),
}
RECORDS = ("least-squares", "logistic", "softmax", "limited", "huber", "hinge", "quantile", "mean")
RECORDS += ("per-sample", "in units", "float32", "solved")
ONCE = ("least-squares", "mean", "residual")
LAWS, PATHS = ("gaussian", "laplace"), ("batched", "one by one", "secure", "ledgers", "resumed")


def drawn(z, home):
    X, y = home
    return y @ X - z


def half_square(z):
    return z @ z / 2


def ways(kinds, paths, rest=True):
    """(kind, relation, mechanism, path): in ``make test`` each kind, and each of the rest, once."""
    found = [
        (kind, relation, law, path)
        for kind in kinds
        for relation in (RELATIONS if kind in RECORDS else MOVES)
        for law in LAWS
        for path in paths
        if path != "batched" or kind != "solved"
    ]
    few, seen = [], set()
    for way in sorted(found, key=lambda way: hash_of(way)):
        if way[0] not in {kind for kind, *_ in few} or (rest and not seen >= set(way[1:])):
            few.append(way)
            seen |= set(way[1:])
    return repeat(few, found)


def hash_of(way):
    """An order that mixes."""
    return sum(ord(c) * 7**i for i, c in enumerate("".join(way))) % 1009


def rounds(kind, relation, law, path, updates=2):
    """Noise in every round, by each way there is to run it; with one update steps adapt, but for
    losses of scores."""

    def outcome(folder, world):
        problem, seen = problem_of(kind, relation, world), []
        delta = 0.0 if law == "laplace" else 1e-5
        settings = tacit.Settings.for_budget(
            8.0, delta, rounds=4, local_updates=updates, mechanism=law
        )
        how = {}
        if path == "secure":
            how["noise"] = "secure"
        elif path == "ledgers":
            how["ledgers"] = ledgers_in(folder / "ledgers", problem.names)
        else:
            how |= {"seed": 3, "batch": path == "batched"}

        def callback(now):
            seen.append(flat([now.round, now.consensus, now.averages, now.points, now.duals]))
            if path == "resumed" and len(seen) == 1:
                raise KeyboardInterrupt

        how |= {"evaluate_every": 2, "callback": callback}
        if path == "resumed":
            how |= {"checkpoint": folder / "checkpoint", "batch": None}
            with pytest.raises(KeyboardInterrupt):
                tacit.solve(problem, settings, **how)
        result = tacit.solve(problem, settings, **how)
        assert result.privacy.certified
        books = told_by(how["ledgers"]) if path == "ledgers" else {}
        return {"seen": seen, "ledgers": books, **covered(result.save(folder / "out"))}

    return outcome


def once(kind, relation, law, path):
    """One release of the data, and exact steps on it."""

    def outcome(folder, world):
        problem = problem_of(kind, relation, world)
        how = {"seed": 3}
        if path in ("secure", "ledgers"):
            how = {"noise": "secure"}
        if path == "ledgers":
            how["ledgers"] = ledgers_in(folder / "ledgers", problem.names)
        budget = (8.0, 0.0 if law == "laplace" else 1e-5)
        released = tacit.release(problem, *budget, mechanism=law, **how)
        values = [release.values for release in released.releases]
        steps = tacit.Settings(30, tolerance=1e-4)
        result = tacit.solve(released, steps)
        found = {"values": values, "repr": repr(released), **covered(result.save(folder / "out"))}
        if path == "ledgers":
            found["ledgers"] = told_by(how["ledgers"])
        if path == "resumed":
            budgeted = Asked(*budget, law, way="release")
            how["checkpoint"] = folder / "checkpoint"
            for name in ("begun", "continued"):
                again = tacit.solve(problem, budgeted, **how)
                found[name] = covered(again.save(folder / name))
        return found

    return outcome


def summed(kind, relation, path):
    """What three agents have is only added up: in every round, or once."""

    def outcome(folder, world):
        problem, seen = problem_of(kind, relation, world, agents=3), []
        how = {"aggregation": "sum", "callback": lambda now: seen.append(flat(now.consensus))}
        if path == "ledgers":
            how["ledgers"] = ledgers_in(folder / "ledgers", problem.names)
        else:
            how |= {"seed": 3, "batch": False if path == "masked" else None}
        once = kind == "least-squares"
        if once:
            del how["callback"]
        result = tacit.solve(problem, Asked(8.0, 1e-5, rounds=None if once else 4), **how)
        assert result.privacy.certified and result.privacy.parties == 3
        books = told_by(how["ledgers"]) if path == "ledgers" else {}
        return {"seen": seen, "ledgers": books, **covered(result.save(folder / "out"))}

    return outcome


def many(folder, world):
    """Several configurations as one program."""
    problem = problem_of("logistic", "replace", world)
    each = [tacit.Settings.for_budget(e, 1e-5, rounds=4) for e in (0.5, 2.0)]
    results = tacit.solve_many(problem, each, [3, 4])
    return {str(i): covered(r.save(folder / str(i))) for i, r in enumerate(results)}


NOISY = (*RECORDS, "residual", "gradient")
IN_PYTHON = {f"rounds: {', '.join(w)}": rounds(*w) for w in ways(NOISY, PATHS)}
PRICES = ("replace", "gaussian", "ledgers"), ("replace", "laplace", "batched")
IN_PYTHON |= {f"prices: {', '.join(w)}": rounds("exchange", *w, updates=1) for w in PRICES}
ADAPTIVE = "per-sample", "in units", "quantile", "residual"
IN_PYTHON |= {
    f"adaptive: {', '.join(w)}": rounds(*w, updates=1) for w in ways(ADAPTIVE, PATHS, rest=False)
}
IN_PYTHON |= {f"once: {', '.join(w)}": once(*w) for w in ways(ONCE, PATHS[1:])}
IN_PYTHON |= {"many": many}
SUMS = ("logistic", "replace", "plain"), ("per-sample", "zero-out", "masked")
SUMS += ("softmax", "add-remove", "ledgers"), ("least-squares", "zero-out", "plain")
SUMS += ("exchange", "replace", "masked"), ("exchange", "replace", "ledgers")
IN_PYTHON |= {f"sum: {', '.join(w)}": summed(*w) for w in SUMS}


def bare(settings):
    """A run that promises nothing: of it only public things are said to be public."""

    def outcome(folder, world):
        problem = problem_of("logistic", "replace", world)
        return covered(tacit.solve(problem, settings, seed=3).save(folder / "out"))

    return outcome


for name, noise in {
    "no noise": {"mechanism": tacit.Noiseless()},
    "on the output": {"mechanism": tacit.Gaussian(9.0), "delta": 1e-5, "perturbation": "output"},
}.items():
    IN_PYTHON[f"not certified: {name}"] = bare(tacit.Settings(3, **noise))


# --- estimators (the commands have more of them) -------------------------------------------------


def fitted(kind, **options):
    def outcome(folder, world):
        parts = [rows_of(world, agent) for agent in range(2)]
        X, y = (np.concatenate(p) for p in zip(*parts, strict=True))
        if "classes" in options:
            y = np.where(y > 0, "yes", "no")
        found = kind(15.0, 1e-5, rounds=4, random_state=4, **options)
        found.fit(X, y, np.repeat(["a", "b"], 12))
        public = {k: v for k, v in vars(found).items() if k.endswith("_") and k != "result_"}
        public["predicted"] = found.predict(rows_of(0, 9)[0])
        return {**public, **covered(found.result_.save(folder / "out"))}

    return outcome


LABELS = {"classes": ["no", "yes"]}
BARE = {"centring_share": None, "fit_intercept": False}
IN_PYTHON |= {
    "fit: replace": fitted(PrivateLogisticRegression, **LABELS, neighbours="replace"),
    "fit: bare": fitted(PrivateLinearSVC, **LABELS, **BARE),
    "fit: ridge": fitted(PrivateRidge, target_range=(-1, 1)),
}
