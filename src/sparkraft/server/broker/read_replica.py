"""Which replica a consumer should read from: one in its own rack, if there is one (KIP-392).

With `replica.selector.class` set to the rack-aware selector (`server.config.RACK_AWARE_SELECTOR`),
a leader responds to a consumer that sends its `client.rack` with a follower in that rack instead of
records: of the in-sync followers that have the offset, the one with the highest log end offset,
then the one that caught up last.
"""

from typing import TYPE_CHECKING

from sparkraft.server.broker.cluster_view import live_endpoint

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage
    from sparkraft.server.broker.partition import HostedPartition

NO_PREFERENCE = -1


def preferred_read_replica(
    image: "ClusterImage", partition: "HostedPartition", *, offset: int, rack: str, listener: str
) -> int:
    """The broker a consumer in `rack` should read `offset` of a led partition from.

    NO_PREFERENCE: the leader, which is in that rack too, or no follower is.
    """
    leading = partition.leading
    own = image.brokers.get(partition.leader_id)
    if leading is None or (own is not None and own.rack == rack):
        return NO_PREFERENCE
    best, best_key = NO_PREFERENCE, (-1, 0, -1)
    for replica, follower in leading.followers.items():
        if replica not in leading.in_sync.isr or not (
            follower.log_start_offset <= offset <= follower.log_end_offset
        ):
            continue
        found = live_endpoint(image, replica, listener)
        key = (follower.log_end_offset, follower.last_caught_up_ms, replica)
        if found is not None and found[0].rack == rack and key > best_key:
            best, best_key = replica, key
    return best
