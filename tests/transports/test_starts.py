"""What exact steps may start from: an answer from the same release, or none."""

import dataclasses

import numpy as np
import pytest
from test_releasing import zones

import tacit
from tacit.errors import InvalidInput

EXACT = tacit.Settings(rounds=300, tolerance=1e-8)


def exact_of(problem):
    """The answer without noise."""
    return tacit.solve(problem, EXACT)


def world(k):
    """``zones`` with loads of their own; neighbours for the statement of ``release``."""
    return zones(data=np.random.default_rng(k).normal(size=(2, 6)))


def test_a_start_is_of_the_same_release_or_none():
    """One round at a huge penalty gave a start back, whatever it was computed from: at a total of
    0.01 the exact answers, so that 20 of 20 worlds were told apart."""
    glued = tacit.Settings(rounds=1, penalty=1e9)
    for k in range(20):
        released = tacit.release(world(k), 0.01, 1e-6, seed=k)
        with pytest.raises(InvalidInput, match="from the same release"):
            tacit.solve(released, glued, start=exact_of(world(k)))
    with pytest.raises(InvalidInput, match="Expected a Result"):
        tacit.solve(released, glued, start=np.zeros(6))


@pytest.mark.parametrize("change", ["other budget", "other data", "other numbers", "from a file"])
def test_whose_start_it_is_is_checked_number_by_number(change, tmp_path):
    released = tacit.release(zones(), 1.0, 1e-5, seed=1)
    settings = tacit.Settings(rounds=20)
    own = tacit.solve(released, settings)
    again = tacit.Result.load(own.save(tmp_path / "own"))  # the next day, from files
    np.testing.assert_array_equal(
        tacit.solve(released, settings, start=again).solution,
        tacit.solve(released, settings, start=own).solution,
    )
    exact = exact_of(zones())
    wrong = {
        "other budget": tacit.solve(tacit.release(zones(), 9.0, 1e-5, seed=1), settings),
        "other data": tacit.solve(tacit.release(world(1), 1.0, 1e-5, seed=1), settings),
        "other numbers": dataclasses.replace(own, local=exact.local),
        "from a file": dataclasses.replace(exact, release=again.release),
    }[change]
    with pytest.raises(InvalidInput, match="from the same release"):
        tacit.solve(released, settings, start=wrong)
    tacit.solve(zones(), EXACT, start=wrong)  # promises nothing, and may start anywhere


def test_a_start_may_follow_a_start_and_a_budget():
    """Answers of one release are of one kind, however often they start from each other."""
    budget, settings = tacit.Settings.for_budget(1.0, 1e-5), tacit.Settings(rounds=3)
    released = tacit.release(zones(), 1.0, 1e-5, mechanism="laplace", seed=2)
    first = tacit.solve(zones(), budget, seed=2)
    np.testing.assert_array_equal(  # the same release, made by ``solve``
        first.solution, tacit.solve(released, first.settings).solution
    )
    second = tacit.solve(released, settings, start=first)
    assert tacit.solve(released, settings, start=second).privacy == released.privacy
    with pytest.raises(InvalidInput, match="from the same release"):
        tacit.solve(zones(), budget, seed=3, start=first)  # read again, with other noise


def test_a_release_answers_for_the_private_problem_too():
    """Its statement is of what was released: the data themselves are not read beside it."""
    released = tacit.release(zones(), 0.01, 1e-6, seed=1)
    settings = tacit.Settings(rounds=20)
    swapped = dataclasses.replace(released, problem=tacit.Problem.of(zones()))
    found, own = (tacit.solve(of, settings) for of in (swapped, released))
    assert found.privacy == own.privacy
    np.testing.assert_array_equal(found.solution, own.solution)
