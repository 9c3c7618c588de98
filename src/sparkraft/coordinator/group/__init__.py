"""The group coordinator's core: classic groups and committed offsets of one partition.

Start at `shard.GroupShard`. `classic.py` handles the rebalance protocol, `classic_group.py` is the
state of one group, `offsets.py` the committed offsets, `records.py` the record types of
`__consumer_offsets`, `election.py` the choice of leader and assignor with its reason, kept in
`journal.py`. `group.py` lists what every group type implements.
"""
