"""Writes COVERAGE.md from the headers of the API files, and checks that it is up to date.

    python tools/coverage_page.py            write it
    python tools/coverage_page.py --check    exit 1 if it is out of date

Features that belong to no API (configs, storage, tools) are described in docs/beyond-apis.md.
"""

import ast
import re
import sys
from pathlib import Path

from sparkraft.protocol.api_keys import API_INFO, ApiInfo, ApiKey
from sparkraft.server.api import registry

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "COVERAGE.md"
BEYOND = ROOT / "docs" / "beyond-apis.md"
API_FOLDER = Path(registry.__file__).parent
_NOT_DONE = re.compile(r"Not done:\s*(.*?)\s*$", re.DOTALL)

_HEAD = """# API coverage

Generated from the headers of `src/sparkraft/server/api/` by `tools/coverage_page.py`; do not edit.
"Kafka" is the version range of Apache Kafka 4.3. A key that is not served is not advertised in
ApiVersions, and a request with it closes the connection, as in Kafka. Our own keys start at 10000
and are never advertised. Keys 4 to 7 belong to the ZooKeeper mode of Kafka 3.9: brokers serve 4 to
6, and the broker that is the controller 7.

| key | API | Kafka | served | listeners | not done |
|--:|---|---|---|---|---|
"""


def header_of(module: str) -> str:
    """The docstring of an API file, read without importing it."""
    return ast.get_docstring(ast.parse((API_FOLDER / f"{module}.py").read_text())) or ""


def not_done(header: str) -> str:
    """The header's list of what is not done, on one line; empty if there is nothing."""
    found = _NOT_DONE.search(header)
    if found is None:
        return "?"
    text = " ".join(found[1].split())
    return "" if text in {"-", "-."} else text


def row(info: ApiInfo) -> str:
    """One line of the table."""
    kafka = "(ours)" if info.is_own else f"{info.kafka_4_min_version}-{info.max_version}"
    if "zookeeper" in info.listeners:
        kafka = f"(3.9: {kafka})"
    found = {
        side: registry.load_api(info.key, controller_listener=side == "controller")
        for side in ("broker", "controller")
    }
    if "zookeeper" in info.listeners:
        found["ZooKeeper mode"] = registry.load_api(
            info.key, controller_listener=False, zookeeper=True
        )
    served = [api for api in found.values() if api is not None]
    if not served:
        return f"| {int(info.key)} | {info.name} | {kafka} | **no** | | everything |"
    ranges = sorted({f"{low}-{high}" for low, high in (api.version_range() for api in served)})
    sides = ", ".join(side for side, api in found.items() if api is not None)
    modules = {registry.SERVED.get(info.key), registry.SERVED_ON_CONTROLLER.get(info.key)} - {None}
    if info.key in registry.SERVED_IN_ZOOKEEPER_MODE:
        api = registry.load_api(info.key, controller_listener=False, zookeeper=True)
        assert api is not None
        sides += "; ZooKeeper mode {}-{}".format(*api.version_range())
    missing = "; ".join(
        text for name in sorted(modules, key=str) if (text := not_done(header_of(str(name))))
    )
    return (
        f"| {int(info.key)} | {info.name} | {kafka} | {', '.join(ranges)} | {sides} | {missing} |"
    )


def page() -> str:
    """The whole page."""
    rows = [row(API_INFO[key]) for key in sorted(ApiKey) if key in API_INFO]
    kafkas = [info.key for info in API_INFO.values() if info.is_kafka_4]
    served = sum(key in registry.SERVED for key in kafkas)
    count = f"\n{served} of Kafka's {len(kafkas)} keys are served.\n"
    return _HEAD + "\n".join(rows) + "\n" + count + "\n" + BEYOND.read_text()


def main() -> int:
    wanted = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(wanted)
        return 0
    if PAGE.exists() and PAGE.read_text() == wanted:
        return 0
    print("COVERAGE.md is out of date; run: .venv/bin/python tools/coverage_page.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
