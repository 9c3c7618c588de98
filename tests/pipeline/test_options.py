"""Options: official names in any case, and everything else refused in words that help."""

import pickle
from pathlib import Path

import pytest

from sparkraft.client.security import ALLOWING
from sparkraft.client.token_file import TokenFileLogin
from sparkraft.pipeline.lag_group import check_writer, of_writer
from sparkraft.pipeline.options import (
    COLUMNS,
    NOT_SUPPORTED,
    Isolation,
    sink_options,
    source_options,
)
from sparkraft.pipeline.places import EARLIEST, LATEST, ByOffset, ByTimestamp, OptionError
from tests.interop.java_source import ask_java


def read(streaming=True, **more):
    given = {"kafka.bootstrap.servers": "a:1,[::1]:2", "subscribe": "t", **more}
    return source_options({k: v for k, v in given.items() if v is not None}, streaming=streaming)


def refused(match, streaming=True, **more):
    with pytest.raises(OptionError, match=match):
        read(streaming, **more)


def test_names_arrive_in_lower_case_and_are_known_all_the_same():
    options = read(
        startingoffsets="earliest",
        maxoffsetspertrigger="10",
        failondataloss="false",
        includeheaders="true",
        **{"kafka.isolation.level": "read_committed", "groupidprefix": "p"},
    )
    assert options.starting == ByOffset(everywhere=EARLIEST)
    assert options.offsets_per_trigger_max == 10
    assert not options.fail_on_data_loss
    assert options.columns == (*COLUMNS, "headers")
    assert options.client.isolation is Isolation.READ_COMMITTED
    assert options.client.client_id == "p"
    assert options.client.bootstrap_servers == (("a", 1), ("::1", 2))


def test_columns_are_returned_in_the_official_order():
    assert read().columns == COLUMNS
    assert read(columns="Offset, value,headers").columns == ("value", "offset", "headers")
    refused("columns: unknown column vlaue; expected one of key, value", columns="vlaue")
    refused("columns names no column", columns=",")


def test_an_unknown_option_is_refused_with_the_nearest_name():
    refused("unknown option startingoffset .*did you mean startingOffsets", startingoffset="x")
    refused("unknown option kafka.isolation.lvl", **{"kafka.isolation.lvl": "x"})


@pytest.mark.parametrize("name", ["kafka.ssl.engine.factory.class", "kafka.sasl.login.class"])
def test_an_official_option_that_is_missing_here_says_so(name):
    refused(f"{name} is not supported by sparkraft", **{name: "x"})


def test_security_is_never_left_out_in_silence():
    refused(
        "SASL_SSL needs sasl.jaas.config",
        **{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"},
    )
    refused("security.protocol=TLS is not implemented", **{"kafka.security.protocol": "TLS"})


JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username=a password="pw1";'
SASL = {
    "kafka.security.protocol": "SASL_PLAINTEXT",
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.jaas.config": JAAS,
}


def test_credentials_are_read_and_hidden():
    """Equal options share connections, also after Spark has copied them to a worker."""
    client = read(**SASL).client
    assert client.login is not None
    assert (client.login.mechanism, client.login.user) == ("PLAIN", "a")
    assert client.login.password.reveal() == "pw1"
    assert "pw1" not in repr(read(**SASL))
    copied = pickle.loads(pickle.dumps(client))
    assert (copied, hash(copied)) == (client, hash(client))
    assert copied != read(**SASL | {"kafka.sasl.jaas.config": JAAS.replace("pw1", "pw2")}).client


def test_an_access_token_is_taken_from_a_file_that_is_allowed(monkeypatch):
    url = "kafka.sasl.oauthbearer.token.endpoint.url"
    given = SASL | {
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer."
        "OAuthBearerLoginModule required;",
    }
    refused("needs sasl.oauthbearer.token.endpoint.url", **given)
    refused("a file: URL", **given | {url: "ftp://issuer.test/token"})
    refused("is not in the environment variable", **given | {url: "file:///etc/passwd"})
    monkeypatch.setenv(ALLOWING, "file:///a/token")
    login = read(**given | {url: "file:///a/token"}).client.login
    assert login == TokenFileLogin("/a/token")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("kafka.sasl.mechanism", "GSSAPI", "is not for SASL mechanism GSSAPI"),
        ("kafka.sasl.mechanism", "SCRAM-SHA-256", "is not for SASL mechanism SCRAM-SHA-256"),
        ("kafka.sasl.jaas.config", JAAS[:-1], "does not end with a semicolon"),
        ("kafka.sasl.jaas.config", JAAS.replace("username", "user"), "needs the options username"),
    ],
)
def test_credentials_that_cannot_be_used_are_refused_without_being_quoted(name, value, message):
    with pytest.raises(OptionError, match=message) as caught:
        read(**SASL | {name: value})
    assert "pw1" not in str(caught.value)


