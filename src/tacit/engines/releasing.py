"""``release``: one noisy reading of every agent's data, with all agents in one process."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.admm.agent import NOISE_SOURCES
from tacit.admm.keys import agent_key, jax_key, root_key
from tacit.admm.plan import least_noise
from tacit.admm.problem import LocalProblem, Problem
from tacit.admm.release import Reader
from tacit.admm.released import Released, is_without_noise
from tacit.admm.settings import Settings
from tacit.admm.statement import release_statement
from tacit.engines.ledgers import open_ledgers
from tacit.errors import InvalidInput, choice
from tacit.objectives import public
from tacit.objectives.rounding import require_64_bits
from tacit.privacy.accounting import calibrate
from tacit.privacy.ledger import Ledger
from tacit.privacy.mechanisms import Mechanism, Noiseless


def release(
    problem: Problem | Iterable[LocalProblem],
    total_epsilon: float,
    total_delta: float = 0.0,
    *,
    mechanism: str | None = None,
    seed: int | None = None,
    run: str = "run",
    noise: str | None = None,
    ledgers: Mapping[str, Ledger | str | Path] | str | Path | None = None,
) -> Released:
    """Let every agent read its data once, with noise; what is computed from it costs no more.

    total_epsilon, total_delta   the budget of each agent's reading; δ = 0 with Laplace noise only
    mechanism   "gaussian" or "laplace"; by default the one that adds less noise, chosen from public
                numbers (``plan.least_noise``)
    seed        Threefry noise from this seed (research); None: from a key of the operating system
    run         a name; seeded noise differs between runs of one seed
    noise       "seeded", or "secure": exact discrete noise from the operating system, number by
                number, the default with ledgers
    ledgers     the agents' ledgers by name, or a folder with NAME.db for every agent. Each agent
                pays there once; asked again for the same data and budget, it gives what it has
                given, at no cost. Data that have changed need, and get, a charge of their own.

    Guarantee: see ``release.py``. ``Released.privacy`` covers all that is computed from it.
    """
    if isinstance(problem, Released):
        raise InvalidInput("Expected a problem of private data, got one that is released already.")
    problem = Problem.of(problem)
    noise_law = (
        least_noise(problem, total_epsilon, total_delta)
        if mechanism is None
        else calibrate(mechanism, total_epsilon, total_delta, 1)
    )
    return read(problem, noise_law, total_delta, seed, run, noise, ledgers)


def without_noise(problem: Problem) -> Released:
    """The problem itself as if it were public, for exact steps: such a run is not private."""
    copies = [
        agent.with_objective(public.without_noise(agent.objective), name)
        for name, agent in zip(problem.names, problem.agents, strict=True)
    ]
    mechanism = Noiseless()
    statement = release_statement(problem, mechanism, 1e-6, False, False)
    return Released(Problem(copies, problem.penalties), (), mechanism, statement, None)


def read(
    problem: Problem,
    mechanism: Mechanism,
    delta: float,
    seed: int | None = None,
    run: str = "run",
    noise: str | None = None,
    ledgers: Mapping[str, Ledger | str | Path] | str | Path | None = None,
) -> Released:
    """``release`` with a given law of the noise."""
    require_64_bits()
    readers, noise = _readers(problem.names, mechanism, delta, seed, run, noise, ledgers)
    pairs = list(zip(readers, problem.agents, strict=True))
    for reader, agent in pairs:  # all can be read and paid for, or none is
        agent.objective.reading()
        reader.agree(agent)
    releases = tuple(reader.read(agent) for reader, agent in pairs)
    statement = release_statement(problem, mechanism, delta, seed is not None, noise == "secure")
    return Released.of(problem, releases, mechanism, statement, seed)


def _readers(
    names: Sequence[str],
    mechanism: Mechanism,
    delta: float,
    seed: int | None,
    run: str,
    noise: str | None,
    ledgers: Mapping[str, Ledger | str | Path] | str | Path | None,
) -> tuple[list[Reader], str]:
    """Every agent's reader, and where the noise comes from."""
    opened = open_ledgers(ledgers, names) if ledgers is not None else None
    noise = choice("noise", noise or ("seeded" if opened is None else "secure"), NOISE_SOURCES)
    if noise == "secure" and seed is not None:
        raise InvalidInput(
            f"Expected no seed for secure noise, got seed={seed!r}. For a seeded release with "
            "ledgers give noise='seeded'. Nothing was released."
        )
    root = jax_key(root_key(seed))
    return [
        Reader(
            name,
            mechanism,
            delta,
            noise,
            agent_key(root, run, i),
            (opened or {}).get(name),
            seed is not None,
        )
        for i, name in enumerate(names)
    ], noise


