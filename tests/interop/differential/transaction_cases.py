"""Transactions: every version of each key, with a producer that is right, wrong or fenced.

Each version has a transactional id of its own, so that no case sees the transaction of another.
"""

from collections.abc import Callable, Iterator
from typing import Any

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.messages import k09_offset_fetch as k09
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k25_add_offsets_to_txn as k25
from sparkraft.protocol.messages import k26_end_txn as k26
from sparkraft.protocol.messages import k27_write_txn_markers as k27
from sparkraft.protocol.messages import k28_txn_offset_commit as k28
from sparkraft.protocol.messages import k61_describe_producers as k61
from sparkraft.protocol.messages import k65_describe_transactions as k65
from sparkraft.protocol.messages import k66_list_transactions as k66
from tests.interop.differential.building import TOPIC, is_final, versions_of
from tests.interop.differential.world import Case, World

TIMEOUT_MS = 60_000
BROKERS_FROM = 4
"""AddPartitionsToTxn is sent by brokers from this version on, for several transactions."""

MEMBERS_FROM = 3
"""TxnOffsetCommit names the member from this version on."""

EPOCHS_FROM = 5
"""EndTxn ends a transaction with a new epoch, and TxnOffsetCommit adds its partition, from it on."""

NEW_CLIENTS_FROM = {
    ApiKey.PRODUCE: 12,
    ApiKey.ADD_PARTITIONS_TO_TXN: BROKERS_FROM,
    ApiKey.END_TXN: EPOCHS_FROM,
    ApiKey.TXN_OFFSET_COMMIT: EPOCHS_FROM,
}
"""Versions that only clients of transaction.version 2 send."""

Producer = tuple[int, int]


def client_versions(key: ApiKey, level: int) -> list[int]:
    """The versions that clients send at a transaction.version."""
    last = NEW_CLIENTS_FROM.get(key, 99) if not level else 99
    return [version for version in versions_of(key) if version < last]


def unsupported_versions(key: ApiKey) -> list[int]:
    """The versions that fail at level 0 if they change a transaction.

    In Kafka the transactional id is stuck after such a request, so each case has its own id.
    """
    return [version for version in versions_of(key) if version >= NEW_CLIENTS_FROM[key]]


def adding_version(version: int, level: int) -> int:
    """The version of AddPartitionsToTxn that adds before `version` verifies."""
    return version if level else min(version, BROKERS_FROM - 1)


def producer(world: World, name: str, *, by_id: int = 0, by_epoch: int = 0) -> Producer:
    """The producer id and epoch that the node gave to a transactional id, changed if asked for."""
    numbers = world.numbers
    return numbers.get(f"{name} id", 0) + by_id, numbers.get(f"{name} epoch", 0) + by_epoch


def keep(name: str) -> Callable[[World, Any], None]:
    """Remember the producer id and epoch of a response."""

    def remember(world: World, response: Any) -> None:
        if response.error_code == 0 and response.producer_id >= 0:
            world.numbers[f"{name} id"] = response.producer_id
            world.numbers[f"{name} epoch"] = response.producer_epoch

    return remember


def init(name: str, *, timeout_ms: int = TIMEOUT_MS, **changes: int) -> Callable[[World], Message]:
    """InitProducerId; with `changes` it names the producer that it continues."""

    def build(world: World) -> Message:
        known = producer(world, name, **changes) if changes else (-1, -1)
        return k22.InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=known[0],
            producer_epoch=known[1],
        )

    return build


def begins(name: str, *, version: int = 5) -> Iterator[Case]:
    """Find the coordinator, and get a producer id."""
    find = k10.FindCoordinatorRequest(key_type=1, coordinator_keys=[name])
    yield Case(f"of {name}", ApiKey.FIND_COORDINATOR, 4, lambda _: find, until=is_final)
    yield Case(
        f"{name} begins", ApiKey.INIT_PRODUCER_ID, version, init(name), keep(name), until=is_final
    )


