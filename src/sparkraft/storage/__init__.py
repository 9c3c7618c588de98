"""Kafka's log directories: segments, indexes, checkpoints, and the logs built on them.

Every call blocks and goes through a `Disk`; `storage.log.PartitionLog` documents which thread may
call what. Not here: partition leadership, and the acknowledgement of appends.
"""
