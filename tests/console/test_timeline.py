"""The metadata log in the console: states, changes in words, and a log that is replaced."""

import asyncio
from functools import partial
from types import SimpleNamespace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.explain.broker import broker_document
from sparkraft.client.explain.partition import partition_document
from sparkraft.client.explain.times import time_text
from sparkraft.client.history import fetch_history
from sparkraft.client.past import compare
from sparkraft.client.past.compare import compared, differences
from sparkraft.client.past.log import LogRecord, PastReader
from sparkraft.client.past.state import PastBroker, PastState
from sparkraft.console import timeline as timelines
from sparkraft.console import views as console_views
from sparkraft.console.moment_text import Moment, MomentError, parse_moment, parse_time
from sparkraft.console.moments import offset_of
from sparkraft.console.past_histories import _is_live
from sparkraft.console.past_settings import PastSettings
from sparkraft.console.past_views import PastViews
from sparkraft.console.recent import PAST_ANSWERS_MAX, PastAnswers
from sparkraft.console.timeline import ChangeIndex, Timeline
from sparkraft.console.views import ClusterViews
from sparkraft.controller.decision_context import why_not_leader
from sparkraft.metadata import image as ids
from sparkraft.protocol.messages import metadata_records as records
from sparkraft.protocol.messages.k10002_describe_history import (
    DescribeHistoryRequest,
    HistoryTopic,
)
from tests.client.test_past_state import every_kind, of_state
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.server.test_earlier_metadata import client_of, delete_topic, written


def test_a_state_of_the_timeline_is_the_image_of_the_node(tmp_path, monkeypatch):
    monkeypatch.setattr(timelines, "CHAPTER_RECORDS", 7)
    monkeypatch.setattr(timelines, "FOLLOW_SECONDS", 0.0)

    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            for number in range(5):
                await create_topic(connection, f"t{number}", partitions=4)
            await delete_topic(connection, "t1")
            await until(lambda: node.broker.image.topic("t1") is None)
            timeline, past = Timeline(cluster), PastReader(cluster)
            await timeline.up_to_date()
            assert timeline.problem == ""
            assert timeline.is_complete
            assert len(timeline._chapters) > 3
            last = timeline.index.offsets[-1]
            for offset in [*range(last, -1, -3), *range(0, last, 5)]:
                expected, _ = await past.image(at_offset=offset)
                expected.move_to(offset, expected.epoch, 0)
                assert of_state(timeline.state_at(offset)) == of_state(expected), offset
            with pytest.raises(KafkaError) as caught:
                timeline.state_at(timeline.next_offset)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
            everything = timeline.changes(0, 10_000)
            assert [each.offset for each, _ in everything] == list(timeline.index.offsets)
            for first in range(0, len(everything), 4):
                texts = [change.text for _, change in timeline.changes(first, 3)]
                assert texts == [change.text for _, change in everything[first : first + 3]]
            # The log goes on.
            await create_topic(connection, "later")
            await until(lambda: node.broker.image.topic("later") is not None)
            timeline._indexed_at = float("-inf")
            await timeline.up_to_date()
            assert timeline.latest.topic("later") is not None
            # Another log than the one that was read: everything is read again.
            timeline._latest.epoch += 1
            timeline._indexed_at = float("-inf")
            await timeline.up_to_date()
            assert (
                of_state(timeline.latest)["topics"] == of_state((await past.image())[0])["topics"]
            )
            assert timeline.changes(0, 1)[0][1].text == "controller 1 was elected in epoch 1"
            await connection.close()

    run(test())


def test_documents_of_an_earlier_moment(tmp_path, monkeypatch):
    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            await create_topic(connection, "first", partitions=2, **{"retention.ms": "5000"})
            await create_topic(connection, "second")
            views = PastViews(Timeline(cluster), bootstrap="h:1")
            now = await views.changes(-1)
            created = next(c for c in now["changes"] if "topic second was created" in c["text"])
            before = created["offset"] - 1
            assert [row["topic"] for row in (await views.topics(before))["topics"]] == ["first"]
            topic = await views.topic("first", before)
            assert [one["leader"] for one in topic["partitions"]] == [1, 1]
            assert topic["configs"][0]["value"] == "5000"
            with pytest.raises(KafkaError):
                await views.topic("second", before)
            overview = await views.cluster(before)
            assert overview["topicCount"] == 1
            assert overview["command"].endswith(f"--at-offset {before} --bootstrap-server h:1")
            then = await views.changes(before)
            texts = [each["text"] for each in then["differences"]]
            assert texts == ["topic second was created with 1 partition"]
            moment = await views.moment(at_offset=created["offset"])
            assert moment["text"].startswith("topic second was created")
            following = await views.moment(change=moment["change"] + 1)
            assert following["text"] == "partition second-0 was created on 1, leader 1"
            assert (await views.moment(at_ms=1))["change"] == 0
            monkeypatch.setattr(timelines, "FOLLOW_SECONDS", 1e9)
            await named_moments(views, following)
            await compared_moments(views, before)
            index = await views.timeline()
            assert index["isComplete"]
            assert index["count"] > following["change"]
            await connection.close()

    run(test())


