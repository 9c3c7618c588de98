"""The TLS of one listener: its context, and the users of client certificates.

Not here: the stream between socket and connection (`sparkraft.tls.stream`).
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import DecodeError
from sparkraft.security.distinguished_name import subject_of
from sparkraft.security.principal import ANONYMOUS, USER, KafkaPrincipal
from sparkraft.security.principal_mapping import NoMatchingRuleError, PrincipalMapping
from sparkraft.tls.stream import TlsFailedError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable


class ListenerTls:
    """See the module docstring.

    Attributes:
        context: returns the context of a new connection.
    """

    def __init__(self, context: "Callable[[], ssl.SSLContext]", mapping_rules: str) -> None:
        self.context = context
        self._mapping = PrincipalMapping(mapping_rules)

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """The user of a client by its verified certificate (DER); ANONYMOUS without one.

        Raises:
            TlsFailedError: no mapping rule matches the certificate's name.
        """
        if certificate is None:
            return ANONYMOUS
        try:
            return KafkaPrincipal(USER, self._mapping.user_of(subject_of(certificate)))
        except (DecodeError, NoMatchingRuleError) as error:
            raise TlsFailedError(str(error)) from error
