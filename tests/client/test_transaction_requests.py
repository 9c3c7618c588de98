"""Requests of transactions as values."""

from sparkraft.base.errors import ErrorCode
from sparkraft.client import transaction_requests as requests
from sparkraft.client.values import Committed, GroupMetadata
from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24

PLACES = [("b", 1), ("a", 2), ("b", 0)]


def test_partitions_are_under_their_topics_in_order():
    request = requests.add_partitions("id", (7, 3), PLACES)
    topics = [(each.name, each.partitions) for each in request.v3_and_below_topics]
    assert topics == [("a", [2]), ("b", [0, 1])]
    assert request.v3_and_below_producer_id == 7
    assert request.v3_and_below_producer_epoch == 3


def test_the_reason_of_a_refusal_is_before_what_was_not_attempted():
    codes = {
        "a": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "c": ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
    answer = k24.AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            k24.AddPartitionsToTxnTopicResult(
                name=name,
                results_by_partition=[
                    k24.AddPartitionsToTxnPartitionResult(
                        partition_index=5, partition_error_code=code
                    )
                ],
            )
            for name, code in codes.items()
        ]
    )
    assert [name for _, name in requests.added_partitions(answer)] == ["b-5", "a-5", "c-5"]


def test_offsets_name_the_member_that_commits_them():
    offsets = {
        ("b", 1): Committed(offset=9, leader_epoch=4, metadata="m"),
        ("a", 0): Committed(offset=1),
    }
    group = GroupMetadata(group_id="g", generation=2, member_id="me", instance_id="i")
    request = requests.commit_offsets("id", (7, 3), offsets, group)
    assert (request.group_id, request.generation_id) == ("g", 2)
    assert (request.member_id, request.group_instance_id) == ("me", "i")
    found = [
        (topic.name, each.partition_index, each.committed_offset, each.committed_leader_epoch,
         each.committed_metadata)
        for topic in request.topics for each in topic.partitions
    ]  # fmt: skip
    assert found == [("a", 0, 1, -1, ""), ("b", 1, 9, 4, "m")]


def test_requests_of_the_older_flow_can_be_encoded_in_their_highest_version():
    built = {
        requests.ApiKey.INIT_PRODUCER_ID: requests.init_producer_id("id", timeout_ms=5),
        requests.ApiKey.ADD_PARTITIONS_TO_TXN: requests.add_partitions("id", (7, 3), PLACES),
        requests.ApiKey.ADD_OFFSETS_TO_TXN: requests.add_offsets("id", (7, 3), "g"),
        requests.ApiKey.END_TXN: requests.end("id", (7, 3), committed=True),
        requests.ApiKey.TXN_OFFSET_COMMIT: requests.commit_offsets(
            "id", (7, 3), {("a", 0): Committed(offset=1)}, GroupMetadata(group_id="g")
        ),
    }
    assert built.keys() == requests.V1_MAX.keys() - {requests.ApiKey.PRODUCE}
    for key, request in built.items():
        version = requests.V1_MAX[key]
        assert decode(type(request), version, encode(request, version)) == request
