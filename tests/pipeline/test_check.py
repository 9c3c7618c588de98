"""Sentences about a pipeline file that is not wrong, without Spark."""

import logging

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparkraft.pipeline import check, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.spec import SpecError

FILE = """
name = "n"
checkpoint = "c"
[source]
"kafka.bootstrap.servers" = "b:1"
subscribe = "t"
[[sink]]
kind = "delta"
path = "feed"
keys = ["id"]
[[sink]]
kind = "delta"
path = "plain"
keys = ["id"]
[[sink]]
kind = "delta"
path = "missing"
"""
SAID = (
    "the delta sink {path}: the driver collects each batch and writes it alone, because the table "
    "has a change data feed, which has each replaced row; its memory must hold the rows of a batch "
    "([source] has {limit})"
)


@pytest.fixture
def tables(tmp_path):
    rows = pa.table({"id": [1]})
    write_deltalake(
        str(tmp_path / "feed"), rows, configuration={"delta.enableChangeDataFeed": "true"}
    )
    write_deltalake(str(tmp_path / "plain"), rows)
    return tmp_path


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ("", "maxBytesPerTrigger 64m"),
        ('MAXoffsetsPERtrigger = 500\nmaxBytesPerTrigger = "8m"\n',
         "MAXoffsetsPERtrigger 500 and maxBytesPerTrigger 8m"),
    ],
)  # fmt: skip
def test_a_table_whose_batches_the_driver_collects_is_noted(tables, options, limit):
    text = FILE.replace("[[sink]]", f"{options}[[sink]]", 1)
    pipeline = spec.parse(text, folder=tables, values={})
    expected = [SAID.format(path=tables / "feed", limit=limit)]
    assert check.collected(pipeline, ["id"]) == expected


def test_the_official_connector_has_no_limit_of_its_own(tables):
    text = f'connector = "official"\n{FILE}'
    pipeline = spec.parse(text, folder=tables, values={})
    assert check.collected(pipeline, ["id"]) == [
        SAID.format(path=tables / "feed", limit="no limit")
    ]


def test_a_table_that_cannot_be_read_here_is_left_to_its_first_batch(tables):
    text = FILE.replace('path = "feed"', 'path = "nowhere://bucket/feed"')
    pipeline = spec.parse(text, folder=tables, values={})
    assert check.collected(pipeline, ["id"]) == []


class Planned:
    """The rows of a pipeline whose query does not start."""

    columns = ("id",)

    @property
    def writeStream(self):  # noqa: N802 (Spark's)
        raise SpecError("far enough")


def test_the_start_says_that_the_driver_collects_batches(tables, monkeypatch, caplog):
    pipeline = spec.parse(FILE, folder=tables, values={})
    monkeypatch.setattr(running, "_planned", lambda *_: Planned())
    with caplog.at_level(logging.WARNING), pytest.raises(SpecError, match="far enough"):
        running._started(pipeline, None)
    assert caplog.messages == [SAID.format(path=tables / "feed", limit="maxBytesPerTrigger 64m")]
