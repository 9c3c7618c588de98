"""No module of src knows itself through others (tools/circles.py)."""

from pathlib import Path

import pytest

from tools import circles


def write(root: Path, files: dict[str, str]) -> Path:
    for name, source in files.items():
        path = root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source)
    return root


def test_src_has_no_circle_of_imports():
    found = circles.circles_of(circles.graph_of(circles.SOURCE))
    assert found == [], "run python tools/circles.py to see the imports that close each circle"


@pytest.mark.parametrize(
    "back",
    [
        "from package import first\n",
        "import package.first\n",
        "from package.first import name\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from package import first\n",
        "def later():\n    from package.first import name\n",
    ],
)
def test_every_kind_of_import_closes_a_circle(tmp_path: Path, back: str):
    files = {
        "package/__init__": "",
        "package/first": "from package.second import other\n",
        "package/second": "from package.third import another\n",
        "package/third": back,
    }
    found = circles.circles_of(circles.graph_of(write(tmp_path, files)))
    assert found == [["package.first", "package.second", "package.third"]]


def test_a_chain_is_not_a_circle(tmp_path: Path):
    files = {
        "package/__init__": "",
        "package/first": "from package import second\n",
        "package/second": "import package.third\n",
        "package/third": "import os\n",
    }
    assert circles.circles_of(circles.graph_of(write(tmp_path, files))) == []
