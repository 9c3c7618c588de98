"""Messages that travel inside other messages' bytes."""

from sparkraft.protocol.declare import Message, boolean, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    """A principal inside an Envelope, as Kafka's default builder writes it (KIP-590)."""

    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()
