"""Record and request versions that each finalized metadata.version allows.

Deliberately independent of `metadata.features`, which may have the bug that a check looks for.
Source: MetadataVersion and the record definitions of Kafka 4.3.
"""

from typing import NamedTuple

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.varint import decode_unsigned
from sparkraft.records.record import decode_records

FEATURE_LEVEL = 12
METADATA = b"metadata.version"

_FROM: dict[int, dict[int, int]] = {
    # record's api key: version → metadata.version from which it may be written
    0: {1: 7, 2: 8, 3: 17, 4: 30},  # RegisterBroker
    3: {0: 7, 1: 17, 2: 23},  # Partition
    5: {0: 7, 1: 17, 2: 23},  # PartitionChange
    10: {0: 14},  # DelegationToken
    11: {0: 11},  # UserScramCredential
    17: {0: 7, 1: 7, 2: 17, 3: 30},  # BrokerRegistrationChange
    21: {0: 8},  # ZkMigrationState
    22: {0: 11},  # RemoveUserScramCredential
    23: {0: 13},  # BeginTransaction
    24: {0: 13},  # EndTransaction
    25: {0: 13},  # AbortTransaction
    26: {0: 14},  # RemoveDelegationToken
    27: {0: 15},  # RegisterController
    28: {0: 23},  # ClearElr
}

_ASK_FROM: dict[ApiKey, dict[int, int]] = {
    # requests between brokers and controllers
    ApiKey.CONTROLLER_REGISTRATION: {0: 15, 1: 15},
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: {0: 17},
}

_FETCH_FROM = {13: 7, 14: 9, 15: 10, 16: 19, 17: 21, 18: 27}
_LIST_OFFSETS_FROM = {7: 7, 8: 9, 9: 21, 10: 25, 11: 29}


class Written(NamedTuple):
    """The header of a metadata record; `level` is the metadata.version it finalizes, if any."""

    kind: int
    version: int
    level: int | None


def written(batch: memoryview) -> list[Written]:
    """Return the record headers of a data batch."""
    heads = []
    for record in decode_records(batch):
        value = record.value or b""
        _, at = decode_unsigned(value, 0)
        kind, at = decode_unsigned(value, at)
        version, at = decode_unsigned(value, at)
        heads.append(Written(kind, version, _level(value, at) if kind == FEATURE_LEVEL else None))
    return heads


def _level(value: "bytes | memoryview", at: int) -> int | None:
    """Return the feature level if the feature is metadata.version, else None."""
    length, at = decode_unsigned(value, at)
    name = bytes(value[at : at + length - 1])
    at += length - 1
    return int.from_bytes(value[at : at + 2], "big") if name == METADATA else None


def record_is_allowed(kind: int, version: int, level: int) -> bool:
    """Whether a record of this kind and version may be written while `level` is finalized."""
    known = _FROM.get(kind)
    if known is None:
        return version == 0
    return version in known and level >= known[version]


def request_is_allowed(key: int, version: int, level: int, *, to_broker: bool) -> bool:
    """Whether a node may send this request to another node while `level` is finalized.

    Fetch and ListOffsets are restricted between brokers only, not in the quorum.
    """
    if to_broker and key == ApiKey.FETCH:
        return level >= _FETCH_FROM.get(version, 7)
    if to_broker and key == ApiKey.LIST_OFFSETS:
        return level >= _LIST_OFFSETS_FROM.get(version, 7)
    known = _ASK_FROM.get(ApiKey(key)) if key in ApiKey._value2member_map_ else None
    return known is None or level >= known.get(version, min(known.values()))
