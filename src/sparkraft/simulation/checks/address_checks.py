"""Z11: the addresses of brokers in ZooKeeper mode, which change while the brokers run.

At each write of a registration:
    a broker registers once in a session, and only that session changes the registration
At each UpdateMetadata that a broker obeys:
    the endpoints of a broker are those of one of its registrations, and a controller never sends
    earlier ones after later ones
At the end:
    the configs of a broker have a value that was acknowledged last, or a later one without a
    response; its registration has these listeners; all brokers know them
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sparkraft.metadata.configs.broker import ADVERTISED_LISTENERS
from sparkraft.simulation.checks.probe import Probe, Require
from sparkraft.simulation.checks.znode_image import BROKER_IDS, find, read_json
from sparkraft.zookeeper.requests import Create, Delete, Operation

if TYPE_CHECKING:
    from sparkraft.simulation.world.machine import Machine
    from sparkraft.simulation.world.znodes import Znodes

BROKER_CONFIGS = "/config/brokers"

Addresses = tuple[tuple[str, int], ...]
"""Host and port of each listener."""


class AddressChecks:
    """See the module docstring.

    Attributes:
        possible: broker → the values that its advertised.listeners may have; brokers whose
            listeners were never changed are missing.
    """

    def __init__(self, probe: Probe, require: Require) -> None:
        self.possible: dict[int, set[str]] = {}
        self._probe = probe
        self._require = require
        self._sessions: dict[int, int] = {}
        """Broker → the session of its last registration."""
        self._registered: dict[int, list[Addresses]] = defaultdict(list)
        """Broker → the addresses that its registrations had, oldest first."""
        self._sent: dict[tuple[str, int, int, int], int] = {}
        """Receiver, its process, controller epoch and a broker → the place of the addresses that
        were sent last in `_registered`."""

    def on_written(self, writer: str, session: int, write: Operation, znodes: "Znodes") -> None:
        """Check an applied write of a registration."""
        broker = int(write.path.rpartition("/")[2])
        if isinstance(write, Delete):
            return
        if isinstance(write, Create):
            self._require(
                self._sessions.get(broker) != session,
                "Z11",
                f"{writer} registers broker {broker} a second time in session 0x{session:x}",
            )
            self._sessions[broker] = session
            return
        owner = znodes.get(write.path).owner
        self._require(
            owner == session,
            "Z11",
            f"{writer} changes {write.path} in session 0x{session:x}, its owner is 0x{owner:x}",
        )
        endpoints = read_json(znodes, write.path)["endpoints"]
        self._registered[broker].append(tuple(map(_address, endpoints)))

    def on_obeyed(self, machine: "Machine", request: Any) -> None:
        """Check an UpdateMetadata that a broker obeys."""
        for broker in request.live_brokers:
            sent = tuple((each.host, each.port) for each in broker.endpoints)
            known = self._registered[broker.id]
            key = (machine.name, machine.life, request.controller_epoch, broker.id)
            first = self._sent.get(key, 0)
            place = next((at for at in range(first, len(known)) if known[at] == sent), None)
            self._require(
                place is not None,
                "Z11",
                f"{machine.name} is sent {sent} of broker {broker.id} in controller epoch "
                f"{request.controller_epoch}; its registrations have had {known[first:]}",
            )
            self._sent[key] = first if place is None else place

    def differences(self, znodes: "Znodes") -> Iterator[str]:
        """Describe addresses that are not those of the configs."""
        for machine in self._probe.brokers:
            node: Any = machine.live_node
            stored = read_json(znodes, f"{BROKER_IDS}/{machine.id}")
            if node is None or stored is None:
                continue  # not a matter of addresses
            static = node.config.properties[ADVERTISED_LISTENERS]
            configured = stored_listeners(znodes, machine.id) or static
            if stored["endpoints"] != configured.split(","):
                yield f"{machine.name} has registered {stored['endpoints']}, not {configured}"
            wanted = tuple(map(_address, stored["endpoints"]))
            for other in self._probe.brokers:
                yield from _unknown_to(other, machine, wanted)

    def check_end(self, znodes: "Znodes") -> None:
        """Check that no acknowledged change is lost."""
        for broker, possible in sorted(self.possible.items()):
            machine = next(each for each in self._probe.brokers if each.id == broker)
            node: Any = machine.live_node
            static = node.config.properties[ADVERTISED_LISTENERS]
            found = stored_listeners(znodes, broker) or static
            self._require(
                found in possible,
                "Z11",
                f"broker {broker} was given {sorted(possible)}, it is configured with {found}",
            )


def stored_listeners(znodes: "Znodes", broker: int) -> str | None:
    """Return advertised.listeners in the dynamic configs of a broker."""
    stored = read_json(znodes, f"{BROKER_CONFIGS}/{broker}") or {}
    value: str | None = stored.get("config", {}).get(ADVERTISED_LISTENERS)
    return value


def listeners_in_znodes(znodes: "Znodes", broker: int) -> set[str]:
    """Return the advertised listeners of a broker that ZooKeeper has anywhere."""
    configured = stored_listeners(znodes, broker)
    found = set() if configured is None else {configured}
    if find(znodes, f"{BROKER_IDS}/{broker}") is not None:
        found.add(",".join(read_json(znodes, f"{BROKER_IDS}/{broker}")["endpoints"]))
    return found


def _unknown_to(other: "Machine", machine: "Machine", wanted: Addresses) -> Iterator[str]:
    node: Any = other.live_node
    if node is None or node.broker is None:
        return
    known = node._image().brokers.get(machine.id)  # noqa: SLF001 (a checker looks inside)
    if known is not None:
        found = tuple((each.host, each.port) for each in known.endpoints)
        if found != wanted:
            yield f"{other.name} knows {machine.name} at {found}, it is at {wanted}"


def _address(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint such as `PLAINTEXT://n11:9092`."""
    host, _, port = endpoint.partition("://")[2].rpartition(":")
    return host, int(port)
