"""Executes the notebooks in ``docs/tutorials``; by itself it stores their outputs again:

    python tests/tutorials.py

What is stored is what the pages show. Outputs have no paths, addresses or times in them.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[1] / "docs" / "tutorials"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def executed(path, folder):
    """The notebook with the outputs of a run in ``folder``."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,  # how output was cut is chance
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(
        env={
            **os.environ,
            "COLUMNS": "80",
            "MPLBACKEND": "module://matplotlib_inline.backend_inline",
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
    )
    for cell in notebook.cells:
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
        with tempfile.TemporaryDirectory() as folder:
            notebook = executed(path, folder)
        notebook.metadata = {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
        nbformat.write(notebook, path)
        sys.stdout.write(f"{path.name}\n")


if __name__ == "__main__":
    main()
