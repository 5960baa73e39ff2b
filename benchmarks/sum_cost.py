"""CPU time of one party in a secure sum: keys once, and masks in every round.

python benchmarks/sum_cost.py [--parties 10 100 1000] [--numbers 7850]

Prints one line for each number of parties: milliseconds of the keys of a start, of the masks of a
round, and of the party's share of secure noise, and the bytes of a message.
"""

import argparse
import time

import numpy as np

from tacit.privacy.accounting import calibrate
from tacit.privacy.secure_noise import secure_noise
from tacit.protocol.masks import Epoch, Roster
from tacit.protocol.messages import Masked

MOST = 390  # parties that add noise: larger sums go in groups


def milliseconds(function, times=1):
    begun = time.process_time()
    for _ in range(times):
        found = function()
    return 1000 * (time.process_time() - begun) / times, found


def cost(parties, numbers):
    roster = Roster(tuple(f"party {p}" for p in range(parties)))
    everyone = [Epoch("", "run", 1, roster, name) for name in roster.names]
    told = {name: epoch.public for name, epoch in zip(roster.names, everyone, strict=True)}
    mine, values = everyone[0], np.arange(numbers)

    def keys():
        mine.meet(told)
        mine.finish({})

    once, _ = milliseconds(keys)
    masks, masked = milliseconds(lambda: mine.mask(values, 1, "request"), max(3, 300 // parties))
    law = calibrate("gaussian", 1.0, 1e-5, 200)
    grid = secure_noise(law, 1e-5, numbers, 200, 1e-5, min(parties // 2, MOST))
    noise, _ = milliseconds(lambda: grid.draw(1), 20)
    return once, masks, noise, len(Masked("run", 1, masked).to_bytes())


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--parties", type=int, nargs="+", default=[10, 100, 1000])
    options.add_argument("--numbers", type=int, default=7850)
    given = options.parse_args()
    for parties in given.parties:
        once, masks, noise, size = cost(parties, given.numbers)
        print(
            f"{parties:5} parties: keys {once:.1f} ms once; a round: masks {masks:.2f} ms, "
            f"noise {noise:.2f} ms, {size} bytes",
            flush=True,
        )


if __name__ == "__main__":
    main()
