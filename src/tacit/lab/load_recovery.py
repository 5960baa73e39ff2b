"""What an eavesdropper learns about the loads from the messages of a run.

The eavesdropper knows all that is public: grid, zones, settings and the algorithm. It hears every
broadcast w^t and every reply, hence the duals too. Unknown are a zone's demand d, its noise ξ and
its private variables. Over x, the variables of a zone's network (z = image @ x), one update is

    x^{t+1} = argmin ½x'Px + q'x over the network's cones,   q = const − K x^t + B'(2d + ξ^t)

with B = balance @ image. Linearised at the current estimate this is a linear system with unknown
inputs, of which the reply shows some coordinates. The extended Kalman filter gives the most likely
demand under a normal prior, up to the linearisation, which is repeated at the estimate. Without
noise the prior fades with every repetition, and what remains is least squares.

Of loads that were released once the release is all that there is to know: messages, results, and
whatever else was computed from it say nothing more. With the prior it gives the most likely demand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, start_point
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput
from tacit.objectives.residual import Residual
from tacit.power.model import PowerProblem, noise_deviation
from tacit.power.network import Network
from tacit.power.network import demand as demand_of
from tacit.privacy.mechanisms import Mechanism, Noiseless
from tacit.sets.conic import Conic
from tacit.transports.solving import solve

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SOLVER = 1e-5  # error of a local solve, as noise of the filter
LINEAR = 0.003  # error of the linearisation, per deviation of the noise (by trial)
# The filter is run again at its last estimate, first with little trust in it.
TRUST = (1e-2, 1e-3, 1e-3, 1e-4, 1e-4, SOLVER, SOLVER, SOLVER)


# Fisher information of a shift, times the variance of the noise
INFORMATION = {"noiseless": np.inf, "gaussian": 1.0, "laplace": 2.0}


@dataclass(frozen=True)
class Messages:
    """What crosses the wire in a run of E = 1: broadcasts, and every zone's replies."""

    consensus: list[Vector]
    replies: list[list[Vector]]  # by round, then by zone


