"""Work in Spark's tasks, and questions to Spark, on a Spark master."""

import os
import re
from pathlib import Path

import pytest

from sparkraft.pipeline import connect
from sparkraft.pipeline.spark_tasks import file_exists, in_tasks, parallelism
from sparkraft.pipeline.spec import SpecError

pytestmark = pytest.mark.spark


def test_each_item_has_a_task_and_results_are_in_order(spark):
    from pyspark import TaskContext

    def work(item):
        number = TaskContext.get().partitionId()
        return [(item, number, os.getpid())] * item

    found = in_tasks(spark, work, [2, 0, 3])
    assert [(item, number) for item, number, _ in found] == [(2, 0)] * 2 + [(3, 2)] * 3
    assert os.getpid() not in {pid for *_, pid in found}
    assert in_tasks(spark, work, []) == []


def test_the_number_of_tasks_at_once_is_that_of_cores(spark):
    assert parallelism(spark) == 2


def test_a_folder_that_spark_does_not_see_is_reported(spark, tmp_path, monkeypatch):
    folder = tmp_path / "a {b} [c] *?"
    assert not file_exists(spark, str(folder))
    connect.check_shared(spark, f"{folder}/checkpoint")
    folder.mkdir()
    assert file_exists(spark, str(folder))
    connect.check_shared(spark, f"{folder}/checkpoint")
    assert list(folder.iterdir()) == []
    # Spark is on this machine, so it sees everything.
    monkeypatch.setattr(connect, "file_exists", lambda _, path: not Path(path).exists())
    with pytest.raises(SpecError, match=f"does not see {re.escape(str(folder))} of this machine"):
        connect.check_shared(spark, f"{folder}/checkpoint")
    connect.check_shared(spark, "s3://bucket/checkpoint")
