"""From a declaration and a version to compiled functions, at first use, kept for good.

`decode_source` and `encode_source` generate the code; `produce_fetch_codec` has the hand-written
functions.
Compiling costs about a millisecond per message, so only messages in use are compiled.
"""

from typing import Final

from sparkraft.base.errors import DecodeError
from sparkraft.protocol.declare import Message
from sparkraft.protocol.decode_source import (
    Decoder,
    SlicedDecoder,
    write_decoder,
    write_sliced_decoder,
)
from sparkraft.protocol.encode_source import Encoder, write_encoder
from sparkraft.protocol.errors import UnsupportedVersionError

ELEMENT_BUDGET: Final = 1_000_000
"""Elements allowed in one message: about half a second of decoding, and Kafka 4.4's limit."""

RESPONSE_ELEMENT_BUDGET: Final = 16_000_000
"""Elements in one response that we asked for: Metadata of a million partitions."""

_TUNED_KEYS: Final = (0, 1)
"""Produce and Fetch."""

_DECODERS: dict[tuple[type[Message], int], tuple[Decoder, int]] = {}
_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}
_SLICED_DECODERS: dict[tuple[type[Message], int], SlicedDecoder] = {}
_ELEMENT_ENCODERS: dict[tuple[type[Message], type[Message], int], Encoder] = {}


def decoder(cls: type[Message], version: int) -> tuple[Decoder, int]:
    """The decoder of `cls` in `version` and its usual element budget; `DecodeError` without one."""
    try:
        return _DECODERS[cls, version]
    except KeyError:
        return _make_decoder(cls, version)


def encoder(cls: type[Message], version: int) -> Encoder:
    """Return the encoder of `cls` in `version`, or raise `UnsupportedVersionError`."""
    try:
        return _ENCODERS[cls, version]
    except KeyError:
        return _make_encoder(cls, version)


def sliced_decoder(cls: type[Message], version: int) -> SlicedDecoder:
    """The decoder of `cls` in `version` that can be interrupted; for large messages."""
    found = _SLICED_DECODERS.get((cls, version))
    if found is None:
        found = _SLICED_DECODERS[cls, version] = write_sliced_decoder(cls, version)
    return found


def element_encoder(cls: type[Message], element: type[Message], version: int) -> Encoder:
    """The encoder of `element`, a struct of an array somewhere in the message `cls`."""
    key = cls, element, version
    found = _ELEMENT_ENCODERS.get(key)
    if found is None:
        flexible = version in cls.SCHEMA.flexible
        found = _ELEMENT_ENCODERS[key] = write_encoder(element, version, flexible=flexible)
    return found


def _make_decoder(cls: type[Message], version: int) -> tuple[Decoder, int]:
    name = cls.SCHEMA.name
    if version not in cls.SCHEMA.versions:
        raise DecodeError(f"{name} has no version {version}", at=0)
    budget = RESPONSE_ELEMENT_BUDGET if name.endswith("Response") else ELEMENT_BUDGET
    written = write_decoder(cls, version)
    if cls.SCHEMA.key in _TUNED_KEYS:
        # Loaded with the first Produce or Fetch.
        from sparkraft.protocol.produce_fetch_codec import tuned_decoder

        written = tuned_decoder(cls, version, written)
    made = _DECODERS[cls, version] = written, budget
    return made


def _make_encoder(cls: type[Message], version: int) -> Encoder:
    if version not in cls.SCHEMA.versions:
        raise UnsupportedVersionError(f"{cls.SCHEMA.name} has no version {version}")
    written = write_encoder(cls, version)
    if cls.SCHEMA.key in _TUNED_KEYS:
        # Loaded with the first Produce or Fetch.
        from sparkraft.protocol.produce_fetch_codec import tuned_encoder

        written = tuned_encoder(cls, version, written)
    _ENCODERS[cls, version] = written
    return written
