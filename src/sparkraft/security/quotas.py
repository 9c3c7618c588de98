"""Client quotas: their keys, the types of entities, and which quota is in force.

    user  client-id
    alice  app          1   of one user and client id: a bucket for each pair
    alice  <default>    2
    alice               3   of one user: a bucket for each user
    <default>  app      4
    <default> <default> 5
    <default>           6
           app          7   of one client id: a bucket for each client id
           <default>    8

The first that is set is in force (KIP-55). Clients that share a bucket share its quota.
"""

from collections.abc import Iterable, Mapping

QuotaEntity = tuple[tuple[str, str | None], ...]
"""Sorted (entity type, name) pairs; a name of None is the default of its type."""

USER, CLIENT_ID, IP = "user", "client-id", "ip"

PRODUCER_BYTE_RATE = "producer_byte_rate"
CONSUMER_BYTE_RATE = "consumer_byte_rate"
REQUEST_PERCENTAGE = "request_percentage"
CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
CONNECTION_CREATION_RATE = "connection_creation_rate"

USER_AND_CLIENT_KEYS = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
"""Quotas of users and client ids."""

IP_KEYS = frozenset({CONNECTION_CREATION_RATE})
"""Quotas of addresses."""

INTEGRAL_MAX: Mapping[str, int] = {
    PRODUCER_BYTE_RATE: (1 << 63) - 1,
    CONSUMER_BYTE_RATE: (1 << 63) - 1,
    CONNECTION_CREATION_RATE: (1 << 31) - 1,
}
"""Quotas that must be whole numbers, with the largest value."""


def quota_entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """The entity of (type, name) pairs; of a type that is given twice the last one counts."""
    return tuple(sorted(dict(parts).items(), key=lambda part: part[0]))
