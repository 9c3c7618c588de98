"""Kafka's log directories: segments, indexes, checkpoints, and the logs built on them.

Every call blocks and goes through a `Disk`; `storage.log.PartitionLog` documents which thread may
call what. Not here: who leads a partition, and when an append is acknowledged.
"""
