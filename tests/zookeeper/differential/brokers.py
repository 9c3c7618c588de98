"""A broker of each kind alone in a cluster of its own, as the cases see it."""

from typing import Any

from sparkraft.zookeeper.errors import NoNodeError
from sparkraft.zookeeper.requests import GetChildren
from tests.interop.differential.normalise import normalise
from tests.interop.differential.world import World
from tests.support.nodes import NodeProcess
from tests.support.ports import wait_until
from tests.support.zookeeper import submit
from tests.support.zookeeper_brokers import KafkaBroker, OurBroker

_BY_NAME = frozenset({"configs", "apiKeys"})
"""Lists that are compared by the names of their entries."""


class _Returning(NodeProcess):
    """Starts again only once ZooKeeper has removed the registration of the process before."""

    ensemble: str

    def start(self) -> None:
        """Wait for the end of the former session, and start."""
        wait_until(lambda: not self._registered(), "the former session has ended")
        super().start()

    def _registered(self) -> list[str]:
        try:
            names, _ = submit(self.ensemble, GetChildren(path="/brokers/ids"))
        except NoNodeError:
            return []
        return list(names)


class Kafka(_Returning, KafkaBroker):
    """Kafka 3.9's."""


class Ours(_Returning, OurBroker):
    """Ours."""


class ZooKeeperWorld(World):
    """A broker whose ensemble has a neutral name, too."""

    def neutral(self, text: str) -> str:
        """`text` without the broker's own ports, folder and chroot."""
        node = self.node
        assert isinstance(node, KafkaBroker | OurBroker)
        return super().neutral(text.replace(node.ensemble, "ENSEMBLE"))


def normalise_by_name(world: World, answer: Any) -> Any:
    """As `normalise`; configs and versions by name, and without the cluster's id."""
    return _by_name(normalise(world, answer))


def _by_name(answer: Any, name: str = "") -> Any:
    if isinstance(answer, dict):
        return {key: _by_name(value, key) for key, value in answer.items()}
    if name == "clusterId":
        return "its cluster"
    if not isinstance(answer, list):
        return answer
    entries = [_by_name(entry) for entry in answer]
    if name not in _BY_NAME:
        return entries
    return {str(entry.get("name", entry.get("apiKey"))): entry for entry in entries}
