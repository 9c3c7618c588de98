"""The TLS of one listener: its context, and the users of client certificates.

Not here: the stream between socket and connection (`sparkraft.tls.stream`).
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import DecodeError
from sparkraft.security.distinguished_name import subject_of
from sparkraft.security.principal import ANONYMOUS, USER, KafkaPrincipal
from sparkraft.security.principal_mapping import NoMatchingRuleError, PrincipalMapping
from sparkraft.tls.contexts import server_context
from sparkraft.tls.stream import TlsFailedError

if TYPE_CHECKING:
    import ssl

    from sparkraft.security.tls_settings import TlsSettings


class ListenerTls:
    """See the module docstring."""

    def __init__(self, settings: "TlsSettings") -> None:
        """Read the stores.

        Raises:
            TlsConfigError: one is missing, cannot be read or is invalid.
        """
        self._context = server_context(settings)
        self._mapping = PrincipalMapping(settings.mapping_rules)

    def context(self) -> "ssl.SSLContext":
        """The context of a new connection."""
        return self._context

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
