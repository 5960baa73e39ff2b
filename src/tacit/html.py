"""Pieces of HTML for notebooks: escaped, and in the reader's own colours.

Text and lines have the notebook's colour, light or dark; only the edge of a warning has its own.
Names come from files and from other people: each goes through ``plain``, then is escaped.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

LONGEST = 200  # characters of a name
EDGE = {True: "#d32f2f", False: "currentColor"}  # of a box, loud or not; seen on white and on black
# control characters, surrogates and those that turn the direction of what follows
UNSEEN = ("Cc", "Cf", "Cs", "Co", "Cn")


def plain(text: object, most: int = LONGEST) -> str:
    """Text of one line in characters that are seen, cut in words if it is longer than ``most``.

    What cannot be seen, or turns the direction of what comes after it, is shown as U+FFFD.
    """
    whole = str(text)
    words = " ".join(whole[: 2 * most].split())
    seen = "".join("\ufffd" if unicodedata.category(c) in UNSEEN else c for c in words)
    if len(seen) <= most and len(whole) <= 2 * most:
        return seen
    kept = seen[:most].rstrip()
    return f"{kept}… ({len(whole) - len(kept)} more characters)"


def several(names: Iterable[object], most: int = 5, longest: int = 40) -> str:
    """The first names, and how many others there are."""
    found = list(names)
    text = ", ".join(plain(name, longest) for name in found[:most])
    return text if len(found) <= most else f"{text} and {len(found) - most} others"


def table(rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Rows of text, the first cell as their heading; all escaped here."""
    head = ""
    if header:
        cells = "".join(f'<th scope="col" style="{_CELL}">{escape(h)}</th>' for h in header)
        head = f"<thead><tr>{cells}</tr></thead>"
    body = ""
    for first, *others in rows:
        cells = "".join(f'<td style="{_CELL}">{_text(value)}</td>' for value in others)
        body += f'<tr><th scope="row" style="{_CELL}">{_text(first)}</th>{cells}</tr>'
    return f'<table style="background:none">{head}<tbody>{body}</tbody></table>'


def box(words: str, *, loud: bool = False) -> str:
    """A line that is seen before all others; ``loud`` where nothing is promised."""
    style = f"border-left:.3em solid {EDGE[loud]};padding:.2em .6em;margin:.3em 0"
    return f'<div style="{style}"><strong>{_text(words, 600)}</strong></div>'


def small(words: str) -> str:
    """A paragraph to read after the numbers."""
    style = "font-size:90%;max-width:60em;margin:.4em 0"
    return f'<p style="{style}">{_text(words, 3000)}</p>'


def card(title: str, *parts: str) -> str:
    """One object: a title, then parts that are HTML already."""
    return f"<div><div><strong>{_text(title)}</strong></div>{''.join(parts)}</div>"


def never_raises(method: Callable[[Any], str]) -> Callable[[Any], str | None]:
    """For ``_repr_html_``: None, and so the notebook's plain text, where an object is broken."""

    @functools.wraps(method)
    def shown(self: Any) -> str | None:
        try:
            return method(self)
        except Exception:  # whatever a file that went away, or a number that is none, does
            return None

    return shown


_CELL = "text-align:left;vertical-align:top;padding:.15em 1.2em .15em 0;font-size:100%"


def _text(value: object, most: int = 400) -> str:
    return escape(plain(value, most))
