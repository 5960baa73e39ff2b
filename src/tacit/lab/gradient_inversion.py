"""From an agent's messages to its gradients, and from its gradients to its records.

With E = 1 a reply is one update of Algorithm 1, z^{t+1} = Proj((z^t/η + ρw + λ − f'(z^t) − ξ)/c).
All but the noisy gradient is public or heard, so that on coordinates inside the box

    f'(z^t) + ξ = z^t/η + ρw + λ − c z^{t+1},   c = 1/η + ρ,

and lost on coordinates at the box. The gradient of softmax regression is a sum of outer products,
N f'(Z) = Σ_i x_i (softmax(x_i'Z) − e_{y_i})'. The eavesdropper takes images as normal given their
class, with mean and covariance from public images, and labels as equally likely. It finds

    q_ik   the probability that record i is of class k, and the most likely image if so,

record after record, the others fixed at their averages over q (mean-field Bayes), with the slopes
softmax − e_y at the last estimate. Where all labels are sure, images follow together from the
nonlinear least squares problem with the prior's term (L-BFGS). For Gaussian noise that is the
maximum of the posterior; other noise is taken as if it were Gaussian of the same variance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment, minimize
from scipy.special import softmax
from threadpoolctl import threadpool_limits

from tacit._types import Vector
from tacit.admm.local_side import certified_sensitivity, start_point
from tacit.admm.problem import LocalProblem
from tacit.admm.settings import Settings
from tacit.errors import InvalidInput

PASSES = 6  # over the records
SURE = 0.95  # labels of this probability are taken as known
FIRST = 0.1  # without noise, the deviation assumed at first
STAGES = 5  # and the number of searches until it is that of the rounding
PART = 0.03  # of the prior's deviation, by which images are moved between searches
WHOLE = 0.9  # share of columns without gaps, above which the others are left out
LEAST_VARIANCE = 1e-4  # variance of a direction of images, as a share of the largest
NEGLIGIBLE = 0.01  # directions in which messages say less than this about an image are left out


@dataclass(frozen=True)
class Gradients:
    """Noisy sums of the records' gradients, and the points Z they were taken at.

    Both are matrices: one row per feature, the constant of the intercept last; one column per
    round and class. A coordinate at the box is not heard, and 0 in ``sums``.
    """

    points: Vector
    sums: Vector
    heard: Vector  # 1 for an entry that is heard, 0 for one that is not
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
    far = np.full(size, np.finfo(dtype).max / 2, dtype)
    lower, upper = (np.asarray(agent.feasible_set.project(v)) for v in (-far, far))
    f: Any = agent.objective
    N = float(f.normaliser)
    z, λ = start_point(agent).astype(np.float64), np.zeros(size)
    points, sums, heard, largest = [], [], [], 0.0
    for t, (w, reply) in enumerate(zip(consensus, replies, strict=True), 1):
        (ρ,), (η,) = (x.astype(dtype).astype(np.float64) for x in settings.schedule(t, t))
        c = 1 / η + ρ
        points.append(z)
        sums.append(N * (z / η + ρ * w + λ - c * reply))
        heard.append(((lower < reply) & (reply < upper)).astype(np.float64))
        largest = max(largest, N * c * float(np.sqrt(np.mean(reply**2))))
        λ = λ + ρ * (w - reply)
        z = reply
    noise = N * float(np.sqrt(settings.mechanism.variance(certified_sensitivity(agent, settings))))
    deviation = float(np.hypot(noise, np.finfo(dtype).eps * largest))
    at, table, seen = (_columns(rows, classes) for rows in (points, sums, heard))
    return Gradients(at, table * seen, seen, classes, deviation, noise == 0)


def _columns(rows: list[Vector], classes: int) -> Vector:
    """Rounds of z in C order (features × classes) as a matrix, features × (rounds · classes)."""
    stacked = np.stack(rows).reshape(len(rows), -1, classes).transpose(1, 0, 2)
    return np.ascontiguousarray(stacked).reshape(stacked.shape[0], -1)


def recover(heard: Gradients, records: int, prior: Prior) -> tuple[Vector, Vector]:
    """The images (posterior means, or the most likely where labels are sure) and labels."""
    with threadpool_limits(1):  # many small products: threads would only wait for each other
        return _recover(heard, records, prior)


def _recover(heard: Gradients, records: int, prior: Prior) -> tuple[Vector, Vector]:
    whole = heard.heard.all(axis=0)
    if whole.mean() > WHOLE:  # do without the few columns that have gaps
        heard = replace(heard, sums=heard.sums * whole)
        basis, rest = _basis(heard, records, prior)
        gaps = np.tile(whole.astype(np.float64), (basis.shape[1] + 1, 1))
    else:
        basis, rest, gaps = np.eye(len(prior.axes)), np.zeros_like(prior.means), heard.heard
    lifted = replace(
        heard,
        points=np.vstack([basis.T @ heard.points[:-1], heard.points[-1:]]),
        sums=np.vstack([basis.T @ heard.sums[:-1], heard.sums[-1:]]),
        heard=gaps,
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
    share = heard.heard.mean(axis=0)  # gaps are taken as spread evenly over a column
    known = _with_constant(μ, prior)
    images = np.repeat(μ[None], records, axis=0)
    chances = np.full((records, K), 1 / K)
    parts = np.zeros((records, *heard.sums.shape))
    total = np.zeros_like(heard.sums)
    for _ in range(PASSES):
        for i in range(records):
            rest = heard.heard * (heard.sums - total + parts[i])
            for _ in range(2):  # the second with the slopes at the first's image
                slopes = _shares(_with_constant(images[i], prior), heard) - own
                a = (slopes**2 @ share)[:, None] / deviation**2
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
        law = np.ones(1)
        for q in chances[:, k]:
            law = np.convolve(law, [1 - q, q])
        at_least[k] = law[::-1].cumsum()[::-1][1:]
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
        wrong = heard.heard * (x.T @ slopes - heard.sums) / deviation
        back = (x @ wrong / deviation).reshape(len(x), -1, K)
        p = shares.reshape(back.shape)
        back = (p * (back - (p * back).sum(axis=2, keepdims=True))).reshape(len(x), -1)
        slope = slopes @ wrong.T / deviation + back @ heard.points.T
        gradient = (slope[:, :-1] @ prior.axes) * scale
        return float((wrong**2).sum() + u @ u) / 2, gradient.ravel() + u

    options = {"maxiter": 300, "maxcor": 30, "ftol": 1e-15, "gtol": 1e-9}
    return image(minimize(value, at, jac=True, method="L-BFGS-B", options=options).x)
