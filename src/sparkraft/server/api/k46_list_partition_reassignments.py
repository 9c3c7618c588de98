"""ListPartitionReassignments: v0. Which partitions are on the move? (KIP-455)

Behaviour:
    * No topics given: all. Partitions that are not moving are left out, unknown ones too.
    * Many partitions are looked up in parts, between other requests.
Versions: v0.    Not done: -
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from sparkraft.base.loop_work import LOOP_WORK_MAX
from sparkraft.base.ordering import in_order
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingTopicReassignment,
)
from sparkraft.security.acls import AclOperation
from sparkraft.server.api.authorization import on_cluster
from sparkraft.server.api.registry import Api, RequestContext
from sparkraft.server.controller.submission import submit_to_controller

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.controller.services import ControllerServices

Wanted = tuple[str, list[int]]
"""A topic's name and indexes of its partitions."""


async def handle(
    node: "ControllerServices", context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Submit parts of the request one by one."""
    if node.config.is_zookeeper:  # its controller keeps a list of them
        only: ListPartitionReassignmentsResponse = await submit_to_controller(
            node, context, request
        )
        return only
    wanted: Iterable[Wanted]
    if request.topics is None:
        image = node.image  # the topics may be deleted while their names are sorted
        turn = node.env.turn(node.env.work_max.partitions)
        names = await turn.carry_out(in_order(image.topics_by_name))
        wanted = _partitions_of(image, names)
    else:
        wanted = ((topic.name, topic.partition_indexes) for topic in request.topics)
    parts = _parts(wanted)
    response: ListPartitionReassignmentsResponse = await submit_to_controller(
        node, context, next(parts)
    )
    for part in parts:
        await node.env.turns.next()
        more = await submit_to_controller(node, context, part)
        _join(response.topics, more.topics)
    return response


def _partitions_of(image: "ClusterImage", names: Iterable[str]) -> Iterator[Wanted]:
    for name in names:
        topic = image.topic(name)
        assert topic is not None
        yield name, sorted(topic.partitions)


def _parts(wanted: Iterable[Wanted]) -> Iterator[ListPartitionReassignmentsRequest]:
    """Requests for a bounded number of partitions each; at least one."""
    topics: list[ListPartitionReassignmentsTopics] = []
    room = LOOP_WORK_MAX.partitions
    for name, indexes in wanted:
        at = 0
        while True:
            piece = indexes[at : at + room]
            topics.append(ListPartitionReassignmentsTopics(name=name, partition_indexes=piece))
            at += len(piece)
            room -= len(piece) + 1
            if room <= 0:
                yield ListPartitionReassignmentsRequest(topics=topics)
                topics, room = [], LOOP_WORK_MAX.partitions
            if at >= len(indexes):
                break
    yield ListPartitionReassignmentsRequest(topics=topics)


def _join(topics: list[OngoingTopicReassignment], more: list[OngoingTopicReassignment]) -> None:
    """Add `more`, which may begin with partitions of the last topic."""
    if topics and more and topics[-1].name == more[0].name:
        topics[-1].partitions += more[0].partitions
        more = more[1:]
    topics += more


API = Api(
    key=ApiKey.LIST_PARTITION_REASSIGNMENTS,
    handle=handle,
    authorize=(on_cluster(AclOperation.DESCRIBE),),
    forward=True,
    controller=True,
)
