"""Every request of `rows.txt` to Apache Kafka and to us, from users that may and may not send it.

Users log in by PLAIN, and each has access control entries of its own. The decoded responses must be
equal. A user that has exactly what a request needs gets no error of authorization from Kafka; one
that lacks a part gets one, or less in the response: so a wrong line of the table fails, too. At the
end each request is sent over a `request_percentage`, and the throttles must be equal.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.client.connection import Connection
from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.declare import Message
from sparkraft.protocol.json_form import to_json
from sparkraft.protocol.messages import k03_metadata as k03
from sparkraft.protocol.messages import k08_offset_commit as k08
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k19_create_topics as k19
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k24_add_partitions_to_txn as k24
from sparkraft.protocol.messages import k29_describe_acls as k29
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k49_alter_client_quotas as k49
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.security.acls import AclOperation, AclPermissionType, AclResourceType, PatternType
from sparkraft.security.jaas import PLAIN_MODULE
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from sparkraft.security.standard_authorizer import CLASS_NAME
from sparkraft.server.api.authorization import NoAuthorization
from sparkraft.server.api.registry import served_apis
from tests.interop.authorization.table import Row, User, rows
from tests.interop.differential.comparing import differences
from tests.interop.differential.normalise import normalise
from tests.interop.differential.world import World, fit
from tests.support.nodes import KafkaNode, NodeProcess, SparkraftNode
from tests.support.ports import accepts, lasting_ports, wait_until

PASSWORD = "of-all-users-2718"
DENIED = {29, 30, 31, 53, 65}
"""Error codes of a denied topic, group, cluster, transactional id and owner of tokens."""

SECONDS_MAX = 120

TINY_PERCENT, WINDOW_MS = 0.0001, 1_000
"""A `request_percentage` that each request exceeds, and one window, the longest throttle."""

UNANSWERED = {"PRODUCE: in a transaction", "TXN_OFFSET_COMMIT: of an unknown producer"}
"""Over a quota of time, Kafka does not always answer these, which ask another coordinator first."""

OWN_KEYS_FROM = 10_000
TOPICS = ("t", "doomed", "doomed-by-id")

IN_OTHER_TESTS = {ApiKey.DESCRIBE_DELEGATION_TOKEN}
"""Its entries name ids of tokens: tests/interop/test_delegation_token_answers.py."""

ALLOWED = (
    (
        re.compile(r"rrorMessage: Kafka None, we 'a sentence'$"),
        "Where Kafka gives a bare code, we say why as well; clients show the text to people.",
    ),
    (
        re.compile(r"^CREATE_ACLS: of any operation .*errorCode: Kafka -1, we 42$"),
        "Kafka trips over the operation ANY (UNKNOWN_SERVER_ERROR); it is an INVALID_REQUEST.",
    ),
)
"""Differences that are meant, and why."""


def users_of(table: list[Row], *, with_changes: bool) -> dict[Row, list[User]]:
    """Who sends each request: those who may not before those who may."""
    return {
        row: list(
            dict.fromkeys(
                [*row.denied_users(), *(row.single_changes() if with_changes else ()), *row.ways]
            )
        )
        for row in table
    }


def overrides(names: list[str]) -> tuple[dict[str, str], tuple[int, int]]:
    """A node's configuration whose listeners know these users, and its ports."""
    ports = lasting_ports(2)
    users = " ".join(f'user_{name}="{PASSWORD}"' for name in ["admin", *names])
    module = f'{PLAIN_MODULE} required username="admin" password="{PASSWORD}" {users};'
    return {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{ports[0]},CONTROLLER://127.0.0.1:{ports[1]}",
        "advertised.listeners": f"SASL_PLAINTEXT://127.0.0.1:{ports[0]}",
        "listener.security.protocol.map": (
            "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"
        ),
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
        "listener.name.controller.plain.sasl.jaas.config": module,
        "authorizer.class.name": CLASS_NAME,
        "super.users": "User:admin",
        "delegation.token.secret.key": "planted-secret-key-1618",
        # The member of a group stays while the table is sent.
        "group.consumer.max.session.timeout.ms": "600000",
        "group.consumer.session.timeout.ms": "600000",
        "log.retention.ms": "-1",
        "log.initial.task.delay.ms": "600000",
    }, (ports[0], ports[1])


