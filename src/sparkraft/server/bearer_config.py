"""OAUTHBEARER between nodes: the `sasl.oauthbearer.*` configs with which a node gets its token.

    listener.name.<listener>.oauthbearer.<key>, listener.name.<listener>.<key> or <key>

Which tokens a listener accepts is in `oauth_config`.
"""

from typing import TYPE_CHECKING

from sparkraft.client.bearer_login import Allowance, bearer_login
from sparkraft.metadata.configs import BROKER_CONFIGS
from sparkraft.metadata.configs.broker import listener_key
from sparkraft.security.sasl import OAUTHBEARER
from sparkraft.server.config import ALLOWED_FILES, ALLOWED_URLS, ConfigError

if TYPE_CHECKING:
    from sparkraft.security.jaas import LoginModule
    from sparkraft.security.login import Credentials
    from sparkraft.server.config import NodeConfig


def bearer_login_of(config: "NodeConfig", listener: str, module: "LoginModule") -> "Credentials":
    """The credentials of this node for other nodes' `listener`.

    Raises:
        ConfigError: a config is missing, invalid or not allowed, or the login module is for other
            mechanisms.
    """

    def read(key: str) -> str | None:
        for prefix in (f"{OAUTHBEARER.lower()}.", ""):
            text = config.properties.get(listener_key(listener, prefix + key))
            if text is not None:
                return text
        text = config.properties.get(key)
        if text is None and key in BROKER_CONFIGS and config[key] is not None:
            return str(config[key])
        return text

    try:
        allowance = Allowance(
            urls=config.words(ALLOWED_URLS),
            files=config.words(ALLOWED_FILES),
            urls_by=ALLOWED_URLS,
            files_by=ALLOWED_FILES,
        )
        return bearer_login(read, module, allowance)
    except ValueError as error:
        raise ConfigError(f"listener {listener}: {error}") from None
