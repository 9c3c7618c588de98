"""Print the table that orders.toml writes."""

import sys
from pathlib import Path

import pyarrow
from deltalake import DeltaTable, QueryBuilder

if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tables" / "orders"
    tables = QueryBuilder().register("orders", DeltaTable(str(path)))
    rows = tables.execute("SELECT country, orders, amount FROM orders ORDER BY country")
    for row in pyarrow.table(rows.read_all()).to_pylist():
        print(f"{row['country']}: {row['orders']} orders, {row['amount']:.2f}")
