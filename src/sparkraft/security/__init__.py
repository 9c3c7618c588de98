"""Principals, sessions, and the vocabulary of permissions: types only; no sockets, no clock.

Not here: authentication, access control lists and quotas, which are not implemented yet.
"""
