"""The broker: its partitions, its registration with the controller, the requests it forwards.

Each part takes what it uses; `sparkraft.server.broker_assembly` builds them.

* `replica_manager.ReplicaManager`: the partitions hosted here.
* `lifecycle.BrokerLifecycle`: registration, heartbeats, controlled shutdown.
* `fetchers.ReplicaFetchers`: replication from leaders.
"""
