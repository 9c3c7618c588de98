"""What a pipeline reports of a batch, and what `--check` finds, without Spark."""

from dataclasses import replace

import pytest

from sparkraft.cli import main as cli
from sparkraft.pipeline import check, progress, session, spec
from sparkraft.pipeline import run as running
from sparkraft.pipeline.batch_figures import SetAside
from sparkraft.pipeline.places import OptionError

FILE = """
name = "n"
checkpoint = "state/n"
trigger = "1 minute 30 seconds"
[source]
"kafka.bootstrap.servers" = "${bootstrap}"
subscribe = "checked"
[source.watermark]
event_time = "timestamp"
delay = "1 month"
[[sink]]
kind = "delta"
path = "tables/n"
keys = ["Key"]
[[sink]]
kind = "topic"
topic = "copies"
options = { "kafka.linger.ms" = "5" }
"""

DELTA = '[[sink]]\nkind = "delta"'


@pytest.fixture
def parsed(node, cluster, tmp_path):
    if "checked" not in cluster.topics(None):
        cluster.create_topic("checked", partitions=1)

    def made(old="", new=""):
        assert old in FILE
        text = FILE.replace(old, new) if old else FILE
        return spec.parse(text, folder=tmp_path, values={"bootstrap": node.bootstrap})

    return made


def test_a_good_file_passes_and_leaves_nothing_behind(parsed, tmp_path):
    check.before_spark(parsed())
    check.check_keys(parsed(), ["key", "value"])
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_in_an_option_names_the_file(parsed, node, tmp_path, capsys):
    file = tmp_path / "n.toml"
    file.write_text(FILE.replace("subscribe", "subscrbe"))
    command = ["pipeline", "run", str(file), "--set", f"bootstrap={node.bootstrap}", "--check"]
    assert cli.main(command) == 1
    told = capsys.readouterr().err
    assert told.count(str(file)) == 1
    assert "unknown option subscrbe for the sparkraft source; did you mean subscribe?" in told


def test_a_transaction_lasts_for_ten_triggers(parsed):
    def check_timeout(millis):
        options = f'{{ "kafka.transaction.timeout.ms" = "{millis}" }}'
        check.before_spark(
            parsed('{ "kafka.linger.ms" = "5" }', options + '\ndelivery = "exactly_once"')
        )

    check_timeout(900_000)
    with pytest.raises(spec.SpecError, match="is 899999, below 10 times the trigger"):
        check_timeout(899_999)


def test_the_default_prefix_of_a_sink_must_be_legal(parsed):
    file = parsed('topic = "copies"', 'topic = "copies"\ndelivery = "exactly_once"')
    check.before_spark(file)
    with pytest.raises(OptionError, match="transactionalIdPrefix must be"):
        check.before_spark(replace(file, name="my copies"))


def test_a_group_has_offsets_with_the_decisions_of_the_last_sink(parsed, node, tmp_path):
    def has_decisions(text):
        file = FILE.replace('name = "n"', 'name = "n"\ngroup = "lag"') + text
        read = spec.parse(file, folder=tmp_path, values={"bootstrap": node.bootstrap})
        return running._lag_group(read, None).with_decisions

    assert running._lag_group(parsed(), None) is None
    assert not has_decisions("")
    decided = '[[sink]]\nkind = "topic"\ntopic = "decided"\ndelivery = "exactly_once"\n'
    assert has_decisions(decided)
    assert not has_decisions(decided + '[[sink]]\nkind = "console"\n')
    port = node.bootstrap.rpartition(":")[2]
    other_name = f'options = {{ "kafka.bootstrap.servers" = "localhost:{port}" }}\n'
    assert has_decisions(decided + other_name)


def test_a_prefix_without_exactly_once_is_refused(parsed):
    prefix = '{ transactionalIdPrefix = "m" }'
    with pytest.raises(spec.SpecError, match="transactionalIdPrefix needs delivery"):
        check.before_spark(parsed('{ "kafka.linger.ms" = "5" }', prefix))


