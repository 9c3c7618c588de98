"""Print how long each partition had no leader, by cause.

python report.py localhost:9092
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import DataFrame, SparkSession

from sparkraft.pipeline.session import session

WITHOUT_LEADER = """
    WITH led AS (
        SELECT *, lead(timestamp) OVER (PARTITION BY topicId, partition ORDER BY offset) AS until
        FROM {elections}
    )
    SELECT topic, partition, cause, count(*) AS times,
           sum(unix_millis(coalesce(until, now())) - unix_millis(timestamp)) / 60000 AS minutes,
           max(until IS NULL) AS still
    FROM led WHERE leader IS NULL
    GROUP BY topic, partition, cause ORDER BY minutes DESC, topic, partition
"""


def without_leader(spark: SparkSession, bootstrap: str) -> DataFrame:
    """One row per partition and cause, the longest first."""
    elections = (
        spark.read.format("sparkraft")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("metadata", "elections")
        .load()
    )
    return spark.sql(WITHOUT_LEADER, elections=elections)


def main(bootstrap: str) -> int:
    """Print the report."""
    with TemporaryDirectory() as folder:
        work = Path(folder)
        spark = session("election-report", master="local[2]", work=work, log=work / "spark.log")
        rows = without_leader(spark, bootstrap).collect()
        spark.stop()
    for row in rows:
        times = "once" if row.times == 1 else f"{row.times} times"
        still = ", has none now" if row.still else ""
        name = f"{row.topic}-{row.partition}"
        print(f"{name}: {row.minutes:.1f} minutes without a leader, {times}{still}: {row.cause}")
    if not rows:
        print("no partition was without a leader")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
