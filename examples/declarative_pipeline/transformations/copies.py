"""A flow from topic to topic; the source and the sink are found without an import."""

import os

from pyspark import pipelines
from pyspark.sql import DataFrame, SparkSession

SERVERS = {"kafka.bootstrap.servers": os.environ["BOOTSTRAP"]}

pipelines.create_sink(
    "loud_words", "sparkraft", {**SERVERS, "topic": "loud-words", "transactionalIdPrefix": "loud"}
)


@pipelines.append_flow(target="loud_words")
def shout() -> DataFrame:
    """The words in capital letters."""
    words = SparkSession.active().readStream.format("sparkraft").options(**SERVERS)
    read = words.option("subscribe", "words").option("startingOffsets", "earliest").load()
    return read.selectExpr("key", "upper(cast(value AS STRING)) AS value")
