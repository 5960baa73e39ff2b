"""What a server knows of agents is enough to plan a run, and is nothing of their data."""

import dataclasses

import msgpack
import numpy as np
import pytest
from conftest import OBJECTIVES, objective_of, problem_of, set_of

import tacit
from tacit.admm.settings import Asked
from tacit.errors import CorruptFile
from tacit.planning import plan
from tacit.privacy.mechanisms import Gaussian
from tacit.protocol.facts import NotKnown, described, facts_of, members_of, summed
from tacit.protocol.messages import answer_from
from tacit.protocol.statement import privacy_statement, release_statement

KINDS = ("least-squares", "logistic", "hinge", "residual")


def told(problem, sizes=True):
    """The same problem, as agents tell it over a line."""
    facts = [facts_of(a, n, sizes) for n, a in zip(problem.names, problem.agents, strict=True)]
    return described([answer_from(f.to_bytes()) for f in facts], problem.penalties)


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_plans_as_one_process_would(kind):
    problem = problem_of(kind, "ball")
    known = told(problem)
    rounds = tacit.Settings.for_budget(1.0, 1e-5, 30)
    assert rounds.complete(known) == rounds.complete(problem)
    for budget in (Asked(1.0, 1e-5), Asked(0.5, 0.0)):
        here, there = plan(problem, budget), plan(known, budget)
        assert there == here
    assert privacy_statement(known, rounds, False) == privacy_statement(problem, rounds, False)
    once = Gaussian(3.0), 1e-5, False, True
    assert release_statement(known, *once) == release_statement(problem, *once)
    for here, there in zip(members_of(problem), members_of(known), strict=True):
        assert there.name == here.name and there.start.dtype == here.start.dtype
        np.testing.assert_array_equal(there.start, here.start)
        np.testing.assert_array_equal(there.coordinates, here.coordinates)


def test_facts_do_not_depend_on_the_data():
    """Every byte is the same for data that have nothing in common but their public bounds."""
    for kind in KINDS:
        one, other = (
            facts_of(
                tacit.LocalProblem(
                    objective_of(kind, np.random.default_rng(seed)), set_of("box", 4)
                ),
                "north",
            )
            for seed in (1, 2)
        )
        if kind == "residual":  # its matrix is public, and differs here
            one, other = (
                dataclasses.replace(
                    f,
                    **dict.fromkeys(("smoothness", "gradient_bound", "lift_energy"), 1.0),
                    strong_convexity=0.0,
                    deviations=one.widths,
                )
                for f in (one, other)
            )
        assert one.to_bytes() == other.to_bytes()


def test_what_only_an_agent_knows_is_refused():
    known = told(problem_of("least-squares", "box")).agents[0]
    f, W = known.objective, known.feasible_set
    z = np.ones(4)
    for ask in (
        lambda: f.value(z),
        lambda: f.statistic(z),
        lambda: W.project(z),
        lambda: W.violation(z),
        lambda: f.statistics().released_objective(z, 1.0),
    ):
        with pytest.raises(NotKnown, match="agent 1"):
            ask()


def test_sizes_that_only_a_solver_knows_are_told_if_asked():
    problem = problem_of("residual", "polyhedron")
    settings = tacit.Settings(5)
    known = told(problem, sizes=False)
    with pytest.raises(NotKnown, match="diameter"):
        settings.complete(known)
    given = tacit.Settings(5, penalty=1.0, step_size=0.1)
    assert given.complete(known) == given
    assert settings.complete(told(problem)) == settings.complete(problem)


@pytest.mark.parametrize(
    "field, value",
    [
        ("two", float("nan")),
        ("two", -1.0),
        ("diameter", "far"),
        ("smoothness", 1),
        ("coupling", ["<i8", 1, b"\0" * 8]),
        ("coupling", ["<f8", 4, b"\0" * 32]),
        ("longest", 0.0),
        ("usual_curvature", float("inf")),
        ("usual_curvature", 1e300),
        ("reach", 1e-300),
        ("uncertified", ""),
        ("secret", "1"),
    ],
)
def test_other_facts_are_none(field, value):
    problem = problem_of("logistic", "box")
    data = facts_of(problem.agents[0], "a").to_bytes()
    content = msgpack.unpackb(data)
    assert answer_from(msgpack.packb(content)).to_bytes() == data
    with pytest.raises(CorruptFile):
        answer_from(msgpack.packb(content | {field: value}))


DOUBT = "the rounding of a tpu is not inside the proof."


