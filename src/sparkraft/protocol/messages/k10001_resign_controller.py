"""ResignController (key 10001): v0, flexible from v0. Ours; Kafka has no such request."""

from sparkraft.protocol.declare import Message, int16, int32, string


class ResignControllerRequest(Message, key=10_001, versions="0", flexible="0+"):
    """Asks the active controller to hand its leadership over; -1 means whatever epoch it leads."""

    epoch: int = int32(default=-1)


class ResignControllerResponse(Message, key=10_001, versions="0", flexible="0+"):
    """The epoch that was given up, or an error."""

    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    epoch: int = int32(default=-1)
