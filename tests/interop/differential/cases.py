"""The requests that both nodes get, in order: every key of the single node, every version, good and bad.

Cases build on one another (a topic is created before it is read), so they are run as one
conversation. Where an answer depends on the node (ids, members), `after` keeps it for later ones.
"""

from collections.abc import Callable, Iterator

from sparkraft.protocol.api_keys import ApiKey
from sparkraft.protocol.messages import (
    k03_metadata as k03,
)
from sparkraft.protocol.messages import (
    k17_sasl_handshake as k17,
)
from sparkraft.protocol.messages import (
    k18_api_versions as k18,
)
from sparkraft.protocol.messages import (
    k36_sasl_authenticate as k36,
)
from tests.interop.differential.admin_cases import administration, leadership, scram_users
from tests.interop.differential.building import every_version
from tests.interop.differential.consumer_group_cases import consumer_groups
from tests.interop.differential.failover_cases import failovers
from tests.interop.differential.group_cases import groups
from tests.interop.differential.migration_cases import migrations
from tests.interop.differential.nonsense_cases import absurd_transactions
from tests.interop.differential.nonsense_group_cases import absurd_groups
from tests.interop.differential.record_cases import produces, reads
from tests.interop.differential.topic_cases import creations, deletions, metadata
from tests.interop.differential.transaction_cases import transactions
from tests.interop.differential.transactional_produce_cases import transactional_produces
from tests.interop.differential.world import Case


def with_version(number: int) -> Callable[[bytes], bytes]:
    """Changes the version that a frame's header claims."""
    return lambda frame: frame[:2] + number.to_bytes(2, "big") + frame[4:]


def handshakes() -> Iterator[Case]:
    """What a client asks before it knows anything."""
    key = ApiKey.API_VERSIONS
    name = {"client_software_name": "differential", "client_software_version": "1.0"}
    yield from every_version(key, "hello", lambda _: k18.ApiVersionsRequest(**name))
    yield from every_version(
        key, "bad name", lambda _: k18.ApiVersionsRequest(client_software_name="--"), since=3
    )
    yield Case(
        "too new",
        key,
        3,
        lambda _: k18.ApiVersionsRequest(**name),
        raw=with_version(99),
        answered_in=0,
    )
    yield from every_version(
        ApiKey.SASL_HANDSHAKE, "on PLAINTEXT", lambda _: k17.SaslHandshakeRequest(mechanism="PLAIN")
    )
    yield from every_version(
        ApiKey.SASL_AUTHENTICATE,
        "on PLAINTEXT",
        lambda _: k36.SaslAuthenticateRequest(auth_bytes=b"\0a\0b"),
    )


def broken_frames() -> Iterator[Case]:
    """Frames that mean nothing; each ends its connection."""
    hello = lambda _: k18.ApiVersionsRequest()  # noqa: E731 (a builder like the others)
    everything = lambda _: k03.MetadataRequest(topics=None)  # noqa: E731 (a builder like the others)

    def with_key(number: int) -> Callable[[bytes], bytes]:
        return lambda frame: number.to_bytes(2, "big") + frame[2:]

    for number in (4, 5, 6, 7, 52, 62, 94, 999):
        yield Case(f"key {number}", ApiKey.METADATA, 8, everything, raw=with_key(number))
    for number in (14, 99, 32767):
        yield Case(f"version {number}", ApiKey.METADATA, 8, everything, raw=with_version(number))
    for number in (3, 18, 20, 19):
        yield Case(
            f"cut by {number}",
            ApiKey.METADATA,
            9,
            everything,
            raw=lambda frame, n=number: frame[:-1] if n == 3 else frame[:n],
        )
    yield Case("too much", ApiKey.API_VERSIONS, 0, hello, raw=lambda frame: frame + b"more")


def transaction_cases(level: int) -> list[Case]:
    """Transactions at an older transaction.version."""
    return [
        *creations(), *transactions(level), *transactional_produces(level), *absurd_transactions(level),
        *failovers(level),
    ]  # fmt: skip


def all_cases() -> list[Case]:
    """The whole conversation, in order."""
    parts = (
        handshakes, creations, metadata, produces, reads, groups, transactions, transactional_produces,
        consumer_groups, migrations, administration, scram_users, leadership, deletions, broken_frames,
        absurd_transactions, absurd_groups, failovers,
    )  # fmt: skip
    return [case for part in parts for case in part()]
