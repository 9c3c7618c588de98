"""The requests and responses that kafka-python has, byte for byte, in both directions."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import kafka.protocol
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

from sparkraft.protocol.codec import decode, encode
from sparkraft.protocol.declare import Message
from tests.protocol.strategies import message_classes, messages, versions_of


def _their_classes() -> dict[str, Any]:
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if ".old" not in module.name and "generate" not in module.name:
            importlib.import_module(module.name)
    return {cls.name: cls for cls in _below(ApiMessage) if cls._class_version is None}


def _below(cls: Any) -> Iterator[Any]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _below(sub)


THEIRS = _their_classes()
CASES = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for cls in message_classes()
    if cls.__name__ in THEIRS
    for version in versions_of(cls)
]
EXAMPLES = 6


def _to_theirs(message: Message, data_class: Any, version: int) -> Any:
    theirs = data_class._struct.fields
    values = {}
    for ours in message.SCHEMA.fields:
        value = getattr(message, ours.name)
        if version not in ours.versions or (ours.tag >= 0 and ours.is_default(value)):
            continue
        name = ours.name
        if name.endswith("authorized_operations") and not isinstance(value, bool):
            name = name if name in theirs else "authorized_operations"
        if name in theirs and theirs[name].type_str == "bitfield":
            value = {bit for bit in range(32) if value >> bit & 1}
        inner = getattr(data_class, theirs[name].type_str, None)
        values[name] = _value(ours, inner, value, version)
    return data_class(version=version, **values)


def _value(ours: Any, inner: Any, value: Any, version: int) -> Any:
    if value is None:
        return None
    if ours.kind == "struct":
        return _to_theirs(value, inner, version)
    if ours.kind == "array" and not isinstance(ours.element, str):
        return [_to_theirs(each, inner, version) for each in value]
    if "uuid" in (ours.kind, ours.element):
        return [UUID(bytes=v) for v in value] if ours.kind == "array" else UUID(bytes=bytes(value))
    return value


@pytest.mark.parametrize(("cls", "version"), CASES)
def test_bytes_equal_those_of_kafka_python_in_both_directions(cls, version):
    their_class = THEIRS[cls.__name__]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data):
        message = data.draw(messages(cls, version))
        if cls.__name__ == "ApiVersionsResponse":
            # kafka-python reads a failed answer as version 0, whatever its version is.
            message.error_code = 0
        theirs = _to_theirs(message, their_class, version)
        written = encode(message, version)
        assert written.hex() == bytes(theirs.encode(version=version)).hex()
        read = their_class.decode(written, version=version)
        read._header = None
        assert bytes(read.encode(version=version)).hex() == written.hex()
        assert decode(cls, version, written) == message

    check()
