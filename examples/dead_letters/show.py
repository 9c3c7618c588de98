"""Print the tables that readings.toml writes."""

from pathlib import Path

from deltalake import DeltaTable

if __name__ == "__main__":
    tables = Path(__file__).parent / "tables"
    rows = DeltaTable(str(tables / "readings")).to_pyarrow_table().to_pylist()
    for row in sorted(rows, key=lambda row: (row["sensor"], row["offset"])):
        print(f"{row['sensor']}: {row['celsius']}")
    dead = DeltaTable(str(tables / "dead")).to_pyarrow_table().to_pylist()
    for row in sorted(dead, key=lambda row: row["offset"]):
        print(f"dead {row['topic']}-{row['partition']}@{row['offset']}: {row['error']}")
