"""Found by Spark by its name (`pyspark_*`): makes `format("sparkraft")` known without a call.

Everything is in `sparkraft.pipeline`.
"""

from sparkraft.pipeline.source import SparkraftDataSource as DefaultSource

__all__ = ["DefaultSource"]