def test_what_spark_sets_itself_cannot_be_set():
    refused("can't be set", **{"kafka.auto.offset.reset": "earliest"})


def test_tuning_of_other_clients_is_taken_so_that_a_job_can_switch():
    read(**{"kafka.max.poll.records": "5", "kafka.group.id": "g"})


@pytest.mark.java
def test_no_setting_of_kafkas_clients_is_unknown(kafka_jars):
    """What the official connector hands on is honoured, without effect, or refused by name."""
    pairs = [line.split() for line in ask_java(kafka_jars, "ClientConfigNames")]
    assert len(pairs) > 200
    unknown = []
    for place, name in pairs:
        if name.startswith("internal."):
            continue
        try:
            (read if place == "source" else sink)(**{f"kafka.{name}": "1"})
        except OptionError as error:
            unknown += [(place, name)] if "unknown option" in str(error) else []
    assert unknown == []


def test_a_sinks_option_means_nothing_to_a_source():
    refused("option topic means nothing to a source", topic="x")


def test_exactly_one_subscription():
    refused("subscribe and assign", assign='{"t":[0]}')
    refused("not none", subscribe=None)


def test_a_pattern_is_checked():
    refused(r"subscribePattern 'a\(' is not a valid pattern", subscribe=None, subscribePattern="a(")


@pytest.mark.parametrize("text", ["[]", '{"t":0}', '{"t":[]}', '{"t":[-1]}', '{"t":["0"]}', "{"])
def test_assign_is_checked(text):
    refused("assign", subscribe=None, assign=text)


def test_offsets_by_partition_and_by_topic():
    text = '{"a":{"0":23,"1":-2},"b":"latest","c":-2}'
    assert read(startingOffsets=text).starting == ByOffset(
        by_topic={"a": {0: 23, 1: EARLIEST}, "b": LATEST, "c": EARLIEST}
    )


@pytest.mark.parametrize("text", ["later", "[1]", '{"a":{"0":-3}}', '{"a":{"x":1}}', '{"a":true}'])
def test_offset_json_is_checked(text):
    refused("startingOffsets", startingOffsets=text)


def test_timestamps_go_before_offsets():
    options = read(startingTimestamp="5", startingOffsets="earliest")
    assert options.starting == ByTimestamp(everywhere=5)
    options = read(
        startingOffsetsByTimestamp='{"t":{"0":7}}', startingOffsetsByTimestampStrategy="latest"
    )
    assert options.starting == ByTimestamp(by_topic={"t": {0: 7}}, or_latest=True)
    assert read(False, endingTimestamp="9").ending == ByTimestamp(everywhere=9, or_latest=True)


def test_ends_mean_nothing_to_a_stream():
    refused("endingOffsets means nothing in a streaming query", endingOffsets="latest")


def test_a_batch_that_would_read_nothing_is_refused():
    refused("can't be latest", streaming=False, startingOffsets="latest")
    refused("can't be latest", streaming=False, startingOffsets='{"t":{"0":-1}}')
    refused("can't be earliest", streaming=False, endingOffsets="earliest")


