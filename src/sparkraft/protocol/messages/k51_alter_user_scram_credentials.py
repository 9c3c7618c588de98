"""AlterUserScramCredentials (key 51): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, array, blob, int8, int16, int32, secret, string


class ScramCredentialDeletion(Message):
    """A credential to delete: `AlterUserScramCredentialsRequest.deletions`."""

    name: str = string()
    mechanism: int = int8()


class ScramCredentialUpsertion(Message):
    """A credential to set: `AlterUserScramCredentialsRequest.upsertions`."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = blob()
    salted_password: bytes = secret(blob())


class AlterUserScramCredentialsRequest(Message, key=51, versions="0", flexible="0+"):
    """Sets and deletes SCRAM credentials (KIP-554)."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


class AlterUserScramCredentialsResult(Message):
    """Result for a user: `AlterUserScramCredentialsResponse.results`."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)


class AlterUserScramCredentialsResponse(Message, key=51, versions="0", flexible="0+"):
    """An error for each user."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
