"""A broker in ZooKeeper mode: it registers in ZooKeeper and follows the controller of Kafka 3.9.

    lifecycle      registration, controlled shutdown
    control        the controller's requests: LeaderAndIsr, StopReplica, UpdateMetadata
    hosting        replicas, as LeaderAndIsr and StopReplica assign them
    configs        configs in ZooKeeper, and their change notifications
    update         UpdateMetadata as a change of the image
    images         publishes images, made of both
    controllers    how to reach the controller
    forwarding     clients' requests for the controller
    registration   the znodes of a broker
    identity       meta.properties of version 0, the cluster id, generated broker ids
    session        one ZooKeeper session after another

A broker never becomes the controller: another node of the cluster must be able to.
"""
