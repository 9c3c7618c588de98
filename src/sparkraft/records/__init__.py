"""Record batches as bytes: layout, checks, codecs, and records taken apart or built.

Brokers read the 61-byte header of a batch and parse its records only if they must
(docs/decisions/0004-batches-stay-bytes.md).

Not here: files (`sparkraft.storage`), messages (`sparkraft.protocol`).
"""
