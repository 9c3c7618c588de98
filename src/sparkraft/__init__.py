"""sparkraft: Apache Kafka's job in Python, with pipelines on Apache Spark.

The layers, lowest first: base, protocol, records, raft and storage, metadata, controller,
replication and coordinator, client, server, pipeline, cli. ARCHITECTURE.md is the map.
"""

__version__ = "0.1.0"
