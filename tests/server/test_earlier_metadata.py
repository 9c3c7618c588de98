"""DescribeImage and DescribeMetadataLog of a node: what a tool replays, and what it may see."""

import asyncio
import json

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.cli import acls, configs, explain_cluster, metadata_log
from sparkraft.cli.errors import UsageError
from sparkraft.client.cluster import Cluster
from sparkraft.client.past.changes import change_of
from sparkraft.client.past.log import PastReader
from sparkraft.client.past.state import PastState
from sparkraft.metadata.redaction import redacted
from sparkraft.protocol.framing import decode_metadata_record, encode_metadata_record
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.protocol.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from sparkraft.protocol.messages.k10005_describe_image import DescribeImageRequest
from sparkraft.protocol.messages.k10006_describe_metadata_log import DescribeMetadataLogRequest
from sparkraft.records.batch import crc_ok, iter_batches
from sparkraft.records.record import BatchBuilder
from sparkraft.security.acls import AclOperation, AclResourceType
from sparkraft.server.api import k10006_describe_metadata_log
from tests.client.test_past_state import of_image, of_state
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.support.sessions import Deciding

SECRET = "hunter2"


async def written(node, *made):
    """Append records as the controller would."""
    epoch = node.raft.leader_and_epoch.epoch
    last = await node.raft.append([(record, 0) for record in made], epoch=epoch)
    await until(lambda: node.raft.high_watermark > last and node.broker.image.offset >= last)
    return last


def secrets():
    return [
        records.UserScramCredentialRecord(
            name="alice", mechanism=1, salt=SECRET.encode(), stored_key=SECRET.encode(),
            server_key=SECRET.encode(), iterations=4096,
        ),
        records.ConfigRecord(
            resource_type=4, resource_name="77", name="a.plugin.password", value=SECRET
        ),
        records.ConfigRecord(
            resource_type=4, resource_name="77", name="log.cleaner.threads", value="2"
        ),
        records.DelegationTokenRecord(owner=f"User:{SECRET}", token_id=SECRET),
    ]  # fmt: skip


def client_of(node):
    return Cluster(f"127.0.0.1:{node.listeners[0].port}", client_id="test")


async def delete_topic(connection, name):
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=10_000)
    await connection.send(request)


def test_images_and_log_lead_to_the_same_states(tmp_path):
    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            await create_topic(connection, "flights", partitions=3, **{"retention.ms": "1000"})
            await create_topic(connection, "gone")
            await delete_topic(connection, "gone")
            await until(lambda: node.broker.image.topic("gone") is None)
            past = PastReader(cluster)
            now, available = await past.image()
            assert of_state(now) == of_image(node.broker.image.at(now.offset, now.epoch))
            assert (available.cluster_id, available.start_offset) == (node.broker.cluster_id, 0)
            assert now.leader_id == 1
            # Replay the whole log, and compare with an image at each offset.
            state, seen = PastState(), 0
            async for each in past.records(state, from_offset=0, to_offset=now.offset + 1):
                if each.offset > 0 and not state.in_transaction:
                    image, _ = await past.image(at_offset=each.offset - 1)
                    image.move_to(state.offset, state.epoch, state.at_ms)
                    assert of_state(image) == of_state(state)
                    seen += 1
            assert seen > 8
            assert state.at_ms > 0
            # Continue from an image in the middle.
            middle, _ = await past.image(at_offset=now.offset - 5)
            async for _ in past.records(middle, from_offset=middle.offset + 1):
                pass
            latest, _ = await past.image()
            assert of_state(latest)["topics"] == of_state(middle)["topics"]
            # By time.
            first, _ = await past.image(at_ms=1)
            assert first.offset == -1
            page = await past.page(from_ms=now.at_ms)
            assert page.from_offset <= now.offset < page.next_offset
            await connection.close()

    run(test())


def test_pages_of_an_image_are_of_one_image(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=8)
            first = await connection.send(DescribeImageRequest(records_max=3))
            await create_topic(connection, "u")
            answer, values = first, 0
            while True:
                assert (answer.offset, answer.epoch) == (first.offset, first.epoch)
                for header, _ in iter_batches(answer.records):
                    values += header.records_count
                if answer.next_cursor < 0:
                    break
                request = DescribeImageRequest(
                    at_offset=first.offset, epoch=first.epoch, cursor=answer.next_cursor,
                    records_max=3,
                )  # fmt: skip
                answer = await connection.send(request)
            whole = await connection.send(DescribeImageRequest(at_offset=first.offset))
            assert values == sum(header.records_count for header, _ in iter_batches(whole.records))
            assert whole.next_cursor == -1
            other = DescribeImageRequest(at_offset=first.offset, epoch=first.epoch + 1)
            refused = await connection.send(other)
            assert refused.error_code == ErrorCode.SNAPSHOT_NOT_FOUND
            beyond = DescribeImageRequest(at_offset=first.offset, cursor=1_000)
            refused = await connection.send(beyond)
            assert refused.error_code == ErrorCode.POSITION_OUT_OF_RANGE
            await connection.close()

    run(test())


