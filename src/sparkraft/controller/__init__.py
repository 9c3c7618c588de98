"""The active controller's decisions: a request in, records and a response out (DESIGN D7, D8).

Entry point: `controller.Controller`. Its `handle_*` methods decide on the latest image and change
nothing; `replay` alone changes it. Each subject has a module of plain functions over a `Cluster`:
`topics`, `configs`, `brokers`, `replication`, `reassignment`, `feature_updates`, `activation`.

Free of KRaft, for a later ZooKeeper controller: `placement`, `leader_election`.

Not here: the quorum's log, timers and waiting for commits (`sparkraft.server.controller`).
"""
