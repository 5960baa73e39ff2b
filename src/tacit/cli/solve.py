"""The command ``tacit solve``: the problem of a job file."""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

from tacit.cli.console import print_result
from tacit.cli.options import Add, add_run_options, make_absolute, refuse_to_publish
from tacit.cli.ranks import build
from tacit.cli.report import draw
from tacit.cli.run_folder import RunFolder, run_folder
from tacit.files import read_bytes


def add_solve(add: Add) -> None:
    solve = add(
        "solve",
        _solve,
        "Solve the problem of a job file privately and write a result folder.",
        "tacit solve examples/hospitals.toml --out result\n  tacit solve --resume result",
    )
    solve.add_argument("job", nargs="?", help="job file (TOML)")
    solve.add_argument(
        "--publish",
        action="store_true",
        help="also write release.npz: what agents that read their data once released; covered",
    )
    add_run_options(solve, "the job's name + -result", "the job's evaluate_every")


def _solve(options: argparse.Namespace) -> int:
    with run_folder("solve", options, "-result") as (folder, options):
        result, bars = _run(options, folder)
    draw(folder.path)
    about = None if bars is None else {"intervals": bars.to_dict()}
    said = [] if bars is None else [bars.summary()]
    print_result(result, folder.path, options.json, about, said)
    return 0


def part(options: argparse.Namespace, rank: int, ranks: int) -> Any:
    """A rank's own agents of the job; about them, the columns of the first that has a table."""
    from tacit.studies.job import JobKind
    from tacit.transports.mpi import Part, share_of

    kind = JobKind.of_file(options.job)
    mine = share_of(len(kind.agents), rank, ranks)
    agents, columns = kind.own(kind.agents[mine.start : mine.stop])
    named = [(agent.name, agent) for agent in agents]
    return Part(mine.start, named, about=next(iter(columns.items()), None))


def _job(options: argparse.Namespace) -> Any:
    """The job with its data, or with what other ranks say of theirs."""
    from tacit.studies.job import JobKind, load_job, refuse_other_columns

    if options.crew is None:
        return load_job(options.job)
    kind = JobKind.of_file(options.job)
    tables = [found for found in build(options.crew, "solve", options) if found is not None]
    for name, columns in tables:
        refuse_other_columns(name, list(columns), tables[0][0], list(tables[0][1]))
    return kind.job(options.crew.problem)


def intervals(job: Any, result: Any) -> Any:
    """Of a job of least squares whose data this process released once: else None."""
    from tacit.objectives.losses import LeastSquares
    from tacit.privacy.mechanisms import Gaussian

    loss, noise = job.problem.agents[0].objective, job.settings.release
    ours = job.columns and type(loss) is LeastSquares and isinstance(noise, Gaussian)
    if not (ours and result.released and result.privacy.certified):
        return None
    from tacit.learn.error_bars import of_release

    p, noises = result.privacy, float(len(job.problem.agents))
    if p.parties > 1:
        noises = p.parties / (p.parties - p.colluding)
    variance = float(noise.variance(loss.statistics().sensitivity(2))) * noises
    return of_release(loss, result.released, variance, p, job.columns, result.solution)


def _run(options: argparse.Namespace, folder: RunFolder) -> Any:
    """The result and its intervals, if it has any, written to the folder."""
    import numpy as np

    from tacit.protocol.release import SavedReleases

    path = Path(options.job)
    job = _job(options)
    own = "seed", "evaluate_every", "aggregation", "colluding"
    for name in own:  # an option comes before the job's key
        if getattr(options, name) is None:
            setattr(options, name, getattr(job, name))
    refuse_to_publish(options, job.settings, job.problem)
    make_absolute(options, files=("job",), folders=("ledgers",))
    result = folder.run(
        path.stem,
        job.problem,
        job.settings,
        options,
        run=path.stem,
        files={"job.toml": read_bytes(path)},
    )
    result.save(folder.path)
    if (bars := intervals(job, result)) is not None:
        bars.save(folder.path)
    if options.publish:
        content = io.BytesIO()
        saved = SavedReleases.load(folder.checkpoint)  # read or checked by this run
        named = zip(saved.names, saved.releases, strict=True)
        arrays: dict[str, Any] = {name: release.values for name, release in named}
        np.savez(content, **arrays)
        folder.write_public("release.npz", content.getvalue())
    return result, bars