def producer_ids() -> Iterator[Case]:
    """InitProducerId."""
    key = ApiKey.INIT_PRODUCER_ID
    for version in versions_of(key):
        name = f"init-{version}"
        yield from begins(name, version=version)
        yield Case("second", key, version, init(name), keep(name), until=is_final)
        yield Case("no timeout", key, version, init(name, timeout_ms=0))
        yield Case("timeout too long", key, version, init(name, timeout_ms=10**9))
        yield Case("empty id", key, version, init(""))
        if version < 3:
            continue
        yield Case("recovers", key, version, init(name, by_epoch=0), keep(name), until=is_final)
        yield Case("recovers again", key, version, init(name, by_epoch=-1), until=is_final)
        yield Case("fenced", key, version, init(name, by_epoch=-2), until=is_final)
        yield Case("wrong epoch", key, version, init(name, by_epoch=7), until=is_final)
        yield Case("wrong id", key, version, init(name, by_id=10**6), until=is_final)


def add(
    name: str,
    *partitions: tuple[str, int],
    transactional_id: str | None = None,
    verify_only: bool = False,
    **changes: int,
) -> Callable[[World], Message]:
    """AddPartitionsToTxn, in the form of clients and of brokers."""
    named = name if transactional_id is None else transactional_id
    topics = [
        k24.AddPartitionsToTxnTopic(name=topic, partitions=[index]) for topic, index in partitions
    ]

    def build(world: World) -> Message:
        producer_id, epoch = producer(world, name, **changes)
        return k24.AddPartitionsToTxnRequest(
            transactions=[
                k24.AddPartitionsToTxnTransaction(
                    transactional_id=named,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    verify_only=verify_only,
                    topics=topics,
                )
            ],
            v3_and_below_transactional_id=named,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        )

    return build


def partitions(level: int) -> Iterator[Case]:
    """AddPartitionsToTxn: additions by clients, and verifications by brokers at each level."""
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    one = (TOPIC, 0)
    for version in versions_of(key):
        name = f"add-{version}"
        adding = adding_version(version, level)
        yield from begins(name)
        if version >= BROKERS_FROM:
            yield Case("verified too early", key, version, add(name, one, verify_only=True))
        yield Case("added", key, adding, add(name, one), until=is_final)
        if version == adding:
            yield from _additions(name, version)
        if version >= BROKERS_FROM:
            yield from _verifications(name, version)
        only = version != adding
        last = lambda n, o=only, **c: add(n, (TOPIC, 1), verify_only=o, **c)  # noqa: E731 (a builder)
        yield from fenced(name, key, version, last)


def _additions(name: str, version: int) -> Iterator[Case]:
    """To a transaction that has partition 0."""
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    two = (TOPIC, 1)
    yield Case("added again", key, version, add(name, (TOPIC, 0)), until=is_final)
    yield Case("beside an unknown one", key, version, add(name, two, ("nowhere", 0)))
    yield Case("beside an unknown partition", key, version, add(name, two, (TOPIC, 99)))
    if version < BROKERS_FROM:
        internal = ("__consumer_offsets", 0)
        yield Case("beside an internal one", key, version, add(name, two, internal))
    yield from _by_wrong_producers("added", name, version, verify_only=False)


def _verifications(name: str, version: int) -> Iterator[Case]:
    """Of a transaction that has partition 0."""
    key = ApiKey.ADD_PARTITIONS_TO_TXN
    one, two = (TOPIC, 0), (TOPIC, 1)
    yield from _by_wrong_producers("verified", name, version, verify_only=True)
    yield Case("verified", key, version, add(name, one, verify_only=True))
    yield Case("not in it", key, version, add(name, one, two, verify_only=True))


def _by_wrong_producers(what: str, name: str, version: int, *, verify_only: bool) -> Iterator[Case]:
    two = (TOPIC, 1)
    wrong = {
        "wrong epoch": add(name, two, verify_only=verify_only, by_epoch=7),
        "older epoch": add(name, two, verify_only=verify_only, by_epoch=-1),
        "wrong id": add(name, two, verify_only=verify_only, by_id=10**6),
        "unknown id": add(name, two, verify_only=verify_only, transactional_id="stranger"),
        "empty id": add(name, two, verify_only=verify_only, transactional_id=""),
    }
    for label, build in wrong.items():
        key = ApiKey.ADD_PARTITIONS_TO_TXN
        yield Case(f"{what}: {label}", key, version, build, until=is_final)


