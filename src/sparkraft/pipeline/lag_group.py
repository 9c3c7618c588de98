"""The group of a query: offsets for lag tools. A restart resumes from Spark's checkpoint instead.

    a pipeline file's last sink is exactly-   with the decision of a batch, in its transaction
    once, in the cluster of the sources
    another pipeline file                     after Spark's own commit of the batch
    `publishGroupId` of an exactly-once       with the decision of a batch
    writer in another job
    `publishGroupId` of a source              when Spark plans the next batch (`source`)

A transaction cannot have offsets of another cluster's topics: a group there lags by the time
between the two, and by a batch after a crash. An earlier sink's decision does not have the offsets,
because later sinks have not written the batch then.

Invariants:
    * In a transaction, the group has the offsets of the last decided batch, and a fenced driver
      does not change them.
    * After the batch, the group is never ahead of Spark's last commit.

Not here: the transaction (`exactly_once`).
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.pipeline.offsets import lowest
from sparkraft.pipeline.places import OptionError
from sparkraft.pipeline.transactions import GroupOffsets
from sparkraft.pipeline.wire import shared_cluster

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from sparkraft.pipeline.decisions import QueryBatch
    from sparkraft.pipeline.offsets import Offsets
    from sparkraft.pipeline.options import ClientOptions, SinkOptions
    from sparkraft.pipeline.wire import Cluster

log = logging.getLogger(__name__)


class LagGroup:
    """Shows the offsets of a query in a group."""

    def __init__(
        self, name: str, client: ClientOptions, spark: SparkSession, *, with_decisions: bool
    ) -> None:
        """Prepare.

        Args:
            name: of the group.
            client: the cluster of the sources.
            spark: the session that runs the query.
            with_decisions: whether the decisions of the last sink have the offsets.
        """
        self._name = name
        self._client = client
        self._spark = spark
        self.with_decisions = with_decisions

    def of_batch(self, batch: QueryBatch) -> GroupOffsets | None:
        """The offsets for the decision of a running batch; None if it is to have none."""
        if not self.with_decisions:
            return None
        return GroupOffsets(self._name, _planned(self._spark, batch))

    def refused(self) -> None:
        """The brokers refuse offsets in decisions: commit them after batches from now on."""
        self.with_decisions = False

    def after_batch(self, end: Offsets) -> None:
        """Spark has committed the batch that ends here; its checkpoint has the offsets, too."""
        if self.with_decisions:
            return
        try:
            shared_cluster(self._client).commit_group_offsets(self._name, end)
        except KafkaError:
            return


def is_one_cluster(sink: Cluster, source: Cluster, topics: Sequence[str]) -> bool:
    """Whether the cluster of the sink is that of the source, which reads these topics.

    If the bootstrap servers differ, the ids of the topics decide, which are random (KIP-516). A
    cluster's id is not: images and scripts come with one.
    """
    if sink.options.bootstrap_servers == source.options.bootstrap_servers:
        return True
    try:
        ours, theirs = (
            {name: info.topic_id for name, info in each.topics(topics).items()}
            for each in (sink, source)
        )
    except KafkaError as error:
        if error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return False  # The sink's principal could not commit their offsets either.
        raise
    return bool(ours) and ours == theirs and Uuid.ZERO not in ours.values()


def _planned(spark: SparkSession, batch: QueryBatch) -> dict[Any, int]:
    """The end of a batch in all sources, which Spark has written to the checkpoint."""
    query: Any = spark.streams.get(batch.query)
    stored = query._jsq.streamingQuery().offsetLog().get(batch.number).get().offsets()  # noqa: SLF001
    sources = [stored.apply(number) for number in range(stored.size())]
    return lowest(each.get().json() for each in sources if each.isDefined())


def check_writer(options: SinkOptions) -> None:
    """Refuse `publishGroupId` of a writer that does not know its batches' offsets."""
    if not options.publish_group_id:
        return
    if not options.transactional_id_prefix:
        raise OptionError(
            "publishGroupId of a writer needs transactionalIdPrefix, whose transactions have the "
            "offsets; without it, set publishGroupId of the source"
        )
    if options.checkpoint is None or _local(options.checkpoint) is None:
        raise OptionError(
            "publishGroupId of a writer needs the option checkpointLocation, a folder of the "
            "driver's machine, which has the offsets of batches; for another one, set "
            "publishGroupId of the source"
        )


def of_writer(options: SinkOptions, number: int) -> GroupOffsets | None:
    """The offsets for the decision of a writer's batch, from Spark's checkpoint."""
    if not options.publish_group_id or not options.checkpoint:
        return None
    folder = _local(options.checkpoint)
    assert folder is not None
    file = folder / "offsets" / str(number)
    try:
        version, _metadata, *sources = file.read_text().splitlines()
        if version != "v1":
            raise ValueError(f"its format is {version}, not v1")  # noqa: TRY301
    except (OSError, ValueError) as error:
        log.warning("The offsets of batch %d are not shown: %s: %s", number, file, error)
        return None
    return GroupOffsets(options.publish_group_id, lowest(s for s in sources if s != _NO_OFFSET))


_NO_OFFSET: Final = "-"
"""In the checkpoint, a source that has no offset yet."""


def _local(checkpoint: str) -> Path | None:
    path = checkpoint.removeprefix("file://").removeprefix("file:")
    return None if "://" in path else Path(path)
