"""Which rows of a table have one of some keys, by Arrow's hash tables.

A key is a row of one or several columns. Nulls are equal, as in Delta's merge of this package.

Invariants:
    * Work grows with the rows that are looked up; rows without any of the keys never reach Python.

Not here: files (`table_merge`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sparkraft.pipeline.table_fit import false_if_null

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import pyarrow as pa

    Codes = np.ndarray[Any, np.dtype[np.int64]]

_MISSING: Final = -1


class KeyIndex:
    """Positions of keys.

    Args:
        keys: a column for each part of a key, and no key twice.
    """

    def __init__(self, keys: pa.Table) -> None:
        import numpy as np
        import pyarrow.compute as pc

        self._names = keys.column_names
        self._values = [pc.unique(column) for column in keys.columns]
        self._pairs: list[Codes] = []
        codes = self._part(keys, 0)
        for index in range(1, keys.num_columns):
            paired = self._paired(codes, self._part(keys, index), index)
            self._pairs.append(np.unique(paired))
            codes = np.searchsorted(self._pairs[-1], paired)
        self._order = np.argsort(codes, kind="stable")
        self._sorted = codes[self._order]

    def positions(self, rows: pa.Table) -> Codes:
        """For each row, the position of its key; -1 if it has none of the keys.

        Args:
            rows: with the columns of the keys, in the same types.
        """
        import numpy as np

        rows = rows.select(self._names)
        codes = self._part(rows, 0)
        for index, pairs in enumerate(self._pairs, start=1):
            codes = _places(pairs, self._paired(codes, self._part(rows, index), index))
        places = _places(self._sorted, codes)
        if not len(self._order):
            return places
        return np.where(places == _MISSING, _MISSING, self._order[places])

    def _part(self, rows: pa.Table, index: int) -> Codes:
        """Positions of a column's values among those of the keys."""
        import numpy as np
        import pyarrow.compute as pc

        found: Any = pc.index_in(rows.column(index), value_set=self._values[index])
        codes: Codes = pc.fill_null(found, _MISSING).to_numpy().astype(np.int64)
        return codes

    def _paired(self, codes: Codes, part: Codes, index: int) -> Codes:
        """One number for two; both are below 2**31, the limit of rows in memory."""
        import numpy as np

        absent = (codes == _MISSING) | (part == _MISSING)
        return np.where(absent, _MISSING, codes * len(self._values[index]) + part)


def _places(known: Codes, codes: Codes) -> Codes:
    """Positions among sorted codes; -1 for others."""
    import numpy as np

    if not len(known):
        return np.full(len(codes), _MISSING, np.int64)
    places = np.minimum(np.searchsorted(known, codes), len(known) - 1)
    return np.where(known[places] == codes, places, _MISSING)


def last_of_runs(rows: pa.Table, names: Sequence[str]) -> tuple[pa.Table, bool]:
    """The last row of each run of equal values; and whether any run has several rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.num_rows < 2:  # noqa: PLR2004 (a pair)
        return rows, False
    same: Any = np.ones(rows.num_rows - 1, np.bool_)
    for name in names:
        column = rows.column(name).combine_chunks()
        left, right = column.slice(0, rows.num_rows - 1), column.slice(1)
        equal = false_if_null(pc.equal(left, right))
        nulls = pc.and_(left.is_null(), right.is_null())
        same &= pc.or_(equal, nulls).to_numpy(zero_copy_only=False)
    if not same.any():
        return rows, False
    return rows.filter(pa.array(np.append(~same, [True]))), True
