"""Entities with configs: topics, brokers, users, client ids and addresses, as paths below /config.

    topics/T, brokers/N, users/U, users/U/clients/C, clients/C, ips/A

Names of users and client ids are URL-encoded (Kafka's `Sanitizer`); `<default>` stands for all.
"""

from urllib.parse import quote

from sparkraft.security.quotas import CLIENT_ID, INTEGRAL_MAX, IP, USER, QuotaEntity

DEFAULT_ENTITY = "<default>"
"""Name of the znode for all brokers, users, client ids or addresses."""

_QUOTA_KINDS = {USER: "users", CLIENT_ID: "clients", IP: "ips"}


def sanitized(name: str) -> str:
    """URL-encode a name as Kafka's `Sanitizer` does."""
    return quote(name, safe="").replace("~", "%7E")


def quota_path(entity: QuotaEntity) -> str | None:
    """The path below /config: `users/alice/clients/app`; None for an invalid entity."""
    names = dict(entity)
    parts = []
    for kind in (USER, CLIENT_ID, IP):
        if kind in names:
            name = names.pop(kind)
            shown = DEFAULT_ENTITY if name is None else sanitized(name)
            parts.append(f"{_QUOTA_KINDS[kind]}/{shown}")
    return None if names or not parts else "/".join(parts)


def is_integral(key: str) -> bool:
    """Whether a quota is written without a fraction."""
    return key in INTEGRAL_MAX
