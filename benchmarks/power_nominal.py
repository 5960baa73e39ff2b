"""How much public nominal loads improve noisy releases: case118, total (1, 1e-5), five seeds.

True loads are the nominal ones times (1 + s·(standard normal)), at once for p and q. Printed, as
means: the error of the loads (root mean square, per unit) and the squared load shedding at true
loads of the central solution, for releases as they are, drawn towards the nominal loads by the true
spread s, by half and by twice that, and by what the releases themselves suggest.

    python benchmarks/power_nominal.py [CASE] [EPSILON]
"""

import dataclasses
import sys

import numpy as np

from tacit.power import build, load_case
from tacit.privacy.accounting import calibrate

SEEDS = 5


def main(name: str = "case118", epsilon: float = 1.0) -> None:
    nominal = load_case(name)
    law = calibrate("gaussian", epsilon, 1e-5, 1)
    for spread in (0.0, 0.05, 0.1, 0.2, 0.5, 1.0):
        errors: dict[str, list[tuple[float, float]]] = {}
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            loads = nominal.bus[["p_demand", "q_demand"]]
            true = loads.mul(1 + spread * rng.normal(size=len(loads)), axis=0)
            grid = dataclasses.replace(nominal, bus=nominal.bus.assign(**true))
            kinds = {
                "as read": build(grid, 3),
                "true spread": build(grid, 3, nominal=nominal, nominal_spread=spread),
                "half": build(grid, 3, nominal=nominal, nominal_spread=spread / 2),
                "twice": build(grid, 3, nominal=nominal, nominal_spread=2 * spread),
                "no spread given": build(grid, 3, nominal=nominal),
            }
            all_statistics = [agent.objective.statistics() for agent in kinds["as read"].agents]
            deviation = float(np.sqrt(law.variance(all_statistics[0].sensitivity(2))))
            noisy = [r.values + deviation * rng.normal(size=r.values.size) for r in all_statistics]
            for kind, case in kinds.items():
                copies = [
                    agent.objective.statistics().released_objective(values, deviation)
                    for agent, values in zip(case.agents, noisy, strict=True)
                ]
                away = np.concatenate(
                    [
                        np.asarray(c.data) - r.values
                        for c, r in zip(copies, all_statistics, strict=True)
                    ]
                )
                z = case.central(copies)
                shed = sum(float(a.objective.value(x)) for a, x in zip(case.agents, z, strict=True))
                errors.setdefault(kind, []).append((float(np.sqrt(np.mean(away**2))), shed))
        cells = [
            f"{kind} {np.mean(e, axis=0)[0]:.4f} / {np.mean(e, axis=0)[1]:.3f}"
            for kind, e in errors.items()
        ]
        print(f"{name} epsilon {epsilon:g} spread {spread:g}: " + ", ".join(cells), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main(*given[:1], *map(float, given[1:]))
