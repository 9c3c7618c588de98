"""Kerberos for SASL/GSSAPI: keys, tickets and security contexts of the system's GSS library.

The library is reached through the package `gssapi` (the extra `gssapi`), which is imported at first
use. Everything here may wait for files or for a KDC: call it in a thread, except at start.

Not here: the exchange of tokens (`sparkraft.security.gssapi`).
"""
