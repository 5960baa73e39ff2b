"""One page for a data protection officer: what was shared of an agent's data, and what that means.

A ``Sheet`` is the words, once; ``html_page`` and ``pdf_page`` put them on a page.

Guarantee: every number on it is public (settings, names, sizes), from the statement or from the
agent's own ledger; what bounds a risk is rounded up, what is left is rounded down, and a total that
does not count this run is not turned into odds, nor a budget that is less than the ledger paid.
Nothing that the statement does not cover is on it. Where nothing is promised, or the ledger
contradicts, the first line says so; where nothing is promised there are no odds.

HTML: one file, no script, nothing fetched (its policy forbids both), light and dark, one page A4 in
print. PDF: ReportLab, one page whatever the words; the fonts are matplotlib's DejaVu Sans, and a
character that they do not have is a box. ReportLab neither orders nor joins letters that are
written from right to left: names in them are as they should be in the HTML.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

from tacit.html import plain, several
from tacit.objectives.objective import RELATIONS
from tacit.privacy.accounting import rounded_down, rounded_up
from tacit.privacy.ledger import changed
from tacit.protocol.disclosure import FILES, level, may_have
from tacit.protocol.statement import PUBLIC, not_promised, promised
from tacit.report.account import Account
from tacit.report.odds import (
    exception,
    guess,
    hits,
    next_to_nothing,
    percent,
    suspicion,
    times,
)
from tacit.report.odds import (
    in_full as _up,
)
from tacit.report.page import asset, digest, refuse_other_files, template
from tacit.report.subject import Subject

BEFORE = (0.01, 0.1, 0.5)  # suspicions
ALARMS = (0.01, 0.05)  # shares of false alarms
SEED = ", as long as the seed of the noise is secret and never used again"
MOST_CHANGES = 2  # of a limit, in words
TOGETHER = "runs together cost less than their sum"
RECORD = "record (one row of the table, such as a patient's)"
# files that are handed over, or said here in full
OWN = re.compile(r"sheet(-.+)?\.(html|pdf)|statement\.json", re.DOTALL)

FONT, BOLD = "TacitSans", "TacitSans-Bold"
FONT_FILES = {FONT: "DejaVuSans.ttf", BOLD: "DejaVuSans-Bold.ttf"}
MARGIN_X, MARGIN_Y = 40.0, 34.0  # points
LABEL = 112.0  # width of the headings at the left
SIZE = 9.0  # of the text
SMALLEST = 0.4  # times that; text is cut long before
PRINTED = 8.9  # of the HTML on paper
INK, QUIET, LINE, KEPT, NONE = "#1b1f23", "#56606a", "#c9d0d6", "#1f6b45", "#b3261e"
LANGUAGE = "en"
# How a sheet is known again: as HTML by its beginning, as PDF by who made it
MARK = b'<!doctype html>\n<html lang="en" data-tacit-sheet="1"'
CREATOR = "Tacit privacy sheet"


@dataclass(frozen=True)
class Section:
    """A heading, and sentences below it."""

    title: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Odds:
    """A table: what it is about, a header, and rows of text."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


@dataclass(frozen=True)
class Sheet:
    """The words of the page, in their order."""

    title: str
    promised: bool
    verdict: str
    facts: tuple[tuple[str, str], ...]
    odds: Odds | None
    sections: tuple[Section, ...]
    made: str

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def sheet(subject: Subject, now: datetime | None = None) -> Sheet:
    """The page about a subject."""
    sound, who = promised(subject.statement), plain(subject.agents[0], 80)
    if len(subject.agents) > 1:
        who = f"each of {len(subject.agents)} agents ({several(subject.agents, 4, 30)})"
    return Sheet(
        f"Privacy sheet: {who}",
        sound and not subject.disputed,
        _verdict(subject),
        tuple(_facts(subject, who)),
        _odds(subject) if sound and math.isfinite(subject.epsilon) else None,
        tuple(Section(title, tuple(lines)) for title, lines in _sections(subject)),
        f"Made {now or datetime.now(UTC):%Y-%m-%d %H:%M} UTC by Tacit {metadata.version('tacit')}. "
        "An agent is whoever holds data. Numbers that bound a risk are rounded up.",
    )


