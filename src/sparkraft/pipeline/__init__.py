"""Spark pipelines over Kafka topics: `format("sparkraft")` and pipeline files.

See docs/decisions/0011-spark-as-data-source.md for the reasons.

The data source has the official Kafka connector's schema, option names and offset JSON, so a job
changes over by one word. It needs no jar: it is a Python Data Source that speaks the wire
protocol itself and hands Spark Arrow batches.

    options   what may be asked of source and sink, and what is refused, in which words
    places    subscriptions and offsets in options
    wire      a small blocking client: routing to leaders, offsets, fetch, produce
    offsets   which offsets a batch covers and how they are dealt out to tasks (no I/O)
    decode    record batches to Arrow columns with numpy        encode  the inverse
    source    Spark's reader classes        sink   Spark's writer classes
    partition_history, metadata_rows, metadata_records, metadata_source   tables of the metadata log
    replica_audit   replicas compared
    exactly_once   the transactions of a batch     transactions   their requests
    driver_ticket   the driver of a stream's batch, for another process that aborts it
    spec, file_fields   the pipeline file   run    the running pipeline
    query     its sources and stages        sinks  its rows and dead letters
    topic_records, topic_fit   records of topic sinks, and rows that are none
    delta, iceberg   table sinks    table_files, table_fit   what their tasks write
    registered_values, value_formats   values and keys with schemas, of registries or files
    value_codecs   their formats: avro_…, protobuf_…, json_schema_… (columns, values, encode)
    value_cursor, array_parts, encoded_parts   what the formats share, with numpy
    table_transforms   Iceberg's partition transforms
    table_merge, table_rewrite   rows by key       key_match   keys in memory
    table_rules   constraints and generated columns of Delta tables
    connect   Spark Connect servers    spark_tasks   work in tasks    worker_python   their Python
    upkeep, iceberg_upkeep   compaction of their files     conflicts   commits beside others
    status    states of pipelines           cases  `pipeline test`
    progress  Spark's reports               batch_log, metrics   its files and metrics
    batch_figures   what Spark's reports lack

Invariants:
    * A batch is named by its start and end offsets alone; planning it again gives the same tasks.
    * Only the wire is used: nothing here knows of servers, logs or metadata records.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PUSH_DOWN = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting that lets Python data sources see the filters of batch reads."""

FORMAT = "sparkraft"
"""The name after `format(...)`."""


def register(spark: "SparkSession") -> None:
    """Make `format("sparkraft")` known to a session.

    Not needed if Spark finds the package `pyspark_sparkraft` itself, which it does when the
    session's Python can import it. From now on, batch reads may have `pushDownFilters`, and on a
    local master, Spark's workers run this process's Python, unless PYSPARK_PYTHON or
    spark.pyspark.python names another. Reads have as many tasks as the cluster has cores now; on a
    cluster this waits for its executors.
    """
    # pyspark and pyarrow take half a second to import; `sparkraft.pipeline` itself stays light.
    from sparkraft.pipeline.source import sized_source
    from sparkraft.pipeline.spark_tasks import tasks_of_source
    from sparkraft.pipeline.worker_python import ship_package, use_own_python

    use_own_python(spark)
    ship_package(spark)
    spark.conf.set(PUSH_DOWN, "true")
    spark.dataSource.register(sized_source(tasks_of_source(spark)))
