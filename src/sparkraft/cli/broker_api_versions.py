"""`broker-api-versions`: which requests each broker serves, as `kafka-broker-api-versions.sh`."""

from typing import Any

from sparkraft.cli.options import Options, Values
from sparkraft.cli.session import connected, print_json, run
from sparkraft.client.admin import Admin
from sparkraft.client.cluster import Node
from sparkraft.protocol.api_keys import API_INFO, ApiInfo, ApiKey

_KNOWN = {int(key) for key in ApiKey}


def main(argv: list[str]) -> int:
    """Ask every broker."""
    options = Options("broker-api-versions", "Shows the requests each broker serves.")
    options.connection()
    options.output()
    return run(_main(options.parse(argv)))


async def _main(values: Values) -> int:
    shown: list[dict[str, Any]] = []
    async with connected(values, client_id="broker-api-versions") as cluster:
        for node in (await Admin(cluster).describe_cluster()).nodes:
            versions = (await cluster.connect(node.host, node.port)).versions
            if values.output == "json":
                shown.append(_as_json(node, versions))
            else:
                _print(node, versions)
    if values.output == "json":
        print_json(shown)
    return 0


def _print(node: Node, versions: dict[int, tuple[int, int]]) -> None:
    kafkas = [info for info in API_INFO.values() if info.is_kafka_4]
    unsupported = {int(i.key) for i in kafkas if "broker" in i.listeners} - set(versions)
    lines = {key: _line(key, low, high) for key, (low, high) in versions.items()}
    lines |= {key: f"{API_INFO[ApiKey(key)].name}({key}): UNSUPPORTED" for key in unsupported}
    fenced = str(node.is_fenced).lower()
    rack = "null" if node.rack is None else node.rack
    print(f"{node.host}:{node.port} (id: {node.id} rack: {rack} isFenced: {fenced}) -> (")
    print(",\n".join(f"\t{lines[key]}" for key in sorted(lines)))
    print(")")


def _line(key: int, low: int, high: int) -> str:
    served = str(low) if low == high else f"{low} to {high}"
    if key not in _KNOWN:
        return f"UNKNOWN({key}): {served}"
    info = API_INFO[ApiKey(key)]
    return f"{info.name}({key}): {served} [{_usable(info, low, high)}]"


def _usable(info: ApiInfo, low: int, high: int) -> str:
    if info.max_version < low:
        return "unusable: node too new"
    if high < info.min_version:
        return "unusable: node too old"
    return f"usable: {min(info.max_version, high)}"


def _as_json(node: Node, versions: dict[int, tuple[int, int]]) -> dict[str, Any]:
    return {
        "id": node.id,
        "host": node.host,
        "port": node.port,
        "apis": [
            {
                "key": key,
                "name": API_INFO[ApiKey(key)].name if key in _KNOWN else None,
                "minVersion": low,
                "maxVersion": high,
            }
            for key, (low, high) in sorted(versions.items())
        ],
    }