def _verdict(subject: Subject) -> str:
    p = subject.statement
    if math.isinf(p.epsilon):
        return (
            "NOTHING IS PROMISED: no noise was added. The messages of this run reveal the data; "
            "treat them, and all that was computed from them, as the data themselves."
        )
    if why := not_promised(p):
        return f"NOTHING IS PROMISED: this run is not certified. {_capital(plain(why, 250))}"
    if subject.disputed:
        numbers = f"{_paid(subject).removeprefix('ε ≤ ')} against {_up(p.epsilon)}"
        return (
            f"THE LEDGER PAID MORE FOR THIS RUN THAN ITS RESULT SAYS ({numbers}): the result was "
            "changed, is of another run, or rounds were paid for again after a crash. Nothing of "
            "it is certified until that is known; the odds below are those of what was paid."
        )
    budget = f"ε = {_up(p.epsilon)}, δ = {_up(p.delta, 6)}"
    if next_to_nothing(_shown(p.epsilon), p.delta):
        return f"Certified, but {budget} promises next to nothing: see the odds below."
    return (
        f"Certified: all that was shared is differentially private with {budget}, against "
        f"everyone, whatever else they know{SEED if p.seeded else ''}{p.unless}."
    )


# --- whose data, which run, its budget, what a ledger says ----------------------------------------


def _facts(subject: Subject, who: str) -> Iterator[tuple[str, str]]:
    """The facts at the top: whose data, which run, its budget, its ledger."""
    p, most = subject.statement, subject.limits
    others = f", with {subject.others} other agents" if subject.others else ""
    yield "Whose data", who + (", with one other agent" if subject.others == 1 else others)
    data = "the active and the reactive load of every bus" if subject.grid else subject.data
    yield "Data used", _capital(data) or "As the run's own files say; no columns are named there"
    yield "Purpose", plain(subject.purpose, 300) or "NOT STATED: to be said with --purpose"
    seen = "those who see messages, below, and whoever gets what may be published"
    yield "Recipients", plain(subject.recipients, 300) or _capital(seen)
    # without a name in a ledger a command calls every run alike
    known = subject.account is not None and subject.account.run(subject.run) is not None
    named = subject.run and (known or subject.run != "run" or not subject.about)
    run = plain(subject.run, 80) if named else subject.about
    yield "Which run", run or "its name is not recorded"
    yield "When", subject.when
    if not promised(p):
        yield "Budget of this run", "none that means anything"
    elif not subject.disputed:
        yield "Budget of this run", f"ε ≤ {_up(p.epsilon)}, δ ≤ {_up(p.delta, 6)}{p.unless}"
    else:
        said = f"{_paid(subject)} by the ledger; its result says ε ≤ {_up(p.epsilon)}"
        yield "Budget of this run", f"{said}; at δ = {_up(p.delta, 6)}"
    if most is not None:
        rounds = "" if most.rounds is None else f", {most.rounds} rounds"
        words = f"ε = {_up(most.total_epsilon, 6)}, δ = {_up(most.total_delta, 6)}{rounds}"
        yield "Limit of one run", f"{words}, in the party's own file"
    if (a := subject.account) is None:
        why = subject.missing or "none was given (--ledger FILE)"
        words = "Nothing on this page counts other runs on the same data; their budgets add up."
        yield "Ledger", f"None was read: {why}. {words}"
        return
    over = ". MORE IS SPENT THAN THE LIMIT" if a.spent.epsilon > a.budget.epsilon else ""
    yield (
        "Spent in all runs",
        f"ε ≤ {_up(a.spent.epsilon, 4)} of a limit of {_up(a.budget.epsilon, 6)}{_changes(a)}, at "
        f"δ = {_up(a.budget.delta, 6)}, in {_entries(subject, a)}{over}",
    )
    left = f"ε = {rounded_down(a.room)}: the limit less what is spent"
    if a.left is not None:
        left = f"room for one more run (Gaussian noise) of ε = {rounded_down(a.left)} at this δ"
    yield "Left", f"{left} ({TOGETHER})"
    words = f"{plain(a.name, 40)}, {a.entries} entries, all consistent; the last has the hash "
    words += a.head[:16]
    if subject.disputed:
        words += ". IT PAID MORE FOR THIS RUN THAN THE RESULT SAYS"
    if subject.counted is False:
        words += ". THIS RUN IS NOT IN IT: its totals leave this run out"
    elif subject.counted is None:
        why = "the run did not note this file" if subject.run else "its name is not recorded"
        words += f". Whether this run is in it is not known: {why}"
    yield "Ledger", words


def _paid(subject: Subject) -> str:
    """What the ledger paid for this run; at delta 0, Gaussian noise has no epsilon."""
    return f"ε ≤ {_up(subject.epsilon)}" if math.isfinite(subject.epsilon) else "no bound"


