"""What ApiVersions advertises is what is served, on either listener, and what COVERAGE.md says."""

import re
from pathlib import Path

import pytest

from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.messages.k18_api_versions import ApiVersionsRequest
from tests.server.harness import connect, node_in, run

COVERAGE = Path(__file__).resolve().parents[2] / "COVERAGE.md"
ROW = re.compile(r"^\| (\d+) \| \w+ \| \S* \| (\S+) \| ([^|]*)\|", re.MULTILINE)
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
