"""Every request, response and loose schema, in every version, byte for byte as kio has it."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparkraft.protocol.api_keys import API_INFO
from sparkraft.protocol.codec import decode, encode, encode_parts
from sparkraft.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from sparkraft.protocol.messages.headers import RequestHeader, ResponseHeader
from sparkraft.protocol.messages.misc import DefaultPrincipalData
from sparkraft.protocol.messages.raft_records import (
    ControlRecordTypeSchema,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from tests.protocol.kio_bridge import kio_bytes, kio_class, kio_entity, limits, to_kio
from tests.protocol.strategies import message_classes, messages, versions_of

LOOSE = [
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ControlRecordTypeSchema,
    DefaultPrincipalData,
    EndTxnMarker,
    KRaftVersionRecord,
    LeaderChangeMessage,
    RequestHeader,
    ResponseHeader,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
]
_KAFKA_4_MIN = {
    cls: info.kafka_4_min_version
    for info in API_INFO.values()
    for cls in (info.request_class(), info.response_class())
} | {RequestHeader: 1}
"""kio has no older versions; `test_zookeeper_messages` compares those with Kafka 3.9's schemas."""

CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in [*message_classes(kafkas_only=True), *LOOSE]
    for version in versions_of(cls)
    if version >= _KAFKA_4_MIN.get(cls, 0)
]
EXAMPLES = 12
"""Per class and version; there are about 630 of them."""


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_bytes_equal_those_of_kio_in_both_directions(cls, version):
    entity_class = kio_class(cls, version)
    narrowed = limits(cls, entity_class, version)

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data):
        message = data.draw(messages(cls, version, narrowed))
        entity = to_kio(message, entity_class, version)
        written = encode(message, version)
        assert written.hex() == kio_bytes(entity).hex()
        assert b"".join(encode_parts(message, version)) == written
        assert kio_entity(entity_class, written) == entity
        assert decode(cls, version, written) == message
        assert decode(cls, version, memoryview(written)) == message

    check()