@dataclass
class Dialogue:
    """The requests of all users to one node."""

    world: World
    ports: dict[str, int]
    names: dict[User, str]
    connections: dict[tuple[str, str], Connection] = field(default_factory=dict)
    throttles: dict[str, Any] = field(default_factory=dict)
    """Of each request over a quota; None: its version does not report it."""

    async def send(
        self, name: str, request: Message, version: int, listener: str = "broker"
    ) -> Any:
        """The response as JSON, or a word if the connection is closed."""
        place = name, listener
        if place not in self.connections or self.connections[place].is_closed:
            login = Login("PLAIN", name, Secret(PASSWORD))
            self.connections[place] = await Connection.open(
                "127.0.0.1", self.ports[listener], login=login, timeout_ms=60_000
            )
        try:
            answer = await self.connections[place].send(fit(request, version), version=version)
        except KafkaError as error:
            return error.code.name
        return to_json(answer, version)

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Ask again until it holds."""
        async with asyncio.timeout(SECONDS_MAX):
            while not await condition():  # noqa: ASYNC110 (another process changes it)
                await asyncio.sleep(0.05)

    async def set_up(self) -> None:
        """Create topics, offsets, a group with a member, an open transaction, and all entries."""
        creation = k19.CreateTopicsRequest(
            topics=[
                k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
                for name in TOPICS
            ],
            timeout_ms=60_000,
        )
        created = await self.send("admin", creation, 7)
        for topic in created["topics"]:
            assert topic["errorCode"] == 0, topic
            self.world.topic_ids[topic["name"]] = Uuid.parse(topic["topicId"])
        await self.until(self._topics_are_known)
        await self.until(self._offset_is_committed)
        await self.until(self._member_is_assigned)
        await self.until(self._transaction_is_open)
        await self._create_entries()

    async def _topics_are_known(self) -> bool:
        asked = [k03.MetadataRequestTopic(name=name) for name in TOPICS]
        found = await self.send("admin", k03.MetadataRequest(topics=asked), 9)
        return all(
            topic["errorCode"] == 0 and topic["partitions"][0]["errorCode"] == 0
            for topic in found["topics"]
        )

    async def _offset_is_committed(self) -> bool:
        await self._find(0, "g")
        part = k08.OffsetCommitRequestPartition(committed_offset=1)
        topic = k08.OffsetCommitRequestTopic(name="t", partitions=[part])
        request = k08.OffsetCommitRequest(group_id="g", topics=[topic])
        answer = await self.send("admin", request, 9)
        return bool(answer["topics"][0]["partitions"][0]["errorCode"] == 0)

    async def _member_is_assigned(self) -> bool:
        """A member that stays; its next heartbeat names its epoch."""
        request = k68.ConsumerGroupHeartbeatRequest(
            group_id="c", member_id="lasting", member_epoch=0, rebalance_timeout_ms=600_000,
            subscribed_topic_names=["t"], topic_partitions=[],
        )  # fmt: skip
        answer = await self.send("admin", request, 1)
        assignment = answer["assignment"]
        return answer["errorCode"] == 0 and bool(assignment and assignment["topicPartitions"])

    async def _transaction_is_open(self) -> bool:
        await self._find(1, "open")
        init = k22.InitProducerIdRequest(
            transactional_id="open", transaction_timeout_ms=900_000, producer_id=-1,
            producer_epoch=-1,
        )  # fmt: skip
        producer = await self.send("admin", init, 4)
        if producer["errorCode"]:
            return False
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="open",
            v3_and_below_producer_id=producer["producerId"],
            v3_and_below_producer_epoch=producer["producerEpoch"],
            v3_and_below_topics=[k24.AddPartitionsToTxnTopic(name="t", partitions=[0])],
        )
        answer = await self.send("admin", request, 3)
        (topic,) = answer["resultsByTopicV3AndBelow"]
        return bool(topic["resultsByPartition"][0]["partitionErrorCode"] == 0)

    async def _find(self, kind: int, key: str) -> None:
        request = k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        await self.send("admin", request, 4)

    async def _create_entries(self) -> None:
        entries = [
            k30.AclCreation(
                resource_type=kind, resource_name=name, principal=f"User:{user}", host="*",
                resource_pattern_type=PatternType.LITERAL, operation=operation,
                permission_type=AclPermissionType.ALLOW,
            )
            for grants, user in self.names.items()
            for operation, kind, name in sorted(grants)
        ]  # fmt: skip
        answer = await self.send("admin", k30.CreateAclsRequest(creations=entries), 3)
        assert {each["errorCode"] for each in answer["results"]} == {0}
        every = k29.DescribeAclsRequest(
            resource_type_filter=AclResourceType.ANY, resource_name_filter=None,
            pattern_type_filter=PatternType.ANY, principal_filter=None, host_filter=None,
            operation=AclOperation.ANY, permission_type=AclPermissionType.ANY,
        )  # fmt: skip

        async def enforced() -> bool:
            shown = [await self.send("admin", every, 3, listener) for listener in self.ports]
            return all(
                sum(len(resource["acls"]) for resource in one["resources"]) == len(entries)
                for one in shown
            )

        await self.until(enforced)

    async def ask_all(self, asked: dict[Row, list[User]]) -> list[tuple[str, Row, User, Any]]:
        """Every row's responses, in order, with this node's own names replaced."""
        await self.set_up()
        found = []
        for row, users in asked.items():
            for listener in row.listeners:
                for version in row.versions:
                    for user in users:
                        request = row.request(self.world.topic_id)
                        name = self.names[user]
                        answer = await self.send(name, request, version, listener)
                        rights = ", ".join(map(str, sorted(user))) or "nothing"
                        label = f"{row} v{version} on the {listener} with {rights}"
                        found.append((label, row, user, normalise(self.world, answer)))
        await self._send_over_quota(asked)
        for connection in self.connections.values():
            await connection.close()
        return found

    async def _send_over_quota(self, asked: dict[Row, list[User]]) -> None:
        """Send every request with a quota that each exceeds, by new connections."""
        entity = k49.EntityData(entity_type="user", entity_name="admin")
        quota = k49.OpData(key="request_percentage", value=TINY_PERCENT, remove=False)
        entry = k49.AlterClientQuotasRequestEntryData(entity=[entity], ops=[quota])
        altered = await self.send("admin", k49.AlterClientQuotasRequest(entries=[entry]), 1)
        assert altered["entries"][0]["errorCode"] == 0
        ask = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=["g"])

        async def enforced() -> bool:
            self._forget("admin")
            return bool((await self.send("admin", ask, 4))["throttleTimeMs"])

        await self.until(enforced)
        for row in asked:
            if "broker" not in row.listeners or str(row) in UNANSWERED:
                continue
            for version in row.versions:
                self._forget("admin")
                answer = await self.send("admin", row.request(self.world.topic_id), version)
                throttle = answer.get("throttleTimeMs") if isinstance(answer, dict) else answer
                self.throttles[f"{row} v{version}"] = throttle

    def _forget(self, name: str) -> None:
        """Have the next request of a user open another connection."""
        old = self.connections.pop((name, "broker"), None)
        if old is not None:
            old.abort("its user's next request opens another")


@dataclass
class Compared:
    """Every response of Kafka's, and ours; and the same for throttles."""

    answers: list[tuple[str, Row, User, Any, Any]]
    throttles: dict[str, tuple[Any, Any]]


