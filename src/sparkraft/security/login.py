"""A client's credentials: the mechanism, and the user it logs in as.

They come from a login module (`sasl.jaas.config`) with the options `username` and `password`. With
`tokenauth="true"`, a SCRAM module has the id and the HMAC of a delegation token (KIP-48).
"""

from dataclasses import dataclass
from typing import Protocol

from sparkraft.security.jaas import JaasError, LoginModule
from sparkraft.security.plain import PlainClient
from sparkraft.security.sasl import PASSWORD_MECHANISMS, PLAIN, SaslClient
from sparkraft.security.scram import BY_NAME, ScramClient
from sparkraft.security.secret import Secret

TOKEN_OPTION = "tokenauth"
"""`ScramLoginModule.TOKEN_AUTH_CONFIG`; PLAIN ignores it, as in Kafka."""


class Credentials(Protocol):
    """How connections of a client authenticate."""

    @property
    def mechanism(self) -> str:
        """The name of the SASL mechanism."""
        ...

    @property
    def blocks(self) -> bool:
        """Whether an exchange waits for the network, so that it needs a thread."""
        ...

    def client(self, nonce: str, host: str) -> SaslClient:
        """Begin an exchange with the node on `host`; `nonce` as in `ScramServer`."""
        ...


@dataclass(frozen=True, slots=True)
class Login:
    """A user and a password.

    Attributes:
        mechanism: one of `PASSWORD_MECHANISMS`.
        user: the name of the user; the id of a token.
        password: of the user; the HMAC of a token, in base64.
        by_token: whether it is a delegation token; not with PLAIN.
    """

    mechanism: str
    user: str
    password: Secret
    by_token: bool = False

    @property
    def blocks(self) -> bool:
        """Passwords need no other server."""
        return False

    def client(self, nonce: str, host: str) -> SaslClient:
        """Begin an exchange; `nonce` as in `ScramServer`."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        mechanism = BY_NAME[self.mechanism]
        return ScramClient(mechanism, self.user, self.password, nonce=nonce, by_token=self.by_token)


def login_of(mechanism: str, module: LoginModule) -> Login:
    """The credentials in a login module.

    Raises:
        JaasError: the module is for other mechanisms or lacks an option, or we do not implement the
            mechanism.
    """
    if mechanism not in PASSWORD_MECHANISMS:
        known = ", ".join(PASSWORD_MECHANISMS)
        raise JaasError(f"SASL mechanism {mechanism} is not implemented; there are {known}")
    module.check_mechanism(mechanism)
    user, password = module.text("username"), module.options.get("password")
    if not user or password is None:
        raise JaasError(f"the login module of {mechanism} needs the options username and password")
    by_token = mechanism in BY_NAME and module.text(TOKEN_OPTION).lower() == "true"
    return Login(mechanism, user, password, by_token)
