"""Shared by every layer: identifiers, error codes, and the interfaces of clock and entropy.

Nothing here knows of messages, files or sockets.
"""
