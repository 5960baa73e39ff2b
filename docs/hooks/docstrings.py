"""Docstrings as Markdown: columns become lists, and what is guaranteed stands in a box.

The library's docstrings are written to be read in a terminal:

    seed     what it is, in a column of its own,
             over one line or more

and ``Guarantee:`` paragraphs that say what a privacy statement rests on.
"""

import re

import griffe

ENTRY = re.compile(r"(?P<name>\S(?:.*?\S)??) {2,}(?P<text>\S.*)")
GUARANTEE = re.compile(r"Guarantee(?P<of>[^:\n]{0,40}): (?P<text>.*)", flags=re.DOTALL)
ITEM = re.compile(r"([-*]|\d+[.)]) ")


def listed(lines: list[str]) -> str | None:
    """A definition list of lines in two columns; None of other lines."""
    entries: list[list[str]] = []
    for line in lines:
        found = ENTRY.fullmatch(line)
        if found and not line.startswith(" "):
            name = found["name"].replace("``", "")
            entries.append([name, found["text"]])
        elif entries and line.startswith("    "):
            entries[-1].append(line.strip())
        else:
            return None
    return "\n\n".join(f"`{name}`\n:   " + "\n    ".join(text) for name, *text in entries if text)


def boxed(paragraph: str) -> str | None:
    found = GUARANTEE.fullmatch(paragraph)
    if not found:
        return None
    text = found["text"].replace("\n", "\n    ")
    return f'!!! guarantee "Guarantee{found["of"]}"\n\n    {text[:1].upper() + text[1:]}'


def markdown(docstring: str) -> str:
    """Paragraph by paragraph; what is not recognised stays as it is, or as it is laid out."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", docstring.strip("\n")):
        lines = paragraph.split("\n")
        if ITEM.match(lines[0]) or lines[0].startswith("    "):
            parts.append(paragraph)
        else:
            made = boxed(paragraph) or listed(lines)
            laid_out = any(line.startswith("    ") for line in lines)
            parts.append(made or ("\n".join(f"    {x}" for x in lines) if laid_out else paragraph))
    return "\n\n".join(parts)


class Docstrings(griffe.Extension):
    """What ``mkdocstrings`` is given to read."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        if obj.docstring:
            obj.docstring.value = markdown(obj.docstring.value)
