"""Files that only other tools read: hooks, templates and editor settings."""

import configparser
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]


def test_hooks_are_local_and_download_nothing():
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        program, *arguments = hook["entry"].split()
        assert program.startswith(".venv/bin/")
        for argument in arguments:
            if argument.endswith(".py"):
                assert (ROOT / argument).is_file()


@pytest.mark.parametrize("name", ["bug", "feature"])
def test_issue_forms_are_complete(name: str):
    form = yaml.safe_load((ROOT / ".github" / "ISSUE_TEMPLATE" / f"{name}.yml").read_text())
    assert {"name", "description", "body"} <= form.keys()
    ids = [element["id"] for element in form["body"]]
    assert len(ids) == len(set(ids))
    assert all(element["attributes"]["label"] for element in form["body"])


def test_the_editor_wraps_where_ruff_does():
    # Sections of .editorconfig follow `root = true`, which is in none.
    settings = configparser.ConfigParser()
    settings.read_string("[top]\n" + (ROOT / ".editorconfig").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert settings.getint("*.py", "max_line_length") == project["tool"]["ruff"]["line-length"]
