"""Formulas as MathML, made when the site is built: browsers draw it, nothing is fetched.

``pymdownx.arithmatex`` marks what is a formula; here it is converted. One that cannot be fails a
strict build.
"""

import html
import logging
import re
import xml.etree.ElementTree as ET

from latex2mathml.converter import convert

log = logging.getLogger("mkdocs.hooks.formulas")
MARKED = re.compile(
    r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', flags=re.DOTALL
)
# what the converter has under another name
SAME = {r"\arg\min": r"\argmin", r"{aligned}": r"{align*}"}
# commands that it does not know pass through it as text
UNKNOWN = re.compile(r">[^<]*\\[^<]*<")


def mathml(tex: str, display: str = "inline") -> str:
    """A formula in TeX as MathML; ValueError where it is not understood."""
    for ours, known in SAME.items():
        tex = tex.replace(ours, known)
    try:
        made = convert(tex, display=display)
        ET.fromstring(made)
    except Exception as error:  # the converter's own errors have no common base
        raise ValueError(f"{type(error).__name__}: {tex}") from error
    if UNKNOWN.search(made):
        raise ValueError(f"a command that is not known: {tex}")
    return made


def on_page_content(content: str, page, **_) -> str:
    def made(match: re.Match) -> str:
        tag, opening, tex = match[1], match[2], html.unescape(match[3]).strip()
        try:
            formula = mathml(tex, "block" if opening == "[" else "inline")
        except ValueError as error:
            log.warning("%s: a formula that is not understood: %s", page.file.src_uri, error)
            return match[0]
        return f'<{tag} class="formula">{formula}</{tag}>'

    content = MARKED.sub(made, content)
    if 'class="arithmatex"' in content:
        log.warning("%s: a formula was left as TeX", page.file.src_uri)
    return content
