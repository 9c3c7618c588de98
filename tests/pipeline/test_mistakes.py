"""Every mistake of mistakes.toml is found by `--check`, in its words."""

import re

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline import check, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.places import OptionError
from sparkraft.schemas.errors import SchemaError
from tests.support.mistakes import FILE, MISTAKES, file_with, needs_spark


def parametrized(*, spark, note=False):
    chosen = [
        each for each in MISTAKES if needs_spark(each) is spark and each.get("note", False) is note
    ]
    return pytest.mark.parametrize("mistake", chosen, ids=[each["what"] for each in chosen])


@pytest.fixture
def parsed(node, cluster, tmp_path):
    if "checked" not in cluster.topics(None):
        cluster.create_topic("checked", partitions=1)
    return lambda text: spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})


@pytest.fixture
def parsed_with(parsed, tmp_path):
    return lambda mistake: parsed(file_with(mistake, tmp_path))


ERRORS = (spec.SpecError, SchemaError, OptionError, KafkaError, running.PipelineError)


def test_the_file_itself_has_none(parsed, tmp_path):
    running.check(parsed(FILE))
    assert list(tmp_path.iterdir()) == []


@parametrized(spark=False)
def test_a_mistake_is_found_without_spark(parsed_with, mistake, monkeypatch):
    monkeypatch.setattr(running, "check_java", lambda: None)
    with pytest.raises(ERRORS, match=mistake["message"]):
        running.check(parsed_with(mistake))


@pytest.mark.spark
@parametrized(spark=True)
def test_a_mistake_is_found_with_spark(spark, parsed_with, mistake, capfd):
    with pytest.raises(ERRORS, match=mistake["message"]):
        running._planned(parsed_with(mistake), spark)
    assert capfd.readouterr().err == ""


def noted(pipeline, spark):
    return "\n".join(check.notes(pipeline, running._planned(pipeline, spark).schema))


@pytest.mark.spark
@parametrized(spark=True, note=True)
def test_what_may_be_a_mistake_is_noted(spark, parsed, parsed_with, mistake):
    assert noted(parsed(FILE), spark) == ""
    running.check(parsed_with(mistake))
    assert re.search(mistake["message"], noted(parsed_with(mistake), spark), re.MULTILINE)
