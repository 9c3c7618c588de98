"""What subscribers are told of the metadata: the same whether the images are our own or not."""

import asyncio

from sparkraft.base.ids import LeaderEpoch, Millis, Offset
from sparkraft.controller.controller import Controller
from sparkraft.server.broker.metadata_publisher import MetadataPublisher
from sparkraft.server.raft.metadata_log_listener import CommittedBatch
from tests.controller.cluster_of import Cluster


class Told:
    """Every call a subscriber got."""

    def __init__(self, publisher):
        self.calls = []
        publisher.subscribe(
            lambda before, after, changed: self.calls.append((before, after, changed))
        )


def history():
    """Batches of a controller with a broker, topics, a changed config and a deletion."""
    cluster = Cluster()
    cluster.start(1)
    cluster.create("first", partitions=3)
    cluster.create("second", **{"retention.ms": "1000"})
    cluster.set_topic_config("first", "retention.ms", "5")
    return [
        CommittedBatch(
            Offset(base), Offset(base + len(records) - 1), LeaderEpoch(1), Millis(0), 0, records
        )
        for records, base in cluster.log
    ]


async def publishers():
    """One that replays, one beside a controller that does; both caught up with nothing."""
    cluster = Cluster()
    core = Controller(cluster.config, None)
    own, shared = MetadataPublisher(), MetadataPublisher(core)
    for publisher in (own, shared):
        await publisher.catch_up(-1)
    return own, shared, core


async def fed(batches):
    own, shared, core = await publishers()
    told = [Told(own), Told(shared)]
    for batch in batches:
        own.on_commit(batch)
        core.replay_committed(
            batch.records,
            base_offset=batch.base_offset,
            last_offset=batch.last_offset,
            epoch=batch.epoch,
        )
        shared.on_commit(batch)
    return own, shared, core, told


def test_a_controllers_image_is_published_as_an_own_one_would_be():
    batches = history()
    own, shared, core, told = asyncio.run(fed(batches))
    assert shared.image is core.stable
    assert shared.image == own.image
    assert shared.offset == own.offset == batches[-1].last_offset
    assert [changed for _, _, changed in told[1].calls] == [c for _, _, c in told[0].calls]
    assert [after.offset for _, after, _ in told[1].calls] == [
        after.offset for _, after, _ in told[0].calls
    ]


def test_each_image_comes_with_the_topics_that_changed():
    _, shared, _, told = asyncio.run(fed(history()))
    first = shared.image.topics_by_name["first"]
    second = shared.image.topics_by_name["second"]
    changes = [changed for _, _, changed in told[1].calls if changed]
    assert changes == [[first], [second], [first]]
    for before, after, _ in told[1].calls:
        assert before.offset < after.offset


def test_what_a_controller_has_not_committed_is_not_seen():
    batches = history()

    async def work():
        _, shared, core = await publishers()
        for batch in batches:
            core.replay_appended(batch.records, last_offset=batch.last_offset, epoch=1)
        assert shared.image.offset == -1
        core.commit(batches[0].last_offset)
        shared.on_commit(batches[0])
        return shared, core

    shared, core = asyncio.run(work())
    assert core.latest.offset == batches[-1].last_offset
    assert shared.image is core.stable
    assert shared.image.offset == batches[0].last_offset


def test_followers_get_images_from_when_the_committed_records_are_replayed():
    batches = history()
    publisher = MetadataPublisher()
    seen: list[int] = []
    publisher.follow(lambda image: seen.append(image.offset))
    publisher.on_commit(batches[0])
    publisher.on_commit(batches[1])
    assert seen == []
    assert not publisher.is_loaded
    loaded = batches[1].last_offset
    publisher.on_high_watermark(loaded + 1)
    assert seen == [loaded]
    assert publisher.is_loaded
    publisher.on_commit(batches[2])
    publisher.on_high_watermark(batches[2].last_offset + 1)
    assert seen == [loaded, batches[2].last_offset]
    publisher.follow(lambda image: seen.append(-image.offset))
    assert seen[2:] == [-batches[2].last_offset], "a late one gets the present image at once"