def _changes(account: Account) -> str:
    """How the limit came to be what it is: the last changes, and how many there were before."""
    pairs = list(zip(account.limits, account.limits[1:], strict=False))
    earlier = len(pairs) - MOST_CHANGES
    said = [_several(earlier, "earlier change")] if earlier > 0 else []
    for before, now in pairs[-MOST_CHANGES:]:
        delta = f" at δ = {_up(before.delta, 6)}" if before.delta != now.delta else ""
        words = f"{changed(before, now)} from {_up(before.epsilon, 6)}{delta}"
        said.append(f"{words} on {plain(now.when, 40)[:10]}")
    return f" ({', '.join(said)})" if said else ""


def _entries(subject: Subject, account: Account) -> str:
    """How many runs; a command that first releases a mean has two entries."""
    releases = sum(r["read_once"] for r in account.runs)
    rounds = len(account.runs) - releases
    if (releases, rounds) == (1, 1) and subject.statement.before and subject.counted:
        return "one run (2 entries: the mean, and the rounds)"
    if not releases:
        return _several(rounds, "run")
    more = f" and {_several(rounds, 'run')} of rounds" if rounds else ""
    return f"{_several(releases, 'release')} of the data{more}"


def _several(count: int, what: str) -> str:
    return f"one {what}" if count == 1 else f"{count} {what}s"


# --- odds -----------------------------------------------------------------------------------------


def _odds(subject: Subject) -> Odds:
    """From the numbers as they are shown, so that whoever reads them can compute the same."""
    p, account = subject.statement, subject.account
    one = "this run, as paid" if subject.disputed else "this run"
    columns = [(one, _shown(subject.epsilon), p.delta)]
    if account is not None and subject.counted:
        delta = account.budget.delta
        # of all runs never less than of this one, which the last digit of its noise could make it
        spent = max(_shown(account.spent.epsilon, 4), columns[0][1])
        columns.append(("all runs so far", spent, delta))
        columns.append(("all of the limit", _shown(account.budget.epsilon, 6), delta))
    budgets, rows = [(e, d) for _, e, d in columns], []
    for before in BEFORE:
        words = f"believes it with {percent(before)} before: afterwards with at most"
        rows.append((words, *(percent(suspicion(before, e, d)) for e, d in budgets)))
    words = "(the three rows above fail with a probability of)"
    rows.append((words, *(_failing(d) for _, d in budgets)))
    for share in ALARMS:
        words = f"tests for it, with {percent(share)} false alarms: hits at most"
        rows.append((words, *(percent(hits(share, e, d)) for e, d in budgets)))
    words = f"guesses at even odds (a coin: {percent(0.5)}): right in at most"
    rows.append((words, *(percent(guess(e, d)) for e, d in budgets)))
    header = ("Someone who ...", *(name for name, *_ in columns))
    return Odds(header, tuple(rows), _meaning(subject))


def _meaning(subject: Subject) -> str:
    """What ε and δ say by definition, and who guesses what."""
    return (
        f"“It” is {_it(subject)}. Any finding in what was shared is at most "
        f"{times(subject.epsilon, subject.statement.delta)} if it is so as if it is not, and the "
        "other way round: this is what ε and δ say. For someone who knows all other data and sees "
        "all messages, it follows:"
    )


def _it(subject: Subject) -> str:
    """What someone would like to know."""
    kinds = {change for change, _ in subject.statement.neighbours}
    if kinds <= set(RELATIONS.values()) - {RELATIONS["replace"]}:
        return f"that a given {RECORD} was used"
    return (
        "that the data are the one and not the other of two that differ by "
        f"{plain(_hidden_changes(subject), 250)}"
    )


def _failing(delta: float) -> str:
    if delta == 0:
        return "0"
    return "any: nothing" if exception(delta) >= 1 else f"≤ {_up(exception(delta), 3)}"


# --- the rest -------------------------------------------------------------------------------------