def test_settings_and_a_broker_of_an_earlier_moment(tmp_path):
    """The same documents as of the present, from what was set dynamically up to then."""
    acl = {
        "resource_type": 2, "resource_name": "first", "pattern_type": 3, "principal": "User:ann",
        "host": "*", "operation": 3, "permission_type": 3,
    }  # fmt: skip
    entity = [records.EntityData(entity_type="client-id", entity_name=None)]

    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            await create_topic(connection, "first", **{"retention.ms": "5000"})
            before = await written(
                node,
                records.AccessControlEntryRecord(id=Uuid(bytes(15) + b"1"), **acl),
                records.UserScramCredentialRecord(name="bob", mechanism=1, iterations=4096),
                records.ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=7),
            )
            last = await written(
                node,
                records.RemoveAccessControlEntryRecord(id=Uuid(bytes(15) + b"1")),
                records.RemoveUserScramCredentialRecord(name="bob", mechanism=1),
                records.ClientQuotaRecord(
                    entity=entity, key="consumer_byte_rate", value=7, remove=True
                ),
                records.FenceBrokerRecord(id=1, epoch=node.broker.image.brokers[1].epoch),
            )
            timeline = Timeline(cluster)
            settings = PastSettings(timeline, bootstrap="h:1")
            views = ClusterViews(cluster, timeline, bootstrap="h:1")
            found = await settings.configs("topic", "first", before)
            (one,) = found["configs"]
            assert (one["name"], one["value"], one["isOwn"]) == ("retention.ms", "5000", True)
            assert found["command"].endswith(f"--at-offset {before} --bootstrap-server h:1")
            with pytest.raises(ValueError, match="a broker's name is a number"):
                await settings.configs("broker", "x", before)
            then, now = [await settings.security(at) for at in (before, last)]
            rows = [[len(each[part]["rows"]) for part in PARTS] for each in (then, now)]
            assert rows == [[1, 1, 1], [0, 0, 0]]
            assert then["users"]["rows"][0]["user"] == "bob"
            assert then["quotas"]["rows"][0]["entity"] == [{"type": "client-id", "name": None}]
            for at, may in ((before, {"User:ann": True, "all others": False}), (last, {})):
                answer = await settings.who_may("READ", "TOPIC", "first", at)
                named = {each["principal"]: each["isAllowed"] for each in answer["verdicts"]}
                assert {name: named[name] for name in may} == may
                assert answer["isCovered"] == bool(may)
            states = [(await views.broker(1, at_offset=at))["state"] for at in (before, last)]
            assert states == ["serving", "fenced"]
            command = (await views.broker(1, at_offset=last))["command"]
            assert (
                command == f"sparkraft explain broker 1 --at-offset {last} --bootstrap-server h:1"
            )
            await connection.close()

    run(test())


def test_a_node_replays_its_log_once_for_a_screen_of_an_earlier_moment(tmp_path, monkeypatch):
    """The screens of a partition and a broker, by cluster, offset and epoch; not of the present."""
    requests = []

    async def counted(cluster, request):
        requests.append(request.at_offset)
        return await fetch_history(cluster, request)

    monkeypatch.setattr(console_views, "fetch_history", counted)

    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            await create_topic(connection, "first")
            timeline = Timeline(cluster)
            views = ClusterViews(cluster, timeline, bootstrap="h:1")
            await timeline.up_to_date()
            monkeypatch.setattr(timelines, "FOLLOW_SECONDS", 1e9)
            at = timeline.next_offset - 1
            documents = []
            for _ in range(3):
                views.forget()
                documents.append(await views.partition("first", 0, at_offset=at))
                documents.append(await views.broker(1, at_offset=at))
                await views.partition("first", 0)
            assert documents == documents[:2] * 3
            assert sorted(requests) == [-1, -1, -1, at, at]
            # The same offset of another cluster.
            timeline.cluster_id += "x"
            views.forget()
            await views.broker(1, at_offset=at)
            assert requests.count(at) == 3
            await connection.close()

    run(test())


