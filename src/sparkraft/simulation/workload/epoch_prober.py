"""A client of a simulated cluster that sends wrong epochs, which brokers must reject (P12).

A successful Fetch with a leader epoch proves that the host leads the partition in that epoch. From
then on the host must reject every older epoch, and every epoch the controller has not assigned yet.
The client also impersonates an earlier incarnation of a follower, with a broker epoch that the
leader knows to be stale (KIP-903).
"""

from typing import TYPE_CHECKING

from sparkraft.base.errors import ErrorCode
from sparkraft.protocol.messages import k01_fetch as k01
from sparkraft.protocol.messages import k02_list_offsets as k02
from sparkraft.simulation.workload.node_clients import FAILURES
from sparkraft.simulation.workload.record_clients import PARTITIONS, TOPIC, Client
from sparkraft.simulation.world.machine import image_of

if TYPE_CHECKING:
    from sparkraft.simulation.world.nodes import NodesWorld

FAR_AHEAD = 1_000
"""More epochs than any run reaches."""


class EpochProber(Client):
    """See the module docstring."""

    def __init__(self, world: "NodesWorld") -> None:
        super().__init__(world)
        self._cluster = world
        self._seen: dict[tuple[str, int], int] = {}
        """Host and partition → the newest epoch in which it has responded as the leader."""
        self._lives: dict[int, list[int]] = {}
        """Broker → its epochs, as assigned by the controller."""

    async def run(self) -> None:
        """Send valid and invalid epochs until the run ends."""
        while True:
            await self.pause(0.2, 1)
            partition = self.world.dice.randrange(PARTITIONS)
            try:
                host = await self.leader(partition)
                if host is not None:
                    await self._probe(host, partition)
            except FAILURES:
                self.forget(partition)

    async def _probe(self, host: str, partition: int) -> None:
        epoch = self._epochs[partition]
        if await self._fetch(host, partition, epoch) is not ErrorCode.NONE:
            self.forget(partition)
            return
        known = self._seen[host, partition] = max(epoch, self._seen.get((host, partition), -1))
        if known > 0:
            older = self.world.dice.randrange(known)
            self._refused(host, partition, older, await self._fetch(host, partition, older))
            self._refused(host, partition, older, await self._list(host, partition, older))
        later = known + FAR_AHEAD
        self._refused(host, partition, later, await self._fetch(host, partition, later))
        self._refused(host, partition, later, await self._list(host, partition, later))
        await self._pose(host, partition)

    def _refused(self, host: str, partition: int, epoch: int, code: ErrorCode) -> None:
        known = self._seen[host, partition]
        wrong = ErrorCode.UNKNOWN_LEADER_EPOCH if epoch < known else ErrorCode.FENCED_LEADER_EPOCH
        self.world.counts["wrong epochs refused"] += code is not ErrorCode.NONE
        self.world.demand(
            code not in {ErrorCode.NONE, wrong},
            "P12",
            f"{host} led {TOPIC}-{partition} in epoch {known} and returns {code.name} for {epoch}",
        )

    async def _fetch(self, host: str, partition: int, epoch: int) -> ErrorCode:
        wanted = k01.FetchPartition(
            partition=partition, current_leader_epoch=epoch, fetch_offset=0, partition_max_bytes=1
        )
        topics = [k01.FetchTopic(topic=TOPIC, partitions=[wanted])]
        request = k01.FetchRequest(max_wait_ms=0, min_bytes=0, topics=topics)
        answer = await self.ask(host, request, version=11)
        return ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)

    async def _list(self, host: str, partition: int, epoch: int) -> ErrorCode:
        wanted = k02.ListOffsetsPartition(
            partition_index=partition, current_leader_epoch=epoch, timestamp=-1
        )
        topics = [k02.ListOffsetsTopic(name=TOPIC, partitions=[wanted])]
        answer = await self.ask(host, k02.ListOffsetsRequest(replica_id=-1, topics=topics))
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    # ---- an earlier incarnation of a follower

    def _over(self, host: str) -> tuple[int, int, int] | None:
        """Return a follower, a broker epoch the host knows to be stale, and the current one."""
        image = self._cluster.checks.records.image
        for broker_id in sorted(image.brokers):
            lives = self._lives.setdefault(broker_id, [])
            if image.brokers[broker_id].epoch not in lives:
                lives.append(image.brokers[broker_id].epoch)
        for broker_id in sorted(self._lives):
            alive = self._knows_alive(host, broker_id)
            older = [epoch for epoch in self._lives[broker_id] if epoch < alive]
            if older and f"n{broker_id}" != host:
                return broker_id, self.world.dice.choice(older), alive
        return None

    def _knows_alive(self, host: str, broker_id: int) -> int:
        """Return the broker's epoch if `host` knows it as unfenced, else 0."""
        machine = self._cluster.machine(host)
        known = image_of(machine) if machine is not None else None
        broker = None if known is None else known.brokers.get(broker_id)
        return 0 if broker is None or broker.fenced else broker.epoch

    async def _pose(self, host: str, partition: int) -> None:
        topic_id = self._cluster.checks.records.image.topics_by_name.get(TOPIC)
        over = self._over(host)
        if over is None or topic_id is None:
            return
        broker_id, epoch, alive = over
        wanted = k01.FetchPartition(
            partition=partition, fetch_offset=0, log_start_offset=0, partition_max_bytes=1
        )
        request = k01.FetchRequest(
            replica_state=k01.ReplicaState(replica_id=broker_id, replica_epoch=epoch),
            max_wait_ms=0,
            min_bytes=0,
            topics=[k01.FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )
        answer = await self.ask(host, request, version=15)
        code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
        self.world.counts["earlier incarnations refused"] += code is not ErrorCode.NONE
        if self._knows_alive(host, broker_id) != alive:
            return  # fenced meanwhile: Kafka's leaders compare epochs of unfenced brokers only
        self.world.demand(
            code is not ErrorCode.NONE,
            "P12",
            f"{host} accepts a fetch of broker {broker_id} in its stale epoch {epoch}",
        )
