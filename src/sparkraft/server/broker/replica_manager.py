"""The partitions hosted here: appends, reads, high watermarks, leadership (surface; being filled).

G and others code against:
    rm.leader(topic, partition) -> HostedPartition        raises KafkaError when not led here
    rm.append(topic, partition, records, *, acks=-1, origin=...) -> AppendInfo   (now, synchronous)
    await rm.append_and_wait(...)  -> AppendInfo          (returns once below the high watermark)
    rm.get_log(topic, partition) -> PartitionLog | None
    rm.leadership_listeners.append(f)   f(topic, partition, leader_epoch | None)  gained / lost
"""