def compared(kafka_jars: Path, folder: Path, asked: dict[Row, list[User]]) -> Compared:
    """Send all of it to both."""
    every = dict.fromkeys(user for users in asked.values() for user in users)
    names = {user: f"u{number}" for number, user in enumerate(every)}

    def node(kind: type[NodeProcess], name: str) -> NodeProcess:
        config, ports = overrides(list(names.values()))
        return kind(folder / name, overrides=config, jars=kafka_jars, ports=ports)

    kafka, ours = node(KafkaNode, "kafka"), node(SparkraftNode, "ours")

    dialogues = [
        Dialogue(
            World(name, node), {"broker": node.port, "controller": node.controller_port}, names
        )
        for name, node in (("Kafka", kafka), ("sparkraft", ours))
    ]

    async def both() -> list[Any]:
        return await asyncio.gather(*(dialogue.ask_all(asked) for dialogue in dialogues))

    with kafka, ours:
        for one in (kafka, ours):
            wait_until(lambda one=one: accepts(one.controller_port), "the controller listens")
        theirs, own = asyncio.run(both())
    answers = [(*one, other[-1]) for one, other in zip(theirs, own, strict=True)]
    theirs, own = (dialogue.throttles for dialogue in dialogues)
    return Compared(answers, {label: (theirs[label], own[label]) for label in theirs})


