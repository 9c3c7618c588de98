"""Print the tables that readings.toml writes."""

from pathlib import Path

import pyarrow
from deltalake import DeltaTable, QueryBuilder

FOLDER = Path(__file__).parent / "tables"


def rows_of(table: str, order: str) -> list[dict[str, object]]:
    tables = QueryBuilder().register(table, DeltaTable(str(FOLDER / table)))
    rows = tables.execute(f"SELECT * FROM {table} ORDER BY {order}").read_all()
    return pyarrow.table(rows).to_pylist()


if __name__ == "__main__":
    for row in rows_of("readings", 'sensor, "offset"'):
        print(f"{row['sensor']}: {row['celsius']}")
    for row in rows_of("dead", '"offset"'):
        print(f"dead {row['topic']}-{row['partition']}@{row['offset']}: {row['error']}")
