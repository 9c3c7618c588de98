"""docs/ZOOKEEPER.md lists the versions of requests that Kafka 3.9 serves and ours do not."""

import re
from pathlib import Path

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.server.api.registry import served_apis

ADVERTISED = """
0:0-11 1:0-17 2:0-9 3:0-12 4:0-7 5:0-4 6:0-8 7:0-3 8:0-9 9:0-9 10:0-6 11:0-9 12:0-4 13:0-5 14:0-5
15:0-5 16:0-5 17:0-1 18:0-4 19:0-7 20:0-6 21:0-2 22:0-5 23:0-4 24:0-5 25:0-4 26:0-4 27:0-1 28:0-4
29:0-3 30:0-3 31:0-3 32:0-4 33:0-2 34:0-2 35:0-4 36:0-2 37:0-3 38:0-3 39:0-2 40:0-2 41:0-3 42:0-2
43:0-2 44:0-1 45:0-0 46:0-0 47:0-0 48:0-1 49:0-1 50:0-0 51:0-0 56:0-3 57:0-1 58:0-0 60:0-1 61:0-0
65:0-0 66:0-1 67:0-0 68:0-0 69:0-0
"""
"""Key, lowest and highest version in ApiVersions of Kafka 3.9.2 in ZooKeeper mode, as recorded."""


def test_the_documented_versions_are_those_that_are_not_served() -> None:
    text = Path("docs/ZOOKEEPER.md").read_text()
    section = text.partition("### Versions that only Kafka 3.9 serves\n")[2].partition("\n###")[0]
    documented = dict(re.findall(r"^\| (\w+) \| (\d[ \w]*) \|$", section, re.MULTILINE))
    served = {api.key: api.version_range() for api in served_apis_of_a_broker()}
    missing = {}
    for key, first, last in re.findall(r"(\d+):(\d+)-(\d+)", ADVERTISED):
        lowest, highest = served[ApiKey(int(key))]
        assert highest >= int(last), "what is missing is old"
        if lowest > int(first):
            name = "".join(part.title() for part in ApiKey(int(key)).name.split("_"))
            missing[name] = first if lowest == int(first) + 1 else f"{first} to {lowest - 1}"
    assert documented == missing


def served_apis_of_a_broker() -> list:
    return served_apis(controller_listener=False, zookeeper=True)