@pytest.mark.parametrize(
    ("text", "size"),
    [("7", 7), ("64m", 64 << 20), ("1g", 1 << 30), ("2kb", 2048), ("3 MB", 3 << 20)],
)
def test_bytes_have_sparks_suffixes(text, size):
    assert read(maxBytesPerTrigger=text).bytes_per_trigger_max == size


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minPartitions", "maxBytesPerTrigger"])
@pytest.mark.parametrize("text", ["0", "-1", "x", "1.5", "²"])
def test_numbers_are_checked(name, text):
    refused(name, **{name: text})


def test_times_have_sparks_suffixes():
    assert read(maxTriggerDelay="2m").trigger_delay_ms_max == 120_000
    refused("maxTriggerDelay", maxTriggerDelay="soon")


def test_limits_that_contradict_each_other():
    refused("is above maxOffsetsPerTrigger", minOffsetsPerTrigger="9", maxOffsetsPerTrigger="8")
    refused("is above maxPartitions", minPartitions="9", maxPartitions="8")


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:0", "host:70000", "host:x"])
def test_bootstrap_servers_are_checked(text):
    refused("kafka.bootstrap.servers", **{"kafka.bootstrap.servers": text})


def sink(**more):
    return sink_options({"kafka.bootstrap.servers": "a:1", "topic": "t", **more})


def test_a_sink_is_always_idempotent():
    assert sink(**{"kafka.acks": "-1"}).topic == "t"
    with pytest.raises(OptionError, match="idempotent"):
        sink(**{"kafka.acks": "1"})
    with pytest.raises(OptionError, match="idempotent"):
        sink(**{"kafka.enable.idempotence": "false"})
    with pytest.raises(OptionError, match="transactionalIdPrefix"):
        sink(**{"kafka.transactional.id": "x"})


def test_exactly_once_has_a_prefix_and_a_timeout():
    assert sink().transactional_id_prefix is None
    read = sink(transactionalidprefix="p", **{"kafka.transaction.timeout.ms": "5000"})
    assert (read.transactional_id_prefix, read.transaction_timeout_ms) == ("p", 5000)
    assert sink(transactionalidprefix="p").transaction_timeout_ms == 900_000


def test_a_writer_shows_offsets_of_its_own_checkpoint_with_its_decisions():
    shown = sink(publishGroupId="g", transactionalIdPrefix="p", checkpointLocation="file:///x")
    check_writer(shown)
    check_writer(sink())
    with pytest.raises(OptionError, match="needs transactionalIdPrefix"):
        check_writer(sink(publishGroupId="g", checkpointLocation="/x"))
    for checkpoint in ({}, {"checkpointLocation": "s3://b/x"}):
        with pytest.raises(OptionError, match="needs the option checkpointLocation"):
            check_writer(sink(publishGroupId="g", transactionalIdPrefix="p", **checkpoint))


def test_the_offsets_of_a_writers_batch_are_those_of_all_kafka_sources(tmp_path, caplog):
    options = sink(publishGroupId="g", transactionalIdPrefix="p", checkpointLocation=str(tmp_path))
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "4").write_text(
        'v1\n{"batchWatermarkMs":0}\n{"t":{"0":7,"1":2}}\n-\n17\n{"logOffset":3}\n{"t":{"1":1}}'
    )
    assert of_writer(options, 4) == ("g", {("t", 0): 7, ("t", 1): 1})
    assert of_writer(sink(), 4) is None
    (tmp_path / "offsets" / "5").write_text("v2\n{}\n{}")
    assert of_writer(options, 5) is None
    assert of_writer(options, 6) is None
    assert "its format is v2" in caplog.text
    assert "No such file" in caplog.text


def test_spark_hands_its_own_options_to_sinks():
    assert sink(checkpointlocation="/x").topic == "t"


def test_what_is_not_supported_stands_in_the_coverage_page():
    page = (Path(__file__).parents[2] / "COVERAGE.md").read_text()
    for name in NOT_SUPPORTED:
        shown = name + "*" if name.endswith(".") else name
        assert f"`{shown}`" in page
