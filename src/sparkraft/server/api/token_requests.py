"""Which clients may send requests about delegation tokens (KIP-48).

As Kafka's KafkaApis and ControllerApis, the broker of a client and the controller check it:

* A client that authenticated with a token may not: otherwise one token would yield the next one,
  and no maximum lifetime would hold.
* Neither may a client that did not authenticate: on a PLAINTEXT listener, or on an SSL listener
  without a certificate. The broker of a forwarded request has checked this.
"""

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.security.principal import ANONYMOUS
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.session import Session

ERROR_TIMESTAMP = -1
"""DelegationTokenManager.ERROR_TIMESTAMP: the time in the response to a client that may not."""


def token_request_refusal(session: Session) -> KafkaError | None:
    """DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, or None if the client may send such a request."""
    if session.principal.token_authenticated or not _authenticated(session):
        return KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
    return None


def _authenticated(session: Session) -> bool:
    if session.is_forwarded:
        return True
    protocol = session.security_protocol
    is_anonymous = protocol is SecurityProtocol.SSL and session.principal == ANONYMOUS
    return protocol is not SecurityProtocol.PLAINTEXT and not is_anonymous
