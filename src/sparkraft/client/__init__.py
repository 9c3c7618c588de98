"""Our asyncio wire client: nodes use it among themselves, tools and pipelines use it on nodes.

`connection` is one socket, `cluster` routes requests to the right node and tries again,
`admin`, `producer` and `consumer` are what people reach for.

Not here: transactions and the KIP-848 consumer protocol.
"""
