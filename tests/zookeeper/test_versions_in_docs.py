"""docs/ZOOKEEPER.md lists the versions of requests that Kafka 3.9 serves and ours do not."""

import re
from pathlib import Path

from sparkraft.server.api.registry import served_apis
from tests.zookeeper.kafka_versions import KAFKA_3_9


def test_the_documented_versions_are_those_that_are_not_served() -> None:
    text = Path("docs/ZOOKEEPER.md").read_text()
    section = text.partition("### Versions that only Kafka 3.9 serves\n")[2].partition("\n###")[0]
    documented = dict(re.findall(r"^\| (\w+) \| (\d[ \w]*) \|$", section, re.MULTILINE))
    served = {api.key: api.version_range() for api in served_apis_of_a_broker()}
    missing = {}
    for key, versions in KAFKA_3_9.items():
        lowest, highest = served[key]
        assert highest >= versions[-1], "what is missing is old"
        if lowest > (first := versions[0]):
            name = "".join(part.title() for part in key.name.split("_"))
            missing[name] = f"{first}" if lowest == first + 1 else f"{first} to {lowest - 1}"
    assert documented == missing


def served_apis_of_a_broker() -> list:
    return served_apis(controller_listener=False, zookeeper=True)
