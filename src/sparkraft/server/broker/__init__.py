"""What a broker knows and does: its partitions, its place in the cluster, what it passes on.

* `services.BrokerServices`: everything a request handler may reach, in one object.
* `replica_manager.ReplicaManager`: the partitions hosted here.
* `lifecycle.BrokerLifecycle`: registration, heartbeats, controlled shutdown.
* `purgatory`, `fetch_sessions`, `forwarding`, `auto_topic_creation`, `producer_ids`.
"""

from sparkraft.server.broker.services import BrokerServices

__all__ = ["BrokerServices"]
