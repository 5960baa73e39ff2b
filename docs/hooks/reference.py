"""The reference: for every part of docs/api/index.md a page with the docstrings of its names.

The page in the repository has the names with one line each. On the site each name leads to its
docstring, and each part's heading to the page that is made here.
"""

import re

from mkdocs.structure.files import File, Files

INDEX = "api/index.md"
PART = re.compile(r"^## (\w+)(.*)\n\n(.*)\n((?:\n- .*)+)", re.MULTILINE)
NAME = re.compile(r"^- `([\w.]+)`:", re.MULTILINE)
HEAD = "---\nsearch:\n  boost: 0.3\n---\n\n# {}\n\n{}\n"
FIT = "\n    options:\n      inherited_members: [fit]"  # of estimators


def on_files(files: Files, config) -> Files:
    text = files.get_file_from_path(INDEX).content_string
    for first, others, intro, table in PART.findall(text):
        entries = (f"\n::: {n}{FIT if '.Private' in n else ''}\n" for n in NAME.findall(table))
        content = HEAD.format(first + others, intro) + "".join(entries)
        files.append(File.generated(config, f"api/{first.lower().strip(',')}.md", content=content))
    return files


def on_page_markdown(markdown: str, page, **_) -> str:
    if page.file.src_uri != INDEX:
        return markdown
    markdown = NAME.sub(r"- [`\1`][\1]:", markdown)
    return re.sub(
        r"^## (\w+)(.*)$", lambda m: f"## [{m[1]}{m[2]}]({m[1].lower()}.md)", markdown, flags=re.M
    )
