"""Executes the notebooks in ``docs/tutorials``; by itself it stores their outputs again:

    python tests/tutorials.py

What is stored is what the pages show. Outputs have no paths, addresses or times in them.
"""

import os
import re
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@contextmanager
def kernel():
    """A client for several notebooks, one after another: its kernel imports Tacit once."""
    client = NotebookClient(
        nbformat.v4.new_notebook(),
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # how output was cut is chance
    )
    try:
        yield client
    finally:
        client.nb = nbformat.v4.new_notebook()
        client.execute()  # an empty one ends the kernel


def executed(path, folder, client):
    """The notebook with the outputs of a run in ``folder``, from an empty name space."""
    notebook = nbformat.read(path, as_version=4)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%cd -q {folder}\n%reset -f"))
    client.nb = notebook
    client.execute(
        cleanup_kc=False,
        env={
            **os.environ,
            "COLUMNS": "80",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        },
    )
    del notebook.cells[0]
    for cell in notebook.cells:
        for counted in (cell, *cell.get("outputs", [])):
            if counted.get("execution_count"):
                counted.execution_count -= 1  # of the cell in front
        for output in cell.get("outputs", []):
            if "text/plain" in output.get("data", {}):
                output.data["text/plain"] = ADDRESS.sub("", output.data["text/plain"])
    return notebook


def shown(cell):
    """The text of a cell's outputs."""
    return [
        output.get("text") or output.get("data", {}).get("text/plain", "")
        for output in cell.get("outputs", [])
    ]


def main():
    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder, kernel() as client:
            notebook = executed(path, folder, client)
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        nbformat.write(notebook, path)
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
