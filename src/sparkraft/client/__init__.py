"""Our asyncio wire client: nodes use it among themselves, tools and pipelines use it on nodes.

`connection` is one socket, `cluster` routes requests to the right node and tries again,
`admin`, `producer`, `transactional_producer` and `consumer` are the public parts (docs/client.md).

Not here: share and streams groups.
"""
