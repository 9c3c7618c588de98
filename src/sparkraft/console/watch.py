"""Polls the cluster while a page is open, once for all pages, and publishes the changes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparkraft.base.errors import DecodeError, KafkaError
from sparkraft.client.errors import sentence_of
from sparkraft.client.explain.cluster import cluster_document, cluster_facts
from sparkraft.client.explain.controller_epochs import epoch_lines
from sparkraft.client.explain.health_facts import HealthFacts, health_facts
from sparkraft.client.explain.quorum import epochs_of, quorum_document
from sparkraft.client.explain.zookeeper_controller import document_of
from sparkraft.client.quorum_admin import has_quorum
from sparkraft.console.elections import ControllerJournals, ElectionJournals

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

HEALTH_SECONDS = 10.0
"""Between requests to each broker and to the coordinators of groups without members."""

COST_SHARE = 20
"""A pause lasts at least this many times as long as the poll: large clusters are polled less."""

PAUSE_SECONDS_MAX = 15.0

EPOCHS_STREAMED_MAX = 30
"""The newest epochs, sent to pages on each change; /api/quorum and /api/controller have all."""

DECISIONS_STREAMED_MAX = 50
"""Of the controller in ZooKeeper mode."""


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
        self._controllers = ControllerJournals()
        self._race: Json | None = None
        self._health = HealthFacts()
        self._looked_at = float("-inf")
        self._seen: list[Witness] = []
        self._has_polled = False
        self._epoch_seen = (-1, -1)
        self._reading = asyncio.Lock()
        self._cluster_changed = asyncio.Event()

    async def run(self) -> None:
        """Poll for as long as pages are open."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._poll("quorum", self._publish_elections, QUORUM_SECONDS))
            tasks.create_task(self._poll("cluster", self._publish_cluster, CLUSTER_SECONDS))
            tasks.create_task(self._poll("health", self._look_closer, HEALTH_SECONDS))

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
            self._has_polled = True
        document = quorum_document(self._seen, silent)
        lines = {str(epoch.epoch): list(epoch.as_text()) for epoch in epochs_of(self._seen)}
        words = "explain quorum" if self._seen else "metadata-quorum describe --replication"
        return {**document, "lines": lines, "command": self._command(words)}

    async def controller(self) -> Json:
        """All epochs in ZooKeeper mode: the document of `explain controller`, and its lines.

        `lines` has those of each epoch, in the order of `epochs`.
        """
        async with self._reading:
            journals, silent = await self._controllers.poll(self._cluster)
            self._has_polled = True
        document = document_of(journals, silent, controller=self._cluster.view.controller_id)
        self._race = document
        lines = [list(epoch_lines(epoch)) for epoch in document["epochs"]]
        words = f"explain controller --epochs {EPOCHS_STREAMED_MAX}"
        return {**document, "lines": lines, "command": self._command(words)}

    async def cluster(self) -> Json:
        """The document of `explain cluster`, and its command."""
        if asyncio.get_running_loop().time() - self._looked_at > 2 * HEALTH_SECONDS:
            await self._look_closer()
        facts = await cluster_facts(self._cluster, self._health)
        if not self._has_polled:  # the document names the last election
            await (self.controller() if facts.is_zookeeper else self.quorum())
        facts = replace(facts, led_since_ms=self._led_since_ms(facts))
        race = self._race if facts.is_zookeeper else None
        document = cluster_document(facts, epochs_of(self._seen), race=race)
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

    async def _look_closer(self) -> None:
        """Request the facts that take more than a description of the cluster."""
        found = await health_facts(self._cluster)
        self._looked_at = asyncio.get_running_loop().time()
        if found != self._health:
            self._health = found
            self._cluster_changed.set()

    async def _publish_elections(self) -> None:
        if await has_quorum(self._cluster):
            await self._publish_quorum()
        else:
            await self._publish_controller()

    async def _publish_controller(self) -> None:
        document = await self.controller()
        document["omittedEpochs"] = max(0, len(document["epochs"]) - EPOCHS_STREAMED_MAX)
        for name in ("epochs", "lines"):
            document[name] = document[name][-EPOCHS_STREAMED_MAX:]
        document["decisions"] = document["decisions"][-DECISIONS_STREAMED_MAX:]
        if self._hub.publish("controller", document):
            self._cluster_changed.set()

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
