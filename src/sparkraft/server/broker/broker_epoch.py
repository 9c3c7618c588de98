"""The broker epoch: the offset of this incarnation's registration record (KIP-631)."""

UNREGISTERED = -1


class BrokerEpoch:
    """Set by the lifecycle, when the controller has registered this broker."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = UNREGISTERED

    @property
    def is_known(self) -> bool:
        return self.value != UNREGISTERED

    def on_registered(self, epoch: int) -> None:
        self.value = epoch
