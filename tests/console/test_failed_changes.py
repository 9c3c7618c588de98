"""Changes that fail, or are done in part: each leaves an audit line, and no old answer is kept."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from starlette.requests import Request

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import group_reset
from sparkraft.client.cluster import Node, PartitionInfo, TopicInfo
from sparkraft.client.errors import PlanError
from sparkraft.console.application import Console
from sparkraft.console.changes import KINDS, parse_change
from sparkraft.console.sign_in import SignIn

Json = dict[str, Any]

LEADERS = {0: 2, 1: 2}
"""By partition; the preferred one is 1."""


class FakeAdmin:
    """Two partitions on broker 1 and 2; refuses partition 1."""

    def __init__(self, refusal: KafkaError) -> None:
        self.refusal = refusal
        self.configs: list[str] = []

    async def describe_topics(self, names: list[str]) -> Json:
        partitions = {
            index: PartitionInfo(
                index=index, leader=leader, leader_epoch=0, replicas=(1, 2), isr=(1, 2), offline=()
            )
            for index, leader in LEADERS.items()
        }
        return {
            name: TopicInfo(name=name, id=UUID(int=1), is_internal=False, partitions=partitions)
            for name in names
        }

    async def describe_cluster(self) -> Any:
        nodes = [Node(id=n, host="h", port=n, rack=None) for n in (1, 2, 3)]
        return SimpleNamespace(nodes=nodes)

    async def list_topics(self) -> Json:
        return await self.describe_topics(["t"])

    async def reassignments(self) -> Json:
        return {}

    async def alter_configs(self, changes: Json) -> Json:
        self.configs += [str(name) for _, name in changes]
        return dict.fromkeys(changes)

    async def elect_leaders(self, _: int, partitions: list[tuple[str, int]]) -> Json:
        return {tp: self.refusal if tp[1] == 1 else None for tp in partitions}

    async def reassign(self, replicas: Json) -> Json:
        return {tp: self.refusal if tp[1] == 1 else None for tp in replicas}


def refused() -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "broker 3 is\nfenced")


def test_a_refusal_of_some_partitions_says_that_the_others_are_done() -> None:
    change = parse_change({"kind": "elect", "election": "preferred", "topic": "t"})
    with pytest.raises(PlanError, match=r"(?s)t-1: .*fenced.*; the other 1 are done") as caught:
        asyncio.run(change.apply(FakeAdmin(refused())))  # type: ignore[arg-type]
    assert "t-0" not in str(caught.value)


def test_throttles_that_outlive_a_refused_reassignment_are_named() -> None:
    admin = FakeAdmin(refused())
    wish = {"kind": "reassign", "topic": "t", "partition": 1, "replicas": [1, 3], "throttle": 1000}
    with pytest.raises(PlanError, match=r"throttles are set: remove them on the screen Moves"):
        asyncio.run(parse_change(wish).apply(admin))  # type: ignore[arg-type]
    assert "t" in admin.configs


def test_a_reset_in_part_says_how_many_partitions_were_reset() -> None:
    class FakeGroups:
        async def commit(self, _: str, offsets: Json) -> Json:
            return {tp: refused() if tp[1] == 1 else None for tp in offsets}

    offsets = {("t", n): 0 for n in (0, 1, 2)}
    with pytest.raises(PlanError, match=r"(?s)t-1 was not reset: .*; 2 of 3 partitions were reset"):
        asyncio.run(group_reset.commit(FakeGroups(), "g", offsets))  # type: ignore[arg-type]


class FakeParts:
    """All that a console uses for a change: each attempt fails."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.forgotten = 0

    def visitor(self, *_: object) -> Any:
        return SimpleNamespace(name="editor")

    def forget(self) -> None:
        self.forgotten += 1

    async def apply(self, *_: object) -> None:
        raise self.error

    async def send(self, *_: object) -> None:
        raise self.error


def outcome_of(path: str, document: Json, error: BaseException) -> tuple[int, FakeParts]:
    """The status, and the parts, of a request whose change fails with `error`."""
    parts: Any = FakeParts(error)
    console = Console(
        parts, parts, parts, parts, SignIn(parts, "cookie"), parts,
        past=parts, resetter=parts, changer=parts, more=parts,
    )  # fmt: skip

    async def receive() -> Json:
        return {"type": "http.request", "body": json.dumps(document).encode()}

    async def work() -> int:
        scope = {"type": "http", "headers": [], "client": ("127.0.0.1", 1), "method": "POST"}
        response = await getattr(console, path)(Request(scope, receive))
        return int(response.status_code)

    return asyncio.run(work()), parts


RECORD = {"topic": "t", "key": {"form": "null"}, "value": {"form": "null"}}
TIMED_OUT = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no response in 10 s")


@pytest.mark.parametrize(
    ("path", "document", "error", "line"),
    [
        ("send", RECORD, TIMED_OUT, "failed to send a record to topic 't': no response in 10 s; "
         "it may be done nevertheless"),
        ("reset", {"group": "g", "offsets": [["t", 0, 1]]}, PlanError("t-0 was not reset"),
         "failed to reset 1 offsets of group 'g': t-0 was not reset"),
        ("change", {"kind": "reassign", "topic": "t", "replicas": [1]}, refused(),
         "failed to reassign topic 't' to brokers 1: broker 3 is\\nfenced "
         "(INVALID_REPLICA_ASSIGNMENT)"),
        ("change", {"kind": "alter-config", "resource": "topic", "name": "t", "config": "c",
         "value": "secret"}, refused(), "failed to change the config 'c' of topic t: "
         "broker 3 is\\nfenced (INVALID_REPLICA_ASSIGNMENT)"),
    ],
)  # fmt: skip
def test_a_change_that_fails_leaves_an_audit_line_and_no_old_answer(
    path: str,
    document: Json,
    error: Exception,
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, parts = outcome_of(path, document, error)
    assert status in {400, 502}
    assert capsys.readouterr().err.rstrip("\n").endswith(f"audit: 'editor' at 127.0.0.1 {line}")
    assert parts.forgotten == 2, "of both views"


def test_a_malformed_request_is_not_an_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    status, parts = outcome_of("change", {"kind": "elect"}, refused())
    assert (status, parts.forgotten, capsys.readouterr().err) == (400, 0, "")


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_change_has_words_for_its_failure(kind: str) -> None:
    acl = {
        "resourceType": "TOPIC", "resourceName": "t", "patternType": "LITERAL",
        "principal": "User:u", "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
    document = {
        "kind": kind, "topic": "t", "partitions": 3, "partition": 0, "offset": 5,
        "election": "unclean", "replicas": [1, 2], "resource": "topic", "name": "t", "config": "c",
        "value": None, "entity": [{"type": "user", "name": "u"}], "quota": "producer_byte_rate",
        **acl,
    }  # fmt: skip
    verb = parse_change(document).wish.split()[0]
    verbs = {"create", "set", "delete", "change", "hold", "reassign", "cancel", "remove", "add"}
    assert verb in verbs
