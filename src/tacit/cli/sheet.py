"""The command ``tacit sheet``: one page for a data protection officer."""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import replace
from pathlib import Path

from tacit.cli.console import hints, tell
from tacit.cli.options import Add
from tacit.errors import InvalidInput

ENDS = (".html", ".pdf")
PAGES = (*ENDS, ".htm")
LONGEST = 50  # letters of an agent in the name of a file


def add_sheet(add: Add) -> None:
    sheet = add(
        "sheet",
        _sheet,
        "One page on what a run shared of an agent's data, for its data protection officer.",
        "tacit sheet result --agent 'North hospital'\n"
        "  tacit sheet kits/kit-north-hospital --party north.toml --out north.pdf",
    )
    sheet.add_argument("folder", help="result folder, or the kit of a party")
    sheet.add_argument("--agent", metavar="NAME", help="whose data (default: any agent's)")
    sheet.add_argument(
        "--ledger", metavar="FILE", help="the agent's ledger (default: the one that the run noted)"
    )
    sheet.add_argument(
        "--party", metavar="FILE", help="of a party: its own file, which names agent and ledger"
    )
    sheet.add_argument("--purpose", metavar="TEXT", default="", help="what the data are used for")
    sheet.add_argument(
        "--recipients", metavar="TEXT", default="", help="who gets what comes of it, by name"
    )
    sheet.add_argument(
        "--out",
        metavar="FILE",
        help="FILE.html or FILE.pdf (default: both, in the folder: sheet.html and sheet.pdf, or "
        "sheet-NAME.html and sheet-NAME.pdf of one agent)",
    )


def _file_name(agent: str) -> str:
    """An agent's name as part of a file's name; names that differ stay different."""
    safe = "".join(c if c.isalnum() or c in " ._-" else "_" for c in agent)[:LONGEST]
    if safe == agent:
        return safe
    said = agent.encode(errors="surrogatepass")
    return f"{safe}-{hashlib.sha256(said).hexdigest()[:8]}"


def _sheet(options: argparse.Namespace) -> int:
    from tacit.files import write_atomically
    from tacit.report.sheet import html_page, pdf_page, refuse_all_but_sheets, sheet
    from tacit.report.subject import Subject

    written: list[str] = []
    hints.append(lambda: f"written: {', '.join(written) or 'nothing'}")
    folder = Path(options.folder)
    name = "sheet" if options.agent is None else f"sheet-{_file_name(options.agent)}"
    place = folder.parent if folder.is_file() else folder  # a statement.json of its own
    paths = [Path(options.out)] if options.out else [place / f"{name}{end}" for end in ENDS]
    if options.out and paths[0].suffix.lower() not in PAGES:
        raise InvalidInput(
            f"Expected --out FILE.html or FILE.pdf, got {options.out}. No sheet was written."
        )
    subject = Subject.read(folder, options.agent, options.ledger, options.party)
    subject = replace(subject, purpose=options.purpose, recipients=options.recipients)
    for path in paths:  # before either is written
        refuse_all_but_sheets(path)
    page = sheet(subject)
    contents = [
        pdf_page(page) if path.suffix.lower() == ".pdf" else html_page(page).encode()
        for path in paths
    ]
    for path, content in zip(paths, contents, strict=True):
        write_atomically(path, content)
        written.append(str(path))
    document = {"files": written, "sheet": page.to_dict()}
    return tell(options.json, document, page.verdict, f"files: {', '.join(written)}")
