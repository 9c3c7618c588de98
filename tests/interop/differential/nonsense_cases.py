"""Requests of transactions that make no sense, or ask for very much (`nonsense_group_cases`: groups).

Each key is asked in each of its versions: absurd producer ids and epochs, places and offsets that no log
has, transactional ids as long as the protocol allows. Nothing that these cases send may change what an
open transaction has.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k27_write_txn_markers as k27
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from sparkraft.protocol.messages import k61_describe_producers as k61
from sparkraft.protocol.messages import k65_describe_transactions as k65
from sparkraft.protocol.messages import k66_list_transactions as k66
from tests.interop.differential.building import TOPIC, is_final, versions_of
from tests.interop.differential.transaction_cases import (
    BROKERS_FROM,
    EPOCHS_FROM,
    Producer,
    add,
    add_offsets,
    begins,
    client_versions,
    commit_offsets,
    end,
    init,
    keep,
    producer,
    settles,
)
from tests.interop.differential.transactional_produce_cases import produce
from tests.interop.differential.world import Case, World

INT16, INT32, INT64 = 2**15, 2**31, 2**63
LONGEST = "x" * (INT16 - 1)
"""A string of the protocol has no more bytes."""

MANY = 10_000

ABSURD: dict[str, Producer] = {
    "no producer": (-1, -1),
    "no epoch": (0, -1),
    "no id": (-1, 0),
    "the largest": (INT64 - 1, INT16 - 1),
    "the smallest": (-INT64, -INT16),
}
OF_ITS_ID = {"largest epoch": INT16 - 1, "epoch -1": -1, "smallest epoch": -INT16}
"""Epochs that the producer id of an open transaction does not have."""


def _opens(name: str) -> Iterator[Case]:
    """Begin a transaction, and remember the absurd producers beside its own."""

    def remember(world: World, response: Any) -> None:
        keep(name)(world, response)
        producer_id, _ = producer(world, name)
        given = ABSURD | {label: (producer_id, epoch) for label, epoch in OF_ITS_ID.items()}
        for label, (one, epoch) in given.items():
            world.numbers[f"{label} id"] = one
            world.numbers[f"{label} epoch"] = epoch

    yield from begins(name)
    yield Case(f"{name} begins", ApiKey.INIT_PRODUCER_ID, 4, init(name), remember, until=is_final)
    yield Case(
        f"{name}: its place", ApiKey.ADD_PARTITIONS_TO_TXN, 3, add(name, (TOPIC, 0)),
        until=is_final,
    )  # fmt: skip


def _of_absurd_producers(name: str, key: ApiKey, versions: Any, build: Any) -> Iterator[Case]:
    for version in versions:
        for label in (*ABSURD, *OF_ITS_ID):
            yield Case(f"{name}: {label}", key, version, build(label), until=is_final)


def absurd_producers(level: int) -> Iterator[Case]:
    """Ids and epochs that no producer has, for a transaction that is open."""
    name = "nonsense"
    yield from _opens(name)
    yield from _of_absurd_producers(
        name, ApiKey.INIT_PRODUCER_ID, range(3, versions_of(ApiKey.INIT_PRODUCER_ID).stop),
        lambda label: lambda world: k22.InitProducerIdRequest(
            transactional_id="nonsense-closed", transaction_timeout_ms=60_000,
            producer_id=producer(world, label)[0], producer_epoch=producer(world, label)[1],
        ),
    )  # fmt: skip
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    yield from _of_absurd_producers(
        name, key, client_versions(key, level),
        lambda label: add(label, (TOPIC, 1), transactional_id=name),
    )  # fmt: skip
    yield from _of_absurd_producers(
        f"{name}, verified", key,
        [one for one in versions_of(key) if one >= BROKERS_FROM],
        lambda label: add(label, (TOPIC, 1), transactional_id=name, verify_only=True),
    )  # fmt: skip
    yield from _of_absurd_producers(
        name, ApiKey.ADD_OFFSETS_TO_TXN, versions_of(ApiKey.ADD_OFFSETS_TO_TXN),
        lambda label: add_offsets(label, transactional_id=name),
    )  # fmt: skip
    for commit in (True, False):
        yield from _of_absurd_producers(
            f"{name}, {'commit' if commit else 'abort'}", ApiKey.END_TXN,
            client_versions(ApiKey.END_TXN, level),
            lambda label, c=commit: end(label, commit=c, transactional_id=name),
        )  # fmt: skip
    yield from _of_absurd_producers(
        name, ApiKey.TXN_OFFSET_COMMIT, client_versions(ApiKey.TXN_OFFSET_COMMIT, level),
        lambda label: commit_offsets(label, (TOPIC, 0), group=name, transactional_id=name),
    )  # fmt: skip
    yield from _of_absurd_producers(
        name, ApiKey.PRODUCE, [v for v in client_versions(ApiKey.PRODUCE, level) if v >= 3],
        lambda label: produce(label, 0, transactional_id=name),
    )  # fmt: skip
    described = k65.DescribeTransactionsRequest(transactional_ids=[name])
    yield Case("after nonsense", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: described)
    yield Case("ends after nonsense", ApiKey.END_TXN, 4, end(name), until=is_final)
    yield from settles(name)


def timeouts() -> Iterator[Case]:
    """Timeouts that are none."""
    for version in versions_of(ApiKey.INIT_PRODUCER_ID):
        for timeout_ms in (-1, -INT32, INT32 - 1):
            build = init("nonsense-timeouts", timeout_ms=timeout_ms)
            yield Case(f"timeout {timeout_ms}", ApiKey.INIT_PRODUCER_ID, version, build)
    yield Case(
        "no id and no timeout", ApiKey.INIT_PRODUCER_ID, 5,
        lambda _: k22.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1),
        until=is_final,
    )  # fmt: skip


def nothing_to_end(level: int) -> Iterator[Case]:
    """EndTxn of ids without a producer, without a transaction, and of one that has ended."""
    name = "nonsense-empty"
    yield from begins(name)
    for version in client_versions(ApiKey.END_TXN, level):
        if version >= EPOCHS_FROM:
            continue  # An abort of nothing is allowed there: `transaction_cases.ends`.
        for commit in (True, False):
            for label, build in {
                "no producer": end("nowhere", commit=commit),
                "no transaction": end(name, commit=commit),
            }.items():
                what = f"{'commit' if commit else 'abort'} of nothing: {label}"
                yield Case(what, ApiKey.END_TXN, version, build, until=is_final)


def places(level: int) -> Iterator[Case]:
    """Topics and partitions that cannot be, or are named twice."""
    name = "nonsense-places"
    yield from begins(name)
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    given: dict[str, list[tuple[str, int]]] = {
        "no place": [],
        "one place twice": [(TOPIC, 0), (TOPIC, 0)],
        "partition -1": [(TOPIC, -1)],
        "the largest partition": [(TOPIC, INT32 - 1)],
        "an empty name": [("", 0)],
        "a name that cannot be": [("a/b", 0), ("..", 0), ("y" * 300, 0)],
        "the longest name": [(LONGEST, 0)],
    }
    for version in client_versions(key, level):
        for label, places_ in given.items():
            yield Case(label, key, version, add(name, *places_), until=is_final)
    version = client_versions(key, level)[-1]
    many = add(name, *((f"nowhere-{number}", 0) for number in range(MANY)))
    yield Case("very many unknown topics", key, version, many, until=is_final)


def long_names(level: int) -> Iterator[Case]:
    """The longest transactional id and the longest group, in a transaction that is committed."""
    find = k10.FindCoordinatorRequest(key_type=1, coordinator_keys=[LONGEST], key=LONGEST)
    for version in versions_of(ApiKey.FIND_COORDINATOR):
        if version:
            yield Case(
                "the longest id", ApiKey.FIND_COORDINATOR, version, lambda _: find, until=is_final
            )
    for version in versions_of(ApiKey.INIT_PRODUCER_ID):
        yield Case(
            "the longest id", ApiKey.INIT_PRODUCER_ID, version, init(LONGEST), keep(LONGEST),
            until=is_final,
        )  # fmt: skip
    for version in client_versions(ApiKey.ADD_PARTITIONS_TO_TXN, level):
        build = add(LONGEST, (TOPIC, 0))
        yield Case("the longest id", ApiKey.ADD_PARTITIONS_TO_TXN, version, build, until=is_final)
    for version in versions_of(ApiKey.ADD_OFFSETS_TO_TXN):
        build = add_offsets(LONGEST, group=LONGEST)
        yield Case("the longest id", ApiKey.ADD_OFFSETS_TO_TXN, version, build, until=is_final)
    for version in client_versions(ApiKey.TXN_OFFSET_COMMIT, level):
        build = commit_offsets(LONGEST, (TOPIC, 0))
        yield Case("the longest id", ApiKey.TXN_OFFSET_COMMIT, version, build, until=is_final)
    yield Case("the longest id", ApiKey.END_TXN, 4, end(LONGEST), keep(LONGEST), until=is_final)
    yield from settles(LONGEST)
    for version in versions_of(ApiKey.INIT_PRODUCER_ID):
        for length in (INT16, 100_000):
            yield Case(
                f"an id of {length} bytes", ApiKey.INIT_PRODUCER_ID, version, init("?"),
                raw=_with_id(length, version),
            )  # fmt: skip


def _with_id(length: int, version: int) -> Callable[[bytes], bytes]:
    """InitProducerId with an id that is longer than a string may be."""
    name, plain = b"x" * length, b"\x00\x01?"
    if version < 2:
        # Its length does not fit; the largest one that does leaves the rest of it behind.
        return lambda frame: frame.replace(plain, (INT16 - 1).to_bytes(2, "big") + name)
    size, prefix = length + 1, bytearray()
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return lambda frame: frame.replace(b"\x02?", bytes(prefix) + name)


def offsets(level: int) -> Iterator[Case]:
    """TxnOffsetCommit of places and offsets that no log has, and of members that cannot be."""
    name = "nonsense-offsets"
    key = ApiKey.TXN_OFFSET_COMMIT
    yield from begins(name)
    first = add_offsets(name, group=name)
    yield Case("nonsense: added", ApiKey.ADD_OFFSETS_TO_TXN, 3, first, until=is_final)

    def commit(
        index: int,
        offset: int,
        *,
        leader_epoch: int = -1,
        metadata: str | None = "",
        **fields: Any,
    ) -> Callable[[World], Message]:
        def build(world: World) -> Message:
            part = k28.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=leader_epoch,
                committed_metadata=metadata,
            )
            producer_id, epoch = producer(world, name)
            topic = k28.TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[part])
            return k28.TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                **{"topics": [topic], **fields},
            )

        return build

    for version in client_versions(key, level):
        cases = {
            "no topic": commit(0, 1, topics=[]),
            "partition -1": commit(-1, 1),
            "the largest partition": commit(INT32 - 1, 1),
            "offset -1": commit(0, -1),
            "the smallest offset": commit(0, -INT64),
            "the largest offset": commit(1, INT64 - 1),
            "the smallest leader epoch": commit(2, 1, leader_epoch=-INT32),
            "no metadata": commit(0, 1, metadata=None),
        }
        if version >= 3:
            cases |= {
                "the largest generation": commit(0, 1, generation_id=INT32 - 1),
                "the smallest generation": commit(0, 1, generation_id=-INT32),
                "an empty instance": commit(0, 1, group_instance_id=""),
                "a long member": commit(0, 1, member_id=LONGEST, generation_id=1),
            }
        for label, build in cases.items():
            yield Case(f"nonsense: {label}", key, version, build, until=is_final)
    yield Case("nonsense ends", ApiKey.END_TXN, 4, end(name, commit=False), until=is_final)
    yield from settles(name)


def markers() -> Iterator[Case]:
    """WriteTxnMarkers of coordinators and producers that cannot be."""
    key = ApiKey.WRITE_TXN_MARKERS

    def marker(number: int, epoch: int, coordinator: int, index: int = 2) -> Message:
        topic = k27.WritableTxnMarkerTopic(name=TOPIC, partition_indexes=[index])
        one = k27.WritableTxnMarker(
            producer_id=number,
            producer_epoch=epoch,
            transaction_result=False,
            topics=[topic],
            coordinator_epoch=coordinator,
            transaction_version=2,
        )
        return k27.WriteTxnMarkersRequest(markers=[one])

    for version in versions_of(key):
        number = 700_000 + 10 * version
        for label, request in {
            "partition -1": marker(number, 0, 0, -1),
            "the largest partition": marker(number, 0, 0, INT32 - 1),
            "the smallest coordinator": marker(number + 1, 0, -INT32),
            "the largest coordinator": marker(number + 2, 0, INT32 - 1),
            "the coordinator after it": marker(number + 2, 1, 0),
            "the largest epoch": marker(number + 3, INT16 - 1, 0),
            "the epoch after it": marker(number + 3, 0, 1),
            "the largest id": marker(INT64 - 1 - version, 0, 0),
            "no producer": marker(-1, 0, 0),
            "no epoch": marker(number + 4, -1, 0),
        }.items():
            yield Case(f"nonsense: {label}", key, version, lambda _, r=request: r)


def listings() -> Iterator[Case]:
    """Patterns that match everything, or are too large; very many ids."""
    key = ApiKey.LIST_TRANSACTIONS
    for label, filters in {
        "nothing but repetitions": {"transactional_id_pattern": "(.*)*never"},
        "nested repetitions": {"transactional_id_pattern": "(x{100}){100}"},
        "an open bracket": {"transactional_id_pattern": "["},
        "very many producers": {"producer_id_filters": list(range(10**9, 10**9 + MANY))},
        "very many states": {"state_filters": ["Asleep"] * MANY},
        "the smallest duration": {
            "duration_filter": -INT64, "transactional_id_pattern": "nonsense"
        },
    }.items():  # fmt: skip
        request = k66.ListTransactionsRequest(**filters)
        yield Case(f"nonsense: {label}", key, 2, lambda _, r=request: r)
    ids = [f"stranger-{number}" for number in range(MANY)]
    many = k65.DescribeTransactionsRequest(transactional_ids=ids)
    yield Case("very many", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: many)
    topic = k61.TopicRequest(name=TOPIC, partition_indexes=[-1, 99, INT32 - 1])
    nowhere = k61.DescribeProducersRequest(topics=[topic, k61.TopicRequest(name="")])
    yield Case("nonsense", ApiKey.DESCRIBE_PRODUCERS, 0, lambda _: nowhere)


def absurd_transactions(level: int = 2) -> Iterator[Case]:
    """All of transactions, in order, for a transaction.version."""
    yield from absurd_producers(level)
    yield from timeouts()
    yield from nothing_to_end(level)
    yield from places(level)
    yield from long_names(level)
    yield from offsets(level)
    yield from markers()
    yield from listings()
