"""CRC-32C (Castagnoli), as batches and producer snapshots carry it."""

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Any, Protocol


class _Crc32c(Protocol):
    def __call__(self, data: Any, value: int = 0, /) -> int: ...


def _load() -> _Crc32c:
    """The package's C function without its `__init__`, else numpy's.

    `__init__` asks importlib.metadata for a version: 40 ms of a start that has 300. Only Spark's
    workers may lack the package.
    """
    package = find_spec("crc32c")
    if package is None:
        from sparkraft.records.crc_numpy import crc32c as slow

        return slow
    places = package.submodule_search_locations
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places else None
    if spec is None or spec.loader is None or "crc32c" in sys.modules:
        from crc32c import crc32c as plain

        return plain
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.crc32c  # type: ignore[no-any-return]


crc32c: _Crc32c = _load()
"""CRC-32C of any buffer; the second argument continues an earlier result."""
