"""The picture of the first page: what an eavesdropper sees, and what privacy costs.

python front_picture.py FOLDER [--out docs/front.png]      (FOLDER has MNIST's four files)

Left: ``tacit learn attack mnist`` with four records per agent, without noise and at a total of
(1, 1e-5). Right: the errors of ``peers_mnist.json``, which ``peers.py --sets "MNIST, orientations"
--epsilons 0.25 0.5 1 2 4`` measures; the notes there say with which settings.
"""

import argparse
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from tacit.lab.record_recovery import attack
from tacit.learn import load_mnist

SHOWN = [0, 1, 3, 5, 6, 7]  # of the images that were attacked
LINES = {  # method: (label, colour, dashes)
    "Opacus, alone": ("Opacus, each party alone", "#8a8f98", "-"),
    "Opacus, trusted": ("Opacus, all records at a trusted curator", "#c46b1e", "--"),
    "Tacit": ("Tacit, ten parties, nobody trusted", "#1f5f8b", "-"),
    "Tacit, summed": ("Tacit, ten parties, up to half may collude", "#2a9d7f", "-"),
    "Tacit, trusted": ("Tacit, all records at a trusted curator", "#7fb0d1", "--"),
}


def draw(found, measured):
    figure = plt.figure(figsize=(11, 3.7), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=[1.05, 1])
    left.suptitle("What an eavesdropper recovers from the messages", fontsize=11)
    without, private = found.found["no privacy"], found.found["epsilon 1"]
    rows = {
        "private images": found.images,
        "recovered,\nno privacy": without.images,
        "recovered,\nε = 1": private.images,
    }
    axes = left.subplots(len(rows), len(SHOWN))
    for row, (label, images) in zip(axes, rows.items(), strict=True):
        for axis, image in zip(row, np.asarray(images)[SHOWN], strict=True):
            axis.imshow(image.reshape(28, 28), cmap="gray_r", vmin=0, vmax=np.quantile(image, 0.99))
            axis.set(xticks=[], yticks=[])
            for spine in axis.spines.values():
                spine.set_color("#c8ccd2")
        row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=9)
    right.suptitle("What privacy costs: test error on MNIST", fontsize=11)
    curves(right.subplots(), measured)
    return figure


def curves(axis, measured):
    results = measured["results"]
    for method, (label, colour, dashes) in LINES.items():
        budgets = sorted({r["epsilon"] for r in results if r["method"] == method})
        errors = [
            100
            * np.mean([r["error"] for r in results if (r["method"], r["epsilon"]) == (method, e)])
            for e in budgets
        ]
        axis.plot(budgets, errors, dashes, marker="o", ms=4, color=colour, label=label)
    plain = 100 * measured["not private"]["trusted"]
    axis.axhline(plain, color="#555", lw=1, ls=":")
    axis.text(0.25, plain * 0.975, "no privacy", fontsize=8, va="top", color="#555")
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(budgets, [f"{e:g}" for e in budgets])
    axis.set_yticks([1, 2, 3, 5, 10], ["1 %", "2 %", "3 %", "5 %", "10 %"])
    axis.minorticks_off()
    axis.set(xlabel="total ε of all messages together (δ = 10⁻⁵)", ylim=(1, 15))
    axis.grid(axis="y", color="#e3e6ea")
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="MNIST's four files")
    parser.add_argument("--out", default="docs/front.png")
    given = parser.parse_args()
    train, test = (load_mnist(given.folder, part) for part in ("train", "test"))
    found = attack(train, test, [1.0], 1e-5, records=4, agents=10, rounds=50, seeds=1)
    for name, one in found.found.items():
        print(f"{name}: error {one.error:.3g}, labels {one.label_accuracy:.0%}")
    measured = json.loads(Path(__file__).with_name("peers_mnist.json").read_text())
    draw(found, measured).savefig(given.out, dpi=130)


if __name__ == "__main__":
    main()
