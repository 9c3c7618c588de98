"""ZooKeeper's client protocol: sessions, znodes, watches, transactions.

    driver     executes decisions of the controller on a session
    controller decisions of the controller that ZooKeeper elects, without I/O
    client     one session with an ensemble over asyncio: reconnects, pings, watches, retries
    exchange   the bytes of one connection, without I/O: frames in, replies and events out
    requests   the operations, their encodings and their results
    jute       ZooKeeper's serialization
    errors     ZooKeeper's error codes as exceptions
    znodes     the data of Kafka's znodes

Not done: SASL and digest authentication, TLS.
"""
