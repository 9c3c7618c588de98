"""Which codec the data of a path has. A path is without chroot; `*` matches one name."""

from collections.abc import Callable
from typing import Any

from sparkraft.zookeeper.znodes import brokers, changes, cluster, security, topics
from sparkraft.zookeeper.znodes.json_form import ZnodeError, decode_number

CONTROLLER_EPOCH = "/controller_epoch"

_CODECS: dict[str, Callable[[str, bytes], Any]] = {
    cluster.CLUSTER_ID: cluster.decode_cluster_id,
    cluster.CONTROLLER: cluster.decode_controller,
    CONTROLLER_EPOCH: decode_number,
    cluster.FEATURE: cluster.decode_features,
    cluster.PRODUCER_IDS: cluster.decode_producer_ids,
    cluster.MIGRATION: cluster.decode_migration,
    "/brokers/ids/*": brokers.decode_registration,
    "/brokers/topics/*": topics.decode_topic,
    "/brokers/topics/*/partitions/*/state": topics.decode_state,
    "/config/topics/*": topics.decode_configs,
    "/config/brokers/*": topics.decode_configs,
    "/config/clients/*": topics.decode_configs,
    "/config/users/*": topics.decode_configs,
    "/config/users/*/clients/*": topics.decode_configs,
    "/config/ips/*": topics.decode_configs,
    "/config/changes/*": changes.decode_config_change,
    "/isr_change_notification/*": changes.decode_partitions,
    "/log_dir_event_notification/*": changes.decode_log_dir_event,
    "/admin/preferred_replica_election": changes.decode_partitions,
    "/admin/reassign_partitions": changes.decode_reassignments,
    "/kafka-acl/*/*": security.decode_acl,
    "/kafka-acl-extended/*/*/*": security.decode_acl,
    "/kafka-acl-changes/*": security.decode_acl_change,
    "/kafka-acl-extended-changes/*": security.decode_extended_acl_change,
    "/delegation_token/tokens/*": security.decode_token,
}

_BY_NAMES = {tuple(pattern.split("/")): decode for pattern, decode in _CODECS.items()}

_EMPTY = ("/latest_producer_id_block",)
"""Brokers create it without data; the first allocation fills it."""


def has_codec(path: str) -> bool:
    """Return whether Kafka reads the data of this znode."""
    return _find(path) is not None


def decode(path: str, data: bytes) -> Any:
    """Decode the data of a znode with a codec; None if it has none yet.

    Raises:
        NewerZnodeError: of a version that Kafka 3.9 rejects.
        ZnodeError: malformed.
    """
    found = _find(path)
    if found is None:
        raise ZnodeError(path, "not a znode that Kafka reads")
    return None if not data and path in _EMPTY else found(path, data)


def _find(path: str) -> Callable[[str, bytes], Any] | None:
    names = tuple(path.split("/"))
    for pattern, decode_data in _BY_NAMES.items():
        if len(pattern) == len(names) and all(
            wanted in ("*", name) for wanted, name in zip(pattern, names, strict=True)
        ):
            return decode_data
    return None
