"""From a declaration and a version to compiled functions, at first use, kept for good.

`decode_source` and `encode_source` write the code; `hot` has the few that are written by hand.
Compiling costs about a millisecond a message, so that nothing is compiled that nobody uses.
"""

from sparkraft.protocol.declare import Message
from sparkraft.protocol.decode_source import Decoder, write_decoder
from sparkraft.protocol.encode_source import Encoder, write_encoder

_DECODERS: dict[tuple[type[Message], int], Decoder] = {}
_ENCODERS: dict[tuple[type[Message], int], Encoder] = {}


def decoder(cls: type[Message], version: int) -> Decoder:
    """The decoder of `cls` in `version`, which must exist."""
    found = _DECODERS.get((cls, version))
    if found is None:
        found = _DECODERS[cls, version] = write_decoder(cls, version)
    return found


def encoder(cls: type[Message], version: int) -> Encoder:
    """The encoder of `cls` in `version`, which must exist."""
    found = _ENCODERS.get((cls, version))
    if found is None:
        found = _ENCODERS[cls, version] = write_encoder(cls, version)
    return found
