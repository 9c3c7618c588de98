"""What a pipeline reports of a batch, and what `--check` finds, without Spark."""

from sparkraft.pipeline import run as running


def report(**source):
    return running._progress_of(
        {
            "batchId": 7,
            "numInputRows": 10,
            "durationMs": {"triggerExecution": 1000},
            "sources": [{"endOffset": {"t": {"0": 10, "1": 5}}, **source}],
            "observedMetrics": {"sparkraft.json": {"damaged": 2}},
        }
    )


def test_lag_is_unknown_rather_than_zero_if_the_end_of_the_topics_is():
    assert report(latestOffset={"t": {"0": 30, "1": 5}}).lag == 20
    unknown = report(latestOffset=None)
    assert unknown.lag is None
    assert "lag   unknown" in str(unknown)


def test_the_line_of_a_batch_counts_damaged_records():
    assert str(report(latestOffset={"t": {"0": 10, "1": 5}})).endswith(
        "lag         0    1.0 s  2 damaged"
    )
