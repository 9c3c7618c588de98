"""Whether a name exists is not visible to a client without a right on it.

Each request of `tests/interop/authorization/rows.txt` is sent twice by clients that lack rights:
with the names of a topic, a group or a transactional id that exist, and with names that do not. The
responses must be equal but for these names. Topic ids are not secret, as in Kafka.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparkraft.base.ids import Uuid
from sparkraft.protocol.codec import encode
from sparkraft.protocol.json_form import to_json
from sparkraft.protocol.messages import k10_find_coordinator as k10
from sparkraft.protocol.messages import k22_init_producer_id as k22
from sparkraft.protocol.messages import k68_consumer_group_heartbeat as k68
from sparkraft.security.acls import IMPLIED_BY, AclOperation, AclResourceType
from tests.interop.authorization.table import Row, User, from_json, rows
from tests.interop.differential.world import fit
from tests.server.harness import connect, create_topic, node_in, run, until
from tests.server.test_denied import committed
from tests.server.test_granted import offset_commit
from tests.support.sessions import Deciding

EXISTING = {
    AclResourceType.TOPIC: ("t", "doomed"),
    AclResourceType.GROUP: ("g", "c"),
    AclResourceType.TRANSACTIONAL_ID: ("x", "open"),
}
MISSING = "missing-"
LISTENERS = {"broker": "PLAINTEXT", "controller": "CONTROLLER"}


def users_without_a_right(row: Row) -> list[User]:
    """Those without any, and those who lack all rights on one of the names that they need."""
    lacking = [
        frozenset(grant for grant in way if (grant.kind, grant.name) != (lost.kind, lost.name))
        for way in row.ways
        for lost in way
    ]
    return list(dict.fromkeys([frozenset(), *lacking]))


def hidden_from(user: User) -> set[str]:
    """The existing names that a user has no right on."""
    return {
        name
        for kind, names in EXISTING.items()
        for name in names
        if not any((grant.kind, grant.name) == (kind, name) for grant in user)
    }


def renamed(body: Any, names: set[str]) -> Any:
    """A request's JSON with names that do not exist in the place of these."""
    match body:
        case dict():
            return {key: renamed(value, names) for key, value in body.items()}
        case list():
            return [renamed(value, names) for value in body]
        case str() if body in names:
            return f"{MISSING}{body}"
        case _:
            return body


def questions() -> Iterator[tuple[Row, str, int, User]]:
    """Every row by each version, listener and user that may not send it."""
    for row in rows():
        for listener in row.listeners:
            for version in row.versions:
                for user in users_without_a_right(row):
                    if renamed(row.body, hidden_from(user)) != row.body:
                        yield row, listener, version, user


async def set_up(client: Any) -> Uuid:
    """Create what exists; returns the id of the topic."""
    ids = [await create_topic(client, name) for name in EXISTING[AclResourceType.TOPIC]]
    await until(lambda: committed(client, offset_commit()))
    for name in EXISTING[AclResourceType.TRANSACTIONAL_ID]:
        init = k22.InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        await until(lambda name=name, init=init: answered(client, 1, name, init))
    heartbeat = k68.ConsumerGroupHeartbeatRequest(
        group_id="c", member_id="m", member_epoch=0, rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"], topic_partitions=[],
    )  # fmt: skip
    await until(lambda: answered(client, 0, "c", heartbeat))
    return ids[0]


async def answered(client: Any, kind: int, key: str, request: Any) -> bool:
    await client.send(k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]))
    return (await client.send(request)).error_code == 0


class Granted:
    """Decides by what the user that asks is granted."""

    def __init__(self) -> None:
        self.user: User = frozenset()

    def __call__(self, operation: AclOperation, kind: AclResourceType, name: str) -> bool:
        enough = {operation, *IMPLIED_BY.get(operation, ())}
        return any(
            (each.kind, each.name) == (kind, name) and each.operation in enough
            for each in self.user
        )


async def answers(peer: Any, row: Row, version: int, hidden: set[str], topic_id: Uuid) -> list[str]:
    """With the names that exist and with others; none if the version has ids instead of names."""
    kind = type(row.request(lambda _: topic_id))
    found = []
    for body in (row.body, renamed(row.body, hidden)):
        request = fit(from_json(kind, body, lambda _: topic_id), version)
        if bytes(topic_id) in encode(request, version):
            return []
        answer = to_json(await peer.send(request, version=version), version)
        found.append(json.dumps(answer, sort_keys=True).replace(MISSING, ""))
    return found


@pytest.mark.parametrize(("listener", "keys_min"), [("broker", 30), ("controller", 5)])
def test_a_name_that_exists_and_one_that_does_not_get_equal_responses(
    tmp_path: Path, listener: str, keys_min: int
):
    granted, compared, different = Granted(), set(), []

    async def test() -> None:
        async with node_in(tmp_path) as node:
            client = await connect(node)
            topic_id = await set_up(client)
            for each in node.listeners:
                each.authorizer = Deciding(granted)
            peer = await connect(node, LISTENERS[listener])
            for row, place, version, user in questions():
                if place != listener:
                    continue
                granted.user = user
                found = await answers(peer, row, version, hidden_from(user), topic_id)
                if found:
                    compared.add(row.key)
                if len(set(found)) > 1:
                    rights = ", ".join(map(str, user)) or "nothing"
                    different.append("\n  ".join([f"{row} v{version} with {rights}:", *found]))
            await peer.close()
            await client.close()

    run(test())
    assert different == [], "\n".join(different)
    assert len(compared) >= keys_min, sorted(compared)