def test_two_exactly_once_sinks_need_different_prefixes(parsed):
    delivery = 'delivery = "exactly_once"\n'
    second = f'{delivery}[[sink]]\nkind = "topic"\ntopic = "copies"\n{delivery}options = '
    with pytest.raises(spec.SpecError, match=r"sinks have the transactionalIdPrefix n\.copies"):
        check.before_spark(parsed("options = ", second))
    other = 'options = { transactionalIdPrefix = "m" }\n'
    check.before_spark(parsed("options = ", other + second))


def test_starting_offsets_count_only_for_a_query_that_has_not_begun(parsed, tmp_path):
    given = '\nstartingOffsets = \'{"checked": {"3": 0}}\''
    pipeline = parsed('"checked"', f'"checked"{given}')
    with pytest.raises(OptionError, match="startingOffsets names checked-3, which is not read"):
        check.before_spark(pipeline)
    (tmp_path / "state" / "n" / "offsets").mkdir(parents=True)
    check.before_spark(pipeline)


def test_two_tables_of_one_warehouse_are_two_sinks(parsed):
    sinks = "".join(
        f'[[sink]]\nkind = "iceberg"\npath = "warehouse"\ntable = "a.{name}"\n' for name in "bc"
    )
    check.before_spark(parsed(DELTA, sinks + DELTA))


def test_two_sinks_with_one_table_of_a_catalog_are_refused(parsed):
    def sinks(*uris):
        made = [f'[[sink]]\nkind = "iceberg"\ntable = "a.b"\noptions.uri = "{u}"\n' for u in uris]
        return parsed(DELTA, "".join(made) + DELTA)

    check.before_spark(sinks("http://h/", "http://other/"))
    with pytest.raises(spec.SpecError, match=r"have the same table a\.b"):
        check.before_spark(sinks("http://h/", "http://h/"))


def test_a_key_that_is_no_column_is_named(parsed):
    with pytest.raises(
        spec.SpecError, match="keys names Key, which is not a column; columns: value"
    ):
        check.check_keys(parsed(), ["value", "offset"])


def test_the_error_of_workers_without_the_package_says_when_to_install_it():
    message = running.cause_of(Exception("x\nModuleNotFoundError: No module named 'sparkraft'\ny"))
    assert "sparkraft.pipeline.register(spark) send it to the workers; other jobs" in message
    assert "need sparkraft[pipeline] in the Python of every worker" in message


def test_an_error_of_java_is_told_and_not_the_call_that_raised_it():
    error = Exception(
        "An error occurred while calling o59.count.\n: org.x.SparkException: Job aborted\n\tat a.b"
    )
    assert running.cause_of(error) == "org.x.SparkException: Job aborted"
    assert running.cause_of(Exception("one line")) == "one line"


def test_an_error_in_sql_names_its_place():
    error = Exception(
        "[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'. SQLSTATE: 42601 (line 2, pos 5)"
    )
    assert running.cause_of(error) == (
        "[PARSE_SYNTAX_ERROR] Syntax error at 'SELEC'. (line 2, position 5)"
    )


def test_pyspark_does_not_print_what_it_raises(capfd):
    from pyspark.logger import PySparkLogger

    session.silence_query_errors()
    PySparkLogger.getLogger("SQLQueryContextLogger").error("a stack of Java")
    assert capfd.readouterr().err == ""


def report(**source):
    return progress.progress_of(
        {
            "batchId": 7,
            "numInputRows": 10,
            "durationMs": {"triggerExecution": 1000},
            "sources": [{"endOffset": {"t": {"0": 10, "1": 5}}, **source}],
            "observedMetrics": {"sparkraft.json.source": {"damaged": 2}, "mine": {"damaged": 5}},
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


def test_the_line_of_a_batch_counts_what_sinks_set_aside():
    batch = report(latestOffset={"t": {"0": 10, "1": 5}})
    batch = replace(batch, set_aside=SetAside(misfits=3, ignored=4))
    assert str(batch).endswith("2 damaged  3 rows do not fit  4 values ignored")
