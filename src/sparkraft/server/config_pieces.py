"""Config entries as the bytes of DescribeConfigs responses: encoded once for equal resources.

Two topics that set the same keys have the same entries. An entry with its documentation is up to a
kilobyte, and a broker has 300, so a response refers to one encoding as often as it is needed.

Invariant: pieces do not depend on the client. The handler authorizes each resource first.
"""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from sparkraft.protocol.codec import encode_elements
from sparkraft.protocol.messages.k32_describe_configs import (
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

if TYPE_CHECKING:
    from sparkraft.metadata.image import ClusterImage

PIECES_MAX = 64
"""Kept between requests; a broker's is 33 KB with synonyms and documentation."""

_FLEXIBLE = 4


class ConfigPieces:
    """The encoded entries that a node's responses used last."""

    def __init__(self) -> None:
        self._configs: object = None
        self._pieces: OrderedDict[Hashable, bytes] = OrderedDict()

    def get(self, image: "ClusterImage", key: Hashable) -> bytes | None:
        """The entries under `key`, if they are of this image's configs."""
        if self._configs is not image.configs:
            self._configs = image.configs
            self._pieces.clear()
        found = self._pieces.get(key)
        if found is not None:
            self._pieces.move_to_end(key)
        return found

    def put(self, image: "ClusterImage", key: Hashable, piece: bytes) -> None:
        """Keep entries of this image's configs."""
        if self._configs is image.configs:
            self._pieces[key] = piece
            if len(self._pieces) > PIECES_MAX:
                self._pieces.popitem(last=False)


def result_head(version: int, resource_type: int, name: str) -> bytes:
    """The bytes of a result without an error, up to its entries' count."""
    return _encoded(version, resource_type, name, [])[: -_tail_size(version)]


def result_entries(version: int, configs: list[Any]) -> bytes:
    """The rest of it: the entries with their count."""
    head_size = len(_encoded(version, 0, "", [])) - _tail_size(version)
    return _encoded(version, 0, "", configs)[head_size:]


def _tail_size(version: int) -> int:
    """Bytes of an empty array of entries, and of no tagged fields."""
    return 2 if version >= _FLEXIBLE else 4


def _encoded(version: int, resource_type: int, name: str, configs: list[Any]) -> bytes:
    result = DescribeConfigsResult(
        error_message=None, resource_type=resource_type, resource_name=name, configs=configs
    )
    return encode_elements(DescribeConfigsResponse, version, (result,))
