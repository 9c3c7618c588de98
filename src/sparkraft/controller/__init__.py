"""The active controller's decisions: a request in, records and a response out.

Entry points: `controller.Controller`, whose `decide` finds the decision function of a request in
`decisions.DECISIONS`. Decisions read the latest image and write nothing; only `replay` changes it.
Each subject has a module of plain functions `(DecisionContext, Call) -> Decision`: `topics`,
`configs`, `brokers`, `producer_ids`, `replication`, `reassignment`, `feature_updates`.

Free of KRaft, for a later ZooKeeper controller: `placement`, `leader_election`.

Not here: the quorum's log, timers and waiting for commits (`sparkraft.server.controller`).
"""
