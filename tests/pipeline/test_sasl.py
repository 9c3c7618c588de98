"""SASL in the Spark source and sink: who may read and write, and where the password goes."""

import asyncio
import base64
from dataclasses import replace

import pytest

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.client import renewal
from sparkraft.client.cluster import Cluster as AdminCluster
from sparkraft.client.security import login_of_properties, secured_connect
from sparkraft.client.token_admin import TokenAdmin, TokenInfo
from sparkraft.pipeline.options import ClientOptions, parse_servers, sink_options
from sparkraft.pipeline.wire import Cluster, Connection
from sparkraft.protocol.messages.k61_describe_producers import DescribeProducersRequest
from sparkraft.security.jaas import SCRAM_MODULE
from sparkraft.security.login import Login
from sparkraft.security.secret import Secret
from sparkraft.server.network import sasl_gate
from tests.server.test_sasl_gate import PASSWORD, run, serving
from tests.support.certificates import Authority, pem_configs
from tests.support.nodes import SparkraftNode
from tests.support.ports import wait_until
from tests.support.sasl import PASSWORDS, SHA_512, client_module, sasl_node

ALICE = PASSWORDS["alice"]


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(tmp_path_factory, authority) -> SparkraftNode:
    """Its clients use SASL_SSL with SCRAM; access is only for alice and the node's own user."""
    made = sasl_node(tmp_path_factory.mktemp("secured"), mechanisms=(SHA_512,))
    made.overrides |= {
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_SSL,CONTROLLER:PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:alice;User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": "planted-secret-key-2298",
        **pem_configs(authority.issue("node"), None, "listener.name.sasl_plaintext."),
    }
    made.write_properties()
    first = [f"{SHA_512}=[name={name},password={text}]" for name, text in PASSWORDS.items()]
    made.format_as = ("--standalone", *(word for one in first for word in ("--add-scram", one)))
    with made as running:
        yield running


def secured_options(node: SparkraftNode, authority: Authority, password: str = ALICE):
    return {
        "kafka.bootstrap.servers": node.bootstrap,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": SHA_512,
        "kafka.sasl.jaas.config": client_module(SHA_512, "alice", password),
        **pem_configs(None, authority.ca_path, "kafka."),
    }


class Token:
    """A delegation token of alice, who has logged in by SCRAM."""

    def __init__(self, node: SparkraftNode, authority: Authority) -> None:
        self._node = node
        properties = {
            name.removeprefix("kafka."): value
            for name, value in secured_options(node, authority).items()
        }
        self._connect = secured_connect(properties)
        self._login = login_of_properties(properties)
        made: TokenInfo = self._ask(lambda admin: admin.create())
        self.secret = made.hmac.reveal()
        module = (
            f'{SCRAM_MODULE} required username="{made.token_id}" password="{self.secret}" '
            'tokenauth="true";'
        )
        self.options = secured_options(node, authority) | {"kafka.sasl.jaas.config": module}
        wait_until(lambda: logs_in(self), "the broker knows the token")

    def remove(self) -> None:
        hmac = base64.b64decode(self.secret)
        self._ask(lambda admin: admin.expire(hmac))

    def _ask(self, work):
        async def asked():
            servers = self._node.bootstrap
            async with AdminCluster(servers, connect=self._connect, login=self._login) as cluster:
                return await work(TokenAdmin(cluster))

        return asyncio.run(asked())


def logs_in(token: Token) -> bool:
    try:
        Cluster(sink_options(token.options).client).topics(None)
    except KafkaError as error:
        if error.code is not ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise
        return False
    return True


def until_refused(token: Token) -> None:
    wait_until(lambda: not logs_in(token), "the broker knows that the token is removed")


def test_a_delegation_token_logs_in_until_it_is_removed(secured, authority):
    token = Token(secured, authority)
    assert token.secret not in repr(sink_options(token.options))
    token.remove()
    until_refused(token)


def test_a_wrong_password_is_reported_at_once(secured, authority):
    """Without retries, which would lock accounts elsewhere and hide the reason for a minute."""
    options = sink_options(secured_options(secured, authority, "not-this-one-7731"))
    cluster = Cluster(options.client)
    with pytest.raises(KafkaError) as caught:
        cluster.topics(None)
    assert caught.value.code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "not-this-one-7731" not in str(caught.value)


