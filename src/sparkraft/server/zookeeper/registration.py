"""The znodes that a broker makes: top-level paths, cluster id, generated ids, its registration.

Kafka 3.9: `KafkaZkClient.createTopLevelPaths`, `getOrGenerateClusterId`, `registerBroker` with
`CheckedEphemeral`, and `KafkaServer.createBrokerInfo`.
"""

import logging
from typing import TYPE_CHECKING

from sparkraft.base.env import random_uuid
from sparkraft.server.identity import StartRefused
from sparkraft.zookeeper.errors import Code, MultiError, NodeExistsError, NoNodeError
from sparkraft.zookeeper.requests import Create, Delete, GetChildren, GetData, Multi, SetData
from sparkraft.zookeeper.znodes.brokers import (
    BROKER_IDS,
    Endpoint,
    Registration,
    decode_registration,
    encode_registration,
)
from sparkraft.zookeeper.znodes.cluster import CLUSTER_ID, decode_cluster_id, encode_cluster_id
from sparkraft.zookeeper.znodes.json_form import ZnodeError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sparkraft.base.env import Entropy
    from sparkraft.server.config import ListenerAddress
    from sparkraft.server.zookeeper.session import EnsembleSession
    from sparkraft.zookeeper.client import ZooKeeperClient

log = logging.getLogger(__name__)

SEQUENCE = "/brokers/seqid"

TOP_LEVEL_PATHS = (
    "/consumers",
    BROKER_IDS,
    "/brokers/topics",
    "/config/changes",
    "/admin/delete_topics",
    SEQUENCE,
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""Created by each broker at its start unless they exist."""


async def create_top_level_paths(client: "ZooKeeperClient") -> None:
    """Create the znodes that a cluster needs, in Kafka's order."""
    for path in TOP_LEVEL_PATHS:
        await client.create_recursive(path)


async def cluster_id_of(client: "ZooKeeperClient", entropy: "Entropy") -> str:
    """Read the cluster id; the first broker of a cluster chooses it.

    Raises:
        ZnodeError: the znode is malformed.
    """
    while True:
        try:
            data, _ = await client.submit_until_connected(GetData(path=CLUSTER_ID))
            return decode_cluster_id(CLUSTER_ID, data)
        except NoNodeError:
            await client.create_recursive(CLUSTER_ID.rpartition("/")[0])
        chosen = str(random_uuid(entropy))
        try:
            await client.submit_until_connected(
                Create(path=CLUSTER_ID, data=encode_cluster_id(chosen))
            )
        except NodeExistsError:
            continue  # another broker was first, or the reply to our first attempt was lost
        return chosen


async def has_acls(client: "ZooKeeperClient") -> bool:
    """Whether an authorizer has stored an access control list."""
    for root, depth in _ACL_ROOTS.items():
        if await _has_descendants(client, root, depth):
            return True
    return False


_ACL_ROOTS = {"/kafka-acl": 2, "/kafka-acl-extended": 3}
"""Path → levels below it at which lists are: resource types and names; also pattern types."""


async def _has_descendants(client: "ZooKeeperClient", path: str, depth: int) -> bool:
    try:
        names, _ = await client.submit_until_connected(GetChildren(path=path))
    except NoNodeError:
        return False
    if depth == 1:
        return bool(names)
    for name in sorted(names):
        if await _has_descendants(client, f"{path}/{name}", depth - 1):
            return True
    return False


async def generate_broker_id(client: "ZooKeeperClient", reserved_max: int) -> int:
    """Return an id above `reserved_max` that no broker has had: the version of a znode plus it."""
    stat = await client.submit_until_connected(SetData(path=SEQUENCE, data=b""))
    return int(stat.version) + reserved_max


def describe_broker(
    advertised: "Iterable[ListenerAddress]", *, version: int, rack: str | None, now_ms: int
) -> Registration:
    """The registration of a broker that starts now.

    Args:
        advertised: its listeners.
        version: of the znode's data.
        rack: broker.rack.
        now_ms: wall clock.
    """
    return Registration(
        version=version,
        endpoints=tuple(
            Endpoint(each.name, each.security_protocol.name, each.host, each.port)
            for each in advertised
        ),
        timestamp=str(now_ms),
        rack=rack,
    )


async def check_endpoints(
    client: "ZooKeeperClient", broker_id: int, registration: Registration
) -> None:
    """Check that no other broker has registered one of our endpoints.

    A malformed registration of another broker is logged and left out: it does not concern this
    broker. Kafka 3.9 checks at a start and before it changes advertised listeners only, and such a
    registration prevents both (`KafkaServer.createBrokerInfo`).

    Raises:
        StartRefused: one has.
    """
    own = {f"{each.host}:{each.port}" for each in registration.endpoints}
    names, _ = await client.submit_until_connected(GetChildren(path=BROKER_IDS))
    for name in sorted(names):
        if name == str(broker_id):
            continue
        path = f"{BROKER_IDS}/{name}"
        try:
            data, _ = await client.submit_until_connected(GetData(path=path))
        except NoNodeError:
            continue  # it has left
        try:
            registered = decode_registration(path, data).endpoints
        except ZnodeError as error:
            log.warning("The endpoints of a malformed registration are not checked: %s", error)
            continue
        others = {f"{each.host}:{each.port}" for each in registered}
        if own & others:
            common = ", ".join(sorted(own & others))
            raise StartRefused(
                f"Configured end points {common} in advertised listeners are already registered by "
                f"broker {name}"
            )


async def update_registration(
    client: "ZooKeeperClient", broker_id: int, registration: Registration
) -> None:
    """Replace the data of a broker's znode; its broker epoch stays.

    Kafka 3.9: `KafkaZkClient.updateBrokerInfo`. The controller watches the data, and sends changed
    endpoints to all brokers.

    Raises:
        NoNodeError: the broker is not registered.
    """
    path = f"{BROKER_IDS}/{broker_id}"
    await client.submit_until_connected(SetData(path=path, data=encode_registration(registration)))


async def register(session: "EnsembleSession", broker_id: int, registration: Registration) -> int:
    """Create the ephemeral znode of a broker; returns its broker epoch, the znode's czxid.

    A znode of our own session is that of an attempt whose reply was lost. One of the session
    before, which has expired, is deleted (KAFKA-7165).

    Raises:
        StartRefused: another session has registered the id.
    """
    client = session.client
    path = f"{BROKER_IDS}/{broker_id}"
    data = encode_registration(registration)
    while True:
        create = Multi(
            (Create(path=path, ephemeral=True), SetData(path=path, data=data, version=0))
        )
        try:
            results = await client.submit_until_connected(create)
        except MultiError as error:
            if error.code != Code.NODE_EXISTS:
                raise
        else:
            return int(results[1].czxid)
        try:
            _, stat = await client.submit_until_connected(GetData(path=path))
        except NoNodeError:
            continue  # it has expired meanwhile
        if stat.ephemeral_owner == client.session_id:
            return int(stat.czxid)
        if stat.ephemeral_owner != session.previous_session_id:
            raise StartRefused(
                f"{path} exists: another broker with id {broker_id} is registered, or the session "
                f"0x{stat.ephemeral_owner:x} of one that was killed has not expired yet"
            )
        log.info("Deleting %s of this broker's former session", path)
        try:
            await client.submit_until_connected(Delete(path=path, version=stat.version))
        except NoNodeError:
            continue
