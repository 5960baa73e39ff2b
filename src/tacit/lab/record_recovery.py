"""What an eavesdropper learns about the records of small agents from the messages of a fit.

The eavesdropper (the server is one) knows all that is public: settings, schedules, set, sizes,
classes and normaliser. It hears every broadcast and every reply, hence the duals, and has public
images of the same kind.

With E = 1 a reply is one update of Algorithm 1, z^{t+1} = Proj((z^t/η + ρw + λ − f'(z^t) − ξ)/c).
All but the noisy gradient is public or heard: inside the box, which is wide,

    f'(z^t) + ξ = z^t/η + ρw + λ − c z^{t+1},   c = 1/η + ρ.

The gradient of softmax regression is a sum of outer products,
N f'(Z) = Σ_i x_i (softmax(x_i'Z) − e_{y_i})'. The eavesdropper takes images as normal given their
class, with mean and covariance from public images, and labels as equally likely. It finds

    q_ik   the probability that record i is of class k, and the most likely image if so,

record after record, the others fixed at their averages over q (mean-field Bayes), with the slopes
softmax − e_y at the last estimate. Where all labels are sure, images follow together from the
nonlinear least squares problem with the prior's term (L-BFGS). For Gaussian noise that is the
maximum of the posterior; other noise is taken as if it were Gaussian of the same variance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from tacit._types import Vector
from tacit.admm.algorithm import certified_sensitivity
from tacit.admm.problem import LocalProblem, Problem, start_point
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, count, positive
from tacit.learn import Box
from tacit.learn.centring import scaled_down
from tacit.learn.data import Dataset
from tacit.learn.estimators import DEFAULT_BOX, INTERCEPT_SHARE
from tacit.objectives.losses import SoftmaxRegression
from tacit.planning import plan
from tacit.protocol.statement import PrivacyStatement
from tacit.transports.solving import solve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PASSES = 6  # over the records
SURE = 0.95  # labels of this probability are taken as known
FIRST = 0.1  # without noise, the deviation assumed at first
STAGES = 5  # and the number of searches until it is that of the rounding
PART = 0.03  # of the prior's deviation, by which images are moved between searches
LEAST_VARIANCE = 1e-4  # variance of a direction of images, as a share of the largest
NEGLIGIBLE = 0.01  # directions in which messages say less than this about an image are left out

IMAGES_IN_A_ROW = 8  # images in a row of the figure


@dataclass(frozen=True)
class Messages:
    """What crosses the wire in a run: broadcasts, and every agent's replies, by round."""

    consensus: Vector  # rounds × size
    replies: Vector  # rounds × agents × size
    privacy: PrivacyStatement


@dataclass(frozen=True)
class Found:
    """What the eavesdropper found in the runs of one budget; images and labels of the first."""

    images: Vector
    labels: Vector
    error: float  # ‖found − true‖/‖true‖ over all records, mean over the seeds
    correlation: float  # of found and true, both less the guess
    label_accuracy: float
    privacy: PrivacyStatement


