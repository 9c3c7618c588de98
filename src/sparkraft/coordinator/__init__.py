"""Coordinators: pure cores that own what a group (later a transaction) agreed upon.

Boundary: no clock, no socket, no log; `sparkraft.server.coordinator` runs them.
"""
