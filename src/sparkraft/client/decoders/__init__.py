"""Decoders of keys, values and whole batches, as text and as JSON in the shape of Kafka's tools.

`internal_topics` decodes the records of Kafka's own topics, `control` control records, `batches`
describes batches and their records, `consumed` formats records that a consumer has read.

Boundary: bytes and records in, text and JSON values out; no file and no socket is read here.
"""
