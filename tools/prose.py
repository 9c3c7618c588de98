"""Count phrases that docs/STYLE.md replaces by plain English, and print samples of our prose.

    python tools/prose.py                 counts per kind of text and per phrase
    python tools/prose.py PATH ...        every finding below these paths, with file and line
    python tools/prose.py --sample SEED   60 random items of prose, with file and line
    python tools/prose.py --keep          write the counts per file to tests/prose.json
    python tools/prose.py --check         exit with 1 if a file has more than tests/prose.json says

Kinds: `doc` (Markdown), `message` (texts that users read: errors, logs, printed lines, help),
`docstring` and `comment`. Code in backquotes and code blocks is not prose.
"""

import argparse
import ast
import io
import json
import random
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "prose.json"
SAMPLE_ITEMS = 60
MESSAGE_WORDS_MIN = 3
"""A shorter string is a name or a key more often than a sentence."""

_WHERE_IS_A_PLACE = (
    r"(?<!\bsee )(?<!\bfind )(?<!\bfinds )(?<!\bknow )(?<!\bknows )(?<!\bshow )(?<!\bshows )"
    r"(?<!\bfrom )(?<!\bpoint )(?<!\bplace )(?<!\boffset )(?<!\bposition )(?<!\bline )"
    r"(?<!\bdirectory )(?<!\bfile )(?<!\bis )(?<!\band )"
)
PHRASES: dict[str, re.Pattern[str]] = {
    name: re.compile(pattern, re.IGNORECASE)
    for name, pattern in {
        "where (for if, when)": _WHERE_IS_A_PLACE + r"\bwhere\b(?! (?:to|from)\b)",
        "what ... (fragment)": r"(?:^|[.;:] )What\b(?![^.]*\?)",
        "tell, told": r"\b(?:tell|tells|told|telling)\b",
        "nobody, somebody": r"\b(?:nobody|somebody|everybody|anybody)\b",
        "says, said": r"\b(?:says|said)\b",
        "behind (for after)": (
            r"(?<!fall )(?<!falls )(?<!fell )(?<!fallen )(?<!lag )(?<!lags )"
            r"(?<!far )(?<!left )(?<!records )"
            r"\bbehind\b"
        ),
        "is no X": (
            r"(?<!there )\b(?:is|are|was|were) no "
            r"(?!longer\b|more\b|such\b|later\b|earlier\b|less\b|need\b)"
        ),
        "go on (for continue)": r"\b(?:go|goes|going|went|gone) on\b",
        "who, whoever, whom": r"\b(?:whoever|whom|whomever)\b|(?:^|[.;:,] )who\b(?![^.]*\?)",
        "become of": r"\b(?:become|becomes|became) of\b",
        "anew": r"\banew\b",
        "hear of, speak of": r"\b(?:heard|hear|hears|hearing|spoken|speaks|speak) of\b",
        "heed": r"\b(?:un)?heed(?:s|ed|ing)?\b",
        "mend": r"\bmend(?:s|ed|ing)?\b",
        "let go": r"\blet(?:s|ting)? go\b",
        "for ever, lest, in vain": r"\b(?:for ever|lest|in vain)\b",
        "is to be": r"\b(?:is|are|was|were) to be\b",
        "so many, so long (for a number)": r"\b(?:for so long|so many (?!that)|so long as)\b",
    }.items()
}
_CODE = re.compile(r"`[^`]*`|https?://\S+")


class Item(NamedTuple):
    """One piece of prose."""

    kind: str
    path: str
    line: int
    text: str


class Finding(NamedTuple):
    item: Item
    phrase: str
    words: str


