"""ApiVersions of a broker in ZooKeeper mode has the finalized features of /feature; simulated."""

import pytest

from sparkraft.zookeeper.requests import Create, Delete, SetData
from tests.server.harness import run, until
from tests.zookeeper.broker.nodes import nodes_in

pytestmark = pytest.mark.real_time

ONE = b'{"features":{"f":{"max_version_level":3}},"version":2,"status":1}'


async def described(admin):
    """Finalized levels and their epoch; no feature is supported."""
    found = await admin.describe_features()
    assert found.supported == {}
    return found.finalized, found.epoch


def test_clients_see_the_finalized_features_and_their_epoch(tmp_path, caplog):
    """Kafka 3.9 (`FinalizedFeatureChangeListener`): the epoch is the version of the znode."""

    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1)

            async def sees(levels, epoch):
                async with nodes.admin() as admin:
                    await until(lambda: _equals(admin, (levels, epoch)))

            await sees({}, 0)
            # The controller has created the znode.
            assert b'"features":{}' in nodes.ensemble.znodes.get("/feature").data
            await nodes.submit(SetData(path="/feature", data=ONE))
            await sees({"f": 3}, 1)
            assert "/feature finalizes f at level 3" in caplog.text
            await nodes.submit(SetData(path="/feature", data=ONE.replace(b":1}", b":0}")))
            await sees({}, -1)
            await nodes.submit(SetData(path="/feature", data=ONE))
            await sees({"f": 3}, 3)
            await nodes.submit(Delete(path="/feature"))
            await sees({}, -1)
            await nodes.submit(Create(path="/feature", data=ONE))
            await sees({"f": 3}, 0)
            await nodes.submit(SetData(path="/feature", data=b"a stranger"))
            await sees({}, -1)
            assert "No feature is finalized: /feature: expected JSON" in caplog.text

    run(test())


def test_a_new_session_reads_them_again(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, 2)
            features = nodes[2].broker.finalized_features
            await until(lambda: features.epoch == 0)
            nodes.ensemble.expire(nodes[2].session_id)
            nodes.ensemble.znodes.apply(SetData(path="/feature", data=ONE), 0, 0)
            await until(lambda: (features.levels, features.epoch) == ({"f": 3}, 1))

    run(test())


def test_before_2_7_brokers_have_no_features(tmp_path):
    async def test():
        async with nodes_in(tmp_path) as nodes:
            await nodes.start(1, inter_broker_protocol_version="2.6")
            await nodes.submit(SetData(path="/feature", data=ONE))
            async with nodes.admin() as admin:
                assert await described(admin) == ({}, -1)

    run(test())


async def _equals(admin, expected):
    return await described(admin) == expected