@dataclass(frozen=True)
class Source:
    """Where the public copies of a run come from: what ``solve`` was given of it.

    The checkpoint of a run that reads its data once is its release, kept before anything is
    computed from it: a run that is continued does not read them again.
    """

    seed: int | None
    run: str | None
    noise: str | None
    ledgers: Mapping[str, Ledger | str | Path] | str | Path | None
    checkpoint: str | Path | None

    def released(
        self,
        problem: Problem | Released,
        reading: tuple[Mechanism, float] | None,
        settings: Settings,
    ) -> Released:
        """``reading``: the noise and the δ of one reading; None: a run without noise."""
        if isinstance(problem, Released):
            self._refuse("a released problem: its noise is drawn and paid for")
            return problem
        if reading is None:
            if not isinstance(settings.mechanism, Noiseless):
                raise InvalidInput("Expected settings without noise for exact steps.")
            if self.noise is not None or self.ledgers is not None:
                raise InvalidInput(
                    "Expected neither ledgers nor a source of noise for a run without noise, which "
                    "no ledger can pay for. Nothing was released."
                )
            found = without_noise(problem)
            if self.checkpoint is not None:
                if Path(self.checkpoint).exists() and not is_without_noise(self.checkpoint):
                    raise InvalidInput(
                        f"Expected no checkpoint of another run in {self.checkpoint}, which would "
                        "be lost. Nothing was computed."
                    )
                found.save(self.checkpoint)
            return found
        mechanism, delta = reading
        if self.checkpoint is not None and Path(self.checkpoint).exists():
            return self._continued(Path(self.checkpoint), problem, mechanism, delta)
        found = read(
            problem, mechanism, delta, self.seed, self.run or "run", self.noise, self.ledgers
        )
        if self.checkpoint is not None:
            found.save(self.checkpoint)
        return found

    def _continued(
        self, path: Path, problem: Problem, mechanism: Mechanism, delta: float
    ) -> Released:
        """The release in the checkpoint: of this budget and noise, and known to the ledgers."""
        found = Released.load(path, problem)
        if (found.mechanism, found.privacy.delta) != (mechanism, delta):
            raise InvalidInput(
                f"Expected the budget of the release in {path}, got another: a new release needs a "
                "checkpoint of its own. Nothing was released."
            )
        about = self.seed, self.run or "run", self.noise, self.ledgers
        readers, noise = _readers(problem.names, mechanism, delta, *about)
        known = all(
            reader.ledger is None or reader.holds(agent, release)
            for reader, agent, release in zip(readers, problem.agents, found.releases, strict=True)
        )
        if found.seed != self.seed or found.privacy.secure != (noise == "secure") or not known:
            raise InvalidInput(
                f"Expected the seed, the source of noise and the ledgers of the release in {path}; "
                "they differ, or the ledgers know nothing of it. A new release needs a checkpoint "
                "of its own. Nothing was released."
            )
        return found

    def _refuse(self, why: str) -> None:
        given = {
            name: getattr(self, name) for name in ("seed", "run", "noise", "ledgers", "checkpoint")
        }
        for name, value in given.items():
            if value is not None:
                raise InvalidInput(f"Expected no {name} for {why}; got one.")
