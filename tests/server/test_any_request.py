"""Requests of every served key and version, filled with anything: answered or closed, never a bug.

Strings, ids and numbers are near what the node knows, so that they get past the first check. What
nobody expected shows as a line of level ERROR or as an exception nobody caught.
"""

import asyncio
import logging
import random
import secrets

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.protocol.api_keys import API_INFO, ApiKey
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.headers import request_header_version, response_header_version
from sparkraft.protocol.messages.headers import RequestHeader, ResponseHeader
from sparkraft.protocol.messages.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from sparkraft.records.compression import Codec
from sparkraft.server.api.registry import served_apis
from sparkraft.storage.raft_log import METADATA_TOPIC_ID
from tests.protocol.strategies import Fill
from tests.protocol.test_bad_bytes import mutate
from tests.server.harness import append, batch, connect, create_topic, node_in, run

EACH = 4
"""Requests of every key and version on either listener; one of four is damaged."""

ANSWER_S = 0.2
"""Long polls and rebalances outlast it; their connections go while they wait."""

NOT_ASKED = {
    ApiKey.VOTE,
    ApiKey.BEGIN_QUORUM_EPOCH,
    ApiKey.END_QUORUM_EPOCH,
    ApiKey.RESIGN_CONTROLLER,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.BROKER_REGISTRATION,
    ApiKey.BROKER_HEARTBEAT,
    ApiKey.CONTROLLER_REGISTRATION,
    ApiKey.ENVELOPE,
}
"""What they ask for may well be done: another epoch, or this node's place taken."""

NO_PLACE_FOR_AN_ERROR = {ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS, ApiKey.DESCRIBE_PRODUCERS}
"""The connection is closed."""

NUMBERS = {
    "int8": [-128, -1, 0, 1, 2, 3, 127],
    "int16": [-(2**15), -1, 0, 1, 2, 3, 2**15 - 1],
    "uint16": [0, 1, 9092, 2**16 - 1],
    "uint32": [0, 1, 2**32 - 1],
    "int32": [-(2**31), -1, 0, 0, 0, 1, 1, 2, 3, 1000, 2**31 - 1],
    "int64": [-(2**63), -3, -2, -1, 0, 0, 1, 1, 5, 1000, 2**63 - 1],
    "float64": [0.0, 1.0],
    "boolean": [False, True],
}
TEXTS = ["t", "t", "t", "g", "", "1", "no such", "bad name!", "x" * 300, "range", "consumer"]
TEXTS += ["__consumer_offsets", "__cluster_metadata", "retention.ms", "metadata.version"]


class Near(Fill):
    """Fills messages with what the node knows, and what is just beside it."""

    def __init__(self, version, dice, topic_id):
        super().__init__(version)
        self.dice = dice
        self.topic_id = topic_id
        self.batches = [
            b"",
            bytes(70),
            batch(b"x"),
            batch(b"x", codec=Codec.GZIP),
            batch(b"x", producer_id=5, producer_epoch=0, base_sequence=0),
        ]

    def field(self, field):
        if self.version in field.nullable and self.dice.random() < 0.3:
            return None
        if field.kind == "array":
            return [self.element(field) for _ in range(self.dice.choice([0, 1, 1, 1, 2]))]
        return super().field(field)

    def scalar(self, kind, name):
        if kind == "string":
            return self.dice.choice(TEXTS)
        if kind == "uuid":
            other = Uuid(self.dice.randbytes(16))
            return self.dice.choice([self.topic_id, self.topic_id, Uuid.ZERO, other])
        if kind == "blob":
            return self.dice.choice([b"", b"x", bytes(100)])
        if kind == "records":
            return self.dice.choice(self.batches)
        return self.dice.choice(NUMBERS[kind])


async def ask(port, key, version, body):
    """Send one request; None, or whether what came back is a message of that key and version."""
    header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7)
    frame = encode(header, request_header_version(key, version)) + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    try:
        writer.write(len(frame).to_bytes(4, "big") + frame)
        async with asyncio.timeout(ANSWER_S):
            size = int.from_bytes(await reader.readexactly(4), "big")
            answer = await reader.readexactly(size)
    except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()
    info = API_INFO[key]
    head = encode(ResponseHeader(correlation_id=7), response_header_version(key, version))
    assert answer.startswith(head)
    decode(info.response_class(), version, answer[len(head) :])


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_any_request_is_answered_or_its_connection_closed(tmp_path, caplog, listener, seed):
    answered_or_closed(tmp_path, caplog, listener, seed)


