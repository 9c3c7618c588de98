"""ZooKeeper's client protocol: sessions, znodes, watches, transactions.

    client     one session with an ensemble over asyncio: reconnects, pings, watches, retries
    exchange   the bytes of one connection, without I/O: frames in, replies and events out
    requests   the operations, their encodings and their results
    jute       ZooKeeper's serialization
    errors     ZooKeeper's error codes as exceptions

Not here: Kafka's znodes.    Not done: SASL and digest authentication, TLS.
"""