def test_steps_on_the_screens_of_a_partition_and_a_broker_share_a_history(tmp_path, monkeypatch):
    """The documents are those that a node makes as of each offset."""
    requests = []

    async def counted(cluster, request):
        requests.append(request.at_offset)
        return await fetch_history(cluster, request)

    monkeypatch.setattr(console_views, "fetch_history", counted)

    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            topic_id = await create_topic(connection, "first", partitions=2)
            begin = node.raft.high_watermark
            for number in range(6):
                await written(
                    node,
                    records.PartitionChangeRecord(
                        partition_id=0, topic_id=topic_id, leader=-1 if number % 2 else 1
                    ),
                )  # fmt: skip
            await delete_topic(connection, "first")
            await until(lambda: node.broker.image.topic("first") is None)
            await create_topic(connection, "first")
            await written(node, records.FenceBrokerRecord(id=1, epoch=broker_epoch(node)))
            timeline = Timeline(cluster)
            await timeline.up_to_date()
            monkeypatch.setattr(timelines, "FOLLOW_SECONDS", 1e9)
            views = ClusterViews(cluster, timeline, bootstrap="h:1")
            last = timeline.next_offset - 1
            for at in range(last, begin - 1, -1):
                expected = await document_of_a_node(cluster, at, broker=1)
                assert_same(await views.broker(1, at_offset=at), expected, at)
                topic = timeline.state_kept(at).topic("first")
                if topic is not None and 0 in topic.partitions:
                    expected = await document_of_a_node(cluster, at, topic="first")
                    assert_same(await views.partition("first", 0, at_offset=at), expected, at)
            # One of the broker and of the newer topic, as of now. The older one has another id, and
            # is requested again as of the first step to it.
            assert len(requests) == 4
            await connection.close()

    run(test())


@pytest.mark.parametrize(
    "directory",
    [
        *map(bytes, (ids.DIRECTORY_MIGRATING, ids.DIRECTORY_UNASSIGNED, ids.DIRECTORY_LOST)),
        b"k" * 16,
        b"u" * 16,
    ],
)
@pytest.mark.parametrize("is_fenced", [False, True])
@pytest.mark.parametrize("directories", [(), (b"k" * 16,)])
def test_a_replica_is_live_as_for_the_controller(directory, is_fenced, directories):
    known = PastBroker(1, 5, bytes(16), (), (), None, is_fenced, False, directories, None)
    registered = SimpleNamespace(
        active=not is_fenced, fenced=is_fenced, directories=tuple(map(Uuid, directories))
    )
    registered.has_online_directory = partial(
        ids.BrokerRegistration.has_online_directory, registered
    )
    image = SimpleNamespace(brokers={1: registered})
    partition = SimpleNamespace(replicas=(1,), directory=lambda _: Uuid(directory))
    assert _is_live(known, directory) == (why_not_leader(image, partition, {})(1) is None)
    assert not _is_live(None, directory)


async def document_of_a_node(cluster, at, *, topic="", broker=-1):
    """The document of partition 0 or a broker that a node makes as of an offset."""
    request = DescribeHistoryRequest(
        topics=[HistoryTopic(name=topic, partitions=[0])] if topic else [],
        broker_ids=[] if topic else [broker],
        events_max=100,
        at_offset=at,
    )
    report = await fetch_history(cluster, request)
    if topic:
        return partition_document(report, report.history.partitions[0], last=50)
    return broker_document(report, report.history.brokers[0], last=50)


def assert_same(shown, expected, at):
    """But for the time: that of the last change instead of that of the last batch."""
    assert shown["asOf"]["offset"] == expected.pop("asOf")["offset"] == at
    assert {key: shown[key] for key in expected} == expected, at


def broker_epoch(node):
    return node.broker.image.brokers[1].epoch


def test_kept_answers_are_final_and_bounded():
    made = []

    async def answer(key, *, is_final=True):
        async def make():
            made.append(key)
            return {"key": key}

        return await answers.get(key, make, is_final=lambda _: is_final)

    async def test():
        for _ in range(2):
            await answer("open", is_final=False)
        for key in range(PAST_ANSWERS_MAX):
            await answer(key)
        await answer(0)
        await answer("one more")
        await answer(0)
        await answer(1)

    answers = PastAnswers()
    run(test())
    wanted = ["open", "open", *range(PAST_ANSWERS_MAX), "one more", 1]
    assert made == wanted, "the answer used last is kept, the longest unused one is made again"