def _sections(subject: Subject) -> Iterator[tuple[str, Sequence[str]]]:
    p = subject.statement
    sound = promised(p)
    more = plain(p.assumed.removeprefix(PUBLIC).removeprefix("Taken for public: ").strip(), 420)
    yield "What was shared, and with whom", list(_shared(subject))
    # of a run that is not certified the size of the change may be a share of private numbers
    yield "What is hidden", list(_hidden(subject)) if sound else ["Nothing, as far as is proven."]
    yield from handed_on(subject)
    public = (
        "All that a run takes beside the data, such as feasible sets, bounds, nominal values, "
        "penalties, settings, numbers of records and of coordinates, and who takes part."
    )
    yield "Taken for public", [f"{public} {_capital(more)}".rstrip()]
    again = (
        "; whether the data changed between two runs from one ledger (the same data give the same "
        "numbers)"
    )
    alone = subject.apart or (subject.others == 0 and len(subject.agents) == 1)
    owner = "; whoever ran the command, which read the data of all agents in one place"
    not_covered = (
        "Facts about everyone (that smoking causes cancer is said of each smoker); how long "
        "computations take; that an agent refuses or fails; whoever reads the agent's own disk"
    )
    yield "Not covered", [f"{not_covered}{again * p.once}{'' if alone else owner}."]
    if sound:
        yield "If it is run again", [_run_again(subject)]
    yield "How to check", [_check_by(subject)]


def _shared(subject: Subject) -> Iterator[str]:
    p, n = subject.statement, subject.numbers
    sound = promised(p) and not subject.disputed
    sizes = "" if n is None else f" of at most {n} numbers each"
    count = "Messages" if subject.rounds is None else f"{subject.rounds} messages"
    noise = f"{_capital(plain(p.mechanism, 30))} noise"
    if math.isinf(p.epsilon):
        yield f"{count}{sizes}, without noise."
    elif subject.table:
        more = " and tells nothing more of the data" if sound else ""
        yield (
            f"Released once, with {noise}: {subject.table}, {n} numbers. All else, such as "
            f"regressions, is computed from that{more}."
        )
    elif p.parties > 1:
        which = "one sum" if p.once else f"{p.updates} sums{sizes}"
        masks = "Each part was sent under masks, random numbers that cancel in the sum. "
        yield (
            f"A part of {which}, over the statistics of all {p.parties} agents, with {noise} that "
            f"all add together. {masks * subject.apart}All else was computed from the sums."
        )
    elif p.once:
        more = " and told nothing more of the data" if sound else ""
        yield (
            f"Statistics of the data were released once, with {noise}. All else, "
            f"{count.lower()}{sizes}, was computed from that release{more}."
        )
    else:
        where = "points of a public feasible set" if subject.feasible else "points with noise"
        yield (
            f"{count}{sizes}, one in each round: {where}, randomised with {noise} before they left "
            f"({p.updates} noisy updates{', all in the budget' if sound else ''})."
        )
    for when, what in (("Before", p.before), ("After", p.after)):
        if what:
            yield f"{when} that, in the same budget: {plain(what, 200)}."
    if "evaluation.json" in subject.files and not p.after:
        yield "Also one histogram of other records, held out for a test: evaluation.json has its ε."
    if p.seeded:
        yield "The noise follows from a seed: whoever has it can subtract the noise."
    elif not p.secure and sound:
        yield (
            "The noise follows from a key of 64 bits, which the operating system gave and nobody "
            "keeps: the promise is against those who cannot try 2^64 keys."
        )
    if subject.table:
        yield "Seen by whoever is given the table, or what is computed from it."
        return
    server, unless = "server", "wherever messages travel unencrypted"
    if subject.apart:
        server, unless = "coordinator's server, in the clear", "not, as TLS encrypts on both sides"
    if p.parties > 1:
        yield f"Seen by anyone: the sums alone, if at most {p.colluding} of the agents collude."
        return
    yield (
        f"Seen by the {server}; by other agents that share a number, as the mean over those that "
        f"share it (where two do: each other's); by an eavesdropper {unless}."
    )
    if sound:
        yield "The promise holds against all of them together."


def _hidden(subject: Subject) -> Iterator[str]:
    """What a run that promises something hides, in plain words and then exactly."""
    exact = plain(_hidden_changes(subject), 400)
    found = {change for change, _ in subject.statement.neighbours}
    less = "hidden less: ε counts once for each, and δ grows by more."
    if found <= set(RELATIONS.values()):
        swapped = ", or another in its place," if RELATIONS["replace"] in found else ""
        yield (
            f"Whether any one {RECORD}{swapped} was used; exactly: {exact}. The table says "
            f"how much doubt is left. A person with several records is {less}"
        )
        return
    yield (
        f"{_capital(exact)}: whether that happened stays in doubt, as the table says. Several such "
        f"changes at once are {less}"
    )
    if subject.grid and subject.statement.once:
        yield "The loads themselves are known to within the noise of the release."


def _hidden_changes(subject: Subject) -> str:
    return "; or ".join(dict.fromkeys(change for change, _ in subject.statement.neighbours))


