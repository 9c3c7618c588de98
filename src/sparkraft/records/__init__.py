"""Record batches as bytes: layout, checks, codecs, and records taken apart or built.

Batches stay bytes wherever they can (DESIGN D4): brokers read 61 bytes of header and move the rest.
Not here: files (`sparkraft.storage`), messages (`sparkraft.protocol`).
"""
