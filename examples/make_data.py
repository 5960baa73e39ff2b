"""Writes the data files of the examples. Needs scikit-learn (``pip install '.[demo]'``).

The constants below stand for public knowledge: units and plausible ranges. Here they were rounded
from the ranges of the data sets, which are public; a real job must not take them from private data.
"""

import csv
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes, load_wine

FOLDER = Path(__file__).parent / "data"
AGENTS = 3

# column: centre, unit
MEASURED = {"bmi": (26, 16), "bp": (95, 40), "s3": (50, 50), "s5": (4.6, 1.5)}
NAMES = ["body_mass_index", "blood_pressure", "hdl", "log_triglycerides", "intercept"]
# lowest and highest value of the thirteen measurements of a wine
LOW = np.array([11, 0.5, 1.2, 10, 70, 0.5, 0, 0, 0, 1, 0.4, 1, 200])
HIGH = np.array([15, 6, 3.3, 30, 165, 4, 5.5, 0.7, 3.6, 13, 1.8, 4, 1700])


def hospitals() -> None:
    """442 patients: four scaled measurements and half a one, and disease progression."""
    data = load_diabetes(scaled=False)
    columns = [
        (data.data[:, data.feature_names.index(name)] - centre) / unit
        for name, (centre, unit) in MEASURED.items()
    ]
    progression = (data.target - 150) / 200
    table = np.column_stack([*columns, np.full(len(progression), 0.5), progression])
    for p in range(AGENTS):
        with open(FOLDER / f"hospital_{p + 1}.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow([*NAMES, "progression"])
            writer.writerows([f"{x:.4f}" for x in row] for row in table[p::AGENTS])


def wards() -> None:
    """The same patients as hospitals keep them: text, units of the measurements, and gaps."""
    data = load_diabetes(scaled=False)
    age, sex, bmi, bp = data.data[:, :4].T
    for p in range(AGENTS):
        with open(FOLDER / f"ward_{p + 1}.csv", "w", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["age", "sex", "bmi", "blood_pressure", "progression"])
            for i in range(p, len(data.target), AGENTS):
                pressure = "" if i % 7 == 0 else f"{bp[i]:g}"
                kind = "female" if sex[i] == 1 else "male"
                writer.writerow(
                    [f"{age[i]:g}", kind, f"{bmi[i]:g}", pressure, f"{data.target[i]:g}"]
                )


def wine() -> None:
    """178 wines: thirteen measurements scaled to about [-1, 1] and a one; three cultivars."""
    data = load_wine()
    order = np.random.default_rng(0).permutation(len(data.target))  # they come sorted by class
    scaled = 2 * (data.data - LOW) / (HIGH - LOW) - 1
    features = np.column_stack([scaled, np.ones(len(scaled))])[order]
    for p in range(AGENTS):
        np.savez_compressed(
            FOLDER / f"laboratory_{p + 1}.npz",
            features=features[p::AGENTS],
            labels=data.target[order][p::AGENTS].astype(np.uint8),
        )


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    hospitals()
    wards()
    wine()
