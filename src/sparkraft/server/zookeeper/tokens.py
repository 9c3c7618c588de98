"""Delegation tokens of a cluster in ZooKeeper mode, read and changed (KIP-48).

    /delegation_token/token_changes/token_change_N → /delegation_token/tokens/ID, read now
        → a new image, by which clients log in

Kafka 3.9: `DelegationTokenManagerZk`. Any broker with `delegation.token.secret.key` creates, renews
and expires tokens; the key must be the same on all brokers. HMACs are not stored: they derive from
the key. The controller removes tokens that have expired, every
`delegation.token.expiry.check.interval.ms`. Without the key nothing is read, and the requests are
refused with DELEGATION_TOKEN_AUTH_DISABLED.

The decisions are those of KRaft mode (`controller.delegation_tokens`). Difference: there a renewal
lasts at most `delegation.token.expiry.time.ms`; Kafka 3.9 in ZooKeeper mode limits it by the
maximum lifetime only.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sparkraft.base.loop_work import LoopBound
from sparkraft.controller import delegation_tokens
from sparkraft.controller.decision_context import ControllerConfig, DecisionContext
from sparkraft.controller.sessions import Sessions
from sparkraft.metadata.image import DelegationToken
from sparkraft.protocol.messages.metadata_records import DelegationTokenRecord
from sparkraft.security.delegation_token import TokenIndex
from sparkraft.server.zookeeper.images import of_newest_version
from sparkraft.server.zookeeper.notifications import ChangeNotifications
from sparkraft.zookeeper.errors import NodeExistsError, NoNodeError, ZooKeeperError
from sparkraft.zookeeper.requests import Create, Delete, GetChildren, GetData, SetData
from sparkraft.zookeeper.znodes.json_form import ZnodeError
from sparkraft.zookeeper.znodes.security import TOKENS
from sparkraft.zookeeper.znodes.tokens import decode_delegation_token, encode_delegation_token

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from sparkraft.controller.call import Call
    from sparkraft.controller.decision import Decision
    from sparkraft.server.config import NodeConfig
    from sparkraft.server.env import Env
    from sparkraft.server.zookeeper.images import ZooKeeperImages
    from sparkraft.server.zookeeper.session import EnsembleSession

log = logging.getLogger(__name__)

CHANGES = "/delegation_token/token_changes"

TOKENS_AT_ONCE: LoopBound = 100
"""Tokens that are decoded before the event loop continues."""


class ZooKeeperTokens:
    """See the module docstring."""

    def __init__(
        self,
        config: "NodeConfig",
        env: "Env",
        session: "EnsembleSession",
        images: "ZooKeeperImages",
        is_controller: "Callable[[], bool]",
    ) -> None:
        """Prepare.

        Args:
            config: of the node.
            env: clock and random numbers.
            session: with the ensemble.
            images: takes the tokens.
            is_controller: whether this node is the controller, which removes expired tokens.
        """
        self._env = env
        self._session = session
        self._images = images
        self._is_controller = is_controller
        self._check_s = config.number("delegation.token.expiry.check.interval.ms") / 1000
        key = config.token_key
        self._index = None if key is None else TokenIndex(key)
        self._decisions = ControllerConfig(
            cluster_id="",
            node_id=config.node_id,
            token_key=key,
            token_lifetime_ms_max=config.number("delegation.token.max.lifetime.ms"),
            token_expiry_ms=config.number("delegation.token.expiry.time.ms"),
        )
        self._changing = asyncio.Lock()
        """Held from a read to its result, so that an older read never replaces a newer one."""
        self._changes = ChangeNotifications(
            session, env.clock, f"{CHANGES}/token_change_", self._on_change
        )

    # ---- reading

    async def load(self) -> None:
        """Create the znodes above all tokens, and read all tokens."""
        if self._index is None:
            return
        for path in (CHANGES, TOKENS):
            await self._session.client.create_recursive(path)
        await self._read_all()
        self._session.add_session_listener(self._read_all)

    async def _read_all(self) -> None:
        async with self._changing:
            await self._changes.skip()
            names, _ = await self._submit(GetChildren(path=TOKENS))
            present = set(names)
            known = self._images.image.delegation_tokens
            self._set({each: None for each in known if each not in present})
            for first in range(0, len(names), TOKENS_AT_ONCE):
                self._set(await self._fetch(names[first : first + TOKENS_AT_ONCE]))
                await asyncio.sleep(0)

    async def _fetch(self, ids: list[str]) -> dict[str, DelegationToken | None]:
        """The tokens with these ids; None for those that do not exist or are malformed."""
        paths = [f"{TOKENS}/{each}" for each in ids]
        results = await self._session.client.submit_all([GetData(path=path) for path in paths])
        found: dict[str, DelegationToken | None] = {}
        for token_id, path, result in zip(ids, paths, results, strict=True):
            found[token_id] = None
            if isinstance(result, NoNodeError):
                continue
            if isinstance(result, BaseException):
                raise result
            try:
                found[token_id] = decode_delegation_token(path, result[0])
            except ZnodeError as error:
                log.warning("A delegation token is ignored: %s", error)
        return found

    def _set(self, found: "Mapping[str, DelegationToken | None]") -> None:
        """Publish an image with these tokens, and without those that are None."""
        assert self._index is not None
        image = self._images.image
        tokens = image.delegation_tokens.mutate()
        for token_id, token in found.items():
            if token is not None:
                tokens[token_id] = token
                self._index.add(token_id)
            else:
                tokens.pop(token_id, None)
        after = tokens.finish()
        self._index.maybe_forget(after)
        self._images.publish(image._replace(delegation_tokens=after), ())

    async def _on_change(self, path: str, data: bytes) -> None:
        token_id = data.decode(errors="replace")
        if not token_id or "/" in token_id:
            raise ZnodeError(path, f"not the id of a delegation token: {token_id[:60]!r}")
        async with self._changing:
            self._set(await self._fetch([token_id]))

    # ---- running

    async def run(self) -> None:
        """Follow notifications, and remove expired tokens, until cancelled."""
        if self._index is None:
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._changes.run())
            tasks.create_task(self._remove_expired())

    async def _remove_expired(self) -> None:
        while True:
            await asyncio.sleep(self._check_s)
            if not self._is_controller():
                continue
            decision = delegation_tokens.remove_expired_tokens(
                self._context, self._env.clock.wall_ms()
            )
            try:
                async with self._changing:
                    await self._write(decision)
            except ZooKeeperError as error:
                log.warning("Expired delegation tokens could not be removed: %s", error)

    # ---- changing

    async def create(self, call: "Call[Any]") -> Any:
        """CreateDelegationToken."""
        return await self._change(call, delegation_tokens.create_delegation_token)

    async def renew(self, call: "Call[Any]") -> Any:
        """RenewDelegationToken."""
        return await self._change(call, delegation_tokens.renew_delegation_token)

    async def expire(self, call: "Call[Any]") -> Any:
        """ExpireDelegationToken."""
        return await self._change(call, delegation_tokens.expire_delegation_token)

    async def _change(
        self, call: "Call[Any]", decide: "Callable[[DecisionContext, Call[Any]], Decision]"
    ) -> Any:
        async with self._changing:
            decision = decide(self._context, call)
            await self._write(decision)
        return decision.response

    @property
    def _context(self) -> DecisionContext:
        sessions = Sessions(self._decisions.session_timeout_ms)
        return of_newest_version(
            DecisionContext(
                self._images.image, self._decisions, self._env.entropy, sessions, self._index
            )
        )

    async def _write(self, decision: "Decision") -> None:
        """Write changed tokens, publish an image with them, and notify the other brokers."""
        for record, _ in decision.records:
            path = f"{TOKENS}/{record.token_id}"
            if isinstance(record, DelegationTokenRecord):
                token = _token_of(record)
                await self._put(path, encode_delegation_token(token))
                self._set({token.token_id: token})
                log.info("Delegation token %s of %s was written", token.token_id, token.owner)
            else:
                with suppress(NoNodeError):
                    await self._submit(Delete(path=path))
                self._set({record.token_id: None})
                log.info("Delegation token %s was removed", record.token_id)
            notice = Create(
                path=f"{CHANGES}/token_change_", data=record.token_id.encode(), sequential=True
            )
            await self._submit(notice)

    async def _put(self, path: str, data: bytes) -> None:
        while True:
            try:
                await self._submit(SetData(path=path, data=data))
            except NoNodeError:
                with suppress(NodeExistsError):
                    await self._submit(Create(path=path, data=data))
                    return
            else:
                return

    def _submit(self, request: Any) -> "Awaitable[Any]":
        return self._session.client.submit_until_connected(request)


def _token_of(record: DelegationTokenRecord) -> DelegationToken:
    return DelegationToken(
        owner=record.owner,
        requester=record.requester,
        renewers=tuple(record.renewers),
        issue_timestamp=record.issue_timestamp,
        max_timestamp=record.max_timestamp,
        expiration_timestamp=record.expiration_timestamp,
        token_id=record.token_id,
    )
