"""Arrow arrays that are put together from parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sparkraft.pipeline.file_fields import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.pipeline.value_cursor import Ints


def nulls(count: int, kind: Any) -> Any:
    """An array of nulls."""
    return pa.nulls(count, kind)


def taken(values: Any, places: Any) -> Any:
    """The values at some places."""
    return values.take(pa.array(places))


def scattered(count: int, parts: Sequence[tuple[Ints, Any]], kind: pa.DataType) -> Any:
    """An array of `count` values from arrays and their positions in it; the rest is null.

    An array for all positions is that array; its positions must ascend then.
    """
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    if not parts:
        return nulls(count, kind)
    places, first = np.full(count, -1, np.int64), 0
    for positions, _ in parts:
        places[positions] = np.arange(first, first + len(positions))
        first += len(positions)
    whole = pa.concat_arrays([values for _, values in parts])
    missing = places < 0
    return whole.take(pa.array(places, mask=missing if missing.any() else None))


def list_offsets(owners: Ints, count: int) -> Any:
    """The offsets of `count` lists whose items belong to `owners`, in ascending order."""
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owners, minlength=count), out=offsets[1:])
    return pa.array(offsets)


def as_type(values: Any, kind: pa.DataType, place: str, form: str) -> Any:
    """The values, cast without loss if they have another type.

    Raises:
        SpecError: they cannot be cast; the message names `place` and the format `form`.
    """
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise SpecError(
            f"{place} is {values.type}, which is not {form}'s {kind}: {error}"
        ) from None
