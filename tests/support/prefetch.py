"""Fetches what the interop tests need, once, before several test workers would all try.

    python -m tests.support.prefetch

Nothing fails here: a test that lacks something says so itself.
"""

from tests.support.kafka_jars import kafka_jars_or_reason
from tests.support.outside_tools import Missing, javascript_clients, kcat


def main() -> None:
    """Fetch, and say what there is."""
    wanted = {
        "Apache Kafka": kafka_jars_or_reason,
        "JavaScript clients": javascript_clients,
        "kcat": kcat,
    }
    for name, find in wanted.items():
        found = find()
        print(f"{name}: {f'not here, {found.reason}' if isinstance(found, Missing) else 'ready'}")


if __name__ == "__main__":
    main()