def items_of_markdown(path: Path) -> Iterator[Item]:
    """Paragraphs, list items and table rows outside code blocks."""
    name, in_code, start, lines = str(path.relative_to(ROOT)), False, 0, []
    for number, line in enumerate([*path.read_text().splitlines(), ""], 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
            continue
        begins = re.match(r"\s*(?:[-*|#]|\d+\.)", line)
        if lines and (not line.strip() or begins or in_code):
            yield Item("doc", name, start, " ".join(lines))
            lines = []
        if line.strip() and not in_code:
            start = start if lines else number
            lines.append(line.strip())


def items_of_python(path: Path) -> Iterator[Item]:
    name, source = str(path.relative_to(ROOT)), path.read_text()
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for statement in body if isinstance(body, list) else ():
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                docstrings.add(id(statement.value))
                if isinstance(statement.value.value, str):
                    yield from _paragraphs("docstring", name, statement.value)
    parts = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = "" if id(node) in docstrings or id(node) in parts else node.value
        if len(re.findall(r"[A-Za-z]{2,}", text)) >= MESSAGE_WORDS_MIN and " " in text:
            yield Item("message", name, node.lineno, " ".join(text.split()))
    yield from _comments(name, source)


def _paragraphs(kind: str, name: str, node: ast.Constant) -> Iterator[Item]:
    line = node.lineno
    for paragraph in re.split(r"(\n\s*\n|\n(?=\s*\* ))", str(node.value)):
        if paragraph.strip():
            yield Item(kind, name, line, " ".join(paragraph.split()))
        line += paragraph.count("\n")


def _comments(name: str, source: str) -> Iterator[Item]:
    start, last, lines = 0, -1, []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        text = re.sub(r"noqa(?:: [A-Z0-9, ]+)?|type: ignore\S*|fmt: \w+", "", token.string)
        text = text.lstrip("# -").rstrip("- ")
        if lines and token.start[0] != last + 1:
            yield Item("comment", name, start, " ".join(lines))
            lines = []
        start, last = (start if lines else token.start[0]), token.start[0]
        if text:
            lines.append(text)
    if lines:
        yield Item("comment", name, start, " ".join(lines))


def all_items() -> Iterator[Item]:
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]):
        yield from items_of_markdown(path)
    for path in sorted((ROOT / "src").rglob("*.py")):
        yield from items_of_python(path)


def findings_in(item: Item) -> Iterator[Finding]:
    text = _CODE.sub("`x`", item.text)
    for phrase, pattern in PHRASES.items():
        for found in pattern.finditer(text):
            around = text[max(0, found.start() - 40) : found.end() + 40]
            yield Finding(item, phrase, around)


def counts_by_file(findings: list[Finding]) -> dict[str, int]:
    return dict(sorted(Counter(finding.item.path for finding in findings).items()))


def risen(counts: dict[str, int], kept: dict[str, int]) -> list[str]:
    """Files that have more findings than were kept for them; a file not kept may have none."""
    return [
        f"{path}: {count} phrases, {kept.get(path, 0)} allowed; see python tools/prose.py {path}"
        for path, count in counts.items()
        if count > kept.get(path, 0)
    ]


def report(findings: list[Finding]) -> None:
    kinds = Counter(finding.item.kind for finding in findings)
    phrases = Counter(finding.phrase for finding in findings)
    for counter in (kinds, phrases):
        for name, count in counter.most_common():
            print(f"{count:6} {name}")
        print()
    print(f"{sum(kinds.values()) - kinds['doc']} in src, {kinds['doc']} in docs")


def main() -> int:
    parser = argparse.ArgumentParser(description="Count phrases that are not plain English.")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--sample", metavar="SEED")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    items = list(all_items())
    if options.sample is not None:
        sample = random.Random(options.sample).sample(items, SAMPLE_ITEMS)
        for item in sample:
            print(f"{item.path}:{item.line} [{item.kind}] {item.text}")
        return 0
    findings = [finding for item in items for finding in findings_in(item)]
    if options.keep:
        KEPT.write_text(json.dumps(counts_by_file(findings), indent=1) + "\n")
    if options.check:
        worse = risen(counts_by_file(findings), json.loads(KEPT.read_text()))
        print("\n".join(worse) or "no file has more than before")
        return 1 if worse else 0
    for finding in findings:
        if any(finding.item.path.startswith(path) for path in options.paths):
            print(f"{finding.item.path}:{finding.item.line} [{finding.item.kind}] "
                  f"{finding.phrase}: ...{finding.words}...")  # fmt: skip
    if not options.paths:
        report(findings)
    return 0


if __name__ == "__main__":
    sys.exit(main())
