"""Tables in the documents that a command computes are what it prints."""

from benchmarks.cores import CORES, FAN_OUT, NEXT_STEP, Cost, published, rows_of, table
from tests.system.test_documents import ROOT


def test_the_table_of_cores_is_that_of_the_command():
    page = (ROOT / "docs" / "PERFORMANCE.md").read_text()
    assert "\n".join([*table(published()), "", NEXT_STEP]) in page


def test_costs_are_read_from_the_page_and_the_decisions():
    loads = [cost.load for cost in published()]
    assert loads[:2] == ["produce 100 B", "consume 100 B"]
    assert loads[-5:] == [FAN_OUT, "zstd", "gzip", "lz4", "full validation, uncompressed"]


def test_a_cost_of_several_runs_is_their_mean(tmp_path):
    decisions = tmp_path / "decisions"
    decisions.mkdir()
    (tmp_path / "PERFORMANCE.md").write_text(
        "|   server CPU, x | 0.80 ms/MB | 5.20 ms/MB | 0.1 | |"
    )
    (decisions / "0019-fan-out.md").write_text("| CPU ms/MB | 1.2, 1.3 | 1.5, 1.7 | 0.8, 0.8 |")
    (decisions / "0020-records-that-need-work.md").write_text("| y: CPU ms/MB | 2 | 3 | 0.7 |")
    assert published(tmp_path) == [Cost("x", 0.8, 5.2), Cost(FAN_OUT, 1.25, 1.6), Cost("y", 2, 3)]


def test_a_cell_is_its_formula():
    ours, nodes, workers, kafka, ratio, equal = rows_of(Cost("x", 0.5, 2.0))
    assert ours[2:] == ["2,000 MB/s (computed: 1,000 / 0.5)"] * len(CORES)
    assert nodes[2] == "6,000 MB/s (computed: 3 x 1,000 / 0.5)"
    assert nodes[3] == nodes[4] == "10,000 MB/s (computed: 5 x 1,000 / 0.5)"
    assert workers[1:] == ["one node with fetch workers (not built)", *ours[2:]]
    assert kafka[2] == "2,000 MB/s (computed: 4 x 1,000 / 2)"
    assert ratio[2] == "1.00 (computed: 2 / (4 x 0.5))"
    assert equal[4] == "4.0 (computed: 16 x 0.5 / 2)"


def test_fetch_workers_read_and_leave_a_core_to_the_loop():
    workers = list(rows_of(Cost("consume 1 KB", 0.5, 2.0)))[2]
    assert workers[2:4] == [
        "6,000 MB/s (computed: 3 x 1,000 / 0.5)",
        "14,000 MB/s (computed: 7 x 1,000 / 0.5)",
    ]


def test_threads_compress_beside_the_loop():
    ours, nodes, *_, ratio, equal = rows_of(Cost("lz4", 5.0, 4.0))
    assert ours[2] == nodes[2] == "800 MB/s (computed: 4 x 1,000 / 5)"
    assert ours[4] == "1,000 MB/s (computed: 5 x 1,000 / 5)"
    assert nodes[4] == "3,200 MB/s (computed: 16 x 1,000 / 5)"
    assert ratio[3] == "0.50 (computed: 5 x 4 / (8 x 5))"
    assert equal[3] == "2.0 (computed: 8 x 5 / (5 x 4))"