@pytest.mark.long
@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_any_request_of_new_seeds_is_answered_or_its_connection_closed(tmp_path, caplog, listener):
    for turn in range(50):
        path = tmp_path / str(turn)
        path.mkdir()
        caplog.clear()
        answered_or_closed(path, caplog, listener, secrets.randbits(64))


def answered_or_closed(tmp_path, caplog, listener, seed):
    """Every request that `seed` makes is, and the node serves on."""
    caplog.set_level(logging.ERROR)
    dice = random.Random(seed)
    last = "nothing yet"

    async def test():
        nonlocal last
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            topic_id = await create_topic(connection, "t")
            await append(connection, topic_id, batch(b"x"))
            for api in served_apis(controller_listener=listener == "CONTROLLER"):
                if api.key in NOT_ASKED:
                    continue
                lowest, highest = api.version_range()
                asking = []
                for version in (*range(lowest, highest + 1),) * EACH:
                    message = Near(version, dice, topic_id).message(
                        API_INFO[api.key].request_class()
                    )
                    body = encode(message, version)
                    if dice.randrange(4) == 0:
                        body = mutate(dice, body)
                    asking.append(ask(node.ports[listener], api.key, version, body))
                last = f"seed {seed}: {api.key.name}"
                await asyncio.gather(*asking)
                errors = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
                assert not errors, f"{last}: {errors}"
            connection = await connect(node)
            topic_id = await create_topic(connection, "after")
            assert (await append(connection, topic_id, batch(b"y"))).error_code == 0

    try:
        run(test())
    except BaseException as error:
        error.add_note(last)
        raise


def test_a_controller_answers_every_version_of_fetch_also_when_it_refuses(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node, "CONTROLLER")
            for version in range(4, 19):
                part = FetchPartition(partition=0, fetch_offset=5, partition_max_bytes=1 << 20)
                if version >= 9:
                    part.current_leader_epoch = 99
                topic = FetchTopic(partitions=[part])
                if version <= 12:
                    topic.topic = "__cluster_metadata"
                else:
                    topic.topic_id = METADATA_TOPIC_ID
                request = FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[topic])
                answer = await connection.send(request, version=version)
                told = answer.responses[0].partitions[0]
                assert told.error_code != 0
                assert (told.current_leader.leader_id == 1) == (version >= 12)
                assert bool(answer.node_endpoints) == (version >= 16)
            await connection.close()

    run(test())


class Quorum(Fill):
    """Fills a request of the quorum about its one partition, in an epoch long gone."""

    def field(self, field):
        if field.kind == "array":
            return [self.element(field)] if "endpoints" not in field.name else []
        return super().field(field)

    def scalar(self, kind, name):
        if name == "cluster_id":
            return None
        return "__cluster_metadata" if kind == "string" else 0 if "int" in kind else bytes(16)


@pytest.mark.parametrize(
    "key",
    [
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
    ],
)
def test_a_controller_tells_where_the_leader_is_in_versions_with_a_place_for_it(tmp_path, key):
    async def test():
        async with node_in(tmp_path) as node:
            info = API_INFO[key]
            for version in range(info.min_version, info.max_version + 1):
                connection = await connect(node, "CONTROLLER")
                request = Quorum(version).message(info.request_class())
                answer = await connection.send(request, version=version)
                assert answer.topics[0].partitions[0].error_code != 0
                assert bool(answer.node_endpoints) == (version >= 1)
                await connection.close()

    run(test())


@pytest.mark.parametrize("controller_listener", [False, True])
def test_a_refusal_of_the_whole_request_can_be_written_in_every_version(controller_listener):
    for api in served_apis(controller_listener=controller_listener):
        info = API_INFO[api.key]
        lowest, highest = api.version_range()
        for version in range(lowest, highest + 1):
            request = Fill(version).message(info.request_class())
            error = KafkaError(ErrorCode.NOT_CONTROLLER, "why")
            try:
                answer = api.refuse_now(info.response_class(), request, version, error)
            except AttributeError:
                assert api.key in NO_PLACE_FOR_AN_ERROR
                continue
            encode(answer, version)
