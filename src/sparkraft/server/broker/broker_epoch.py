"""The broker epoch: the offset of this incarnation's registration record (KIP-631).

In ZooKeeper mode it is the czxid of the registration (KIP-380).
"""

UNREGISTERED = -1


class BrokerEpoch:
    """Set by the lifecycle, when this broker has been registered."""

    __slots__ = ("_registered",)

    def __init__(self) -> None:
        self._registered = UNREGISTERED

    @property
    def value(self) -> int:
        """The epoch for requests to the controller; -1 before the registration."""
        return self._registered

    @property
    def is_known(self) -> bool:
        return self.value != UNREGISTERED

    def on_registered(self, epoch: int) -> None:
        self._registered = epoch
