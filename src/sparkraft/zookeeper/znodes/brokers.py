"""`/brokers/ids/N`, the ephemeral registration of a broker: versions 1 to 5.

5  from inter.broker.protocol.version 2.7 on: supported features (KIP-584)
4  listener names with their protocols
3  rack
2  endpoints
1  host and port of one plaintext listener
"""

import re
from typing import NamedTuple

from sparkraft.zookeeper.znodes.json_form import Fields, ZnodeError, encode

BROKER_IDS = "/brokers/ids"

_ENDPOINT = re.compile(r"([^:/]+)://(?:\[([0-9a-zA-Z:%._-]*)\]|([^:\[\]]*)):(-?[0-9]+)")
_ENDPOINTS_FROM, _RACK_FROM, _PROTOCOLS_FROM, _FEATURES_FROM = 2, 3, 4, 5


class Endpoint(NamedTuple):
    """An advertised listener."""

    listener: str
    protocol: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


class Registration(NamedTuple):
    """A broker as it describes itself."""

    version: int
    endpoints: tuple[Endpoint, ...]
    timestamp: str = ""
    """Milliseconds since 1970."""
    rack: str | None = None
    jmx_port: int = -1
    features: dict[str, tuple[int, int]] = {}  # noqa: RUF012 (never changed)
    """Supported levels of each feature: lowest, highest."""


def encode_registration(registration: Registration) -> bytes:
    """Encode with the fields of its version; old clients use the first plaintext endpoint."""
    version = registration.version
    plain = next((each for each in registration.endpoints if each.protocol == "PLAINTEXT"), None)
    fields: dict[str, object] = {}
    if version >= _FEATURES_FROM:
        fields["features"] = {
            name: {"min_version": lowest, "max_version": highest}
            for name, (lowest, highest) in registration.features.items()
        }
    if version >= _PROTOCOLS_FROM:
        protocols = {each.listener: each.protocol for each in registration.endpoints}
        fields["listener_security_protocol_map"] = protocols
    fields["endpoints"] = [str(endpoint) for endpoint in registration.endpoints]
    if version >= _RACK_FROM and registration.rack is not None:
        fields["rack"] = registration.rack
    fields["jmx_port"] = registration.jmx_port
    fields["port"] = plain.port if plain else -1
    fields["host"] = plain.host if plain else None
    return encode(fields | {"version": version, "timestamp": registration.timestamp})


def decode_registration(path: str, data: bytes) -> Registration:
    fields = Fields.decode(path, data)
    version = fields.integer("version")
    if version < 1:
        raise ZnodeError(path, f"unsupported version {version}")
    rack = fields.values.get("rack")
    if rack is not None and not isinstance(rack, str):
        raise ZnodeError(path, f"expected text in field 'rack', got {rack!r}")
    return Registration(
        version=version,
        endpoints=_endpoints(fields, version),
        timestamp=str(fields.values.get("timestamp", "")),
        rack=rack,
        jmx_port=fields.integer("jmx_port"),
        features=_features(fields) if fields.values.get("features") is not None else {},
    )


def _features(fields: Fields) -> dict[str, tuple[int, int]]:
    described = fields.object("features")
    levels = {name: described.object(name) for name in described.values}
    return {
        name: (level.integer("min_version"), level.integer("max_version"))
        for name, level in levels.items()
    }


def _endpoints(fields: Fields, version: int) -> tuple[Endpoint, ...]:
    if version < _ENDPOINTS_FROM:
        host, port = fields.text("host"), fields.integer("port")
        return (Endpoint("PLAINTEXT", "PLAINTEXT", host, port),)
    protocols = fields.values.get("listener_security_protocol_map", {})
    if not isinstance(protocols, dict):
        raise ZnodeError(fields.path, "expected an object in 'listener_security_protocol_map'")
    found = []
    for text in fields.texts("endpoints"):
        match = _ENDPOINT.fullmatch(text)
        if match is None:
            raise ZnodeError(fields.path, f"expected LISTENER://HOST:PORT, got {text[:60]!r}")
        listener, bracketed, plain, number = match.groups()
        protocol = str(protocols.get(listener, listener))
        found.append(Endpoint(listener, protocol, bracketed or plain or "", int(number)))
    return tuple(found)
