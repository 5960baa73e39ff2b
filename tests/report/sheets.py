"""Results and ledgers that sheets are about, and what a page says."""

from __future__ import annotations

import dataclasses
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
import pypdf

import tacit
from tacit.privacy.ledger import Terms
from tacit.report.sheet import html_page, pdf_page, sheet
from tacit.report.subject import Subject

SETTINGS = tacit.Settings.for_budget(1.0, 1e-5, rounds=6, local_updates=2)
HIDES = "adding or removing one record"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "main", "h1", "h2", "p", "dl", "dt", "dd"),
    *("div", "table", "thead", "tbody", "tr", "th", "td", "section", "footer"),
}
VOID = {"meta"}


class Page(HTMLParser):
    """The words of a page, whose tags match and are all ours."""

    def __init__(self, text):
        super().__init__()
        self.open, self.said, self.style, self.attributes = [], [], "", []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        assert tag in TAGS, tag
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "style":
            self.style += data
        else:
            self.said.append(data)

    @property
    def words(self):
        return joined(" ".join(self.said))


def joined(text):
    return re.sub(r"\s+", "", text)


def read_pdf(content):
    """The only page of a PDF, as text without spaces, and the file."""
    document = pypdf.PdfReader(io.BytesIO(content))
    assert len(document.pages) == 1
    return joined(document.pages[0].extract_text()), document


def everything(page):
    """All that is handed over, as one text: of both files, what is not drawn too."""
    text = html_page(page)
    drawn, document = read_pdf(pdf_page(page))
    about = " ".join(str(value) for value in (document.metadata or {}).values())
    return f"{joined(text)}{drawn}{joined(about)}{joined(json.dumps(page.to_dict()))}"


def about(*words, **options):
    """Facts and sections of a sheet, and the sheet."""
    page = sheet(Subject.read(*words, **options))
    return dict(page.facts), {s.title: " ".join(s.lines) for s in page.sections}, page


def solved(settings=SETTINGS):
    """A result of three agents of one record each."""
    public = {"feature_norm": 1.0, "normaliser": 9, "record_bound": 3}
    losses = [tacit.LogisticRegression([[0.1, 0.2 * i]], [i % 2], **public) for i in range(3)]
    box = tacit.Box(-1.0, 1.0, size=2)
    return tacit.solve([tacit.LocalProblem(f, box) for f in losses], settings, seed=0)


def said(result, **changes):
    """The result with another statement."""
    return dataclasses.replace(result, privacy=dataclasses.replace(result.privacy, **changes))


def renamed(result, *names):
    """With agents of these names, as many as there are."""
    point = np.asarray(result.local[0])
    hidden = tuple((change, names) for change, _ in result.privacy.neighbours)
    changed = said(result, neighbours=hidden)
    return dataclasses.replace(changed, names=names, local=(point,) * len(names))


def paid(
    path, agent="agent 1", run="winter", epsilon=4.0, charge=6, hides=HIDES, noise=12.9, at=1e-5
):
    """A ledger with one run of seeded noise, as ``solved`` has it; ``at`` is its delta."""
    with tacit.Ledger.create(path, epsilon, at) as ledger:
        if charge:
            ledger.begin(run, Terms(agent, tacit.Gaussian(noise), 50, 2, 0.0, "seeded", hides, "d"))
            ledger.charge(run, 1, charge)
    return path


def noted(folder, run="winter", **options):
    """The folder with the note of a command."""
    note = {"command": "solve", "run": run, "options": options, "once": False}
    (folder / "run.json").write_text(json.dumps(note))
    return folder
