"""Tutorials: notebooks as pages, with the outputs that are stored in them.

``nbconvert`` writes Markdown of it, and pictures as files. Nothing is executed: the tests do that.
"""

import posixpath
import re

import nbformat
from jinja2 import DictLoader
from mkdocs.structure.files import File, Files
from nbconvert import MarkdownExporter

# As nbconvert's own, but an output is in a box, and text in it is no code to copy
TEMPLATE = """
{%- extends 'markdown/index.md.j2' -%}
{% block stream %}
<div class="output" markdown>
```{.text .no-copy}
{{ output.text | trim }}
```
</div>
{% endblock stream %}
{% block data_text scoped %}
<div class="output" markdown>
```{.text .no-copy}
{{ output.data['text/plain'] | trim }}
```
</div>
{% endblock data_text %}
{% block data_html scoped %}
<div class="output">
{{ output.data['text/html'] }}
</div>
{% endblock data_html %}
{% block data_png %}
<div class="output" markdown>
![{{ output.metadata.get('alt', 'Picture made by the code above') }}](
{{- output.metadata.filenames['image/png'] }})
</div>
{% endblock data_png %}
"""

# on the forge a link goes to the notebook, here to its page
LINK = re.compile(r"(\]\([\w./]*)\.ipynb\)")
DOWNLOAD = "[This page as a notebook]({}.ipynb)"


def on_page_markdown(markdown: str, page, **_) -> str:
    name = posixpath.basename(page.file.src_uri).removesuffix(".md")
    here = DOWNLOAD.format(name)
    text, download, _ = markdown.partition(here)
    return LINK.sub(r"\1.md)", text) + download


def on_files(files: Files, config) -> Files:
    exporter = MarkdownExporter(
        extra_loaders=[DictLoader({"page.md.j2": TEMPLATE})], template_file="page.md.j2"
    )
    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        folder, name = posixpath.split(file.src_uri.removesuffix(".ipynb"))
        notebook = nbformat.reads(file.content_string, as_version=4)
        for cell in notebook.cells:
            alt = cell.metadata.get("alt")
            for output in cell.get("outputs", []):
                if alt and "metadata" in output:
                    output.metadata["alt"] = alt
        text, resources = exporter.from_notebook_node(
            notebook, resources={"unique_key": name, "output_files_dir": f"{name}-files"}
        )
        text += f"\n\n{DOWNLOAD.format(name)}\n"
        made = {f"{name}.md": text, **resources.get("outputs", {})}
        for path, content in made.items():
            files.append(File.generated(config, posixpath.join(folder, path), content=content))
    return files