def codes_in(answer: Any) -> set[int]:
    """Every error code in a response, but that of a new topic's hidden configs."""
    if isinstance(answer, list):
        return set().union(*map(codes_in, answer))
    if not isinstance(answer, dict):
        return set()
    found = {
        value
        for name, value in answer.items()
        if name.lower().endswith("errorcode") and name != "topicConfigErrorCode"
    }
    return found.union(*map(codes_in, answer.values()))


def wrong_rows(found: list[tuple[str, Row, User, Any, Any]]) -> Iterator[str]:
    """Rows of the table that are not what Kafka's authorizer decides."""
    allowed = {(label.rpartition(" with ")[0], str(kafka)) for label, row, user, kafka, _ in found
               if user in row.ways}  # fmt: skip
    for label, row, user, kafka, _ in found:
        if user in row.ways:
            if not row.is_left_out and codes_in(kafka) & DENIED:
                yield f"{label}: denied by Kafka: {kafka}"
        elif row.is_checked and user in row.denied_users():
            is_same = (label.rpartition(" with ")[0], str(kafka)) in allowed
            if is_same if row.is_left_out else not codes_in(kafka) & DENIED:
                yield f"{label}: not denied by Kafka: {kafka}"


def check(both: Compared) -> None:
    found = both.answers
    lines = [
        f"{label} | {difference}"
        for label, _, _, kafka, ours in found
        for difference in differences(kafka, ours)
    ]
    wrong = [line for line in lines if not any(each.search(line) for each, _ in ALLOWED)]
    assert not wrong, f"{len(wrong)} differences in {len(found)}:\n" + "\n".join(wrong)
    rows_wrong = list(wrong_rows(found))
    assert not rows_wrong, f"{len(rows_wrong)} wrong:\n" + "\n".join(rows_wrong)
    other = [
        f"{label}: Kafka {kafka} ms, we {ours} ms"
        for label, (kafka, ours) in both.throttles.items()
        if kafka != ours
    ]
    assert not other, f"{len(other)} other throttles:\n" + "\n".join(other)
    assert WINDOW_MS in {ours for _, ours in both.throttles.values()}


@pytest.mark.parametrize("listener", ["broker", "controller"])
def test_every_key_has_a_row(listener: str) -> None:
    keys = {row.key for row in rows() if listener in row.listeners}
    served = {
        api.key
        for api in served_apis(controller_listener=listener == "controller")
        if api.key < OWN_KEYS_FROM and not isinstance(api.authorize, NoAuthorization)
    }
    assert served - IN_OTHER_TESTS - keys == set()


@pytest.mark.real_clients
@pytest.mark.java
def test_each_request_is_allowed_by_what_it_needs_and_denied_without_any_of_it(
    kafka_jars: Path, tmp_path: Path
) -> None:
    found = compared(kafka_jars, tmp_path, users_of(rows(), with_changes=False))
    assert len(found.answers) > 600
    check(found)


@pytest.mark.real_clients
@pytest.mark.java
@pytest.mark.long
def test_each_request_with_every_other_operation_instead_of_one_it_needs(
    kafka_jars: Path, tmp_path: Path
) -> None:
    found = compared(kafka_jars, tmp_path, users_of(rows(), with_changes=True))
    assert len(found.answers) > 2_000
    check(found)