def test_no_secret_leaves_the_node(tmp_path):
    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            last = await written(node, *secrets())
            image = await connection.send(DescribeImageRequest(at_offset=last))
            log = await connection.send(DescribeMetadataLogRequest())
            for answer in (image, log):
                assert SECRET.encode() not in bytes(answer.records)
                assert b"a.plugin.password" in bytes(answer.records)
                assert all(crc_ok(view) for _, view in iter_batches(answer.records))
            state, _ = await PastReader(cluster).image(at_offset=last)
            assert state.scram == {(1, "alice"): 4096}
            assert state.configs[4, "77"] == {
                "a.plugin.password": "(redacted)",
                "log.cleaner.threads": "2",
            }
            await connection.close()

    run(test())


def test_a_session_sees_what_its_entries_allow(tmp_path):
    allowed = {
        (AclOperation.DESCRIBE, AclResourceType.CLUSTER, "kafka-cluster"),
        (AclOperation.DESCRIBE, AclResourceType.TOPIC, "own"),
        (AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, "hidden-gone"),
    }

    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            for name in ("own", "hidden-now", "hidden-gone"):
                await create_topic(connection, name, **{"retention.ms": "77777"})
            await delete_topic(connection, "hidden-gone")
            await until(lambda: node.broker.image.topic("hidden-gone") is None)
            entity = [records.EntityData(entity_type="user", entity_name="hidden-user")]
            quota = records.ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.0)
            group = records.ConfigRecord(
                resource_type=32, resource_name="hidden-group",
                name="consumer.session.timeout.ms", value="45000",
            )  # fmt: skip
            last = await written(node, quota, group)
            everything = await connection.send(DescribeMetadataLogRequest())
            for hidden in (b"hidden-gone", b"hidden-now", b"hidden-user", b"hidden-group"):
                assert hidden in bytes(everything.records)
            for each in node.listeners:
                each.authorizer = Deciding(lambda *asked: asked in allowed)
            limited = await connect(node)
            log = await limited.send(DescribeMetadataLogRequest(to_offset=last + 1))
            images = [
                await limited.send(DescribeImageRequest(at_offset=offset))
                for offset in (last, last - 6)
            ]
            for answer in (log, *images):
                content = bytes(answer.records)
                assert b"own" in content
                assert b"hidden" not in content
                assert b"77777" not in content
                assert all(crc_ok(view) for _, view in iter_batches(answer.records))
            ids = {topic.id for topic in node.broker.image.topics_in_order() if topic.name != "own"}
            assert not any(bytes(topic_id) in bytes(log.records) for topic_id in ids)
            # The replay of what is left has no gap and no unknown object.
            past = PastReader(cluster)
            state = PastState()
            async for each in past.records(state, from_offset=0, to_offset=last + 1):
                assert each.record is None or type(each.record) is records.NoOpRecord or (
                    change_of(state, each.record) is not None
                )  # fmt: skip
            assert list(state.topic_ids) == ["own"]
            await limited.close()
            await connection.close()

    run(test())


def test_a_client_with_other_records_gets_where_they_diverge(tmp_path):
    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            past = PastReader(cluster)
            now, available = await past.image()
            same = await past.page(from_offset=now.offset, last_fetched_epoch=now.epoch)
            assert same.diverging_end_offset == -1
            for epoch in (now.epoch - 1, now.epoch + 1):
                other = await past.page(from_offset=now.offset, last_fetched_epoch=epoch)
                assert other.records == b""
                assert other.diverging_end_offset >= 0
            # A longer log of the same epoch than this node has.
            beyond = available.high_watermark + 1_000
            other = await past.page(from_offset=beyond, last_fetched_epoch=now.epoch)
            assert available.high_watermark <= other.diverging_end_offset < beyond
            with pytest.raises(KafkaError) as caught:
                await past.page(from_offset=beyond)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    run(test())


