"""A member of a KIP-848 group against a scripted coordinator: the contents of each heartbeat."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.cluster import PartitionInfo, TopicInfo
from sparkraft.client.consumer_membership import ConsumerMembership
from sparkraft.client.subscription import CONSUMER, GroupSettings, Subscription
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from tests.client.fake_coordinator import FakeCluster

SECONDS = 30
ID = Uuid(b"a" * 16)
TOPICS = Subscription(topics=frozenset({"t"}))


@dataclass
class Coordinator(FakeCluster):
    """Keeps each heartbeat waiting until the test answers it."""

    arrived: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)
    answers: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    async def ask_coordinator(self, key, request, *, version=None, kind=0):
        self.arrived.put_nowait(request)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def refresh(self, topics=None):
        return self.view

    async def heartbeat(self, answer: Any) -> Any:
        """The next heartbeat, once it has arrived; answered with `answer`."""
        request = await self.arrived.get()
        self.answers.put_nowait(answer)
        return request


def answer(epoch: int, partitions: list[int] | None = None, code: ErrorCode = ErrorCode.NONE):
    response = k68.ConsumerGroupHeartbeatResponse(
        error_code=code, member_epoch=epoch, heartbeat_interval_ms=1
    )
    if partitions is not None:
        topics = [k68.TopicPartitions(topic_id=ID, partitions=partitions)] if partitions else []
        response.assignment = k68.Assignment(topic_partitions=topics)
    return response


def owned(request: Any) -> list[int] | None:
    if request.topic_partitions is None:
        return None
    return [index for topic in request.topic_partitions for index in topic.partitions]


class Member:
    """A membership, its coordinator, and a subscription that can change."""

    def __init__(self, **settings: Any) -> None:
        self.coordinator = Coordinator()
        partition = PartitionInfo(
            index=0, leader=1, leader_epoch=0, replicas=(1,), isr=(1,), offline=()
        )
        self.coordinator.view.topics["t"] = TopicInfo(
            name="t", id=ID, is_internal=False, partitions={0: partition}
        )
        self.subscription = TOPICS
        self.changed = asyncio.Event()
        self.membership = ConsumerMembership(
            self.coordinator,
            GroupSettings(group_id="g", protocol=CONSUMER, **settings),
            lambda: self.subscription,
            self.changed.set,
        )

    async def poll(self):
        return await self.membership.ensure_active()

    async def change(self):
        """The assignment to own next, once the coordinator has said it."""
        await self.changed.wait()
        self.changed.clear()
        return await self.poll()

    async def joined(self, partitions: list[int]) -> Any:
        """Join and own `partitions`; the first heartbeat."""
        assert await self.poll() is None
        first = await self.coordinator.heartbeat(answer(1, partitions))
        self.membership.acknowledge(await self.change())
        acknowledged = await self.coordinator.heartbeat(answer(1))
        while owned(acknowledged) is None:
            acknowledged = await self.coordinator.heartbeat(answer(1))
        assert owned(acknowledged) == partitions
        return first


def run(scenario, **settings: Any) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(SECONDS):
            member = Member(**settings)
            await scenario(member)
            await member.membership._stop()

    asyncio.run(bounded())


def test_the_first_heartbeat_says_everything_and_the_next_ones_only_what_changed():
    async def scenario(member):
        first = await member.joined([0, 1])
        assert (first.member_epoch, owned(first)) == (0, [])
        assert first.member_id == member.membership.member_id
        assert first.rebalance_timeout_ms == 300_000
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (["t"], None)
        assert member.membership.assignment == (("t", 0), ("t", 1))
        later = await member.coordinator.heartbeat(answer(1))
        assert (later.member_epoch, owned(later), later.rebalance_timeout_ms) == (1, None, -1)
        assert later.subscribed_topic_names is None

    run(scenario)


def test_a_partition_is_owned_until_the_consumer_has_given_it_up():
    async def scenario(member):
        await member.joined([0, 1])
        await member.coordinator.heartbeat(answer(1, [0]))
        assert await member.change() == (("t", 0),)
        # The consumer has not acknowledged: heartbeats go on, and say nothing of it.
        assert owned(await member.coordinator.heartbeat(answer(1))) is None
        assert member.membership.assignment == (("t", 0), ("t", 1))
        member.membership.acknowledge((("t", 0),))
        request = await member.coordinator.heartbeat(answer(1))
        while owned(request) is None:
            request = await member.coordinator.heartbeat(answer(1))
        assert owned(request) == [0]

    run(scenario)


def test_after_a_lost_answer_everything_is_said_again():
    async def scenario(member):
        await member.joined([0])
        await member.coordinator.heartbeat(KafkaError(ErrorCode.NETWORK_EXCEPTION))
        again = await member.coordinator.heartbeat(answer(1, [0]))
        assert (again.member_epoch, owned(again)) == (1, [0])
        assert again.rebalance_timeout_ms == 300_000  # a full request, which brings the assignment
        assert again.subscribed_topic_names == ["t"]

    run(scenario)


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_a_fenced_member_loses_all_and_joins_again_with_its_id(code):
    async def scenario(member):
        first = await member.joined([0])
        await member.coordinator.heartbeat(answer(0, code=code))
        assert await member.change() == ()
        assert member.membership.is_lost
        assert not member.membership.is_member
        member.membership.acknowledge(())
        again = await member.coordinator.heartbeat(answer(5, [0]))
        assert (again.member_epoch, owned(again)) == (0, [])
        assert again.member_id == first.member_id
        assert await member.change() == (("t", 0),)
        assert member.membership.generation == 5

    run(scenario)


def test_a_refusal_for_good_is_raised_by_the_next_poll():
    async def scenario(member):
        assert await member.poll() is None
        await member.coordinator.heartbeat(answer(0, code=ErrorCode.UNRELEASED_INSTANCE_ID))
        await member.changed.wait()
        with pytest.raises(KafkaError, match="UNRELEASED_INSTANCE_ID"):
            await member.poll()

    run(scenario, instance_id="i")


@pytest.mark.parametrize(("instance", "epoch"), [(None, -1), ("i", -2)])
def test_leaving_says_whether_the_member_comes_back(instance, epoch):
    async def scenario(member):
        await member.joined([0])
        member.coordinator.answers.put_nowait(answer(1))
        await member.membership._stop()
        while not member.coordinator.arrived.empty():
            member.coordinator.arrived.get_nowait()
        while not member.coordinator.answers.empty():
            member.coordinator.answers.get_nowait()
        leaving = asyncio.create_task(member.membership.leave())
        request = await member.coordinator.heartbeat(answer(epoch))
        await leaving
        assert (request.member_epoch, request.instance_id) == (epoch, instance)
        assert not member.membership.is_member

    run(scenario, instance_id=instance)


def test_a_member_that_does_not_poll_leaves_and_has_lost_its_partitions():
    async def scenario(member):
        await member.joined([0])
        member.membership._polled_at = float("-inf")
        request = await member.coordinator.heartbeat(answer(1))
        while request.member_epoch > 0:
            request = await member.coordinator.heartbeat(answer(1))
        assert request.member_epoch == -1
        assert await member.change() == ()
        assert member.membership.is_lost
        member.membership.acknowledge(())
        again = await member.coordinator.heartbeat(answer(7, [0]))
        assert again.member_epoch == 0

    run(scenario)


def test_a_pattern_is_evaluated_by_the_group_and_taken_back_with_an_empty_one():
    async def scenario(member):
        member.subscription = Subscription(pattern="t.*")
        first = await member.joined([0])
        assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (None, "t.*")
        member.subscription = TOPICS
        await member.poll()
        request = await member.coordinator.heartbeat(answer(1))
        while request.subscribed_topic_regex is None:
            request = await member.coordinator.heartbeat(answer(1))
        assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["t"], "")

    run(scenario)


def test_a_topic_without_metadata_is_not_owned_yet():
    async def scenario(member):
        topic = member.coordinator.view.topics.pop("t")
        assert await member.poll() is None
        await member.coordinator.heartbeat(answer(1, [0]))
        assert await member.change() is None
        member.coordinator.view.topics["t"] = topic
        assert await member.poll() == (("t", 0),)

    run(scenario)


def test_an_old_coordinator_makes_the_member_id_and_refuses_patterns():
    async def scenario(member):
        member.coordinator.highest = {68: 0}
        assert await member.poll() is None
        made = answer(1, [])
        made.member_id = "made-there"
        assert (await member.coordinator.heartbeat(made)).member_id == ""
        await member.coordinator.heartbeat(answer(1))
        assert member.membership.member_id == "made-there"
        member.subscription = Subscription(pattern="t.*")
        await member.poll()
        member.coordinator.answers.put_nowait(answer(1))
        await member.changed.wait()
        with pytest.raises(KafkaError, match="evaluates no patterns"):
            await member.poll()

    run(scenario)
