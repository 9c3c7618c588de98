"""The pages' files: small, complete, without inline code and without ways to insert markup."""

import gzip
import re

import pytest

from sparkraft.console.application import SCREENS
from sparkraft.console.assets import STATIC

FILES = sorted(STATIC.iterdir())
PAGE_BYTES_MAX = 100_000

WAYS_TO_INSERT_MARKUP = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|DOMParser"
    r"|createContextualFragment|setHTML|srcdoc"
)


def text(suffix: str) -> str:
    return "\n".join(path.read_text() for path in FILES if path.suffix == suffix)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_inserts_markup_or_names_another_host(path):
    content = path.read_text()
    assert not WAYS_TO_INSERT_MARKUP.search(content)
    hosts = set(re.findall(r"https?://[^\s\"'`<>)]*", content))
    assert hosts <= {"http://www.w3.org/2000/svg"}


def test_the_page_has_no_inline_code():
    page = text(".html")
    assert not re.search(r"\son\w+=|\sstyle=|<style|javascript:", page)
    assert set(re.findall(r"<script[^>]*>([^<]*)</script>", page)) == {""}


def test_every_imported_module_exists():
    names = {path.name for path in FILES}
    assert set(re.findall(r'from "\./([\w.-]+)"', text(".js"))) <= names
    assert set(re.findall(r'"/static/([\w.-]+)"', text(".html"))) <= names


def test_the_server_serves_the_page_for_every_screen():
    drawn = set(re.findall(r'\{ path: "([^"]+)"', (STATIC / "app.js").read_text()))
    assert drawn == set(SCREENS)


def test_all_files_together_are_small():
    assert sum(len(gzip.compress(path.read_bytes(), 9)) for path in FILES) < PAGE_BYTES_MAX
