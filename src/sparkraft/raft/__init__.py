"""KRaft without I/O: elections, replication of the metadata log, changing voters.

Read `quorum` first: `Quorum.step(event, now) -> Ready` is the whole interface; `events` are what
goes in and out. A driver must do what `Ready` asks in the order of its fields.
"""