def fenced(name: str, key: ApiKey, version: int, build: Any) -> Iterator[Case]:
    """A second producer takes over the id; the first one tries once more."""
    before = f"{name} before"

    def keep_both(world: World, response: Any) -> None:
        for word in ("id", "epoch"):
            world.numbers.setdefault(f"{before} {word}", world.numbers[f"{name} {word}"])
        keep(name)(world, response)

    def old(world: World) -> Message:
        new_id, new_epoch = producer(world, name)
        old_id, old_epoch = producer(world, before)
        message: Message = build(name, by_id=old_id - new_id, by_epoch=old_epoch - new_epoch)(world)
        return message

    yield Case(
        f"{name} is taken over", ApiKey.INIT_PRODUCER_ID, 4, init(name), keep_both, until=is_final
    )
    yield from settles(name)
    yield Case("fenced", key, version, old, until=is_final)


def end(
    name: str, *, commit: bool = True, transactional_id: str | None = None, **changes: int
) -> Callable[[World], Message]:
    """EndTxn."""

    def build(world: World) -> Message:
        producer_id, epoch = producer(world, name, **changes)
        return k26.EndTxnRequest(
            transactional_id=name if transactional_id is None else transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )

    return build


def settles(name: str) -> Iterator[Case]:
    """Wait until the markers are written."""

    def has_ended(answer: Any) -> bool:
        return answer["transactionStates"][0]["transactionState"] in {
            "Empty",
            "CompleteCommit",
            "CompleteAbort",
        }

    request = k65.DescribeTransactionsRequest(transactional_ids=[name])
    yield Case(f"{name} ends", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: request, until=has_ended)


def ends(level: int) -> Iterator[Case]:
    """EndTxn: each decision, repeated, and by the wrong producer."""
    key = ApiKey.END_TXN
    for version in client_versions(key, level):
        for commit in (True, False):
            name = f"end-{version}-{'commit' if commit else 'abort'}"
            yield from begins(name)
            yield Case("nothing to commit", key, version, end(name), until=is_final)
            yield Case(
                "part of it", ApiKey.ADD_PARTITIONS_TO_TXN, 3, add(name, (TOPIC, 0)), until=is_final
            )
            word = "commits" if commit else "aborts"
            yield Case(word, key, version, end(name, commit=commit), keep(name), until=is_final)
            yield from settles(name)
            shift = -1 if version >= EPOCHS_FROM else 0
            for label, build in {
                "again": end(name, commit=commit, by_epoch=shift),
                "otherwise": end(name, commit=not commit, by_epoch=shift),
                "wrong epoch": end(name, commit=commit, by_epoch=7),
                "older epoch": end(name, commit=commit, by_epoch=-3),
                "wrong id": end(name, commit=commit, by_id=10**6),
                "unknown id": end(name, commit=commit, transactional_id="stranger"),
                "empty id": end(name, commit=commit, transactional_id=""),
                "commit of nothing": end(name),
            }.items():
                yield Case(f"{word}: {label}", key, version, build, until=is_final)
            nothing = end(name, commit=False)
            yield Case(
                f"{word}: abort of nothing", key, version, nothing, keep(name), until=is_final
            )
            yield from settles(name)
        name = f"end-{version}-fenced"
        yield from begins(name)
        yield from fenced(name, key, version, end)


def add_offsets(
    name: str, *, group: str = "tx-group", transactional_id: str | None = None, **changes: int
) -> Callable[[World], Message]:
    """AddOffsetsToTxn."""

    def build(world: World) -> Message:
        producer_id, epoch = producer(world, name, **changes)
        return k25.AddOffsetsToTxnRequest(
            transactional_id=name if transactional_id is None else transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            group_id=group,
        )

    return build


def offsets_added() -> Iterator[Case]:
    """AddOffsetsToTxn."""
    key = ApiKey.ADD_OFFSETS_TO_TXN
    for version in versions_of(key):
        name = f"offsets-{version}"
        yield from begins(name)
        for label, build in {
            "added": add_offsets(name),
            "wrong epoch": add_offsets(name, by_epoch=7),
            "wrong id": add_offsets(name, by_id=10**6),
            "unknown id": add_offsets(name, transactional_id="stranger"),
            "empty id": add_offsets(name, transactional_id=""),
            "empty group": add_offsets(name, group=""),
        }.items():
            yield Case(label, key, version, build, until=is_final)
        yield from fenced(name, key, version, add_offsets)


