"""kafkajs as a client that logs in."""

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support.outside_tools import Missing, javascript_clients

SECONDS = 180


def kafkajs_round_trip(
    bootstrap: str,
    topic: str,
    sasl: Mapping[str, str],
    ca: Path | None = None,
    certificate: Path | None = None,
) -> str:
    """What kafkajs reads from a new topic after it has written `value` there.

    Args:
        bootstrap: of the node.
        topic: is created.
        sasl: mechanism, with username and password, or with a token; empty: none.
        ca: trusted; without one it connects without TLS.
        certificate: its own, with the private key.
    """
    folder = javascript_clients()
    if isinstance(folder, Missing):
        pytest.skip(f"kafkajs: {folder.reason}")
    stores = {"ca": ca, "cert": certificate}
    login = {**sasl, **{name: path.read_text() for name, path in stores.items() if path}}
    done = subprocess.run(
        ["node", "sasl.js", bootstrap, topic],
        cwd=folder, input=json.dumps(login), capture_output=True, text=True, timeout=SECONDS,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(found, str)
    return found
