"""Administration of the metadata quorum beyond describing it: its voters, its leader."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import check
from sparkraft.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sparkraft.base.ids import Uuid
    from sparkraft.client.cluster import Cluster
    from sparkraft.client.connection import Connection
    from sparkraft.client.values import QuorumInfo


QUORUM_MS_MAX = 3_000
"""How long the quorum is asked who it is; without a leader it can't say, and time is short."""

WITNESS_MS_MAX = 5_000
"""How long one node is waited for."""


async def add_voter(
    cluster: Cluster,
    *,
    voter_id: int,
    directory_id: Uuid,
    endpoints: Iterable[tuple[str, str, int]],
) -> None:
    """AddRaftVoter (KIP-853); `endpoints` are (listener name, host, port).

    Raises:
        KafkaError: DUPLICATE_VOTER, UNSUPPORTED_VERSION (static voters), REQUEST_TIMED_OUT (the
            controller has not caught up, or another change is under way).
    """
    from sparkraft.protocol.messages import k80_add_raft_voter as k80

    request = k80.AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=cluster.request_timeout_ms,
        voter_id=voter_id,
        voter_directory_id=directory_id,
        listeners=[k80.Listener(name=name, host=host, port=port) for name, host, port in endpoints],
    )
    await _change(cluster, request)


async def remove_voter(cluster: Cluster, *, voter_id: int, directory_id: Uuid) -> None:
    """RemoveRaftVoter (KIP-853).

    Raises:
        KafkaError: VOTER_NOT_FOUND, also for the last one; UNSUPPORTED_VERSION (static voters).
    """
    from sparkraft.protocol.messages import k81_remove_raft_voter as k81

    request = k81.RemoveRaftVoterRequest(
        cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id
    )
    await _change(cluster, request)


async def _change(cluster: Cluster, request: Any) -> None:
    async def attempt() -> Any:
        answer = await cluster.ask_controller(request)
        # That one is not tried again: the change may have been made after its time was up.
        if answer.error_code == ErrorCode.NOT_CONTROLLER:
            cluster.forget_controller(ErrorCode.NOT_CONTROLLER)
        if answer.error_code != ErrorCode.REQUEST_TIMED_OUT:
            check(answer.error_code, answer.error_message)
        return answer

    answer = await cluster.retrying(attempt)
    check(answer.error_code, answer.error_message)


async def resign(cluster: Cluster) -> tuple[int, int]:
    """Make the active controller, a sparkraft node, hand over: its id and the epoch it gave up.

    Raises:
        KafkaError: UNSUPPORTED_VERSION if the controller is Apache Kafka's, INVALID_REQUEST if
            there is no other voter.
    """
    from sparkraft.protocol.messages.k10001_resign_controller import ResignControllerRequest

    quorum = await Admin(cluster).describe_quorum()
    host, port = await _address_of(cluster, quorum)
    connection = await cluster.connect(host, port)
    request = ResignControllerRequest(epoch=quorum.leader_epoch)
    try:
        answer = await connection.send(request, timeout_ms=cluster.request_timeout_ms)
    except KafkaError as error:
        if error.code is not ErrorCode.NETWORK_EXCEPTION:
            raise
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"controller {quorum.leader_id} closed the connection: only sparkraft's know the "
            "request to resign",
        ) from error
    check(answer.error_code, answer.error_message)
    return quorum.leader_id, answer.epoch


async def _address_of(cluster: Cluster, quorum: QuorumInfo) -> tuple[str, int]:
    """Return the leader's address for controllers: only their listeners serve the request."""
    for _, host, port in quorum.endpoints.get(quorum.leader_id, ()):
        return host, port
    if cluster.to_controllers:
        await cluster.refresh(())
        node = cluster.view.nodes.get(quorum.leader_id)
        if node is not None:
            return node.host, node.port
    raise KafkaError(
        ErrorCode.NETWORK_EXCEPTION, f"the address of controller {quorum.leader_id} is unknown"
    )