def test_a_page_ends_at_its_size_and_has_at_least_one_batch(tmp_path):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "t", partitions=50)
            position, pages, seen = 0, 0, []
            end = (await connection.send(DescribeMetadataLogRequest())).next_offset
            while position < end:
                request = DescribeMetadataLogRequest(from_offset=position, max_bytes=1)
                answer = await connection.send(request)
                found = list(iter_batches(answer.records))
                assert len(found) <= 1
                seen += [header.base_offset for header, _ in found]
                assert answer.next_offset > position
                position, pages = answer.next_offset, pages + 1
            assert pages > 3
            assert seen == sorted(set(seen))
            await connection.close()

    run(test())


def test_the_command_prints_each_change(tmp_path, capsys):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "flights", partitions=2)
            server = ["--bootstrap-server", f"127.0.0.1:{node.listeners[0].port}"]

            async def printed(*options):
                assert await asyncio.to_thread(metadata_log.main, [*server, *options]) == 0
                return capsys.readouterr().out

            lines = (await printed()).splitlines()
            texts = [line[35:] for line in lines]
            assert texts[0] == "controller 1 was elected in epoch 1"
            assert "broker 1 was unfenced" in texts
            created = texts.index("partition flights-1 was created on 1, leader 1")
            offset = int(lines[created].split()[0])
            (one,) = (await printed("--from", str(offset), "--to", str(offset))).splitlines()
            assert one == lines[created]
            document = json.loads(
                await printed("--from", str(offset), "--to", str(offset), "--output", "json")
            )
            assert (document["offset"], document["kind"]) == (offset, "partition")
            assert document["type"] == "PartitionRecord"
            assert document["data"]["partitionId"] == 1
            topics = (await printed("--only", "topic", "--from-time", "1h")).splitlines()
            assert topics[0][35:].startswith("topic flights was created")
            assert await printed("--to-time", "1h") == ""
            # In the middle of the bootstrap transaction.
            assert "feature" in (await printed("--from", "4", "--to", "4"))
            await connection.close()

    run(test())


def test_the_health_of_the_cluster_as_of_an_earlier_offset(tmp_path, capsys):
    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "flights", partitions=2)
            created = node.broker.image.offset
            server = ["--bootstrap-server", f"127.0.0.1:{node.listeners[0].port}"]

            async def printed(*options, command=explain_cluster):
                await asyncio.to_thread(command.main, [*server, *options])
                return capsys.readouterr().out

            changes = await printed("--only", "broker", "--output", "json", command=metadata_log)
            registered = json.loads(changes.splitlines()[0])["offset"]
            now = json.loads(await printed("--output", "json"))
            past = json.loads(await printed("--at-offset", str(created), "--output", "json"))
            assert (now["asOf"], past["asOf"]["offset"]) == (None, created)
            assert past["asOf"]["controller"] == 1
            for key in ("clusterId", "topicCount", "partitionCount", "offline", "underReplicated"):
                assert past[key] == now[key]
            assert past["brokers"][0]["leads"] == now["brokers"][0]["leads"] == 2
            lines = (await printed("--at-offset", str(registered))).splitlines()
            assert lines[0] == "Broker 1 is fenced."
            assert lines[2].startswith(f"as of offset {registered}, 20")
            assert "0 topics, 0 partitions" in lines[-1]
            assert (await printed("--at-time", "0s")).startswith("All was well: 1 broker, 1 topic")
            await connection.close()

    run(test())


