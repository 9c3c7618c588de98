"""MessagePack values, by the bytes of the specification."""

import json
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkraft.schemas import cursor
from sparkraft.schemas.errors import UndecodableError
from sparkraft.schemas.messagepack import decode_messagepack


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("00", 0),
        ("7f", 127),
        ("e0", -32),
        ("ff", -1),
        ("c0", None),
        ("c2", False),
        ("c3", True),
        ("cc ff", 255),
        ("cd ff ff", 65_535),
        ("ce ff ff ff ff", 2**32 - 1),
        ("cf ff ff ff ff ff ff ff ff", 2**64 - 1),
        ("d0 80", -128),
        ("d1 80 00", -(2**15)),
        ("d2 80 00 00 00", -(2**31)),
        ("d3 80 00 00 00 00 00 00 00", -(2**63)),
        ("ca 3f 80 00 00", 1.0),
        ("cb 40 09 21 fb 54 44 2d 18", 3.141592653589793),
        ("cb 7f f8 00 00 00 00 00 00", "NaN"),
        ("ca ff 80 00 00", "-Infinity"),
        ("a3 61 62 63", "abc"),
        ("d9 02 c3 a9", "é"),
        ("da 00 01 61", "a"),
        ("db 00 00 00 01 61", "a"),
        ("c4 02 00 ff", {"base64": "AP8="}),
        ("c5 00 01 00", {"base64": "AA=="}),
        ("c6 00 00 00 00", {"base64": ""}),
        ("90", []),
        ("92 01 a1 62", [1, "b"]),
        ("dc 00 01 c0", [None]),
        ("dd 00 00 00 01 c0", [None]),
        ("80", {}),
        ("82 a1 61 01 02 c3", {"a": 1, "2": True}),
        ("de 00 01 a1 61 01", {"a": 1}),
        ("df 00 00 00 01 a1 61 01", {"a": 1}),
        ("d4 05 aa", {"extension": 5, "base64": "qg=="}),
        ("c7 03 05 01 02 03", {"extension": 5, "base64": "AQID"}),
        ("d6 ff 65 53 f1 00", "2023-11-14T22:13:20Z"),
        ("d7 ff 77 35 94 00 65 53 f1 00", "2023-11-14T22:13:20.5Z"),
        ("c7 0c ff 00 00 00 01 ff ff ff ff ff ff ff ff", "1969-12-31T23:59:59.000000001Z"),
    ],
)
def test_every_type_has_a_value(data: str, value: object):
    raw = bytes.fromhex(data)
    found = decode_messagepack(raw)
    assert found == value
    assert type(found) is type(value) or isinstance(found, dict)
    for end in range(len(raw)):
        with pytest.raises(UndecodableError):
            decode_messagepack(raw[:end])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("c1", "byte 0xc1 begins no value"),
        ("01 01", "1 bytes follow the value"),
        ("a1 ff", "a text is not UTF-8"),
        ("dd ff ff ff ff", "an array of 4294967295 values is cut off"),
        ("df ff ff ff ff", "a map of 4294967295 entries is cut off"),
        ("82 a1 61 01 a1 61 02", "a map has two equal keys"),
        ("82 a1 31 01 01 02", "a map has two equal keys"),
        ("91" * 100 + "c0", "more than 64 nested values"),
    ],
)
def test_what_is_not_a_value_has_a_reason(data: str, reason: str):
    with pytest.raises(UndecodableError, match=reason):
        decode_messagepack(bytes.fromhex(data))


def test_values_are_bounded():
    most = cursor.VALUES_MAX - 1
    assert len(decode_messagepack(b"\xdd" + struct.pack(">I", most) + bytes(most))) == most
    with pytest.raises(UndecodableError, match="more than 100,000 values"):
        decode_messagepack(b"\xdd" + struct.pack(">I", most + 1) + bytes(most + 1))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_have_a_reason(raw: bytes):
    with suppress(UndecodableError):
        json.dumps(decode_messagepack(raw), allow_nan=False)
