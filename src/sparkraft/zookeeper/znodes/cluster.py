"""Znodes of the cluster as a whole.

/cluster/id                 version "1", a text
/controller                 version 2; 1 lacks kraftControllerEpoch
/controller_epoch           a decimal number; the znode's version guards all writes
/feature                    version 2 from inter.broker.protocol.version 3.3 on, else 1
/latest_producer_id_block   version 1; numbers as text
/migration                  version 0 (KIP-866)
"""

from typing import NamedTuple

from sparkraft.zookeeper.znodes.json_form import LONG_MAX, Fields, ZnodeError, encode

CLUSTER_ID = "/cluster/id"
CONTROLLER = "/controller"
FEATURE = "/feature"
PRODUCER_IDS = "/latest_producer_id_block"
MIGRATION = "/migration"

_FEATURE_V1, _FEATURE_V2 = 1, 2


def encode_cluster_id(cluster_id: str) -> bytes:
    return encode({"version": "1", "id": cluster_id})


def decode_cluster_id(path: str, data: bytes) -> str:
    return Fields.decode(path, data).text("id")


class Controller(NamedTuple):
    """The present controller; a KRaft controller has an epoch of 0 or more (KIP-866)."""

    broker: int
    timestamp: str
    """Milliseconds since 1970; empty if absent."""
    kraft_epoch: int = -1


def encode_controller(controller: Controller) -> bytes:
    return encode(
        {
            "version": 2,
            "brokerid": controller.broker,
            "timestamp": controller.timestamp,
            "kraftControllerEpoch": controller.kraft_epoch,
        }
    )


def decode_controller(path: str, data: bytes) -> Controller:
    fields = Fields.decode(path, data)
    has_epoch = "kraftControllerEpoch" in fields.values
    return Controller(
        broker=fields.integer("brokerid"),
        timestamp=str(fields.values.get("timestamp", "")),
        kraft_epoch=fields.integer("kraftControllerEpoch") if has_epoch else -1,
    )


class Features(NamedTuple):
    """Finalized features; not in effect unless `enabled` (KIP-584)."""

    version: int
    enabled: bool
    levels: dict[str, int]


def encode_features(features: Features) -> bytes:
    names = ["max_version_level"]
    if features.version == _FEATURE_V1:
        names.append("min_version_level")
    levels = {name: dict.fromkeys(names, level) for name, level in features.levels.items()}
    return encode(
        {"features": levels, "version": features.version, "status": int(features.enabled)}
    )


def decode_features(path: str, data: bytes) -> Features:
    fields = Fields.decode(path, data)
    version = fields.check_version(_FEATURE_V1, _FEATURE_V2)
    status = fields.integer("status")
    if status not in (0, 1):
        raise ZnodeError(path, f"malformed status {status}")
    described = fields.object("features")
    levels = {}
    for name in described.values:
        feature = described.object(name)
        level = feature.integer("max_version_level")
        lowest = feature.integer("min_version_level") if version == _FEATURE_V1 else 1
        if not 1 <= lowest <= level:
            raise ZnodeError(path, f"feature {name!r}: levels {lowest} to {level}")
        levels[name] = level
    return Features(version, bool(status), levels)


class ProducerIdBlock(NamedTuple):
    """The last allocated block of producer ids, both ends included."""

    broker: int
    """The broker that asked for it."""
    first: int
    last: int


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    return encode(
        {
            "version": 1,
            "broker": block.broker,
            "block_start": str(block.first),
            "block_end": str(block.last),
        }
    )


def decode_producer_ids(path: str, data: bytes) -> ProducerIdBlock:
    fields = Fields.decode(path, data)
    first, last = fields.long_text("block_start"), fields.long_text("block_end")
    return ProducerIdBlock(fields.integer("broker"), first, last)


class Migration(NamedTuple):
    """The offset up to which KRaft controllers wrote their log to ZooKeeper (KIP-866)."""

    metadata_offset: int
    """-1 until the initial migration is complete."""
    controller: int
    metadata_epoch: int
    controller_epoch: int


def encode_migration(migration: Migration) -> bytes:
    return encode(
        {
            "version": 0,
            "kraft_metadata_offset": migration.metadata_offset,
            "kraft_controller_id": migration.controller,
            "kraft_metadata_epoch": migration.metadata_epoch,
            "kraft_controller_epoch": migration.controller_epoch,
        }
    )


def decode_migration(path: str, data: bytes) -> Migration:
    fields = Fields.decode(path, data)
    fields.check_version(0, 0)
    return Migration(
        metadata_offset=fields.integer("kraft_metadata_offset", maximum=LONG_MAX),
        controller=fields.integer("kraft_controller_id"),
        metadata_epoch=fields.integer("kraft_metadata_epoch"),
        controller_epoch=fields.integer("kraft_controller_epoch"),
    )