def test_configs_and_access_rights_as_of_an_earlier_offset(tmp_path, capsys):
    """`configs --describe` and `acls --list` print what was set then, as they print the present."""

    async def test():
        async with node_in(tmp_path) as node:
            connection = await connect(node)
            await create_topic(connection, "flights", **{"retention.ms": "5000"})
            before = await written(
                node,
                *secrets(),
                records.ConfigRecord(
                    resource_type=4, resource_name="", name="num.io.threads", value="9"
                ),
                records.AccessControlEntryRecord(
                    id=Uuid(bytes(15) + b"1"), resource_type=2, resource_name="flights",
                    pattern_type=3, principal="User:ann", host="*", operation=3, permission_type=3,
                ),
                records.ClientQuotaRecord(
                    entity=[records.EntityData(entity_type="user", entity_name="ann")],
                    key="producer_byte_rate", value=1024,
                ),
            )  # fmt: skip
            await written(
                node,
                records.ConfigRecord(
                    resource_type=2, resource_name="flights", name="retention.ms", value=None
                ),
                records.RemoveAccessControlEntryRecord(id=Uuid(bytes(15) + b"1")),
            )
            server = ["--bootstrap-server", f"127.0.0.1:{node.listeners[0].port}"]

            async def printed(*words, command=configs, code=0):
                capsys.readouterr()
                done = await asyncio.to_thread(command.main, [*words, *server])
                assert done == code
                return capsys.readouterr().out

            async def described(*words):
                then = ("--at-offset", str(before), "--output", "json")
                return json.loads(await printed("--describe", *words, *then))

            assert "retention.ms" not in await printed("--describe", "--topic", "flights")
            past = await printed("--describe", "--topic", "flights", "--at-offset", str(before))
            assert past.splitlines() == [
                "Dynamic configs for topic flights are:",
                "  retention.ms=5000 sensitive=false "
                "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=5000}",
            ]
            of_all = await described("--entity-type", "brokers")
            assert [one["entityName"] for one in of_all] == ["1", ""]
            names = ["min.insync.replicas", "num.io.threads"]
            assert [one["name"] for one in of_all[1]["configs"]] == names
            (hidden,) = await described("--broker", "77", "--all")
            values = {one["name"]: one["value"] for one in hidden["configs"]}
            assert values.pop("min.insync.replicas") == "1"
            expected = {"a.plugin.password": None, "log.cleaner.threads": "2"}
            assert values == {**expected, "num.io.threads": "9"}
            assert await described("--topic", "no") == [], "the message is not part of the JSON"
            missing = await printed("--describe", "--topic", "no", "--at-offset", str(before))
            assert missing == "The topic 'no' doesn't exist and doesn't have dynamic config.\n"
            assert await described("--entity-type", "users") == [
                {"entity": {"user": "ann"}, "quotas": {"producer_byte_rate": 1024.0}},
                {
                    "user": "alice",
                    "credentials": [{"mechanism": "SCRAM-SHA-256", "iterations": 4096}],
                },
            ]
            assert await described("--entity-type", "users", "--entity-name", "bob") == []
            listed = ["--list", "--at-offset", str(before)]
            (acl,) = json.loads(await printed(*listed, "--output", "json", command=acls))
            assert (acl["principal"], acl["operation"]) == ("User:ann", "READ")
            assert await printed(*listed, "--topic", "other", command=acls) == ""
            assert "User:ann" in await printed(*listed, "--topic", "flights", command=acls)
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    ("command", "words", "problem"),
    [
        (configs, ["--alter", "--topic", "t", "--at-time", "1h"], "go only with --describe"),
        (configs, ["--alter", "--topic", "t", "--at-offset", "0"], "go only with --describe"),
        (configs, ["--describe", "--broker-logger", "1", "--at-offset", "0"], "levels of loggers"),
        (configs, ["--describe", "--topic", "t", "--at-offset", "-1"], "must not be negative"),
        (acls, ["--add", "--at-offset", "3"], "go only with --list"),
        (acls, ["--list", "--at-offset", "3", "--at-time", "1h"], "not both"),
    ],
)
def test_an_earlier_moment_is_only_described(command, words, problem):
    with pytest.raises(UsageError, match=problem):
        command.main([*words, "--bootstrap-server", "127.0.0.1:1"])


class _WholeLog:
    """A log of one piece."""

    start = 0

    def __init__(self, content):
        self._content = content

    def read(self, position, *, up_to, max_bytes):
        yield self._content


class _Everything:
    """Visibility of a session that sees every record."""

    is_unrestricted = True

    def shown(self, record):
        return redacted(record)


def test_only_records_that_may_have_secrets_are_decoded(monkeypatch):
    """The bytes that such a record begins with are also within a change of a leader."""
    change = records.PartitionChangeRecord(partition_id=1, topic_id=Uuid(bytes(16)))
    change.leader = 2
    config = records.ConfigRecord(
        resource_type=4, resource_name="1", name="ssl.key.password", value=SECRET
    )
    values = [encode_metadata_record(change, 2), encode_metadata_record(config, 0)]
    assert bytes((1, config.SCHEMA.key)) in values[0]
    content = b""
    for first, wanted in ((0, [values[0]]), (1, values)):
        builder = BatchBuilder(base_offset=first, leader_epoch=1)
        for value in wanted:
            builder.append(0, None, value)
        content += builder.build()
    decoded = []

    def decoding(value):
        decoded.append(type(decode_metadata_record(value)[0]))
        return decode_metadata_record(value)

    monkeypatch.setattr(k10006_describe_metadata_log, "decode_metadata_record", decoding)
    page = k10006_describe_metadata_log._Page(0, _Everything())
    for _ in page.fill(_WholeLog(content), 3, 3, 1 << 20):
        pass
    assert decoded == [records.ConfigRecord]
    assert page.next_offset == 3
    whole = b"".join(map(bytes, page.batches))
    assert SECRET.encode() not in whole
    assert whole.count(values[0]) == 2