@dataclass(frozen=True)
class Attack:
    """Recovered records beside the true ones, agent after agent, for every budget tried."""

    images: Vector  # as the agents use them: scaled to the public norm
    labels: Vector
    records: int  # of one agent
    guess: Vector  # the mean public image
    guess_error: float
    guess_label_accuracy: float
    found: dict[str, Found]

    def to_dict(self) -> dict[str, Any]:
        """Numbers and statements; recovered labels, but no images."""
        return {
            "records": self.records,
            "agents": len(self.labels) // self.records,
            "guess": {"error": self.guess_error, "label_accuracy": self.guess_label_accuracy},
            "labels": self.labels.tolist(),
            "found": {
                name: {
                    "error": one.error,
                    "correlation": one.correlation,
                    "label_accuracy": one.label_accuracy,
                    "labels": one.labels.tolist(),
                    "privacy": one.privacy.to_dict(),
                }
                for name, one in self.found.items()
            },
        }

    def table(self) -> list[tuple[str, ...]]:
        """Error, correlation and labels found, for the guess and for every budget."""
        rows = [("guess without messages", self.guess_error, 0.0, self.guess_label_accuracy)]
        rows += [(n, f.error, f.correlation, f.label_accuracy) for n, f in self.found.items()]
        return [(n, f"{100 * e:.2g} %", f"{c:.2f}", f"{100 * y:.0f} %") for n, e, c, y in rows]

    def plot(self) -> Figure:
        """Rows of images: the true ones, what was found for every budget, and the guess."""
        from matplotlib.figure import Figure

        side = math.isqrt(self.images.shape[1])
        if side**2 != self.images.shape[1]:
            raise InvalidInput(f"Expected square images, got {self.images.shape[1]} features.")
        shown = min(IMAGES_IN_A_ROW, len(self.images))
        rows: list[tuple[str, Vector, Vector | None]] = [("true", self.images, self.labels)]
        rows += [
            (f"{name}\n{_words(one.error, one.label_accuracy)}", one.images, one.labels)
            for name, one in self.found.items()
        ]
        guess = np.tile(self.guess, (shown, 1))
        words = _words(self.guess_error, self.guess_label_accuracy)
        rows.append((f"no messages\n{words}", guess, None))
        figure = Figure(figsize=(1.1 * shown + 1.6, 1.22 * len(rows)), layout="constrained")
        axes = figure.subplots(len(rows), shown, squeeze=False)
        for row, (name, images, labels) in zip(axes, rows, strict=True):
            for i, (place, image) in enumerate(zip(row, images, strict=False)):
                place.imshow(image.reshape(side, side), cmap="gray_r", vmin=0)
                place.set(xticks=[], yticks=[])
                if labels is not None:
                    right = labels[i] == self.labels[i]
                    place.set_title(
                        str(labels[i]), fontsize=9, pad=2, color="#1b7a3d" if right else "#b03a2e"
                    )
            row[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        return figure


def _words(error: float, labels: float) -> str:
    return f"error {100 * error:.2g} %\nlabels {100 * labels:.0f} %"


def attack(
    data: Dataset,
    public: Dataset,
    total_epsilons: Sequence[float],
    total_delta: float = 1e-5,
    *,
    records: int = 4,
    agents: int = 10,
    rounds: int = 50,
    seeds: int = 3,
    feature_norm: float = 1.0,
    mechanism: str = "gaussian",
    progress: Callable[[], None] = lambda: None,
) -> Attack:
    """Fit on ``agents`` agents of ``records`` records each, listen, and recover all records.

    One run without noise, and for every total ε runs with the seeds 0, 1, ...; all are those of
    ``PrivateLogisticRegression`` with one local update a round. The same records are used in all;
    they are drawn from ``data``. The eavesdropper knows images from ``public``. An agent's records
    have no order: images and labels, each, are paired with the true ones to the eavesdropper's
    advantage. The guess of labels is as many different classes at random.
    """
    count("seeds", seeds)
    problem, rows, labels = small_agents(data, records, agents, feature_norm)
    room, constant = _room(feature_norm), INTERCEPT_SHARE * feature_norm
    known = scaled_down(public.features.astype(np.float64), room)
    prior = Prior.of(known, public.labels, data.classes, constant)
    guess = known.mean(axis=0)
    how: Any = {"rounds": count("rounds", rounds), "way": "rounds"}
    one = {"local_updates": 1}
    chosen = {"no privacy": plan(problem, Asked(others=one, **how)).settings}
    for epsilon in total_epsilons:
        asked = Asked(epsilon, total_delta, mechanism, one, **how)
        chosen[f"epsilon {epsilon:g}"] = plan(problem, asked).settings
    found = {}
    for name, settings in chosen.items():
        tries = []
        for seed in range(1 if name == "no privacy" else seeds):
            heard = listen(problem, settings, seed, name)
            tries.append(_records_of(problem, settings, heard, records, prior, rows, labels))
            progress()
        scores = [_scores(x, y, rows, labels, guess) for x, y in tries]
        error, correlation, accuracy = np.mean(scores, axis=0).tolist()
        found[name] = Found(*tries[0], error, correlation, accuracy, heard.privacy)
    different = [len(set(part.tolist())) for part in labels.reshape(-1, records)]
    by_chance = float(np.mean(different)) / data.classes
    guess_error = float(np.linalg.norm(rows - guess) / np.linalg.norm(rows))
    return Attack(rows, labels, records, guess, guess_error, by_chance, found)


def _room(feature_norm: float) -> float:
    """The norm that is left for an image beside the constant of the intercept."""
    return positive("feature_norm", feature_norm) * math.sqrt(1 - INTERCEPT_SHARE**2)


def small_agents(
    data: Dataset, records: int, agents: int, feature_norm: float
) -> tuple[Problem, Vector, Vector]:
    """The problem of ``PrivateLogisticRegression`` for a few records each; images and labels."""
    total = count("records", records) * count("agents", agents)
    if total > len(data):
        raise InvalidInput(f"Expected at most {len(data)} records in all, got {total}.")
    part = data.part(np.random.default_rng(0).permutation(len(data))[:total])
    images = scaled_down(part.features, _room(feature_norm))
    rows = np.hstack([images, np.full((total, 1), INTERCEPT_SHARE * feature_norm, images.dtype)])
    wide = DEFAULT_BOX / feature_norm
    box = Box(wide)(images.shape[1], data.classes, wide / INTERCEPT_SHARE)
    problem = Problem(
        LocalProblem(
            SoftmaxRegression(
                rows[i : i + records],
                part.labels[i : i + records],
                data.classes,
                feature_norm=feature_norm,
                normaliser=total,
                neighbours="zero-out",
                record_bound=float(records),
            ),
            box,
        )
        for i in range(0, total, records)
    )
    return problem, images.astype(np.float64), part.labels


def listen(problem: Problem, settings: Settings, seed: int, run: str) -> Messages:
    """All messages of a run. Runs of other names have other noise."""
    consensus: list[Vector] = []
    replies: list[Vector] = []

    def note(progress: Any) -> None:
        consensus.append(np.asarray(progress.consensus, np.float64))
        replies.append(np.stack([np.asarray(z, np.float64) for z in progress.averages]))

    result = solve(problem, settings, seed=seed, run=run, callback=note)
    return Messages(np.stack(consensus), np.stack(replies), result.privacy)


def _records_of(
    problem: Problem,
    settings: Settings,
    heard: Messages,
    records: int,
    prior: Prior,
    rows: Vector,
    labels: Vector,
) -> tuple[Vector, Vector]:
    """Every agent's images and labels, each in the order that fits the true ones best."""
    images, classes = np.empty_like(rows), np.empty_like(labels)
    for p, agent in enumerate(problem.agents):
        seen = gradients(agent, settings, heard.consensus, heard.replies[:, p], len(prior.means))
        x, y = recover(seen, records, prior)
        mine = slice(p * records, (p + 1) * records)
        distance = ((rows[mine, None] - x[None]) ** 2).sum(axis=2)
        images[mine] = x[linear_sum_assignment(distance)[1]]
        wrong = labels[mine, None] != y[None]
        classes[mine] = y[linear_sum_assignment(wrong + 1e-3 * distance)[1]]
    return images, classes


def _scores(
    images: Vector, found: Vector, rows: Vector, labels: Vector, guess: Vector
) -> tuple[float, float, float]:
    """Relative error, correlation less the guess, and share of labels found."""
    error = np.linalg.norm(images - rows) / np.linalg.norm(rows)
    a, b = (images - guess).ravel(), (rows - guess).ravel()
    length = np.linalg.norm(a) * np.linalg.norm(b)
    correlation = a @ b / length if length > 0 else 0.0
    return float(error), float(correlation), float(np.mean(found == labels))


# --- from messages to gradients, and from gradients to records ------------------------------------


@dataclass(frozen=True)
class Gradients:
    """Noisy sums of the records' gradients, and the points Z they were taken at.

    Both are matrices: one row per feature, the constant of the intercept last; one column per
    round and class.
    """

    points: Vector
    sums: Vector
    classes: int
    deviation: float  # of noise and rounding together, of one entry
    exact: bool  # rounding only


@dataclass(frozen=True)
class Prior:
    """What is known of images beforehand: normal around the mean of their class."""

    means: Vector  # classes × pixels
    axes: Vector  # eigenvectors of the covariance within classes, in columns
    variances: Vector  # and its eigenvalues
    constant: float  # the feature of the intercept

    @classmethod
    def of(cls, rows: Vector, labels: Vector, classes: int, constant: float) -> Prior:
        """From public records, of every class at least one."""
        means = np.array([rows[labels == k].mean(axis=0) for k in range(classes)])
        within = rows - means[labels]
        return cls(means, *_spectrum(within.T @ within / len(rows)), constant)


def gradients(
    agent: LocalProblem, settings: Settings, consensus: Vector, replies: Vector, classes: int
) -> Gradients:
    """Solve the local update for the gradient, round by round. Reads nothing private of ``agent``.

    ``consensus`` and ``replies`` have one row per round.
    """
    if settings.local_updates != 1 or settings.perturbation != "objective":
        raise InvalidInput(
            "Expected local_updates=1 and objective noise for the attack: a reply then is one "
            f"update, got local_updates={settings.local_updates}, {settings.perturbation!r} noise."
        )
    if not agent.feasible_set.separable:
        raise InvalidInput("Expected a box for the attack: other sets mix the coordinates.")
    size, dtype = agent.dimension, agent.dtype
    f: Any = agent.objective
    N = float(f.normaliser)
    z, λ = start_point(agent).astype(np.float64), np.zeros(size)
    points, sums, largest = [], [], 0.0
    for t, (w, reply) in enumerate(zip(consensus, replies, strict=True), 1):
        (ρ,), (η,) = (x.astype(dtype).astype(np.float64) for x in settings.schedule(t, t))
        c = 1 / η + ρ
        points.append(z)
        sums.append(N * (z / η + ρ * w + λ - c * reply))
        largest = max(largest, N * c * float(np.sqrt(np.mean(reply**2))))
        λ = λ + ρ * (w - reply)
        z = reply
    noise = N * float(np.sqrt(settings.mechanism.variance(certified_sensitivity(agent, settings))))
    deviation = float(np.hypot(noise, np.finfo(dtype).eps * largest))
    at, table = (_columns(rows, classes) for rows in (points, sums))
    return Gradients(at, table, classes, deviation, noise == 0)


def _columns(rows: list[Vector], classes: int) -> Vector:
    """Rounds of z in C order (features × classes) as a matrix, features × (rounds · classes)."""
    stacked = np.stack(rows).reshape(len(rows), -1, classes).transpose(1, 0, 2)
    return np.ascontiguousarray(stacked).reshape(stacked.shape[0], -1)


def recover(heard: Gradients, records: int, prior: Prior) -> tuple[Vector, Vector]:
    """The images (posterior means, or the most likely where labels are sure) and labels."""
    with threadpool_limits(1):  # many small products: threads would only wait for each other
        return _recover(heard, records, prior)


def _recover(heard: Gradients, records: int, prior: Prior) -> tuple[Vector, Vector]:
    basis, rest = _basis(heard, records, prior)
    lifted = replace(
        heard,
        points=np.vstack([basis.T @ heard.points[:-1], heard.points[-1:]]),
        sums=np.vstack([basis.T @ heard.sums[:-1], heard.sums[-1:]]),
    )
    within = (basis.T @ prior.axes) * prior.variances @ (basis.T @ prior.axes).T
    reduced = Prior(prior.means @ basis, *_spectrum(within), prior.constant)
    stages = np.geomspace(FIRST, heard.deviation, STAGES) if heard.exact else [heard.deviation]
    images, chances = _mean_field(lifted, records, reduced, stages[0])
    labels = _labels(chances)
    if chances.max(axis=1).min() > SURE:
        found, rng = images[np.arange(records), labels], np.random.default_rng(0)
        for deviation in stages:
            if heard.exact:  # records that look alike from afar must be able to part
                drawn = rng.normal(size=found.shape) * np.sqrt(reduced.variances)
                found = found + PART * drawn @ reduced.axes.T
            found = _least_squares(lifted, found, labels, reduced, deviation)
    else:
        found = np.einsum("ik,ikj->ij", chances, images)
    return np.maximum(found @ basis.T + chances @ rest, 0), labels  # pixels are not negative


def _basis(heard: Gradients, records: int, prior: Prior) -> tuple[Vector, Vector]:
    """A few directions that hold all that messages tell of images, and the class means' rest.

    Without noise every gradient is a combination of the records: their span is that of the
    gradients. With noise: the class means, and where the prior leaves more doubt than the noise.
    """
    if heard.exact:
        span = np.linalg.svd(heard.sums[:-1], full_matrices=False)[0][:, :records]
        return span, np.zeros_like(prior.means)
    rounds = heard.sums.shape[1] / heard.classes
    information = 2 * rounds / heard.deviation**2  # ‖softmax − e_y‖² ≤ 2
    open_ = prior.variances * information > NEGLIGIBLE
    basis = np.linalg.qr(np.hstack([prior.means.T, prior.axes[:, open_]]))[0]
    return basis, prior.means - (prior.means @ basis) @ basis.T


def _spectrum(covariance: Vector) -> tuple[Vector, Vector]:
    variances, axes = np.linalg.eigh(covariance)
    return axes, np.maximum(variances, LEAST_VARIANCE * variances.max(initial=0.0))


def _shares(x: Vector, heard: Gradients) -> Vector:
    """softmax(x'Z) of every row of x and round, in the columns' order."""
    scores = (x @ heard.points).reshape(len(x), -1, heard.classes)
    shares: Vector = softmax(scores, axis=2).reshape(len(x), -1)
    return shares


def _with_constant(images: Vector, prior: Prior) -> Vector:
    return np.hstack([images, np.full((len(images), 1), prior.constant)])


def _mean_field(
    heard: Gradients, records: int, prior: Prior, deviation: float
) -> tuple[Vector, Vector]:
    """The most likely image of every record and class, and the probabilities of the classes.

    Given slopes r = softmax − e_k, the sums less the other records' are x r' plus noise, so that
    x is normal with precision S⁻¹ + a, a = ‖r‖²/s², and the evidence of class k has closed form.
    """
    K, μ, U, v = heard.classes, prior.means, prior.axes, prior.variances
    own = np.tile(np.eye(K), heard.sums.shape[1] // K)
    known = _with_constant(μ, prior)
    images = np.repeat(μ[None], records, axis=0)
    chances = np.full((records, K), 1 / K)
    parts = np.zeros((records, *heard.sums.shape))
    total = np.zeros_like(heard.sums)
    for _ in range(PASSES):
        for i in range(records):
            rest = heard.sums - total + parts[i]
            for _ in range(2):  # the second with the slopes at the first's image
                slopes = _shares(_with_constant(images[i], prior), heard) - own
                a = (slopes**2).sum(axis=1)[:, None] / deviation**2
                b = slopes @ rest.T / deviation**2
                pull = (b[:, :-1] - a * μ) @ U
                images[i] = μ + (pull * (v / (1 + a * v))) @ U.T
            evidence = (b * known).sum(axis=1) - a[:, 0] * (known**2).sum(axis=1) / 2
            evidence += ((pull**2 * v / (1 + a * v) - np.log1p(a * v)) / 2).sum(axis=1)
            chances[i] = softmax(evidence)
            part = (_with_constant(images[i], prior) * chances[i][:, None]).T @ slopes
            total += part - parts[i]
            parts[i] = part
    return images, chances


def _labels(chances: Vector) -> Vector:
    """One label for every record, such that most are right on average, whoever's they are.

    The expected number of right ones is Σ_k Σ_{j ≤ chosen_k} P(n_k ≥ j), n_k being the number of
    records of class k: the largest of these probabilities are taken.
    """
    records, K = chances.shape
    at_least = np.zeros((K, records))
    for k in range(K):
        counts = np.ones(1)  # their probabilities
        for q in chances[:, k]:
            counts = np.convolve(counts, [1 - q, q])
        at_least[k] = counts[::-1].cumsum()[::-1][1:]
    chosen = np.argsort(-at_least, axis=None, kind="stable")[:records] // records
    rows, places = linear_sum_assignment(-chances[:, chosen])
    labels: Vector = chosen[places[np.argsort(rows)]]
    return labels


def _least_squares(
    heard: Gradients, images: Vector, labels: Vector, prior: Prior, deviation: float
) -> Vector:
    """The most likely images for known labels: least squares in units of noise and prior."""
    K, scale = heard.classes, np.sqrt(prior.variances)
    own = np.tile(np.eye(K)[labels], heard.sums.shape[1] // K)
    shape = images.shape
    at = (((images - prior.means[labels]) @ prior.axes) / scale).ravel()

    def image(u: Vector) -> Vector:
        found: Vector = prior.means[labels] + (u.reshape(shape) * scale) @ prior.axes.T
        return found

    def value(u: Vector) -> tuple[float, Vector]:
        x = _with_constant(image(u), prior)
        shares = _shares(x, heard)
        slopes = shares - own
        wrong = (x.T @ slopes - heard.sums) / deviation
        back = (x @ wrong / deviation).reshape(len(x), -1, K)
        p = shares.reshape(back.shape)
        back = (p * (back - (p * back).sum(axis=2, keepdims=True))).reshape(len(x), -1)
        slope = slopes @ wrong.T / deviation + back @ heard.points.T
        gradient = (slope[:, :-1] @ prior.axes) * scale
        return float((wrong**2).sum() + u @ u) / 2, gradient.ravel() + u

    options = {"maxiter": 300, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
    return image(minimize(value, at, jac=True, method="L-BFGS-B", options=options).x)
