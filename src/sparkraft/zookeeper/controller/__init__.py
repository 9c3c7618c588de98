"""The controller that ZooKeeper elects: decisions of Kafka 3.9's KafkaController, without I/O.

    values       brokers, replica assignments, leadership of a partition
    states       states of partitions and replicas, and which may follow which
    context      the cluster as the active controller sees it (ControllerContext)
    strategies   the four elections of a partition's leader, on the rules shared with KRaft
    steps        how a decision asks for znodes and sends control requests: effects as data
    znodes       paths and contents of the znodes
    store        reads and guarded writes of znodes (KafkaZkClient)
    requests     LeaderAndIsr, UpdateMetadata and StopReplica as values, collected in batches
    protocol_version  inter.broker.protocol.version, which selects the versions of requests
    control_messages  requests as Kafka's messages, and the results of their responses
    topic_ids    topics enter the context, with ids
    partitions   the partition state machine
    replicas     the replica state machine
    deletion     of topics
    reassignment of partitions
    elections    preferred ones
    brokers      changes of brokers and log directories, controlled shutdown
    topics       changes of topics and partitions, ISR notifications
    isr          AlterPartition
    admin        other requests of brokers and clients
    events       events, those of watches among them, and their queue
    controller   an event in, a decision out
    election     who is the controller, resignation, moves
    failover     the steps of a new controller, in order
    journal      elections, failover steps and failed transitions, with their reasons
    partition_journal  changes of leaders and ISRs, with their causes
    rehearsal    runs a decision on real znodes without changing them

A decision is a generator (`steps.Steps`). It yields effects, receives their results, and returns;
the driver runs one decision at a time. So a decision may depend on replies, and still contains no
socket, clock or task.

Invariants:
    * Each write checks the version of /controller_epoch in the same transaction, one transaction
      per znode. A controller that lost its epoch gets `ControllerMovedError` and resigns.
    * Znodes are written before the requests that depend on them are sent.

`zookeeper.controller_task` runs it on a node; the connections to brokers are those of
`server.zookeeper.control_channels`. `sparkraft explain failover` rehearses a failover, `explain
broker-failure` a change of brokers, and `sparkraft zookeeper-controller` shows and moves the
present controller.
"""
