"""Replication of partitions, without I/O: the decisions of leaders and followers.

    leader.PartitionLeader     one led partition: follower progress, ISR, high watermark
    follower.FollowerState     the leader's view of one follower
    in_sync                    the ISR: committed, or with a change pending at the controller
    fetcher                    the follower side: truncate, fetch, append
    directory_move             moving a replica to another log directory
    coordinator_placement      moving leadership to brokers that serve a coordinator

Kafka's rules by their names: KIP-101, 279 and 320 (epochs instead of high watermarks), KIP-497
(AlterPartition and the maximal ISR), KIP-903 (broker epochs), KIP-966 (min.insync.replicas holds
the high watermark).

Not here: logs and sockets (`sparkraft.server.broker`), elections (`sparkraft.controller`).
"""
