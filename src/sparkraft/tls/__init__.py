"""TLS for both sides of a connection: OpenSSL contexts, and asyncio transports on top of others.

    asyncio's transport  ◀── ciphertext ──▶  TlsStream  ◀── plaintext ──▶  a connection's protocol

The stream drives `ssl.MemoryBIO` by hand: faster than asyncio's own TLS, and a listener decides
when a handshake runs and how many bytes a peer may send before it (`sparkraft.tls.stream`).

Not here: the `ssl.*` configs (`sparkraft.security.tls_settings`), and who reads them.
"""