def test_a_device_is_in_doubt_for_rounds_only(monkeypatch):
    """Rounding on an unknown device is outside of the proof; a release is computed by
    the processor, and described as one process describes it."""
    from tacit.protocol import facts, statement

    for module in (facts, statement):
        monkeypatch.setattr(module.jax, "default_backend", lambda: "tpu")
    whole = problem_of("least-squares", "box")
    law, settings = Gaussian(5.0), tacit.Settings(2, 1, Gaussian(5.0), 1e-5)
    for problem in (whole, told(whole)):
        assert release_statement(problem, law, 1e-5, False, True).certified
        assert privacy_statement(problem, settings, False).uncertified == DOUBT


@pytest.mark.parametrize("name", ["uncertified", "uncertified_here"])
@pytest.mark.parametrize("place", range(3))
def test_a_doubt_about_one_party_is_one_about_the_sum(name, place):
    agent = problem_of("logistic", "box").agents[0]
    facts = [facts_of(agent, party) for party in "abc"]
    assert summed(facts, 1).uncertified == summed(facts, 1).uncertified_here == ""
    facts[place] = dataclasses.replace(facts[place], **{name: DOUBT})
    settings = tacit.Settings(2, 1, Gaussian(5.0), 1e-5)
    assert privacy_statement(described([summed(facts, 1)]), settings, False).uncertified == DOUBT


def numbers_of(agent):
    """All that a server may ask of an agent, by name; what there is none of is None."""
    f, W = agent.objective, agent.feasible_set

    def told(ask):
        try:
            return ask()
        except (tacit.InvalidInput, AttributeError):
            return None

    asked = {
        "Δ1": lambda: f.sensitivity(1, W),
        "Δ2": lambda: f.sensitivity(2, W),
        "released Δ1": lambda: f.statistics().sensitivity(1),
        "released Δ2": lambda: f.statistics().sensitivity(2),
        "released": lambda: f.statistics().values.size,
        "gradient deviation": lambda: f.statistics().gradient_deviation(3.0, W),
        "gradient bound": lambda: f.gradient_bound(W),
        "diameter": lambda: W.diameter,
        "radius": lambda: W.radius(np.inf),
        "format": lambda: agent.dtype,
        "held": lambda: [*np.asarray(agent.coupling).tolist(), agent.holds_everything],
    }
    found = {name: told(ask) for name, ask in asked.items()}
    for name in (
        *("kind", "relation", "neighbours", "uncertified", "clipped", "smoothness", "dimension"),
        *("strong_convexity", "lift_energy", "descent", "normaliser"),
    ):
        found[name] = told(lambda name=name: getattr(f, name))
    for name in ("closed_form", "separable", "dimension"):
        found[f"set: {name}"] = getattr(W, name)
    if found["gradient deviation"] is not None:
        found["rows"] = f.feature_bound(2)
    for name in ("Δ1", "Δ2"):  # of kinks, which rounds do not have
        found[name] = np.inf if found[name] is None else found[name]
    return found


CLIPPED = tacit.LogisticRegression(
    np.eye(4)[:3], [0, 1, 1], feature_norm=1.0, normaliser=9.0, clip=0.2, ridge=0.125
)
SINGLE = tacit.Hinge(np.eye(4, dtype="f4")[:3], [0, 1, 1], feature_norm=1.0, normaliser=9.0)
GROUPED = tacit.Residual(np.eye(4)[:2], [0.1, 0.2], 0.25, groups=(0, 0), doubt="it is a test.")


@pytest.mark.parametrize("kind", [*OBJECTIVES, CLIPPED, SINGLE, GROUPED], ids=str)
@pytest.mark.parametrize("feasible", ["box", "ball", "simplex"])
def test_every_number_that_is_told_is_the_agent_s_own(kind, feasible):
    """Agents that differ in everything, so that none stands for another."""
    rng, objectives = np.random.default_rng(3), [kind]
    if isinstance(kind, str):
        public = {"dimension": 4, "normaliser": 40.0}
        about = ((9, 0.0), (14, 0.5))
        objectives = [objective_of(kind, rng, n, ridge=ridge, **public) for n, ridge in about]
    size = objectives[0].dimension
    held = None, [1, 0, *range(2, size - 1), -1]
    agents = [
        tacit.LocalProblem(f, set_of(feasible, size), coupling, f"agent {k}")
        for k, (f, coupling) in enumerate(zip(objectives, held, strict=False))
    ]
    problem = tacit.Problem(agents)
    for agent, known in zip(problem.agents, told(problem).agents, strict=True):
        here, there = numbers_of(agent), numbers_of(known)
        for name, value in here.items():
            exact = not isinstance(value, float)
            assert there[name] == (value if exact else pytest.approx(value, rel=1e-12)), name
        assert here["clipped"] is (kind == "per-sample")
