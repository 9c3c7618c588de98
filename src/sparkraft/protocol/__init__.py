"""Kafka's wire protocol: every message declared once, codecs compiled from the declarations.

* `api_keys`: which requests exist, in which versions, on which listeners.
* `messages`: the declarations, one file per API key and one per family of records; this is the
  source of truth and is kept by hand (KIP-482 for the flexible versions).
* `declare`: the language in which they are written.
* `codec`: `encode` and `decode`; `compiler` turns a class and a version into straight-line code.
* `headers`, `framing`, `varint`, `json_form`: the bytes around a message.

Invariant: bad bytes raise `DecodeError` and nothing else, and no message costs more objects than
its element budget allows.

Not here: record batches (`sparkraft.records`), sockets and frames' length prefix
(`sparkraft.server.network`), what an answer should say (`sparkraft.server.api`).
"""
