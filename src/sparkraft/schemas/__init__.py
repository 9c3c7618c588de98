"""Schemas of records and single values of their formats: Avro, Protobuf and MessagePack.

`registry` asks a registry with Confluent's REST API. `avro_schema`, `protobuf_schema` and
`json_schema` parse schemas; `avro_value`, `protobuf_value`, `protobuf_wire` and `messagepack`
return a value as JSON values (`json_values` has the rules).

Invariant: bytes of records are hostile: each decoder bounds the depth and the number of values
(`cursor`), so that a small input never becomes a large result. Boundary: columns of many values at
once belong to the pipeline, the form of a page to the console.
"""
