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
    (source,) = read.sources
    assert source.options == {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "5",
    }
    assert (source.name, source.json_schema, source.on_error) == ("source", "a INT", "stop")
    assert source.watermark == spec.Watermark(event_time="value.a", delay="1 hour")
    (stage,) = read.stages
    assert stage == spec.Stage(name="result", sql="SELECT 1", function=None, inputs=("source",))
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
            r"needs \[dead_letter\]: a topic or a table",
        ),
        ("[source.json]", '[source.json]\non_error = "skip"', "on_error is one of stop, dead"),
        ('delay = "1 hour"', "", r"\[source.watermark\] needs delay"),
        ('group = "g"', 'output_mode = "upsert"', "output_mode is one of"),
        ('group = "g"', 'connector = "spark"', "connector is one of"),
        ('group = "g"', 'connector = "official"\ngroup = "g"', "only connector = "),
        ('group = "g"', 'connector = "official"\nbatches_topic = "b"', "batches_topic needs"),
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


DEAD_LETTER = """
[dead_letter]
kind = "topic"
topic = "dead"
options = { "kafka.compression.type" = "lz4" }
"""


def with_dead_letter(old="", new=""):
    dead = GOOD.replace('schema = "a INT"', 'schema = "a INT"\non_error = "dead_letter"')
    return parse((dead + DEAD_LETTER).replace(old, new), bootstrap="h:1")


def test_dead_letters_go_to_a_topic_or_a_table():
    read = with_dead_letter()
    assert read.loses_records
    assert (read.dead_letter.kind, read.dead_letter.topic) == ("topic", "dead")
    assert read.dead_letter.options == {"kafka.compression.type": "lz4"}
    table = with_dead_letter(DEAD_LETTER, '[dead_letter]\nkind = "delta"\npath = "dead"')
    assert table.dead_letter.path == "/base/dead"
    for old, new, match in (
        ('topic = "dead"', 'topc = "dead"', r"\[dead_letter\] has no topc; did you mean topic"),
        ('topic = "dead"', "", r"\[dead_letter\] needs topic"),
        ('kind = "topic"\ntopic = "dead"', 'kind = "console"', "kind is one of topic, delta"),
        ("dead_letter", "drop", r"has no drop; did|the file has no drop"),
        ('on_error = "dead_letter"', "", r"\[dead_letter\] needs on_error"),
    ):
        with pytest.raises(spec.SpecError, match=match):
            with_dead_letter(old, new)


JOIN = """
name = "join"
checkpoint = "state/join"
[[source]]
name = "orders"
subscribe = "orders"
[source.json]
schema = "id INT"
[source.watermark]
event_time = "timestamp"
delay = "1 minute"
deduplicate_by = ["value.id"]
[[source]]
name = "payments"
subscribe = "payments"
[[transform]]
name = "paid"
sql = "SELECT 1 FROM orders"
[[transform]]
name = "shaped"
function = "f.py:shape"
[[transform]]
name = "last"
function = "f.py:last"
inputs = ["paid", "payments"]
[[sink]]
kind = "console"
"""


def test_several_sources_and_stages_have_names():
    read = parse(JOIN)
    assert [source.name for source in read.sources] == ["orders", "payments"]
    assert [source.json_schema for source in read.sources] == ["id INT", None]
    assert read.sources[0].watermark.deduplicate_by == ("value.id",)
    assert [(stage.name, stage.inputs) for stage in read.stages] == [
        ("paid", ("orders", "payments")),
        ("shaped", ("paid",)),
        ("last", ("paid", "payments")),
    ]


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('name = "payments"', "", r"\[\[source\]\] needs name"),
        ('name = "payments"', 'name = "a-b"', r"\[\[source\]\] needs name, letters"),
        ('name = "payments"', 'name = "orders"', r"two \[\[source\]\] have the same name"),
        ('name = "shaped"', 'name = "orders"', "two sources or stages have the name orders"),
        ('name = "shaped"', "", r"\[\[transform\]\] needs name"),
        ('["paid", "payments"]', '["pad"]', "pad is unknown; known are orders, payments, paid"),
        ('["value.id"]', '"value.id"', "deduplicate_by of .* must be a list"),
        ('function = "f.py:last"', "", "has both sql and function, or neither"),
    ],
)
def test_mistakes_in_several_sources_and_stages_are_told(old, new, match):
    with pytest.raises(spec.SpecError, match=match):
        parse(JOIN.replace(old, new))


def test_several_sources_need_a_stage_and_one_cluster_for_a_group():
    head, _, rest = JOIN.partition("[[transform]]")
    with pytest.raises(spec.SpecError, match="that joins or unites them"):
        parse(head + rest[rest.index("[[sink]]") :])
    far = JOIN.replace('subscribe = "payments"', '"kafka.bootstrap.servers" = "far:1"')
    with pytest.raises(spec.SpecError, match="from different clusters"):
        parse('group = "g"' + far)
