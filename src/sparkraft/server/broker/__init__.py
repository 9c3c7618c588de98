"""The broker: its partitions, its registration with the controller, the requests it forwards.

* `services.BrokerServices`: everything a request handler may use, in one object.
* `assembly.assemble`: builds the parts, each from what it needs.
* `replica_manager.ReplicaManager`: the partitions hosted here.
* `lifecycle.BrokerLifecycle`: registration, heartbeats, controlled shutdown.
"""
