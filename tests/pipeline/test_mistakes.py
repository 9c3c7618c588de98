"""Every mistake of mistakes.toml is found by `--check`, in its words."""

import tomllib
from pathlib import Path

import pytest

from sparkraft.base.errors import KafkaError
from sparkraft.pipeline import run as running
from sparkraft.pipeline import spec
from sparkraft.pipeline.places import OptionError
from sparkraft.schemas.errors import SchemaError

READ = tomllib.loads((Path(__file__).parent / "mistakes.toml").read_text())
MISTAKES = READ["mistake"]


def unescaped(text):
    return text.replace("\\n", "\n")


def changed(mistake):
    old = unescaped(mistake["old"])
    assert old in READ["file"]
    return READ["file"].replace(old, unescaped(mistake["new"]))


def parametrized(*, spark):
    chosen = [each for each in MISTAKES if each.get("spark", False) is spark]
    return pytest.mark.parametrize("mistake", chosen, ids=[each["what"] for each in chosen])


@pytest.fixture
def parsed(node, cluster, tmp_path):
    if "checked" not in cluster.topics(None):
        cluster.create_topic("checked", partitions=1)
    return lambda text: spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})


ERRORS = (spec.SpecError, SchemaError, OptionError, KafkaError, running.PipelineError)


def test_the_file_itself_has_none(parsed, tmp_path):
    running.check(parsed(READ["file"]))
    assert list(tmp_path.iterdir()) == []


@parametrized(spark=False)
def test_a_mistake_is_found_without_spark(parsed, mistake, monkeypatch):
    monkeypatch.setattr(running, "check_java", lambda: None)
    with pytest.raises(ERRORS, match=mistake["message"]):
        running.check(parsed(changed(mistake)))


@pytest.mark.spark
@parametrized(spark=True)
def test_a_mistake_is_found_with_spark(spark, parsed, mistake, capfd):
    with pytest.raises(ERRORS, match=mistake["message"]):
        running._planned(parsed(changed(mistake)), spark)
    assert capfd.readouterr().err == ""