@dataclass(frozen=True)
class Attack:
    """Estimated loads beside the true ones, per unit, for every budget tried."""

    loads: pd.DataFrame  # columns bus, zone, quantity, true, and one per label
    prior_error: float  # of guessing the prior's mean
    errors: dict[str, float]  # root mean square over the loads, mean over the seeds
    floors: dict[str, float]  # the least to be expected, whoever sees every noisy residual

    @property
    def labels(self) -> list[str]:
        return list(self.errors)

    def to_dict(self) -> dict[str, Any]:
        return {
            "error": self.errors,
            "floor": self.floors,
            "prior_error": self.prior_error,
            "loads": self.loads.to_dict(orient="records"),
        }

    def plot(self) -> Figure:
        """Estimates by bus without and with noise, and the error by budget."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(12, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(2.2, 1))
        active = self.loads[self.loads["quantity"] == "p"]
        places = np.arange(len(active))
        left.bar(places, active["true"], color="#d5dbe3", label="true load")
        shown = [self.labels[0], *self.labels[len(self.labels) // 2 : len(self.labels) // 2 + 1]]
        for label, marker, colour in zip(shown, ("o", "x"), ("#b03a2e", "#1f5f8b"), strict=True):
            left.plot(places, active[label], marker, color=colour, label=f"estimate, {label}")
        if len(active) <= 40:
            left.set_xticks(places, active["bus"].astype(str))
        left.set(xlabel="bus", ylabel="active load (per unit)")
        left.set_title("what the eavesdropper reads off the messages")
        left.legend()
        places = np.arange(len(self.labels))
        right.bar(places, list(self.errors.values()), color="#1f5f8b", label="eavesdropper")
        floors = [self.floors[label] for label in self.labels]
        right.plot(places[1:], floors[1:], "_", color="#b03a2e", ms=24, label="least expected")
        right.axhline(self.prior_error, color="black", ls=":", label="guess without messages")
        right.set_xticks(places, self.labels, rotation=30, ha="right")
        right.set(yscale="log", ylabel="root mean square error (per unit)")
        right.set_title("error of the estimate")
        right.set_ylim(top=100 * self.prior_error)  # room for the legend
        right.legend(loc="upper left")
        return figure


def attack(
    case: PowerProblem,
    settings: Sequence[tuple[str, Settings]],
    *,
    releases: Sequence[tuple[str, Mechanism]] = (),
    seeds: int = 3,
    prior_mean: float = 0.0,
    prior_deviation: float = 0.3,
    progress: Callable[[], None] = lambda: None,
) -> Attack:
    """Run every one of the settings, listen, and estimate all loads from the messages.

    ``releases`` are noise for one release of the loads, which is then attacked.

    The prior (normal, per unit, the same for every load) is the eavesdropper's knowledge before.
    A run without noise is made once, others for ``seeds`` seeds. The least expected error is the
    Bayesian Cramér-Rao bound, under the prior, for an observer of d + ξ^t/2 in every round: of all
    noisy residuals and variables of a zone, which is more than the messages, and just what the
    privacy statement accounts for. For loads that the prior fits badly errors may be below it.
    """
    import pandas as pd

    truth = np.concatenate([demand_of(case.grid, net.buses) for net in case.networks])
    table: dict[str, Any] = {
        "bus": [b for net in case.networks for b in (*net.buses, *net.buses)],
        "zone": [name for name, buses in case.zones.items() for _ in (*buses, *buses)],
        "quantity": [q for net in case.networks for q in ("p", "q") for _ in net.buses],
        "true": truth,
    }
    errors: dict[str, float] = {}
    floors: dict[str, float] = {}
    prior = prior_mean, prior_deviation
    tried: list[tuple[str, Settings | Mechanism]] = [*settings, *releases]
    for label, how in tried:
        mechanism = how.mechanism if isinstance(how, Settings) else how
        found = []
        for seed in range(1 if isinstance(mechanism, Noiseless) else seeds):
            if isinstance(how, Settings):
                heard = listen(case, how, seed)
                zones = range(len(case.agents))
                parts = [estimate_demand(case, p, how, heard, *prior) for p in zones]
            else:
                agents = enumerate(case.agents)
                parts = [estimate_released(agent, how, (seed, p), *prior) for p, agent in agents]
            estimate = np.concatenate(parts)
            found.append(float(np.sqrt(np.mean((estimate - truth) ** 2))))
            table.setdefault(label, estimate)
            progress()
        errors[label] = float(np.mean(found))
        floors[label] = least_expected(case, how, prior_deviation)
    prior_error = float(np.sqrt(np.mean((truth - prior_mean) ** 2)))
    return Attack(pd.DataFrame(table), prior_error, errors, floors)


def least_expected(case: PowerProblem, how: Settings | Mechanism, prior_deviation: float) -> float:
    """√ of the mean over the loads of 1/(prior information + information of what is seen): one
    release, or 4·rounds times that of ξ."""
    mechanism = how.mechanism if isinstance(how, Settings) else how
    total, loads = 0.0, 0
    for agent in case.agents:
        statistics = agent.objective.statistics()
        times, variance = 1, float(mechanism.variance(statistics.sensitivity(mechanism.norm)))
        if isinstance(how, Settings):
            times, variance = 4 * how.rounds, noise_deviation(agent, how) ** 2
        information = times * INFORMATION[mechanism.name] / (variance or 1.0)
        total += statistics.size / (prior_deviation**-2 + information)
        loads += statistics.size
    return float(np.sqrt(total / loads))


def estimate_released(
    agent: LocalProblem,
    mechanism: Mechanism,
    seed: tuple[int, int],
    prior_mean: float,
    prior_deviation: float,
) -> Vector:
    """The most likely demand, given one release v of it with this noise.

    Gaussian noise of variance σ², prior variance τ²: m + (v − m) τ²/(τ² + σ²). Laplace noise of
    scale b: v, but no further than τ²/b from m.
    """
    import jax

    statistics = agent.objective.statistics()
    Δ, size = statistics.sensitivity(mechanism.norm), statistics.size
    key = jax.random.fold_in(jax.random.key(seed[0]), seed[1])
    away = (
        statistics.values + np.asarray(mechanism.sample(key, (size,), Δ, np.float64)) - prior_mean
    )
    variance, prior = float(mechanism.variance(Δ)), prior_deviation**2
    if mechanism.name == "laplace":
        most = prior / float(mechanism.scale(Δ))
        return np.asarray(prior_mean + np.clip(away, -most, most))
    return np.asarray(prior_mean + away * prior / (prior + variance))


def listen(case: PowerProblem, settings: Settings, seed: int) -> Messages:
    """All messages of a run."""
    on = {a.objective.noise_on for a in case.agents if isinstance(a.objective, Residual)}
    if settings.local_updates != 1 or settings.perturbation != "objective" or on != {"residual"}:
        raise InvalidInput(
            "Expected local_updates=1 and objective noise on the residual for the attack: a reply "
            f"then is one update, got local_updates={settings.local_updates}, "
            f"{settings.perturbation!r} noise on the {', '.join(sorted(on))}."
        )
    heard = Messages([], [])

    def note(progress: Any) -> None:
        heard.consensus.append(np.asarray(progress.consensus))
        heard.replies.append(
            [
                np.asarray(z)[np.asarray(a.coupling) >= 0]
                for a, z in zip(case.agents, progress.averages, strict=True)
            ]
        )

    solve(case.problem, settings, seed=seed, callback=note)
    return heard


def estimate_demand(
    case: PowerProblem,
    zone: int,
    settings: Settings,
    heard: Messages,
    prior_mean: float,
    prior_deviation: float,
) -> Vector:
    """The most likely demand of one zone's buses, active then reactive."""
    net, agent = case.networks[zone], case.agents[zone]
    coupling = np.asarray(agent.coupling)
    held = np.flatnonzero(coupling >= 0)
    W, L = agent.feasible_set, net.image
    assert isinstance(W, Conic)
    B = (net.balance @ L).toarray()
    size, loads = L.shape[1], B.shape[0]
    seen = L[held].toarray()
    deviation = noise_deviation(agent, settings)
    LL, BB = (L.T @ L).toarray(), B.T @ B
    demand = np.full(loads, prior_mean)
    for trust in TRUST:
        linearised_at = demand
        error = max(trust, LINEAR * deviation)
        z = start_point(agent)
        x, λ = z[W.entries], np.zeros(len(held))
        spread = np.zeros((size + loads, size + loads))
        spread[size:, size:] = prior_deviation**2 * np.eye(loads)
        for t, (w, replies) in enumerate(zip(heard.consensus, heard.replies, strict=True), 1):
            (ρ,), (η,) = settings.schedule(t, t)
            y, local_w = replies[zone], w[coupling[held]]
            x, H = _update(W, net, x, demand, held, local_w, λ, ρ, η)
            λ = λ + ρ * (local_w - y)
            factor = cho_factor(H)
            F, G = cho_solve(factor, LL / η + (1 / η - 2) * BB), -cho_solve(factor, B.T)
            step = np.block([[F, 2 * G], [np.zeros((loads, size)), np.eye(loads)]])
            spread = step @ spread @ step.T
            spread[:size, :size] += deviation**2 * G @ G.T + error**2 * np.eye(size)
            cross = spread[:, :size] @ seen.T
            innovation = seen @ cross[:size] + error**2 * np.eye(len(held))
            gain = np.linalg.solve(innovation, cross.T).T
            state = np.concatenate([x, demand]) + gain @ (y - seen @ x)
            spread -= gain @ cross.T
            x, demand = state[:size], state[size:]
        if deviation:  # the pass began at the last estimate; give the prior its true mean again
            pull = (prior_mean - linearised_at) / prior_deviation**2
            demand = demand + spread[size:, size:] @ pull
    return demand


def _update(
    W: Conic,
    net: Network,
    x: Vector,
    d: Vector,
    held: Vector,
    w: Vector,
    λ: Vector,
    ρ: float,
    η: float,
) -> tuple[Vector, Vector]:
    """The next x without noise, and the matrix H with dx^{t+1} = −H⁻¹ dq there."""
    z = net.image @ x
    slack = net.balance @ z
    c = np.full(len(z), 1 / η)
    c[held] += ρ
    pull = z / η - net.balance.T @ (2 * (slack + d))
    pull[held] += ρ * w + λ
    weight = np.concatenate([c, np.full(len(slack), 1 / η)])
    return W.linearised(np.concatenate([pull / c, slack]), weight)