async def has_quorum(cluster: Cluster) -> bool:
    """Whether the cluster has a metadata quorum; brokers in ZooKeeper mode do not describe one.

    Raises:
        KafkaError: no node responds.
    """
    return describes_quorum(await cluster.any_connection())


def describes_quorum(connection: Connection) -> bool:
    """`has_quorum` of the node at the other end."""
    versions = connection.versions
    return not versions or ApiKey.DESCRIBE_QUORUM in versions


NO_JOURNAL = "it closed the connection: only sparkraft's nodes keep such a journal"
"""The error of a node that does not serve DescribeElections, as Apache Kafka's."""

Witness = Any
"""Return the elections that one node saw, as a `DescribeElectionsResponse`."""


async def witnesses(
    cluster: Cluster, *, since_ms: int = -1, skipped: Mapping[str, str] | None = None
) -> tuple[list[Witness], dict[str, str]]:
    """Return the elections each reachable node saw, and the errors of the other nodes.

    Works without a leader, too: then only brokers and the bootstrap servers can be found.

    Args:
        cluster: any nodes of it.
        since_ms: leave out earlier entries; wall-clock ms of each node.
        skipped: nodes that get no request, and the errors to return for them.
    """
    skip = skipped or {}
    addresses = await _brokers_and_bootstrap(cluster)
    seen: dict[int, Witness] = {}
    silent = {name: why for name, why in skip.items() if name in addresses}
    asked = {name: address for name, address in addresses.items() if name not in skip}
    await _ask_all(cluster, asked, since_ms, seen, silent)
    # After the others on their connections: without a leader, this request may time out.
    controllers = await _voters(cluster) if any(map(_may_know, seen.values())) else {}
    more = {
        name: address
        for name, address in controllers.items()
        if name not in addresses and address not in addresses.values() and name not in skip
    }
    await _ask_all(cluster, more, since_ms, seen, silent)
    return [seen[node] for node in sorted(seen)], silent


def _may_know(witness: Witness) -> bool:
    return witness.state in {"Leader", "Follower"} and witness.leader_id >= 0


async def addresses(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Name → address of every node that can be found: brokers, bootstrap servers, voters."""
    found = await _brokers_and_bootstrap(cluster)
    for name, address in (await _voters(cluster)).items():
        if name not in found and address not in found.values():
            found[name] = address
    return found


async def _brokers_and_bootstrap(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Name → address; each node once."""
    with contextlib.suppress(KafkaError):
        await cluster.refresh(())
    found = {f"node {n.id}": (n.host, n.port) for n in cluster.view.nodes.values()}
    for host, port in cluster.bootstrap:
        if (host, port) not in found.values():
            found[f"{host}:{port}"] = (host, port)
    return found


async def _voters(cluster: Cluster) -> dict[str, tuple[str, int]]:
    try:
        async with asyncio.timeout(QUORUM_MS_MAX / 1000):
            quorum = await Admin(cluster).describe_quorum()
    except (KafkaError, TimeoutError):
        return {}
    return {f"node {n}": e[0][1:] for n, e in quorum.endpoints.items() if e}


async def _ask_all(
    cluster: Cluster,
    addresses: dict[str, tuple[str, int]],
    since_ms: int,
    seen: dict[int, Witness],
    silent: dict[str, str],
) -> None:
    asked = (_witness(cluster, host, port, since_ms) for host, port in addresses.values())
    for name, answer in zip(addresses, await asyncio.gather(*asked), strict=True):
        if isinstance(answer, str):
            silent[name] = answer
        else:
            seen.setdefault(answer.node_id, answer)


async def _witness(cluster: Cluster, host: str, port: int, since_ms: int) -> Witness | str:
    from sparkraft.protocol.messages.k10000_describe_elections import DescribeElectionsRequest

    try:
        connection = await cluster.connect(host, port)
    except KafkaError as error:
        return error.detail or error.code.name
    try:
        return await connection.send(
            DescribeElectionsRequest(since_ms=since_ms), timeout_ms=WITNESS_MS_MAX
        )
    except KafkaError as error:
        if error.code is ErrorCode.NETWORK_EXCEPTION:
            return NO_JOURNAL
        return error.detail or error.code.name
