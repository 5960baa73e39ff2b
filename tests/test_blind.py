"""With noise alone in place of every noisy sum, nothing that is covered tells neighbours apart.

Each case is run on two data sets that chains of neighbours join: all records are others (fewer of
them where records are added and removed), all loads are. What would differ for two neighbours on
the way differs at some step of it; and the second set has all that public rules are there for:
values beyond their ranges, unknown categories, gaps, labels and targets of one kind only. Budgets
are large: where noise alone fills a box, or is drawn in to 0, a leak might not show.
"""

from dataclasses import replace

import numpy as np
import pytest
from blind import covered, differences, draws, fresh
from blind_commands import AT_THE_PROMPT, LEARN, STUDIES, UNLISTED, at_the_prompt, table
from blind_in_python import IN_PYTHON, problem_of, rounds
from conftest import repeat

import tacit
from tacit.protocol import result as results

CASES = {**IN_PYTHON, **AT_THE_PROMPT, **STUDIES}


def differing(outcome, folder, blind):
    both = []
    for world in (0, 1):
        with draws(blind):
            both.append(outcome(fresh(folder / "world"), world))
    found = differences(*both)
    for place, pair in found.items():  # what pytest shows of a failure
        print(place, [str(one)[:300] for one in pair])
    return [*found]


@pytest.mark.parametrize("name", CASES)
def test_noise_alone_tells_no_neighbours_apart(name, tmp_path):
    assert differing(CASES[name], tmp_path, blind=True) == []


# --- what this test can see ----------------------------------------------------------------------

SEEN = [next(name for name in CASES if name.endswith("batched")), "learn", "power", "study, once"]
MORE = [name for name in (*AT_THE_PROMPT, *STUDIES) if "not " not in name]


@pytest.mark.parametrize("name", repeat(SEEN, [SEEN[0], *MORE]))
def test_with_the_sums_it_differs(name, tmp_path):
    assert differing(CASES[name], tmp_path, blind=False)


def rows_beyond(problem):
    """Counts of private records."""
    rows = [np.asarray(agent.objective.features) for agent in problem.agents]
    return sum(int((np.abs(x).sum(axis=0) > 1).sum()) for x in rows)


def count_in_the_result(patch):
    real = results.result_of

    def told(problem, *about):
        return replace(real(problem, *about), versions={"long": str(rows_beyond(problem))})

    patch.setattr(results, "result_of", told)


def step_from_the_data(patch):
    curved = property(lambda f: 1 + float(np.abs(np.asarray(f.features)).sum()))
    patch.setattr(tacit.LogisticRegression, "smoothness", curved)


def noise_from_the_data(patch):
    def largest(f, norm, feasible_set):
        return 0.1 + float(np.abs(np.asarray(f.features)).sum())

    patch.setattr(tacit.LogisticRegression, "sensitivity", largest)


def classes_from_the_data(patch):
    """As the command has them where none are given, which its statement takes for public."""


def relabelled(world):
    """A table, and its neighbour with another label."""
    files = table(0)
    return {**files, "t.csv": files["t.csv"].replace(",yes,", ",maybe,", world)}


ONE = rounds("logistic", "replace", "gaussian", "one by one")
LEAKS = {
    count_in_the_result: (ONE, "result.json/versions"),
    step_from_the_data: (ONE, "result.json/settings"),
    noise_from_the_data: (ONE, "arrays.npz"),
    classes_from_the_data: (
        at_the_prompt(relabelled, f"{LEARN} {UNLISTED} --rounds 4"),
        "model.json",
    ),
}


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_leak_is_seen(leak, tmp_path, monkeypatch):
    leak(monkeypatch)
    outcome, where = LEAKS[leak]
    assert any(place.startswith(f"/{where}") for place in differing(outcome, tmp_path, True))


def test_a_file_that_nothing_is_declared_of_is_seen(tmp_path):
    folder = tmp_path / "out"
    with draws(True):
        settings = tacit.Settings.for_budget(1.0, 1e-5, rounds=4)
        tacit.solve(problem_of("logistic", "replace", 0), settings).save(folder)
        (folder / "clipped.json").write_text("3")
        (folder / "clipped.json").chmod(0o600)
        with pytest.raises(AssertionError, match="clipped"):
            covered(folder)
