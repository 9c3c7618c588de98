"""SASL/OAUTHBEARER, the client's side (RFC 7628). The server's is in `oauthbearer`."""

from sparkraft.security.sasl import SaslError
from sparkraft.security.secret import Secret

_ACKNOWLEDGEMENT = b"\x01"


class OAuthBearerClient:
    """Sends an access token, and ends the exchange if the server does not accept it."""

    def __init__(self, token: Secret) -> None:
        self._token = token
        self._is_refused = False

    def first(self) -> bytes:
        """Return the first message."""
        return f"n,,\x01auth=Bearer {self._token.reveal()}\x01\x01".encode()

    def respond(self, token: bytes) -> bytes | None:
        """Take the empty response, or acknowledge a failure: then the server ends the exchange."""
        if not token:
            return None
        if self._is_refused:
            raise SaslError("the server continued after it had refused the access token")
        self._is_refused = True
        return _ACKNOWLEDGEMENT