def test_the_blocking_client_re_authenticates_between_pipelined_requests(monkeypatch):
    """Each request is preceded by a renewal, which reads the responses that are due before."""
    for name in ("FACTOR_MIN", "FACTOR_RANGE"):
        monkeypatch.setattr(renewal, name, 0)
    monkeypatch.setattr(sasl_gate, "REAUTHENTICATION_INTERVAL_MS_MIN", 0)

    def work(port: int) -> None:
        options = ClientOptions(
            bootstrap_servers=parse_servers(f"127.0.0.1:{port}"),
            client_id="test",
            request_timeout_ms=60_000,
            login=Login("PLAIN", "alice", Secret(PASSWORD)),
        )
        connection = Connection("127.0.0.1", port, options)
        for _ in range(3):
            connection.send(DescribeProducersRequest(), version_max=0)
        assert not connection.is_idle
        for _ in range(3):
            assert connection.receive().topics == []
        assert connection.is_idle
        connection.close()
        with pytest.raises(KafkaError, match="Invalid username or password"):
            Connection("127.0.0.1", port, replace(options, login=wrong))

    wrong = Login("PLAIN", "alice", Secret("wrong"))

    async def test():
        async with serving(reauth_ms=60_000) as served:
            await asyncio.to_thread(work, served.listener.port)
            assert served.principals == ["User:alice"] * 3
            assert served.listener.gates.renewed == 3

    run(test())


@pytest.mark.java
@pytest.mark.spark
def test_spark_writes_and_reads_and_never_shows_the_password(
    spark, secured, authority, tmp_path, tmp_path_factory, capfd
):
    """Searched: plans, the progress of a query, its checkpoint, Spark's log, errors, the node."""
    options = secured_options(secured, authority)
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("sparkraft").options(**options, topic="secured").mode("append").save()
    frame = spark.read.format("sparkraft").options(**options, subscribe="secured").load()
    assert frame.count() == 100
    frame.explain(mode="extended")
    query = (
        spark.readStream.format("sparkraft")
        .options(**options, subscribe="secured", startingOffsets="earliest")
        .load()
        .writeStream.format("sparkraft")
        .options(**options, topic="copied", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    shown = [repr(options["kafka.security.protocol"]), str(query.recentProgress), repr(frame)]
    wrong = secured_options(secured, authority, "not-this-one-4402")
    with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as caught:
        spark.read.format("sparkraft").options(**wrong, subscribe="secured").load().count()
    shown += [str(caught.value), secured.output_path.read_text(), *capfd.readouterr()]
    logs = list(tmp_path_factory.getbasetemp().glob("spark*/spark.log"))
    assert logs
    shown += [path.read_text(errors="replace") for path in logs]
    shown += [path.read_text(errors="replace") for path in tmp_path.rglob("*") if path.is_file()]
    for secret in (ALICE, "not-this-one-4402"):
        assert all(secret not in each for each in shown)


@pytest.mark.java
@pytest.mark.spark
def test_spark_writes_and_reads_with_a_delegation_token(
    spark, secured, authority, tmp_path, tmp_path_factory, capfd
):
    """Batch and streaming; tasks and driver log in with the token, which is shown nowhere.

    A removed token is refused.
    """
    token = Token(secured, authority)
    rows = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    rows.write.format("sparkraft").options(**token.options, topic="by-token").mode("append").save()
    query = (
        spark.readStream.format("sparkraft")
        .options(**token.options, subscribe="by-token", startingOffsets="earliest")
        .load()
        .writeStream.format("sparkraft")
        .options(**token.options, topic="by-token-copy", checkpointLocation=str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(600)
    reader = spark.read.format("sparkraft")
    copied = reader.options(**token.options, subscribe="by-token-copy").load()
    values = [int(row.value) for row in copied.selectExpr("CAST(value AS STRING)").collect()]
    assert sorted(values) == list(range(100))
    token.remove()
    until_refused(token)
    # Connections stay open, in Kafka too, and a Python worker may have one: use another client.
    other = token.options | {"kafka.client.id": "after-removal", "subscribe": "by-token"}
    with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as caught:
        reader.options(**other).load().count()
    logs = list(tmp_path_factory.getbasetemp().glob("spark*/spark.log"))
    assert logs
    files = [*logs, *(path for path in tmp_path.rglob("*") if path.is_file())]
    shown = [str(caught.value), str(query.recentProgress), secured.output_path.read_text()]
    shown += [*capfd.readouterr(), *(path.read_text(errors="replace") for path in files)]
    assert all(token.secret not in each for each in shown)
