"""DescribeUserScramCredentials (key 50): v0, flexible from v0."""

from sparkraft.protocol.declare import Message, array, int8, int16, int32, string


class UserName(Message):
    """A user: `DescribeUserScramCredentialsRequest.users`."""

    name: str = string()


class DescribeUserScramCredentialsRequest(Message, key=50, versions="0", flexible="0+"):
    """Asks which SCRAM credentials users have (KIP-554)."""

    users: list[UserName] | None = array(UserName, nullable=True)


class CredentialInfo(Message):
    """Mechanism and iterations: `DescribeUserScramCredentialsResponse.results.credential_infos`."""

    mechanism: int = int8()
    iterations: int = int32()


class DescribeUserScramCredentialsResult(Message):
    """One user: `DescribeUserScramCredentialsResponse.results`."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


class DescribeUserScramCredentialsResponse(Message, key=50, versions="0", flexible="0+"):
    """Mechanisms and iterations, never a secret."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable=True)
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
