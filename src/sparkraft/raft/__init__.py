"""KRaft without I/O: elections, replication of the metadata log, voter changes (KIP-595, 853, 996).

The quorum and its log
    A few *voters* keep identical copies of one log, `__cluster_metadata-0`. Time is divided into
    *epochs*, numbered upwards. An epoch has at most one *leader*, which alone appends. The others
    fetch from it: voters as *followers*, whose copies count, and brokers as *observers*, whose
    copies do not. A record is *committed* once a majority of the voters has it on disk and the
    leader has such a record of its own epoch; the *high watermark* is the end of the committed
    prefix. Committed records are never lost or changed while a majority of disks survives.

Elections
    A follower that hears nothing from its leader for a fetch timeout becomes *prospective* and
    sends pre-votes: would you vote for me? With a majority it becomes a *candidate*, raises the
    epoch and sends votes; with a majority of these it leads. A voter grants at most one vote per
    epoch, and only to a candidate whose log is at least as long as its own, compared by (epoch of
    the last record, end offset). So every leader has every committed record. Pre-votes change no
    state, so a voter that was cut off cannot depose a working leader when it returns.

Replication
    A Fetch carries the follower's end offset and the epoch of its last record. If the leader's log
    differs there, the response names the point to truncate to; if the leader no longer has that
    offset, it names a snapshot to fetch instead. A Fetch at offset n acknowledges that everything
    below n is on disk, so it leaves only after the fsync. The leader counts these offsets, its own
    included, and the median over the voters is the new high watermark.

Voters
    The voter set is a record in the log, effective as soon as it is appended. It changes by one
    voter at a time, after the last change is committed, so old and new majorities always overlap.

Persistent state
    `quorum-state`  epoch, leader and vote: on disk before any message of that epoch leaves.
    the log         appended at once, brought to disk in the background; only the part on disk
                    counts, in acknowledgements, in votes and in the leader's own share.
    snapshots       replace the log below them; written by the node, or fetched from the leader.

Driving it
    `Quorum` has no clock, socket, disk or thread. It takes one event at a time and returns a
    `Ready`, whose fields are carried out in their order. `ReadyQueue` keeps that order:

        queue = ReadyQueue(duties)                  # the driver's I/O, one method per field
        election = queue.add(quorum.start(now()))
        while True:
            while election is not None:
                await persist(election)             # fsync; nothing else is visible before
                election = queue.resume()           # log, flush, send, respond, publish, timer
            event = await next_event()              # request, response, fsync done, timer fired
            election = queue.add(quorum.step(event, now()))

    A real driver does not stop for `persist`: it keeps stepping and adding, and the queue holds the
    work back (`sparkraft.server.raft.driver`).

Where to read
    `events` what goes in and out, and the contract of `Ready`; `states` the state machine;
    `replica` the only code that changes state; then the handlers: `votes`, `leading`, `following`,
    `reconfiguration`, `timers`. `epoch_guard` decides which epochs are adopted. `quorum` ties them
    together. `log_view`, `progress`, `connections` and `voters` are what the handlers remember.

Not here
    Files, sockets and bytes (`sparkraft.server.raft`). The content of records: the controller
    (`sparkraft.controller`). Replication of ordinary partitions, whose leaders the controller
    elects (`sparkraft.replication`).
"""
