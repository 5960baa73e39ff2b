"""What an eavesdropper learns about the records of small agents from the messages of a fit.

The eavesdropper (the server is one) knows all that is public: settings, schedules, set, sizes,
classes and normaliser. It hears every broadcast and every reply, hence the duals, and has public
images of the same kind. ``gradient_inversion.py`` is how it gets from there to the records.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from tacit._types import Vector
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.settings import Asked, Settings
from tacit.errors import InvalidInput, count, positive
from tacit.lab.gradient_inversion import Prior, gradients, recover
from tacit.learn import Box
from tacit.learn.centring import scaled_down
from tacit.learn.data import Dataset
from tacit.learn.linear import DEFAULT_BOX, INTERCEPT_SHARE
from tacit.objectives.losses import SoftmaxRegression
from tacit.planning import plan
from tacit.protocol.statement import PrivacyStatement
from tacit.transports.solving import solve

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    bound: float | None = None,
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
    problem, rows, labels = small_agents(data, records, agents, feature_norm, bound)
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
    data: Dataset, records: int, agents: int, feature_norm: float, bound: float | None
) -> tuple[Problem, Vector, Vector]:
    """The problem of ``PrivateLogisticRegression`` for a few records each; images and labels."""
    total = count("records", records) * count("agents", agents)
    if total > len(data):
        raise InvalidInput(f"Expected at most {len(data)} records in all, got {total}.")
    part = data.part(np.random.default_rng(0).permutation(len(data))[:total])
    images = scaled_down(part.features, _room(feature_norm))
    rows = np.hstack([images, np.full((total, 1), INTERCEPT_SHARE * feature_norm, images.dtype)])
    wide = DEFAULT_BOX / feature_norm
    box = Box(wide if bound is None else bound)(
        images.shape[1], data.classes, wide / INTERCEPT_SHARE
    )
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