def handed_on(subject: Subject) -> Iterator[tuple[str, list[str]]]:
    """What may be published and what not. Names of ours only: what somebody else called a file may
    be about its content."""
    p = subject.statement
    known = [name for name in subject.files if name in FILES and not OWN.fullmatch(name)]
    free = [
        name
        for name in known
        if not subject.disputed and may_have(p, level(name, having=subject.trace))
    ]
    files = f"{', '.join(free)}, and what" if free else "What"
    words = (
        f"{files} is computed from the messages alone, together with the first line of this page."
    )
    if subject.disputed:
        words = "Nothing, until it is known why the ledger paid more."
    yield "May be published", [words if promised(p) else "Nothing."]
    things = ["The data", "the ledger and its copies"]
    things += ["the seed"] if p.seeded else []
    things += [name for name in known if name not in free]
    if more := sum(name not in FILES and not OWN.fullmatch(name) for name in subject.files):
        what = "one file or folder more" if more == 1 else f"{more} more files and folders"
        things.append(f"{what} unknown to this page")
    yield "Must be kept", [f"{', '.join(things)}."]


def _run_again(subject: Subject) -> str:
    if subject.account is None:
        return "Another run spends another budget, and no ledger was read that adds them up."
    if subject.statement.once:
        return (
            "From this ledger, the same data and budget cost nothing and give the same numbers; "
            "changed data, or another budget, are charged anew."
        )
    return "Another run spends another budget. The ledger adds up, and refuses beyond its limit."


def _check_by(subject: Subject) -> str:
    if (a := subject.account) is not None:
        words = (
            f"tacit ledger show FILE --expect {a.head[:16]} recomputes what is spent and fails if "
            "entries were removed."
        )
    else:
        kit = subject.apart and subject.others is None
        source = "the released table" if subject.table else "result.json"
        source = "statement.json" if kit else source
        words = f"There is no ledger to check this page against: it says what {source} says."
    words += (
        " tacit audit attacks the library's own noise. The proofs are in the documentation, on the "
        "page Concepts."
    )
    if subject.apart:
        words += " tacit federation check compares a kit with the party's own limits."
    return words + " Ask whoever runs the agent."


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _shown(epsilon: float, digits: int = 3) -> float:
    """The number that is on the page."""
    return float(rounded_up(epsilon, digits))


# --- pages ----------------------------------------------------------------------------------------


def html_page(sheet: Sheet) -> str:
    """The HTML file."""
    size = f"{PRINTED * _fitted(sheet)[0]:.2f}pt"
    style = asset("sheet.css")
    style += f"@media print {{ body {{ font-size: {size}; line-height: 1.32; }} }}\n"
    return str(template("sheet.html").render(sheet=sheet, style=style, digest=digest(style)))


