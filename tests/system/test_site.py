"""The documentation site builds without a warning and without network access."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("mkdocs", "material", "mkdocstrings")
LOADS = r'<(?:script|img|link rel="stylesheet")[^>]+"(https?:[^"]+)'


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"the site needs packages that are not installed: {', '.join(missing)}")
    # The build writes below build/; a copy keeps it out of the working tree.
    root, built = tmp_path_factory.mktemp("root"), tmp_path_factory.mktemp("site")
    for name in ("docs", "examples", "tools", "src"):
        shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*ROOT.glob("*.md"), ROOT / "mkdocs.yml"]:
        shutil.copy(path, root)
    nowhere = "http://127.0.0.1:9"  # a fetch would fail
    done = subprocess.run(
        [sys.executable, root / "tools" / "build_site.py", str(built)],
        env={**os.environ, "http_proxy": nowhere, "https_proxy": nowhere},
        capture_output=True,
        text=True,
        check=False,
    )
    told = (done.stdout + done.stderr).splitlines()
    assert (done.returncode, [line for line in told if not line.startswith("INFO ")]) == (0, [])
    return built


def test_every_page_is_on_the_site(site: Path):
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        folder = page.relative_to(ROOT).with_suffix("")
        folder = folder.parent if folder.name == "README" else folder
        assert (site / folder / "index.html").is_file(), page


def test_the_reference_has_the_public_classes(site: Path):
    text = (site / "reference" / "client" / "index.html").read_text()
    for name in (
        "producer.Producer",
        "transactional_producer.TransactionalProducer",
        "consumer.Consumer",
        "subscription.GroupSettings",
        "errors.AbortableTransactionError",
        "admin.Admin",
        "cluster.Cluster",
    ):
        assert f'id="sparkraft.client.{name}"' in text


def test_pages_load_nothing_from_other_hosts(site: Path):
    for page in site.rglob("*.html"):
        found = re.finditer(LOADS, page.read_text())
        assert [match[1] for match in found] == [], page
