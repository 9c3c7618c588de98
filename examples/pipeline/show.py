"""Print the table that orders.toml writes."""

import sys
from pathlib import Path

from deltalake import DeltaTable

if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "tables" / "orders"
    rows = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    for row in sorted(rows, key=lambda row: row["country"]):
        print(f"{row['country']}: {row['orders']} orders, {row['amount']:.2f}")
