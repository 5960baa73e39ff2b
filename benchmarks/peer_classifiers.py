"""Opacus and diffprivlib as classifiers, in a Python of their own (peers.requirements.txt).

python peer_classifiers.py FILE.npz JOBS    (the file is of peers.py) prints a list of results

Both are linear models of the rows in the file. What they are tuned by, on three quarters of the
first seed's training records against the last quarter, is not charged to their budgets: that
favours them. Opacus' neighbours are a record more or less, diffprivlib's have one replaced.
"""

import json
import multiprocessing
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial

import numpy as np

DELTA = 1e-5
LARGE = 20_000  # records in all: from here on fewer settings are tried
FITS = 4  # of each setting, with other noise and other records held back; one for large data
REGULARISATION = 1e-4, 0.001, 0.01, 0.1, 1.0, 10.0, 100.0  # diffprivlib's C


def settings_of_descent(large):
    """(share of records in a batch, epochs, clipping norm, learning rate times that norm)."""
    if large:
        return [
            (1 / 8, epochs, clip, step)
            for epochs in (25, 100, 300)
            for clip in (0.03, 0.1, 1.0)
            for step in (4.0, 16.0, 64.0, 256.0)
        ]
    return [
        (share, epochs, clip, step)
        for share, epochs in ((1 / 8, 10), (1 / 8, 40), (1.0, 40))
        for clip in (0.1, 1.0)
        for step in (0.25, 1.0, 4.0, 16.0)
    ]


@cache
def noise_multiplier(epsilon, share, epochs):
    from opacus.accountants.utils import get_noise_multiplier

    return get_noise_multiplier(
        target_epsilon=epsilon,
        target_delta=DELTA,
        sample_rate=share,
        epochs=epochs,
        accountant="prv",
        epsilon_tolerance=0.005,
    )


def opacus(X, y, X_test, y_test, *, classes, epsilon, setting, seed):
    """Test error of DP-SGD on a softmax regression from zero, Poisson batches, PRV accountant."""
    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    share, epochs, clip, step = setting
    torch.manual_seed(seed)
    model = torch.nn.Linear(X.shape[1], classes)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    data = TensorDataset(torch.from_numpy(X), torch.from_numpy(y))
    batches = DataLoader(data, batch_size=max(1, round(share * len(y))))
    engine = PrivacyEngine(accountant="prv")
    model, optimiser, loss, batches = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=step / clip),
        data_loader=batches,
        noise_multiplier=noise_multiplier(epsilon, 1 / len(batches), epochs),
        max_grad_norm=clip,
        criterion=torch.nn.CrossEntropyLoss(),
        grad_sample_mode="ghost",  # the same numbers as with every record's gradient, sooner
    )
    for _ in range(epochs):
        for rows, labels in batches:
            optimiser.zero_grad()
            loss(model(rows), labels).backward()
            optimiser.step()
    assert engine.get_epsilon(DELTA) <= epsilon
    with torch.no_grad():
        answers = model(torch.from_numpy(X_test)).argmax(dim=1).numpy()
    return float(np.mean(answers != y_test))


def diffprivlib(X, y, X_test, y_test, *, classes, epsilon, setting, seed):
    """Test error of objective perturbation, one class against the rest; (epsilon, 0)."""
    from diffprivlib.models import LogisticRegression

    model = LogisticRegression(
        epsilon=epsilon, data_norm=1 + 1e-6, C=setting, max_iter=1000, random_state=seed
    )
    return float(np.mean(model.fit(X, y).predict(X_test) != y_test))


def tuned(fit, settings, parts, jobs):
    """The setting with the least error on the last quarters of these parts."""
    errors = partial(held_back, fit, parts)
    if jobs == 1:
        found = list(map(errors, settings))
    else:
        with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
            found = list(pool.map(errors, settings))
    return settings[int(np.argmin(found))]


def held_back(fit, parts, setting):
    """The mean error on quarters that were held back."""
    errors = []
    for seed, (X, y) in enumerate(parts):
        order = np.random.default_rng(seed).permutation(len(y))
        held, kept = np.split(order, [len(y) // 4])
        errors.append(fit(X[kept], y[kept], X[held], y[held], setting=setting, seed=seed))
    return np.mean(errors)


def main():
    warnings.simplefilter("ignore")
    data = np.load(sys.argv[1])
    classes, results = int(data["classes"]), []
    seeds = [
        [data[f"{part}_{seed}"] for part in ("X", "y", "owner", "X_test", "y_test")]
        for seed in range(int(data["seeds"]))
    ]
    large = len(seeds[0][1]) >= LARGE
    peers = {"Opacus": (opacus, settings_of_descent(large)), "diffprivlib": (diffprivlib, None)}
    for name, (peer, settings) in peers.items():
        settings = settings or REGULARISATION[: 3 if large else None]
        for epsilon in map(float, data["epsilons"]):
            fit = partial(peer, classes=classes, epsilon=epsilon)
            for alone in (False, True):
                X, y, owner, *_ = seeds[0]
                parts = [(X, y)] * FITS
                if alone:
                    owns = [owner == p % (owner.max() + 1) for p in range(FITS)]
                    parts = [(X[own], y[own]) for own in owns]
                setting = tuned(fit, settings, parts[: 1 if large else FITS], int(sys.argv[2]))
                for seed, (X, y, owner, *test) in enumerate(seeds):
                    parts = [owner == p for p in np.unique(owner)] if alone else [owner >= 0]
                    start = time.process_time()
                    errors = [
                        fit(X[mine], y[mine], *test, setting=setting, seed=1000 * seed + p)
                        for p, mine in enumerate(parts)
                    ]
                    results.append(
                        {
                            "peer": name,
                            "alone": alone,
                            "epsilon": epsilon,
                            "setting": setting,
                            "error": float(np.mean(errors)),
                            "seconds": time.process_time() - start,
                        }
                    )
                    print(results[-1], file=sys.stderr, flush=True)
    print(json.dumps(results))


if __name__ == "__main__":
    main()
