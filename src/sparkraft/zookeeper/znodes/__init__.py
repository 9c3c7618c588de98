"""The data of Kafka's znodes: bytes to and from values.

    tree       which codec a path has
    brokers    registrations
    topics     topics, partition states, configs
    cluster    id, controller, features, producer ids, migration
    changes    notifications, and requests that are made by a znode (`/admin`)
    security   access control lists and delegation tokens
    json_form  Kafka's JSON

Source: `kafka.zk.ZkData` of Kafka 3.9. Kafka ignores unknown fields and most versions; a version
that it rejects is a `NewerZnodeError` here, and other data that it cannot use a `ZnodeError`.
"""