PARTS = ("acls", "users", "quotas")


async def named_moments(views, moment):
    """The moment of a change as a reader types it, and texts that are refused."""
    offset, time = moment["offset"], moment["time"]
    for text in (str(offset), f" {time} ", f"{time[:23]} UTC", time[:23].replace("T", " ")):
        assert await views.moment_named(text) == {"problem": "", **moment}, text
    index = await views.timeline()
    end = index["nextOffset"] - 1
    assert (await views.moment_named(str(end)))["offset"] == index["lastOffset"]
    begins = "the metadata log begins at offset 0, 20"
    ends = f"the metadata log ends at offset {end}, 20"
    for text, expected in (
        ("9223372036854775807", f"offset 9223372036854775807 is after the end: {ends}"),
        ("2001-02-03", f"2001-02-03 is before the start: {begins}"),
        ("1901-02-03 04:05", f"1901-02-03 04:05 is before the start: {begins}"),
        ("9999-01-01T00:00Z", f"9999-01-01T00:00Z is after the end: {ends}"),
        ("noon", "expected an offset or a time in UTC such as 2026-01-31 12:00:00, got 'noon'"),
        ("-1", "expected an offset or a time in UTC such as 2026-01-31 12:00:00, got '-1'"),
    ):
        assert (await views.moment_named(text))["problem"].startswith(expected), text


async def compared_moments(views, before):
    """Before the second topic and after it, in both orders, and now; and a limit of lines."""
    at = str(before)
    found = (await views.changes(-1, first=at, last=str(before + 2)))["comparison"]
    second = "topic second was created with 1 partition"
    assert [each["text"] for each in found["differences"]] == [second]
    assert [found["from"]["offset"], found["to"]["offset"]] == [before, before + 2]
    assert (found["changeCount"], found["others"], found["isCut"]) == (2, 0, False)
    command = f"sparkraft metadata-log --from {before + 1} --to {before + 2} "
    assert found["command"] == f"{command}--bootstrap-server h:1"
    time = found["to"]["time"]
    for first, last in ((str(before + 2), at), (f" {time}", f"{at} "), (at, time)):
        assert (await views.changes(0, first=first, last=last))["comparison"] == found
    for last in ("", "now"):
        now = (await views.changes(-1, first=at, last=last))["comparison"]
        assert now["differences"] == found["differences"]
        assert now["to"]["offset"] == (await views.timeline())["nextOffset"] - 1
    same = (await views.changes(-1, first="now", last="now"))["comparison"]
    assert (same["differences"], same["changeCount"], same["command"]) == ([], 0, None)
    wrong = (await views.changes(-1, first=at, last="2001-02-03"))["comparison"]
    assert list(wrong) == ["problem"]
    assert wrong["problem"].startswith("2001-02-03 is before the start")
    assert "comparison" not in await views.changes(-1, first=" ", last=at)


def test_a_typed_moment_has_all_its_milliseconds():
    for ms in (0, 1, 1_700_000_000_123, 1_700_000_000_999):
        assert parse_moment(time_text(ms)) == Moment(at_ms=ms)
    assert parse_moment("2026-01-31 13:00+01:00") == parse_moment("2026-01-31T12:00:00Z")
    assert parse_moment("0001-01-01T00:00+14:00") == Moment(at_ms=0)
    assert parse_time(" 1970-01-01 00:00:01 ") == parse_time("1000") == 1_000
    with pytest.raises(MomentError, match=r"^expected a time in UTC such as .*, got 'noon'"):
        parse_time("noon")


def test_a_log_without_its_start_has_later_moments_only():
    timeline = Timeline(None)
    for number in range(40):
        timeline.index.add(LogRecord(epoch=1, offset=100 + number, at_ms=1_000_000 + number))
    timeline._chapters[0].first_change = 10
    timeline.next_offset = 150
    assert [offset_of(timeline, text) for text in ("110", "149")] == [110, 149]
    assert offset_of(timeline, "1970-01-01 00:16:40.012") == 112
    with pytest.raises(MomentError, match=r"^offset 109 is before the start: .* offset 110, 1970"):
        offset_of(timeline, "109")
    with pytest.raises(MomentError, match=r"00:16:40.009 is before the start"):
        offset_of(timeline, "1970-01-01 00:16:40.009")
    with pytest.raises(MomentError, match=r"^offset 150 is after the end: .* offset 149"):
        offset_of(timeline, "150")
    with pytest.raises(MomentError, match="no changes yet"):
        offset_of(Timeline(None), "1")


