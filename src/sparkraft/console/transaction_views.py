"""Transactions of all coordinators, and the producers that a partition remembers."""

from __future__ import annotations

import time
from shlex import quote
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import KafkaError
from sparkraft.client.errors import sentence_of
from sparkraft.client.transaction_admin import ListedTransaction, TransactionAdmin
from sparkraft.console.recent import RecentAnswers

if TYPE_CHECKING:
    from sparkraft.client.cluster import Cluster

Json = dict[str, Any]

SHOWN_MAX = 500

DESCRIBED_MAX = 50
"""Open transactions that are described: each takes a request to its coordinator."""

HANGING_MS = 15 * 60_000
"""A transaction of a silent producer that no coordinator will end hangs; as `find-hanging`."""

_OPEN = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class TransactionViews:
    """See the module docstring; a request raises the `KafkaError` of the cluster."""

    def __init__(self, cluster: Cluster, *, bootstrap: str) -> None:
        """Use `cluster`, which commands name as `bootstrap`."""
        self._admin = TransactionAdmin(cluster)
        self._bootstrap = bootstrap
        self._recent = RecentAnswers()

    def _command(self, words: str) -> str:
        return f"sparkraft transactions --bootstrap-server {self._bootstrap} {words}"

    def forget(self) -> None:
        """Show what is changed now at once."""
        self._recent.forget()

    async def transactions(self) -> Json:
        """All transactional ids; the open ones first, with their partitions."""
        return await self._recent.get("transactions", self._transactions)

    async def _transactions(self) -> Json:
        listed = await self._admin.list_transactions()
        listed.sort(key=lambda each: (each.state not in _OPEN, each.transactional_id))
        shown = [
            {
                "transactionalId": each.transactional_id,
                "coordinator": each.coordinator,
                "producerId": each.producer_id,
                "state": each.state,
                "isOpen": each.state in _OPEN,
                **(await self._details(each) if at < DESCRIBED_MAX else {}),
            }
            for at, each in enumerate(listed[:SHOWN_MAX])
        ]
        return {
            "transactions": shown,
            "more": len(listed) - len(shown),
            "command": self._command("list"),
        }

    async def _details(self, listed: ListedTransaction) -> Json:
        """The fields of an open transaction by its coordinator; none of one that has ended."""
        if listed.state not in _OPEN:
            return {}
        try:
            found = await self._admin.describe(listed.transactional_id)
        except KafkaError as error:
            return {"problem": sentence_of(error)}
        return {
            "startMs": found.start_ms,
            "timeoutMs": found.timeout_ms,
            "partitions": [f"{topic}-{partition}" for topic, partition in found.partitions],
        }

    async def producers(self, topic: str, partition: int) -> Json:
        """The producers that the leader of a partition remembers, and which of them hang."""
        tp = (topic, partition)
        found = (await self._admin.producers([tp]))[tp]
        if isinstance(found, KafkaError):
            raise found
        now_ms = time.time_ns() // 1_000_000
        hanging = await self._admin.find_hanging([tp], older_than_ms=HANGING_MS, now_ms=now_ms)
        ids = {each.producer.producer_id for each in hanging}
        return {
            "topic": topic,
            "partition": partition,
            "producers": [
                {
                    "producerId": each.producer_id,
                    "epoch": each.producer_epoch,
                    "lastSequence": each.last_sequence,
                    "lastMs": each.last_timestamp,
                    "openSince": each.start_offset,
                    "isHanging": each.producer_id in ids,
                }
                for each in sorted(found, key=lambda one: -one.last_timestamp)[:SHOWN_MAX]
            ],
            "more": max(0, len(found) - SHOWN_MAX),
            "command": self._command(
                f"describe-producers --topic {quote(topic)} --partition {partition}"
            ),
        }