def commit_offsets(
    name: str,
    *places: tuple[str, int],
    group: str | None = None,
    transactional_id: str | None = None,
    member: tuple[str, int] = ("", -1),
    metadata: str = "note",
    **changes: int,
) -> Callable[[World], Message]:
    """TxnOffsetCommit of offset 5 in each place."""

    def build(world: World) -> Message:
        producer_id, epoch = producer(world, name, **changes)
        return k28.TxnOffsetCommitRequest(
            transactional_id=name if transactional_id is None else transactional_id,
            group_id=name if group is None else group,
            producer_id=producer_id,
            producer_epoch=epoch,
            member_id=member[0],
            generation_id=member[1],
            topics=[
                k28.TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        k28.TxnOffsetCommitRequestPartition(
                            partition_index=index, committed_offset=5, committed_metadata=metadata
                        )
                    ],
                )
                for topic, index in places
            ],
        )

    return build


def offsets(level: int) -> Iterator[Case]:
    """TxnOffsetCommit, with what OffsetFetch shows of it."""
    key = ApiKey.TXN_OFFSET_COMMIT
    one = (TOPIC, 0)
    for version in client_versions(key, level):
        name = f"commit-{version}"
        yield from begins(name)
        adds = version >= EPOCHS_FROM
        if not adds:
            yield Case("too early", key, version, commit_offsets(name, one), until=is_final)
            first = add_offsets(name, group=name)
            yield Case("added first", ApiKey.ADD_OFFSETS_TO_TXN, 3, first, until=is_final)
        yield Case("committed", key, version, commit_offsets(name, one), until=is_final)
        for label, wrong in _wrong_offsets(name, version).items():
            yield Case(label, key, version, wrong, until=is_final)
        yield Case("pending", ApiKey.OFFSET_FETCH, 9, _fetched(name, stable=True))
        yield Case("not visible", ApiKey.OFFSET_FETCH, 9, _fetched(name, stable=False))
        end_version = EPOCHS_FROM if adds else EPOCHS_FROM - 1
        yield Case("all of it", ApiKey.END_TXN, end_version, end(name), keep(name), until=is_final)
        yield from settles(name)
        yield Case("visible", ApiKey.OFFSET_FETCH, 9, _fetched(name, stable=True))
        yield from fenced(name, key, version, lambda n, **c: commit_offsets(n, (TOPIC, 1), **c))


def _wrong_offsets(name: str, version: int) -> dict[str, Callable[[World], Message]]:
    one = (TOPIC, 0)
    wrong = {
        "wrong epoch": commit_offsets(name, one, by_epoch=7),
        "wrong id": commit_offsets(name, one, by_id=10**6),
        "unknown id": commit_offsets(name, one, transactional_id="stranger"),
        "empty id": commit_offsets(name, one, transactional_id=""),
        "empty group": commit_offsets(name, one, group=""),
        "another group": commit_offsets(name, one, group="elsewhere"),
        "beside an unknown topic": commit_offsets(name, one, ("nowhere", 0)),
        "beside an unknown partition": commit_offsets(name, one, (TOPIC, 99)),
        "only an unknown topic": commit_offsets(name, ("nowhere", 0)),
        "empty group, beside an unknown topic": commit_offsets(name, one, ("nowhere", 0), group=""),
        "wrong epoch, beside an unknown topic": commit_offsets(
            name, one, ("nowhere", 0), by_epoch=7
        ),
        "long metadata": commit_offsets(name, (TOPIC, 1), metadata="x" * 5000),
    }
    if version >= MEMBERS_FROM:
        wrong["a member of nothing"] = commit_offsets(name, one, member=("stranger", 4))
        wrong["a generation of nothing"] = commit_offsets(name, one, member=("", 4))
        wrong["a member without generation"] = commit_offsets(name, one, member=("stranger", -1))
    return wrong


def _fetched(group: str, *, stable: bool) -> Callable[[World], Message]:
    topic = k09.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])
    asked = k09.OffsetFetchRequestGroup(group_id=group, topics=[topic])
    return lambda _: k09.OffsetFetchRequest(groups=[asked], require_stable=stable)


