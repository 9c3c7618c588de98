"""Which replica a consumer should read from: one in its rack, where there is one (KIP-392).

Where `replica.selector.class` names that rule (`sparkraft.server.config.RACK_AWARE_SELECTOR`), a
leader answers a consumer that tells its `client.rack` with a follower of that rack instead of with
records: of those in sync that have the offset, the one with the most, and latest to catch up.
"""

from typing import TYPE_CHECKING

from sparkraft.server.broker.cluster_view import live_endpoint

if TYPE_CHECKING:
    from sparkraft.server.broker.partition import HostedPartition
    from sparkraft.server.broker.services import BrokerServices

NO_PREFERENCE = -1


def preferred_read_replica(
    broker: "BrokerServices", partition: "HostedPartition", *, offset: int, rack: str, listener: str
) -> int:
    """The broker a consumer in `rack` should read `offset` of a led partition from.

    NO_PREFERENCE: from the leader, which is in that rack too, or nobody else is.
    """
    leading = partition.leading
    own = broker.image.brokers.get(broker.node_id)
    if leading is None or (own is not None and own.rack == rack):
        return NO_PREFERENCE
    best, best_key = NO_PREFERENCE, (-1, 0, -1)
    for replica, follower in leading.followers.items():
        if replica not in leading.in_sync.isr or not (
            follower.log_start_offset <= offset <= follower.log_end_offset
        ):
            continue
        place = live_endpoint(broker.image, replica, listener)
        key = (follower.log_end_offset, follower.last_caught_up_ms, replica)
        if place is not None and place[0].rack == rack and key > best_key:
            best, best_key = replica, key
    return best
