"""Coordinators: pure cores that own the state of groups (later transactions and share state).

Start at `runtime`, the contract between a core and the server that executes its decisions.

Boundary: no clock, no socket, no log; `sparkraft.server.coordinator` runs the cores.
"""
