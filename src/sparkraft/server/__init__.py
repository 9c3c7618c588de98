"""Sockets, tasks, clocks: the shell that runs the cores as a node.

Entry points: `sparkraft.server.node.Node` (a whole node), `sparkraft.server.network` (the wire),
`sparkraft.server.api` (one file per API key), `sparkraft.server.broker` (what a broker knows and
does). The cores themselves live below and never import this package.
"""
