"""Replication of a partition, without I/O: what leader and followers decide, not how bytes travel.

    leader.PartitionLeader     one led partition: who follows how closely, ISR, high watermark
    follower.FollowerState     what the leader knows of one follower
    in_sync                    the ISR as committed, or with a change on its way to the controller
    fetcher                    the other side: what a follower truncates, asks for and takes in

Kafka's rules by their names: KIP-101, 279 and 320 (epochs instead of high watermarks), KIP-497
(AlterPartition and the maximal ISR), KIP-903 (broker epochs), KIP-966 (min.insync.replicas holds
the high watermark).

Not here: logs and sockets (`sparkraft.server.broker`), elections (`sparkraft.controller`).
"""
