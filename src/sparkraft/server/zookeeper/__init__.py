"""A broker in ZooKeeper mode: it registers, follows the controller, or is the controller.

lifecycle         registration, controlled shutdown
migrating         registration with a quorum as well, while the cluster is migrated to KRaft
epochs            the broker epoch of either registration
control           the controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata
hosting           replicas, as LeaderAndIsr and StopReplica assign them
configs           configs in ZooKeeper, and their change notifications
config_writes     writes configs
features          finalized features, as ApiVersions reports them
update            UpdateMetadata as a change of the image
images            publishes images, made of both
controllers       how to reach the controller
forwarding        requests for the controller: decided here, or sent to it
own_controller    this node's candidate for the controller (`zookeeper.controller_task`)
control_channels  its connections to the brokers
controller_api    requests that it decides as events
topic_changes     CreateTopics, DeleteTopics, CreatePartitions
registration      the znodes of a broker
identity          meta.properties of version 0, the cluster id, generated broker ids
session           one ZooKeeper session after another
"""
