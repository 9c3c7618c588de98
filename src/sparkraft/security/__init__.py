"""Who sends a request, and what a principal may do: types only; no sockets, no clock.

Not here: authentication, access control lists and quotas, which are not implemented yet.
"""
