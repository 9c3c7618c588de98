"""A node for each file, clients of it, and one Spark session for this folder."""

import shutil

import pytest

from sparkraft.pipeline.options import ClientOptions, parse_servers
from sparkraft.pipeline.wire import Cluster
from tests.support.nodes import SparkraftNode


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with SparkraftNode(tmp_path_factory.mktemp("node") / "n") as started:
        yield started


@pytest.fixture
def client_options(node):
    return ClientOptions(
        bootstrap_servers=parse_servers(node.bootstrap), client_id="test", request_timeout_ms=60_000
    )


@pytest.fixture
def cluster(client_options):
    made = Cluster(client_options)
    yield made
    made.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    if not shutil.which("java"):
        pytest.skip("Spark needs Java 17 or newer, and there is no java on the PATH")
    from sparkraft.pipeline.session import session

    work = tmp_path_factory.mktemp("spark")
    started = session(
        "tests",
        master="local[2]",
        work=work / "work",
        log=work / "spark.log",
        settings={
            "spark.driver.memory": "512m",
            "spark.driver.extraJavaOptions": "-Xss4m -XX:+UseSerialGC",
        },
    )
    yield started
    started.stop()
