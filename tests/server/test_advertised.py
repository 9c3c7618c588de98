"""What ApiVersions advertises is what is served, on either listener, and what COVERAGE.md says."""

import re
import zipfile
from pathlib import Path

import pytest

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest
from sparkraft.server.api.registry import served_apis
from tests.server.harness import connect, node_in, run

COVERAGE = Path(__file__).resolve().parents[2] / "COVERAGE.md"
ROW = re.compile(r"^\| (\d+) \| \w+ \| \S* \| (\S+) \| ([^|]*)\|", re.MULTILINE)
LISTENERS = re.compile(r'"listeners": \[([^]]*)\]')
NO_HANDLER = {ApiKey.DESCRIBE_DELEGATION_TOKEN, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS}
"""Declared for controllers, too, but Kafka's `ControllerApis` has no handler for them."""

NOT_SERVED = (ApiKey.SHARE_FETCH, ApiKey.STREAMS_GROUP_HEARTBEAT)


def served_on(listener: str) -> dict[int, str]:
    """Key → versions, as the page tells them of that kind of listener; ours left out."""
    rows = ROW.findall(COVERAGE.read_text())
    return {
        int(key): served for key, served, where in rows if listener in where and int(key) < 10_000
    }


@pytest.mark.parametrize(
    ("listener", "kind"), [("PLAINTEXT", "broker"), ("CONTROLLER", "controller")]
)
def test_what_is_advertised_is_what_the_page_says(tmp_path, listener, kind):
    async def test():
        # Client metrics are advertised only if they are enabled.
        async with node_in(tmp_path, sparkraft_telemetry_enable="true") as node:
            connection = await connect(node, listener)
            request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
            answer = await connection.send(request)
            told = {
                entry.api_key: f"{entry.min_version}-{entry.max_version}"
                for entry in answer.api_keys
            }
            expected = served_on(kind)
            if kind == "broker":
                assert told[ApiKey.PRODUCE] == "0-13", "librdkafka needs it so (KAFKA-18659)"
                told[ApiKey.PRODUCE] = expected[ApiKey.PRODUCE]
            assert told == expected
            assert not told.keys() & set(NOT_SERVED)
            await connection.close()

    run(test())


@pytest.mark.parametrize("key", NOT_SERVED)
def test_a_request_that_is_not_served_ends_its_connection(tmp_path, key):
    """As in Kafka; clients don't send what isn't advertised."""

    async def test():
        async with node_in(tmp_path) as node:
            for listener in ("PLAINTEXT", "CONTROLLER"):
                connection = await connect(node, listener)
                message = API_INFO[key].request_class()()
                connection.send_without_answer(message, version=API_INFO[key].min_version)
                await connection.wait_closed()

    run(test())


@pytest.mark.java
def test_each_key_is_served_on_kafkas_listeners(kafka_jars: Path):
    """Such as AddRaftVoter, RemoveRaftVoter, UpdateFeatures and UnregisterBroker on both kinds."""
    (jar,) = kafka_jars.glob("kafka-clients-*.jar")
    served: dict[ApiKey, set[str]] = {}
    for listener in ("broker", "controller"):
        for api in served_apis(controller_listener=listener == "controller"):
            served.setdefault(api.key, set()).add(listener)
    kafkas = {}
    with zipfile.ZipFile(jar) as archive:
        for key in served:
            info = API_INFO[key]
            if not info.is_own:
                text = archive.read(f"common/message/{info.name}Request.json").decode()
                kafkas[key] = set(re.findall(r'"(\w+)"', LISTENERS.findall(text)[0]))
    for key in NO_HANDLER:
        assert kafkas.pop(key) == served[key] | {"controller"}
    assert {key: served[key] for key in kafkas} == kafkas
