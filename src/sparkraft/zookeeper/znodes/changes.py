"""Sequential znodes that notify of a change, and the requests in `/admin`.

/config/changes/config_change_N              version 2; 1 has entity_type and entity_name
/isr_change_notification/isr_change_N        version 1
/log_dir_event_notification/log_dir_event_N  version 1, event 1: a directory failed
/admin/preferred_replica_election            version 1
/admin/reassign_partitions                   version 1
"""

from sparkraft.zookeeper.znodes.json_form import Fields, encode

_CONFIG_V1, _CONFIG_V2 = 1, 2
_DIRECTORY_FAILED = 1

TopicPartition = tuple[str, int]


def encode_config_change(entity_path: str) -> bytes:
    """Encode the path below `/config` of the entity whose configs changed."""
    return encode({"version": 2, "entity_path": entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """Decode the entity's path below `/config`."""
    fields = Fields.decode(path, data)
    if fields.check_version(_CONFIG_V1, _CONFIG_V2) == _CONFIG_V1:
        return f"{fields.text('entity_type')}/{fields.text('entity_name')}"
    return fields.text("entity_path")


def encode_partitions(partitions: list[TopicPartition]) -> bytes:
    """Encode partitions whose ISR changed, or whose preferred replica shall lead."""
    named = [{"topic": topic, "partition": partition} for topic, partition in partitions]
    return encode({"version": 1, "partitions": named})


def decode_partitions(path: str, data: bytes) -> list[TopicPartition]:
    found = Fields.decode(path, data).objects("partitions")
    return [(each.text("topic"), each.integer("partition")) for each in found]


def encode_log_dir_event(broker: int) -> bytes:
    """Encode that a log directory of `broker` failed."""
    return encode({"version": 1, "broker": broker, "event": _DIRECTORY_FAILED})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """Decode the broker whose directory failed."""
    return Fields.decode(path, data).integer("broker")


def encode_reassignments(targets: dict[TopicPartition, tuple[int, ...]]) -> bytes:
    moved = [
        {"topic": topic, "partition": partition, "replicas": replicas}
        for (topic, partition), replicas in targets.items()
    ]
    return encode({"version": 1, "partitions": moved})


def decode_reassignments(path: str, data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """Decode the replicas that each partition shall have."""
    found = Fields.decode(path, data).objects("partitions")
    return {
        (each.text("topic"), each.integer("partition")): each.integers("replicas") for each in found
    }