def markers() -> Iterator[Case]:
    """WriteTxnMarkers, as another broker sends it."""
    key = ApiKey.WRITE_TXN_MARKERS

    def marker(
        number: int, *places: tuple[str, int], epoch: int = 3, coordinator: int = 2
    ) -> k27.WritableTxnMarker:
        topics = [
            k27.WritableTxnMarkerTopic(name=topic, partition_indexes=[index])
            for topic, index in places
        ]
        return k27.WritableTxnMarker(
            producer_id=number,
            producer_epoch=epoch,
            transaction_result=True,
            topics=topics,
            coordinator_epoch=coordinator,
            transaction_version=2,
        )

    one, two = (TOPIC, 1), (TOPIC, 2)
    for version in versions_of(key):
        number = 900_000 + 10 * version
        sent = {
            "of an unknown producer": [marker(number, one)],
            "once more": [marker(number, one)],
            "older epoch": [marker(number, one, epoch=2)],
            "older coordinator": [marker(number, one, epoch=4, coordinator=1)],
            "without topics": [marker(number)],
            "none": [],
            "unknown places": [marker(number, ("nowhere", 0), (TOPIC, 99), one, epoch=5)],
            "two producers": [marker(number + 1, one), marker(number + 2, two)],
            "one producer twice": [marker(number + 3, one), marker(number + 3, two, epoch=4)],
            "to an offsets partition": [marker(number + 4, ("__consumer_offsets", 0))],
            "beside one without topics": [marker(number + 5), marker(number + 6, one)],
        }
        for label, given in sent.items():
            request = k27.WriteTxnMarkersRequest(markers=given)
            yield Case(label, key, version, lambda _, r=request: r)


def listings() -> Iterator[Case]:
    """DescribeTransactions, ListTransactions, DescribeProducers."""
    name = "listed"
    yield from begins(name)
    yield Case(
        "to be listed", ApiKey.ADD_PARTITIONS_TO_TXN, 3, add(name, (TOPIC, 0)), until=is_final
    )
    ids = ["init-5", name, "stranger", ""]
    described = k65.DescribeTransactionsRequest(transactional_ids=ids)
    yield Case("four", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: described)
    key = ApiKey.LIST_TRANSACTIONS
    asked: dict[str, tuple[int, dict[str, Any]]] = {
        "all": (0, {}),
        "ongoing": (0, {"state_filters": ["Ongoing"]}),
        "unknown states": (0, {"state_filters": ["Asleep", "Ongoing"]}),
        "of no producer": (0, {"producer_id_filters": [77_777_777]}),
        "long ones": (1, {"duration_filter": 10**12}),
        "all ages": (1, {"duration_filter": 0}),
        "by pattern": (2, {"transactional_id_pattern": "lis.*"}),
        "by an empty pattern": (2, {"transactional_id_pattern": ""}),
        "by a bad pattern": (2, {"transactional_id_pattern": "("}),
    }
    for label, (since, filters) in asked.items():
        for version in versions_of(key):
            if version >= since:
                request = k66.ListTransactionsRequest(**filters)
                yield Case(label, key, version, lambda _, r=request: r)
    topic = k61.TopicRequest(name=TOPIC, partition_indexes=[0, 1])
    producers = k61.DescribeProducersRequest(topics=[topic])
    yield Case("after transactions", ApiKey.DESCRIBE_PRODUCERS, 0, lambda _: producers)


def unsupported() -> Iterator[Case]:
    """Requests of new clients at transaction.version 0, and of brokers on their behalf."""
    one = (TOPIC, 0)
    for version in unsupported_versions(ApiKey.END_TXN):
        name = f"end-of-a-new-client-{version}"
        yield from begins(name)
        place = add(name, one)
        yield Case("its place", ApiKey.ADD_PARTITIONS_TO_TXN, 3, place, until=is_final)
        yield Case("at level 0", ApiKey.END_TXN, version, end(name))
    for key, build in (
        (ApiKey.ADD_PARTITIONS_TO_TXN, add),
        (ApiKey.TXN_OFFSET_COMMIT, commit_offsets),
    ):
        for version in unsupported_versions(key):
            name = f"{key.name.lower()}-of-a-new-client-{version}"
            yield from begins(name)
            yield Case("at level 0", key, version, build(name, one), until=is_final)
            yield _described(name)


def _described(name: str) -> Case:
    request = k65.DescribeTransactionsRequest(transactional_ids=[name])
    return Case("after level 0", ApiKey.DESCRIBE_TRANSACTIONS, 0, lambda _: request)


def transactions(level: int = 2) -> Iterator[Case]:
    """All of them, in order, for a transaction.version."""
    yield from producer_ids()
    yield from partitions(level)
    yield from ends(level)
    yield from offsets_added()
    yield from offsets(level)
    yield from markers()
    yield from listings()
    if not level:
        yield from unsupported()
