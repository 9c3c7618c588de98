"""Principals, sessions, the vocabulary of permissions, and SASL: no sockets, no clock.

Not here: access control lists and quotas, which are not implemented yet.
"""
