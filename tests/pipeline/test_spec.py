"""Pipeline files: what they may say, and how mistakes in them are told."""

from pathlib import Path

import pytest

from sparkraft.pipeline import spec

GOOD = """
name = "n"
checkpoint = "state/n"
group = "g"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "t"
includeHeaders = true
maxOffsetsPerTrigger = 5
[source.json]
schema = "a INT"
[source.watermark]
event_time = "value.a"
delay = "1 hour"
[transform]
sql = "SELECT 1"
[[sink]]
kind = "delta"
path = "table"
keys = ["a"]
[[sink]]
kind = "topic"
topic = "out"
options = { "kafka.compression.type" = "lz4" }
"""


def parse(text, **values):
    return spec.parse(text, folder=Path("/base"), values=values)


def test_a_whole_file():
    read = parse(GOOD, bootstrap="h:1")
    assert read.checkpoint == "/base/state/n"
    assert read.source == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "5",
    }
    assert (read.json_schema, read.json_on_error) == ("a INT", "stop")
    assert read.watermark == spec.Watermark(event_time="value.a", delay="1 hour")
    assert [sink.kind for sink in read.sinks] == ["delta", "topic"]
    assert read.sinks[0].path == "/base/table"
    assert read.sinks[1].options == {"kafka.compression.type": "lz4"}
    assert read.output_mode == "append"


def test_urls_are_no_paths():
    read = parse(GOOD.replace("state/n", "s3://b/n"), bootstrap="h:1")
    assert read.checkpoint == "s3://b/n"


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ("${bootstrap}", "${nowhere_set}", "nowhere_set} has no value: give --set"),
        ('name = "n"', "", "needs name"),
        ('name = "n"', 'nam = "n"', "has no nam; did you mean name"),
        ("[transform]", '[transform]\nfunction = "f.py:f"', "both sql and function"),
        ("[transform]", "[transform]\nsq = 1", r"\[transform\] has no sq; did you mean sql"),
        ('kind = "delta"', 'kind = "dleta"', "kind is one of"),
        ('path = "table"', "", "the delta sink needs path"),
        ('keys = ["a"]', 'keys = "a"', "must be a list"),
        ('keys = ["a"]', "rows = 1", "the delta sink has no rows"),
        ('keys = ["a"]', 'schema_changes = "ad"', "schema_changes is one of fail, add, ignore"),
        ('schema = "a INT"', "", r"\[source.json\] needs schema"),
        ("[source.json]", "[source.json]\non_eror = 1", "has no on_eror; did you mean on_error"),
        (
            "[source.json]",
            '[source.json]\non_error = "dead_letter"',
            "is not supported yet; .*drop",
        ),
        ("[source.json]", '[source.json]\non_error = "skip"', "on_error is one of stop, drop"),
        ('delay = "1 hour"', "", r"\[source.watermark\] needs delay"),
        ('group = "g"', 'output_mode = "upsert"', "output_mode is one of"),
        ('group = "g"', 'connector = "spark"', "connector is one of"),
        ('group = "g"', 'connector = "official"\ngroup = "g"', "only connector = "),
        ('name = "n"', "name = ", "Invalid value"),
    ],
)
def test_mistakes_are_told(old, new, match):
    with pytest.raises(spec.SpecError, match=match):
        parse(GOOD.replace(old, new), bootstrap="h:1")


def test_no_sink_is_a_mistake():
    with pytest.raises(spec.SpecError, match=r"no \[\[sink\]\]"):
        parse(GOOD.partition("[[sink]]")[0], bootstrap="h:1")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(spec.SpecError, match=r"nowhere\.toml: No such file"):
        spec.load(tmp_path / "nowhere.toml")


def test_the_demos_own_file_is_fine():
    from importlib import resources

    with resources.as_file(resources.files("sparkraft.pipeline.demo") / "delays.toml") as path:
        read = spec.load(path, {"data": "/d", "bootstrap": "h:1"})
    assert read.checkpoint == "/d/delays.checkpoint"
    assert read.group == "delays"
