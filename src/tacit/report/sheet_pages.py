"""A privacy sheet as one page of HTML and one page of PDF, from the same words.

HTML: one file, no script, nothing fetched (its policy forbids both), light and dark, one page A4 in
print. PDF: ReportLab, one page whatever the words; the fonts are matplotlib's DejaVu Sans, and a
character that they do not have is a box. ReportLab neither orders nor joins letters that are
written from right to left: names in them are as they should be in the HTML.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
from collections.abc import Iterator
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from tacit.errors import InvalidInput
from tacit.report.sheet import Odds, Sheet

FONT, BOLD = "TacitSans", "TacitSans-Bold"
FILES = {FONT: "DejaVuSans.ttf", BOLD: "DejaVuSans-Bold.ttf"}
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
LARGEST = 2**22  # bytes; no sheet has more


def html_page(sheet: Sheet) -> str:
    """The whole file."""
    import jinja2

    here = resources.files("tacit.report")
    size = f"{PRINTED * _fitted(sheet)[0]:.2f}pt"
    style = (here / "sheet.css").read_text(encoding="utf-8")
    style += f"@media print {{ body {{ font-size: {size}; line-height: 1.32; }} }}\n"
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    made = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = made.from_string((here / "sheet.html.j2").read_text(encoding="utf-8"))
    # the style is ours, and its hash is of these bytes
    return template.render(sheet=sheet, style=_ours(style), digest=digest)


def pdf_page(sheet: Sheet) -> bytes:
    """The whole file: text that can be selected, with title, subject and language."""
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


def refuse_other_files(path: Path) -> None:
    """Raise if something is at ``path`` that is not a sheet: a sheet may be replaced, nothing else.

    A pipe is not opened, as it would be waited for.
    """
    if not os.path.lexists(path):
        return
    try:
        if path.is_file():
            with open(path, "rb") as file:
                found = file.read(LARGEST + 1)
            if len(found) <= LARGEST and _is_sheet(found):
                return
    except OSError:  # one that cannot be read is not known to be a sheet
        pass
    raise InvalidInput(
        f"Expected no file at {path}, or a sheet of tacit; there is something else. It was not "
        "replaced: choose another --out. No sheet was written."
    )


def _is_sheet(content: bytes) -> bool:
    made = f"/Creator ({CREATOR})".encode()
    return content.startswith(MARK) or (content.startswith(b"%PDF-") and made in content)


def _ours(style: str) -> Any:
    from markupsafe import Markup

    return Markup(style)


def _fitted(sheet: Sheet) -> tuple[float, list[tuple[Any, float, float]]]:
    """How much smaller than usual all must be for one page, and its parts with their heights."""
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
    for name, file in FILES.items():
        if name not in known:
            pdfmetrics.registerFont(TTFont(name, str(folder / file)))


def _parts(sheet: Sheet, width: float) -> Iterator[tuple[Any, float]]:
    """What stands on the page from top to bottom, with the space below each."""
    yield _text(sheet.title, BOLD, 15.0), 8.0
    colour = KEPT if sheet.promised else NONE
    verdict = _text(sheet.verdict, BOLD, 9.6, INK if sheet.promised else NONE)
    yield _table([[verdict]], [width], [("LINEBEFORE", (0, 0), (0, -1), 3, colour)], 8.0, 3.0), 7.0
    yield _pairs(sheet.facts, width, lines=False), 7.0
    if sheet.odds is not None:
        yield _text("What the budget means", BOLD, SIZE + 1.0), 3.0
        yield _text(sheet.odds.note), 4.0
        yield _odds(sheet.odds, width), 9.0
    yield _pairs([(s.title, "\n".join(s.lines)) for s in sheet.sections], width, lines=True), 6.0
    yield _text(sheet.made, FONT, SIZE - 1.2, QUIET), 0.0


def _pairs(rows: Any, width: float, lines: bool) -> Any:
    cells = [[_text(a, BOLD, SIZE, QUIET), _text(b, FONT, SIZE)] for a, b in rows]
    style = [("LINEABOVE", (0, 0), (-1, -1), 0.5, LINE)] if lines else []
    return _table(cells, [LABEL, width - LABEL], style, 0.0, 2.6 if lines else 1.6)


def _odds(odds: Odds, width: float) -> Any:
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
    """With a box for every character that the fonts do not have."""
    from reportlab.pdfbase import pdfmetrics

    _register()
    known = pdfmetrics.getFont(FONT).face.charToGlyph
    also = pdfmetrics.getFont(BOLD).face.charToGlyph
    return "".join(c if ord(c) in known and ord(c) in also else "\u25a1" for c in words)
