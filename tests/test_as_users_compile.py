"""What rests on how a compiler rounds, in programs compiled as users' are.

``make test`` compiles without optimisation (``XLA_FLAGS`` in the Makefile), which takes half the
time; fused loops and products that are added without rounding in between come with it. Of all that
is proven for either, the tests below look at last bits.
"""

import os
import subprocess
import sys
from pathlib import Path

TESTS = (
    "objectives/test_rounding.py",
    "objectives/test_per_sample.py::test_a_clipped_float32_gradient_is_no_longer_than_clip",
    "admm/test_algorithm.py::test_an_average_of_many_float32_points_stays_in_the_set",
    "privacy/test_normals.py::test_quantiles_are_exact_in_centre_and_tails",
)


def test_last_bits_with_optimisation():
    if not os.environ.get("XLA_FLAGS"):
        return  # the whole suite is compiled so
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    folder = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *(str(folder / test) for test in TESTS)],
        cwd=folder.parent,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
