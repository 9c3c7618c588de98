"""Tables in the documents that a command computes are what it prints."""

from benchmarks.cores import CORES, Cost, published, rows_of, table
from tests.system.test_documents import ROOT


def test_the_table_of_cores_is_that_of_the_command():
    page = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    costs = published()
    assert [cost.load for cost in costs][:2] == ["produce 100 B", "consume 100 B"]
    assert "\n".join(table(costs)) in page


def test_a_cell_is_its_formula():
    ours, kafka, ratio, nodes = rows_of(Cost("x", 0.5, 2.0))
    assert ours[2:] == ["2,000 MB/s (computed: 1,000 / 0.5)"] * len(CORES)
    assert kafka[2] == "2,000 MB/s (computed: 4 x 1,000 / 2.0)"
    assert ratio[2] == "1.00 (computed: 2.0 / (4 x 0.5))"
    assert nodes[4] == "4.0 (computed: 16 x 0.5 / 2.0)"
