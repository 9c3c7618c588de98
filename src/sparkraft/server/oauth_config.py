"""OAUTHBEARER on listeners: the `sasl.oauthbearer.*` configs, and who validates tokens.

    listener.name.<listener>.oauthbearer.<key>, listener.name.<listener>.<key> or <key>

Fails closed: without sasl.oauthbearer.jwks.endpoint.url the node does not start. In Kafka, the
default callback handler accepts tokens without a signature; the one that validates them,
`OAuthBearerValidatorCallbackHandler`, may be named here and is always used.
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from sparkraft.metadata.configs import BROKER_CONFIGS, ConfigValue, parse_value
from sparkraft.metadata.configs.broker import listener_key
from sparkraft.security.access_tokens import AccessToken, TokenRules
from sparkraft.security.oauthbearer import OAuthBearerServer
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.server.config import ALLOWED_URLS, ConfigError
from sparkraft.server.key_sets import KeySet, KeySetError, KeySource

if TYPE_CHECKING:
    from sparkraft.base.env import Clock
    from sparkraft.server.config import NodeConfig

_PACKAGE = "org.apache.kafka.common.security.oauthbearer"
_CLASSES = {
    "sasl.server.callback.handler.class": {
        f"{_PACKAGE}.OAuthBearerValidatorCallbackHandler",
        f"{_PACKAGE}.secured.OAuthBearerValidatorCallbackHandler",
    },
    "sasl.oauthbearer.jwt.validator.class": {
        f"{_PACKAGE}.DefaultJwtValidator",
        f"{_PACKAGE}.BrokerJwtValidator",
    },
}
"""Config → the classes of Kafka whose behavior is implemented."""


class OAuthListeners:
    """Begins the exchanges of a node's OAUTHBEARER listeners; those with one JWKS share it."""

    def __init__(self, config: "NodeConfig", clock: "Clock") -> None:
        self._config = config
        self._clock = clock
        self._key_sets: dict[KeySource, KeySet] = {}

    def begin_on(self, listener: str) -> Callable[[], OAuthBearerServer]:
        """Read the JWKS of a listener; returns what begins an exchange there.

        Raises:
            ConfigError: a config is missing, not allowed or invalid, or the JWKS cannot be read.
        """
        for key, known in _CLASSES.items():
            given = self._value(listener, key)
            if given is not None and given not in known:
                raise ConfigError(f"listener {listener}: class {given} of {key} can't be loaded")
        keys = self._keys_of(listener)
        rules = self._rules_of(listener)
        clock = self._clock

        def validate(token: str) -> AccessToken:
            return rules.validate(token, keys.find, clock.wall_ms() / 1000)

        return partial(OAuthBearerServer, validate)

    def _keys_of(self, listener: str) -> KeySet:
        url_key = "sasl.oauthbearer.jwks.endpoint.url"
        url = self._value(listener, url_key)
        if not isinstance(url, str) or not url:
            raise ConfigError(
                f"listener {listener}: {OAUTHBEARER} needs {url_key}; tokens without a signature "
                "are not accepted"
            )
        if url not in self._config.words(ALLOWED_URLS):
            raise ConfigError(f"listener {listener}: {url_key} is not in {ALLOWED_URLS}")
        source = KeySource(
            url=url,
            refresh_ms=self._number(listener, "sasl.oauthbearer.jwks.endpoint.refresh.ms"),
            retry_ms=self._number(listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms"),
            retry_ms_max=self._number(
                listener, "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"
            ),
        )
        if source not in self._key_sets:
            try:
                self._key_sets[source] = KeySet(source, self._clock)
            except KeySetError as error:
                raise ConfigError(f"listener {listener}: {error}") from None
        return self._key_sets[source]

    def _rules_of(self, listener: str) -> TokenRules:
        audiences = self._value(listener, "sasl.oauthbearer.expected.audience")
        assert audiences is None or isinstance(audiences, tuple)
        issuer = self._value(listener, "sasl.oauthbearer.expected.issuer")
        return TokenRules(
            audiences=frozenset(audiences or ()),
            issuer=None if issuer is None else str(issuer),
            clock_skew_s=self._number(listener, "sasl.oauthbearer.clock.skew.seconds"),
            user_claim=str(self._value(listener, "sasl.oauthbearer.sub.claim.name")),
            scope_claim=str(self._value(listener, "sasl.oauthbearer.scope.claim.name")),
        )

    def _number(self, listener: str, key: str) -> int:
        value = self._value(listener, key)
        assert isinstance(value, int), key
        return value

    def _value(self, listener: str, key: str) -> ConfigValue:
        for prefix in (f"{OAUTHBEARER.lower()}.", ""):
            text = self._config.properties.get(listener_key(listener, prefix + key))
            if text is not None:
                return parse_value(BROKER_CONFIGS[key], text)
        return self._config[key]
