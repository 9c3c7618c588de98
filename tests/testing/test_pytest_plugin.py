"""The fixtures, used as anybody would."""

import urllib.request

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from sparkraft.testing.pytest_plugin import SparkraftCluster

pytestmark = pytest.mark.real_clients
pytest_plugins = ["pytester"]


def test_another_client_reaches_the_node(sparkraft_cluster):
    producer = Producer({"bootstrap.servers": sparkraft_cluster.bootstrap})
    failures = []
    producer.produce("of-the-plugin", b"v", on_delivery=lambda e, _: failures.append(e))
    assert producer.flush(30) == 0
    assert failures == [None]


def test_transactions_and_groups_of_the_new_protocol_work(sparkraft_cluster):
    bootstrap = {"bootstrap.servers": sparkraft_cluster.bootstrap}
    producer = Producer({**bootstrap, "transactional.id": "of-the-plugin"})
    producer.init_transactions(30)
    for value, end in ((b"kept", producer.commit_transaction), (b"no", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("in-transactions", value)
        assert producer.flush(30) == 0
        end(30)
    settings = {
        "group.id": "of-the-plugin",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer = Consumer({**bootstrap, **settings})
    consumer.subscribe(["in-transactions"])
    seen = []
    while not seen or seen[-1].error() is None:  # up to the end of the partition
        seen += consumer.consume(1, timeout=30)
    consumer.close()
    assert [message.value() for message in seen[:-1]] == [b"kept"]


def test_its_text_is_the_bootstrap_string(sparkraft_cluster):
    topics = AdminClient({"bootstrap.servers": str(sparkraft_cluster)}).list_topics(timeout=30)
    assert list(topics.brokers) == [1]


def test_it_serves_health(sparkraft_cluster):
    with urllib.request.urlopen(f"{sparkraft_cluster.http}/health", timeout=60) as answer:
        assert answer.status == 200


def test_it_starts_no_web_console(sparkraft_cluster):
    files = {path.name for path in sparkraft_cluster.directory.iterdir()}
    assert "cluster.json" in files
    assert not {name for name in files if name.startswith("console")}


def test_a_fresh_node_survives_a_kill_with_its_topics(fresh_sparkraft_cluster):
    admin = AdminClient({"bootstrap.servers": fresh_sparkraft_cluster.bootstrap})
    from confluent_kafka.admin import NewTopic

    admin.create_topics([NewTopic("kept", 3, 1)])["kept"].result(30)
    fresh_sparkraft_cluster.kill()
    fresh_sparkraft_cluster.restart()
    again = AdminClient({"bootstrap.servers": fresh_sparkraft_cluster.bootstrap})
    assert len(again.list_topics("kept", timeout=30).topics["kept"].partitions) == 3


def test_a_project_overrides_configs_in_its_conftest(pytester):
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def sparkraft_cluster_overrides():
            return {"num.partitions": "7"}
        """
    )
    pytester.makepyfile(
        """
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient

        def test_partitions(sparkraft_cluster):
            producer = Producer({"bootstrap.servers": sparkraft_cluster.bootstrap})
            producer.produce("made-by-itself", b"v")
            assert producer.flush(30) == 0
            admin = AdminClient({"bootstrap.servers": sparkraft_cluster.bootstrap})
            topic = admin.list_topics("made-by-itself", timeout=30).topics["made-by-itself"]
            assert len(topic.partitions) == 7
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_a_project_secures_the_cluster_in_its_conftest(pytester):
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def sparkraft_cluster_security():
            return "sasl_ssl"

        @pytest.fixture(scope="session")
        def sparkraft_cluster_users():
            return ["alice"]
        """
    )
    pytester.makepyfile(
        """
        from confluent_kafka import KafkaError, Producer
        from confluent_kafka.admin import AdminClient

        def test_users(sparkraft_cluster):
            failures = []
            producer = Producer(sparkraft_cluster.client_configs("alice"))
            for topic in ("alice-t", "others"):
                producer.produce(topic, b"v", on_delivery=lambda e, _: failures.append(e))
                assert producer.flush(30) == 0
            assert failures[0] is None
            assert failures[1].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
            admin = AdminClient(sparkraft_cluster.client_configs())
            assert "alice-t" in admin.list_topics(timeout=30).topics
            options = sparkraft_cluster.spark_options("alice")
            assert options["kafka.bootstrap.servers"] == sparkraft_cluster.bootstrap
            assert sparkraft_cluster.command_config("alice").exists()
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_an_open_cluster_needs_no_login(sparkraft_cluster, tmp_path):
    assert sparkraft_cluster.client_configs() == {"bootstrap.servers": sparkraft_cluster.bootstrap}
    assert list(sparkraft_cluster.spark_options()) == ["kafka.bootstrap.servers"]
    with pytest.raises(ValueError, match="sasl_ssl"):
        sparkraft_cluster.command_config()
    with pytest.raises(ValueError, match="not 'ssl'"):
        SparkraftCluster(tmp_path, security="ssl")
    with pytest.raises(ValueError, match="users need"):
        SparkraftCluster(tmp_path, users=["alice"])
