"""Writes configs into ZooKeeper, guarded by /controller (`KafkaZkClient.setOrCreateEntityConfigs`).

In one transaction the version of /controller is checked, so that no broker writes a config while a
KRaft controller migrates the cluster (KIP-866). The first config of an entity is created without
that check, as in Kafka.
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.zookeeper.errors import Code, MultiError, NodeExistsError, NoNodeError
from sparkraft.zookeeper.requests import Check, Create, GetData, Multi, SetData
from sparkraft.zookeeper.znodes.cluster import CONTROLLER, decode_controller
from sparkraft.zookeeper.znodes.topics import CONFIG, encode_configs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.zookeeper.client import ZooKeeperClient


async def write_config(client: "ZooKeeperClient", entity: str, values: "Mapping[str, str]") -> None:
    """Replace the configs of an entity, such as `topics/t`.

    Raises:
        KafkaError: STALE_CONTROLLER_EPOCH without a controller, or with one of KRaft.
    """
    path = f"{CONFIG}/{entity}"
    data = encode_configs(dict(values))
    while True:
        check = Check(path=CONTROLLER, version=await _controller_version(client))
        try:
            await client.submit_until_connected(Multi((check, SetData(path=path, data=data))))
        except MultiError as error:
            if error.code == Code.NO_NODE and error.index == 1:
                if await _create(client, path, data):
                    return
                continue  # another broker has created it
            if error.index == 0:
                continue  # the controller moved
            raise
        return


async def _controller_version(client: "ZooKeeperClient") -> int:
    try:
        data, stat = await client.submit_until_connected(GetData(path=CONTROLLER))
    except NoNodeError:
        wrong = "no broker is the controller"
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, wrong) from None
    if decode_controller(CONTROLLER, data).kraft_epoch > 0:
        wrong = "a KRaft controller migrates the cluster"
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, wrong)
    return int(stat.version)


async def _create(client: "ZooKeeperClient", path: str, data: bytes) -> bool:
    """Create the znode and those above it; false if it exists."""
    await client.create_recursive(path.rpartition("/")[0])
    try:
        await client.submit_until_connected(Create(path=path, data=data))
    except NodeExistsError:
        return False
    return True
