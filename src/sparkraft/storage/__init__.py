"""Kafka's log directories: segments, indexes, checkpoints, and the logs built on them.

Everything blocks and goes through a `Disk`; who calls what from which thread is said at
`storage.log.PartitionLog`. Not here: who leads a partition, and when an append is acknowledged.
"""
