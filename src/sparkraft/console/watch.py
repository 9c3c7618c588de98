"""Polls the cluster while a page is open, once for all pages, and publishes the changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, KafkaError
from sparkraft.client.errors import sentence_of
from sparkraft.client.explain.cluster import cluster_document, cluster_facts
from sparkraft.client.explain.quorum import epochs_of, quorum_document
from sparkraft.console.elections import ElectionJournals

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from sparkraft.client.cluster import Cluster
    from sparkraft.client.explain.cluster import ClusterFacts
    from sparkraft.client.quorum_admin import Witness
    from sparkraft.console.stream import EventHub

Json = dict[str, Any]

QUORUM_SECONDS = 0.5
CLUSTER_SECONDS = 2.0
"""Pauses between polls; a poll of the journals transfers only what is new."""

COST_SHARE = 20
"""A pause lasts at least this many times as long as the poll: large clusters are polled less."""

PAUSE_SECONDS_MAX = 15.0

EPOCHS_STREAMED_MAX = 30
"""The newest epochs, sent to pages on each change; /api/quorum has all."""


class ClusterWatch:
    """The cluster as the nodes describe it, for the pages."""

    def __init__(self, cluster: Cluster, hub: EventHub, *, bootstrap: str) -> None:
        """Prepare; `run` polls.

        Args:
            cluster: stays the caller's to close.
            hub: gets the documents.
            bootstrap: servers as the shown commands name them.
        """
        self._cluster = cluster
        self._hub = hub
        self._bootstrap = bootstrap
        self._journals = ElectionJournals()
        self._seen: list[Witness] = []
        self._epoch_seen = (-1, -1)
        self._reading = asyncio.Lock()
        self._cluster_changed = asyncio.Event()

    async def run(self) -> None:
        """Poll for as long as pages are open."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll("quorum", self._publish_quorum, QUORUM_SECONDS))
            tasks.create_task(self._poll("cluster", self._publish_cluster, CLUSTER_SECONDS))

    async def _poll(self, kind: str, publish: Callable[[], Awaitable[None]], pause: float) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._hub.wait_until_watched()
            began = loop.time()
            try:
                await publish()
            except (KafkaError, DecodeError) as error:
                text = sentence_of(error) if isinstance(error, KafkaError) else str(error)
                self._hub.publish("problem", {"kind": kind, "reason": text})
            took = loop.time() - began
            seconds = min(PAUSE_SECONDS_MAX, max(pause, took * COST_SHARE))
            await self._pause(seconds, is_interrupted=kind == "cluster")

    async def _pause(self, seconds: float, *, is_interrupted: bool) -> None:
        """Wait; an election interrupts the pause of the cluster's poll."""
        if not is_interrupted:
            await asyncio.sleep(seconds)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._cluster_changed.wait()
        except TimeoutError:
            return
        self._cluster_changed.clear()

    # documents

    async def quorum(self) -> Json:
        """All epochs: the document of `explain quorum`, the lines it prints, and its command."""
        async with self._reading:
            self._seen, silent = await self._journals.poll(self._cluster)
        document = quorum_document(self._seen, silent)
        lines = {str(epoch.epoch): list(epoch.as_text()) for epoch in epochs_of(self._seen)}
        return {**document, "lines": lines, "command": self._command("explain quorum")}

    async def cluster(self) -> Json:
        """The document of `explain cluster`, and its command."""
        facts = await cluster_facts(self._cluster)
        facts = replace(facts, led_since_ms=self._led_since_ms(facts))
        document = cluster_document(facts, epochs_of(self._seen))
        return {**document, "command": self._command("explain cluster")}

    def _led_since_ms(self, facts: ClusterFacts) -> int | None:
        """When this console first saw the leader's epoch: nodes may have no journal."""
        if facts.quorum is None or facts.leader_clock_ms < 0:
            return None
        if facts.quorum.leader_epoch != self._epoch_seen[0]:
            self._epoch_seen = (facts.quorum.leader_epoch, facts.leader_clock_ms)
        return self._epoch_seen[1]

    def _command(self, words: str) -> str:
        return f"sparkraft {words} --bootstrap-server {self._bootstrap}"

    async def _publish_quorum(self) -> None:
        document = await self.quorum()
        epochs = document["epochs"][-EPOCHS_STREAMED_MAX:]
        shown = {str(epoch["epoch"]) for epoch in epochs}
        document["omittedEpochs"] = len(document["epochs"]) - len(epochs)
        document["epochs"] = epochs
        document["lines"] = {n: lines for n, lines in document["lines"].items() if n in shown}
        # The high watermark moves all the time; the cluster document has it.
        for node in document["nodes"]:
            del node["highWatermark"]
        if self._hub.publish("quorum", document):
            self._cluster_changed.set()

    async def _publish_cluster(self) -> None:
        self._hub.publish("cluster", await self.cluster())