def pdf_page(sheet: Sheet) -> bytes:
    """The PDF file: text that can be selected, with title, subject and language."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    scale, parts = _fitted(sheet)
    written = io.BytesIO()
    canvas = Canvas(written, pagesize=A4, lang=LANGUAGE, initialFontName=FONT, pageCompression=1)
    canvas.setTitle(_drawn(sheet.title))
    canvas.setAuthor("Tacit")
    canvas.setSubject(_drawn(sheet.verdict))
    canvas.setKeywords(["differential privacy", "data protection"])
    canvas.setCreator(CREATOR)
    canvas.setViewerPreference("DisplayDocTitle", "true")
    canvas.translate(MARGIN_X, A4[1] - MARGIN_Y)
    canvas.scale(scale, scale)
    y = 0.0
    for part, height, below in parts:
        y -= height
        part.drawOn(canvas, 0, y)
        y -= below
    canvas.showPage()
    canvas.save()
    return written.getvalue()


def refuse_all_but_sheets(path: Path) -> None:
    """Raise unless ``path`` is free, or a sheet lies there."""
    made = f"/Creator ({CREATOR})".encode()

    def ours(found: bytes) -> bool:
        return found.startswith(MARK) or (found.startswith(b"%PDF-") and made in found)

    refuse_other_files(path, ours, "a sheet")


def _fitted(sheet: Sheet) -> tuple[float, list[tuple[Any, float, float]]]:
    """The scale at which all fits one page, and the parts with their heights."""
    from reportlab.lib.pagesizes import A4

    _register()
    width, height = A4[0] - 2 * MARGIN_X, A4[1] - 2 * MARGIN_Y
    scale = 1.0
    while True:
        parts = [
            (part, part.wrap(width / scale, 1e6)[1], below)
            for part, below in _parts(sheet, width / scale)
        ]
        total = sum(tall + below for _, tall, below in parts) * scale
        if total <= height or scale < SMALLEST:
            break
        scale *= 0.97
    return min(scale, scale * height / total), parts


def _register() -> None:
    """The fonts, once in a process."""
    import matplotlib
    from reportlab.pdfbase import pdfmetrics
    from reportlab.pdfbase.ttfonts import TTFont

    known = set(pdfmetrics.getRegisteredFontNames())
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    for name, file in FONT_FILES.items():
        if name not in known:
            pdfmetrics.registerFont(TTFont(name, str(folder / file)))


def _parts(sheet: Sheet, width: float) -> Iterator[tuple[Any, float]]:
    """The parts of the page from top to bottom, with the space below each."""
    yield _text(sheet.title, BOLD, 15.0), 8.0
    colour = KEPT if sheet.promised else NONE
    verdict = _text(sheet.verdict, BOLD, 9.6, INK if sheet.promised else NONE)
    yield _table([[verdict]], [width], [("LINEBEFORE", (0, 0), (0, -1), 3, colour)], 8.0, 3.0), 7.0
    yield _pairs(sheet.facts, width, lines=False), 7.0
    if sheet.odds is not None:
        yield _text("What the budget means", BOLD, SIZE + 1.0), 3.0
        yield _text(sheet.odds.note), 4.0
        yield _odds_table(sheet.odds, width), 9.0
    yield _pairs([(s.title, "\n".join(s.lines)) for s in sheet.sections], width, lines=True), 6.0
    yield _text(sheet.made, FONT, SIZE - 1.2, QUIET), 0.0


def _pairs(rows: Any, width: float, lines: bool) -> Any:
    cells = [[_text(a, BOLD, SIZE, QUIET), _text(b, FONT, SIZE)] for a, b in rows]
    style = [("LINEABOVE", (0, 0), (-1, -1), 0.5, LINE)] if lines else []
    return _table(cells, [LABEL, width - LABEL], style, 0.0, 2.6 if lines else 1.6)


def _odds_table(odds: Odds, width: float) -> Any:
    others = 88.0
    first = width - others * (len(odds.header) - 1)
    cells = [[_text(odds.header[0], BOLD), *(_text(c, BOLD, right=True) for c in odds.header[1:])]]
    cells += [[_text(row[0]), *(_text(c, BOLD, right=True) for c in row[1:])] for row in odds.rows]
    style = [("LINEBELOW", (0, 0), (-1, -1), 0.5, LINE)]
    return _table(cells, [first, *[others] * (len(odds.header) - 1)], style, 0.0, 2.0)


def _table(cells: Any, widths: list[float], style: list[Any], left: float, gap: float) -> Any:
    from reportlab.lib.colors import HexColor
    from reportlab.platypus import Table, TableStyle

    commands = [(*c[:-1], HexColor(c[-1])) if isinstance(c[-1], str) else c for c in style]
    padding = [
        ("VALIGN", (0, 0), (-1, -1), "TOP"),
        ("LEFTPADDING", (0, 0), (-1, -1), left),
        ("RIGHTPADDING", (0, 0), (-1, -1), 4.0),
        ("TOPPADDING", (0, 0), (-1, -1), gap),
        ("BOTTOMPADDING", (0, 0), (-1, -1), gap),
    ]
    return Table(cells, widths, style=TableStyle([*padding, *commands]), hAlign="LEFT")


def _text(
    words: str, font: str = FONT, size: float = SIZE, colour: str = INK, right: bool = False
) -> Any:
    from reportlab.lib.colors import HexColor
    from reportlab.lib.enums import TA_LEFT, TA_RIGHT
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.platypus import Paragraph

    style = ParagraphStyle(
        "text",
        fontName=font,
        fontSize=size,
        leading=size * 1.3,
        textColor=HexColor(colour),
        alignment=TA_RIGHT if right else TA_LEFT,
    )
    return Paragraph("<br/>".join(escape(_drawn(line)) for line in words.split("\n")), style)


def _drawn(words: str) -> str:
    """Text with a box for every character that the fonts do not have."""
    from reportlab.pdfbase import pdfmetrics

    _register()
    known = pdfmetrics.getFont(FONT).face.charToGlyph
    also = pdfmetrics.getFont(BOLD).face.charToGlyph
    return "".join(c if ord(c) in known and ord(c) in also else "\u25a1" for c in words)
