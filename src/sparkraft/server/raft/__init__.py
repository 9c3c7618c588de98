"""The shell around the raft core (`sparkraft.raft`): files, sockets, timers, callers, listeners.

    setup ──▶ RaftDriver (driver): owns the core; the rest of the server uses only this
                status              read-only view, `leader_description` of it as a sentence
                pending_requests    requests of peers and clients until the core responds
                log_writer          appends, truncations, fsyncs
                snapshot_installer  a snapshot fetched from the leader
                snapshot_writer     this node's own snapshots, deletion of old ones
                commit_publisher    committed records to the listeners (metadata_log_listener)
                snapshot_load       the image of a snapshot, in pieces
                peers               requests to other members
                quorum_monitor      the node's log, and the election_journal
                past_reader         earlier states of the metadata, for `explain`

    Translation: `wire` for requests from peers and clients, `calls` for requests to peers,
    `records` for control records and voters in log and snapshots.

Read `driver` first. The parts never refer to the driver: they know the core, the log, each other
downwards, and the four methods of `core_host.CoreHost`.

Not here: decisions (`sparkraft.raft`), file formats (`sparkraft.storage`), API handlers
(`sparkraft.server.api`), the controller (`sparkraft.server.controller`).
"""
