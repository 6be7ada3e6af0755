"""Every tutorial runs from its first cell to its last, and its notebook is its .py file.

``python tests/test_tutorials.py`` makes all notebooks anew, with what their cells print.
"""

from __future__ import annotations

from pathlib import Path

import pytest

jupytext = pytest.importorskip("jupytext")
nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

FOLDER = Path(__file__).parent.parent / "tutorials"
SOURCES = sorted(FOLDER.glob("*.py"))


def cells(notebook):
    return [(cell.cell_type, cell.source) for cell in notebook.cells]


def execute(notebook):
    """Run all cells in the kernel of this environment; an exception in one of them raises."""
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        allow_errors=False,
        record_timing=False,
        resources={"metadata": {"path": str(FOLDER)}},
    )
    client.execute()


def texts(cell):
    return [
        output["text"] for output in cell.get("outputs", []) if output["output_type"] == "stream"
    ]


def test_there_are_tutorials_and_each_has_its_two_files():
    assert SOURCES
    notebooks = sorted(FOLDER.glob("*.ipynb"))
    assert [path.stem for path in notebooks] == [path.stem for path in SOURCES]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_has_the_cells_of_its_source(source):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    nbformat.validate(notebook)
    assert cells(notebook) == cells(jupytext.read(source)), f"run python {Path(__file__).name}"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_has_outputs_and_no_error_among_them(source):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert any(texts(cell) for cell in code)
    assert all(cell.execution_count for cell in code)
    kinds = {output["output_type"] for cell in code for output in cell.outputs}
    assert "error" not in kinds


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_the_notebook_runs_without_an_exception(source):
    notebook = nbformat.read(source.with_suffix(".ipynb"), as_version=4)
    execute(notebook)


def main() -> None:
    for source in SOURCES:
        notebook = jupytext.read(source)
        notebook.metadata.pop("jupytext", None)
        for number, cell in enumerate(notebook.cells):
            cell["id"] = f"cell-{number}"  # random otherwise, and another one each time
        execute(notebook)
        nbformat.write(notebook, source.with_suffix(".ipynb"))


if __name__ == "__main__":
    main()
