"""`delegation-tokens`: creates, renews, expires and describes tokens, as Kafka's command does.

Options, texts and tables are those of Kafka's DelegationTokenCommand, HMACs included. One thing
differs: `--describe` without `--owner-principal` shows all tokens that the user may see, which is
what Kafka documents. Kafka's command shows none, because it sends an empty list of owners.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from sparkraft.cli.errors import UsageError
from sparkraft.cli.options import Options, Values, exactly_one
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.token_admin import TokenAdmin, TokenInfo
from sparkraft.security.acls import is_principal
from sparkraft.security.principal import KafkaPrincipal

if TYPE_CHECKING:
    from collections.abc import Sequence

_COLUMNS = (
    ("TOKENID", 15),
    ("HMAC", 30),
    ("OWNER", 15),
    ("REQUESTER", 15),
    ("RENEWERS", 25),
    ("ISSUEDATE", 15),
    ("EXPIRYDATE", 15),
    ("MAXDATE", 15),
)

_REQUIRED = {
    "create": ("max_life_time_period",),
    "renew": ("hmac", "renew_time_period"),
    "expire": ("hmac", "expiry_time_period"),
    "describe": (),
}

_EXCLUDED = {
    "create": ("hmac", "renew_time_period", "expiry_time_period"),
    "renew": ("renewer_principal", "max_life_time_period", "expiry_time_period", "owner_principal"),
    "expire": ("max_life_time_period", "renew_time_period", "owner_principal"),
    "describe": ("renew_time_period", "max_life_time_period", "hmac", "expiry_time_period"),
}
"""Action → options that cannot be used with it."""


def main(argv: list[str]) -> int:
    """Do the one action."""
    values = _options().parse(argv)
    action = exactly_one(values, ("--create", "--renew", "--expire", "--describe"))[2:]
    _check(values, action)
    actions = {"create": _create, "renew": _renew, "expire": _expire, "describe": _describe}
    return run(_main(values, actions[action]))


def _options() -> Options:
    options = Options("delegation-tokens", "Creates, renews, expires and describes tokens.")
    options.connection()
    options.flag("--create", "create a token; --max-life-time-period is required")
    options.flag("--renew", "let a token expire later")
    options.flag("--expire", "let a token expire earlier, or remove it")
    options.flag("--describe", "describe tokens, with their HMACs")
    options.values(
        "--owner-principal",
        about="the owner: Type:name, such as User:alice; default: the user, for --describe all",
        metavar="PRINCIPAL",
    )
    options.values(
        "--renewer-principal", about="a user that may renew the token", metavar="PRINCIPAL"
    )
    for name, about in (
        ("--max-life-time-period", "the lifetime; -1: delegation.token.max.lifetime.ms"),
        ("--renew-time-period", "time to the new expiry; -1: delegation.token.expiry.time.ms"),
        ("--expiry-time-period", "time to the new expiry; -1: remove the token at once"),
    ):
        options.value(name, about=f"{about} (milliseconds)", metavar="MS", type=int)
    options.value("--hmac", about="the HMAC of the token, in base64", metavar="HMAC")
    options.output()
    return options


def _check(values: Values, action: str) -> None:
    if values.command_config is None:
        raise UsageError('Missing required argument "[command-config]"')
    for name in _REQUIRED[action]:
        if getattr(values, name) is None:
            raise UsageError(f'Missing required argument "[{name.replace("_", "-")}]"')
    for name in _EXCLUDED[action]:
        if getattr(values, name) not in (None, []):
            raise UsageError(
                f'Option "[{action}]" can\'t be used with option "[{name.replace("_", "-")}]"'
            )


async def _main(values: Values, action: Any) -> int:
    async with connected(values, client_id="delegation-tokens") as cluster:
        await action(TokenAdmin(cluster), values)
    return 0


async def _create(admin: TokenAdmin, values: Values) -> None:
    renewers = _principals(values.renewer_principal)
    owners = _principals(values.owner_principal)
    lifetime_ms = values.max_life_time_period
    if values.output == "text":
        print(
            f"Calling create token operation with renewers :{_listed(renewers)} , "
            f"max-life-time-period :{lifetime_ms}"
        )
    token = await admin.create(
        renewers=renewers, owner=owners[0] if owners else None, max_lifetime_ms=lifetime_ms
    )
    if values.output == "json":
        print_json(_json(token))
        return
    print(f"Created delegation token with tokenId : {token.token_id}")
    _print_tokens([token])


async def _renew(admin: TokenAdmin, values: Values) -> None:
    period_ms = values.renew_time_period
    _announce(values, "renew", f"renew-time-period :{period_ms}")
    _report(values, "renew", await admin.renew(_hmac(values), period_ms=period_ms))


async def _expire(admin: TokenAdmin, values: Values) -> None:
    period_ms = values.expiry_time_period
    _announce(values, "expire", f"expire-time-period :{period_ms}")
    _report(values, "expire", await admin.expire(_hmac(values), period_ms=period_ms))


def _announce(values: Values, action: str, period: str) -> None:
    if values.output == "text":
        print(f"Calling {action} token operation with hmac :{values.hmac} , {period}")


def _report(values: Values, action: str, expiry_ms: int) -> None:
    if values.output == "json":
        print_json({"expiryTimestampMs": expiry_ms})
    else:
        print(f"Completed {action} operation. New expiry date : {_date(expiry_ms)}")


async def _describe(admin: TokenAdmin, values: Values) -> None:
    owners = _principals(values.owner_principal)
    if values.output == "text":
        if owners:
            print(f"Calling describe token operation for owners: {_listed(owners)}")
        else:
            print("Calling describe token operation for current user.")
    tokens = await admin.describe(owners or None)
    if values.output == "json":
        print_json([_json(token) for token in tokens])
        return
    print(f"Total number of tokens : {len(tokens)}", end="")
    _print_tokens(tokens)


def _print_tokens(tokens: Sequence[TokenInfo]) -> None:
    _print_row(name for name, _ in _COLUMNS)
    for token in tokens:
        _print_row(
            (
                token.token_id,
                token.hmac.reveal(),
                str(token.owner),
                str(token.requester),
                _listed(token.renewers),
                _date(token.issue_timestamp_ms),
                _date(token.expiry_timestamp_ms),
                _date(token.max_timestamp_ms),
            )
        )


def _print_row(cells: Any) -> None:
    row = (f"{cell:<{width}}" for cell, (_, width) in zip(cells, _COLUMNS, strict=True))
    print("\n" + " ".join(row))


def _listed(principals: Sequence[KafkaPrincipal]) -> str:
    """As Java prints a list."""
    return f"[{', '.join(map(str, principals))}]"


def _date(timestamp_ms: int) -> str:
    """In local time, as Kafka's command."""
    local = datetime.fromtimestamp(timestamp_ms / 1000, UTC).astimezone()
    return local.strftime("%Y-%m-%dT%H:%M")


def _principals(texts: Sequence[str]) -> list[KafkaPrincipal]:
    found = []
    for text in texts:
        if not is_principal(text):
            raise UsageError(
                "expected a string in format principalType:principalName but got " + text.strip()
            )
        kind, _, name = text.strip().partition(":")
        found.append(KafkaPrincipal(kind, name))
    return found


def _hmac(values: Values) -> bytes:
    try:
        return b64decode(values.hmac, validate=True)
    except (binascii.Error, ValueError):
        raise UsageError("--hmac is not base64") from None


def _json(token: TokenInfo) -> dict[str, Any]:
    return {
        "tokenId": token.token_id,
        "hmac": token.hmac.reveal(),
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers],
        "issueTimestampMs": token.issue_timestamp_ms,
        "expiryTimestampMs": token.expiry_timestamp_ms,
        "maxTimestampMs": token.max_timestamp_ms,
    }
