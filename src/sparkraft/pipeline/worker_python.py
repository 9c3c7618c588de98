"""The Python interpreter of Spark's workers."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_own_python(spark: SparkSession) -> None:
    """Let workers on this machine run this process's Python, not the first `python3` on the PATH.

    Without it, workers miss our packages if the virtual environment is not activated.
    PYSPARK_PYTHON and spark.pyspark.python have priority.
    """
    from pyspark.errors import PySparkException

    try:
        context = spark.sparkContext
    except PySparkException:
        return  # Spark Connect: the server starts the workers
    named = "PYSPARK_PYTHON" in os.environ or context.getConf().contains("spark.pyspark.python")
    if (context.master or "").startswith("local") and not named:
        context.pythonExec = sys.executable
