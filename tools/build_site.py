"""Build the documentation site from the pages and the docstrings of the public API.

    python tools/build_site.py           build it in build/site
    python tools/build_site.py FOLDER    build it in FOLDER

The pages are copied with the layout of the repository, so that their links work both here and on
the site. The reference pages exist on the site only. A warning fails the build, and nothing is
fetched while it runs.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "build" / "site-source"
REFERENCE = {
    "client": (
        "The asyncio client",
        "sparkraft.client.producer",
        "sparkraft.client.transactional_producer",
        "sparkraft.client.subscription",
        "sparkraft.client.errors",
        "sparkraft.client.consumer",
        "sparkraft.client.admin",
        "sparkraft.client.cluster",
    ),
    "pipeline": ("Pipelines in Python", "sparkraft.pipeline"),
    "testing": ("The pytest plugin", "sparkraft.testing.pytest_plugin"),
}
"""Pages of docs/api-stability.md's public modules: title, then modules."""


def copy_pages() -> None:
    shutil.rmtree(SOURCE, ignore_errors=True)
    SOURCE.mkdir(parents=True)
    for page in ROOT.glob("*.md"):
        shutil.copy(page, SOURCE)
    for folder in ("docs", "examples"):
        shutil.copytree(
            ROOT / folder, SOURCE / folder, ignore=shutil.ignore_patterns("__pycache__", "state*")
        )


def write_reference() -> None:
    folder = SOURCE / "reference"
    folder.mkdir()
    for name, (title, *modules) in REFERENCE.items():
        parts = "".join(f"\n::: {module}\n" for module in modules)
        (folder / f"{name}.md").write_text(f"# {title}\n{parts}")


def main(argv: list[str]) -> int:
    copy_pages()
    write_reference()
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    if argv:
        command += ["--site-dir", str(Path(argv[0]).resolve())]
    # The theme prints an advertisement for its maintainers' projects otherwise.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