def test_a_cluster_without_these_requests_has_no_timeline():
    async def test():
        async def refuse(reader, writer):
            del reader
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with timelines_cluster(port) as cluster:
            timeline = Timeline(cluster)
            await timeline.up_to_date()
            assert timeline.problem
            assert len(timeline.index.offsets) == 0
        server.close()

    run(test())


def timelines_cluster(port):
    from sparkraft.client.cluster import Cluster

    return Cluster(f"127.0.0.1:{port}", client_id="test", api_timeout_ms=500)


def test_buckets_are_merged_as_the_log_grows():
    index = ChangeIndex()

    class Each:
        offset, at_ms, record = 0, 0, None

    for _ in range(timelines.BUCKETS_MAX * 4 + 1):
        index.add(Each())
    assert index.bucket_size == 8
    assert sum(index.buckets) == timelines.BUCKETS_MAX * 4 + 1
    assert len(index.buckets) <= timelines.BUCKETS_MAX


def test_differences_of_two_states_in_words(monkeypatch):
    state, early = PastState(), PastState()
    for record in every_kind():
        state.apply(record)
    found, is_cut = differences(early, state)
    texts = [change.text for change in found]
    assert not is_cut
    assert "broker 1 registered at h:1" in texts
    assert "topic t was created with 2 partitions" in texts
    assert "config b of all brokers changed from unset to 2" in texts
    assert "access control entry added: allow User:a to READ topic t" in texts
    assert differences(state, state) == ([], False)
    first = compared(early, state, count_max=3)
    assert [change.text for change in first.listed] == texts[:3]
    assert (first.others, first.is_cut) == (len(texts) - 3, False)
    assert compared(early, state, count_max=len(texts)) == (found, 0, False)
    assert compared(state, state, count_max=3) == ([], 0, False)
    monkeypatch.setattr(compare, "COUNTED_MAX", 5)
    assert compared(early, state, count_max=3) == (found[:3], 2, True)
    monkeypatch.setattr(compare, "COUNTED_MAX", len(texts))
    assert compared(early, state, count_max=3) == (found[:3], len(texts) - 3, False)
    back = [change.text for change in differences(state, early)[0]]
    assert "topic t was deleted" in back
    assert "broker 1 was unregistered" in back


def test_a_step_onwards_decodes_only_what_follows(tmp_path, monkeypatch):
    """Pages and slices are small here, so that several are fetched and indexed."""
    monkeypatch.setattr(timelines, "PAGE_BYTES", 2_000)
    monkeypatch.setattr(timelines, "SLICE_BYTES", 500)
    decoded: list[int] = []
    records_of = timelines.records_of

    def counting(header, view, wanted):
        for each in records_of(header, view, wanted):
            decoded.append(each.offset)
            yield each

    async def test():
        async with node_in(tmp_path) as node, client_of(node) as cluster:
            connection = await connect(node)
            for number in range(20):
                await create_topic(connection, f"t{number:02}", partitions=3)
            timeline, past = Timeline(cluster), PastReader(cluster)
            await timeline.up_to_date()
            assert timeline.problem == ""
            assert timeline.is_complete
            changes = timeline.index.offsets
            middle = len(changes) // 2
            monkeypatch.setattr(timelines, "records_of", counting)
            for offset in (changes[middle], changes[middle + 1], changes[middle]):
                expected, _ = await past.image(at_offset=offset)
                expected.move_to(offset, expected.epoch, 0)
                assert of_state(timeline.state_at(offset)) == of_state(expected)
            # Up to the batch of the later one, each record once, and again none of them backwards.
            assert decoded == sorted(set(decoded))
            assert max(decoded) < changes[-1]
            decoded.clear()
            assert [each.offset for each, _ in timeline.changes(middle, 2)] == [
                changes[middle],
                changes[middle + 1],
            ]
            kept = timeline.state_kept(changes[middle])
            before = of_state(kept)
            timeline.state_at(changes[-1])
            assert of_state(kept) == before
            await connection.close()

    run(test())


def test_a_moment_that_is_indexed_is_shown_before_the_end_of_the_indexing():
    class Unreachable:
        """A node that responds to the first requests only."""

        async def page(self, **_):
            await asyncio.Event().wait()

    async def test():
        timeline = Timeline(None)
        timeline._reader = Unreachable()
        timeline._is_empty = False
        timeline.next_offset = 10
        async with asyncio.timeout(30):
            await timeline.reach(9)
        assert timeline._task is not None
        assert not timeline._task.done()
        timeline._task.cancel()

    asyncio.run(test())
