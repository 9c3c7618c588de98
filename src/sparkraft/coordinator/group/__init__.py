"""The group coordinator's core: classic groups and committed offsets of one partition.

Start at `shard.Shard`. `classic.py` holds the rebalance protocol, `classic_group.py` one
group's state, `offsets.py` the commits, `records.py` the bytes of `__consumer_offsets`,
`election.py` who leads and which assignor is used, each with its reason (`journal.py`).
"""
