"""What every layer shares: identifiers, error codes, and the clock and dice a core may be handed.

Nothing here knows of messages, files or sockets.
"""
