"""Every API declares what it authorizes, and every way to a handler passes by it."""

import re
from pathlib import Path

import pytest

import sparkraft.server
from sparkraft.server.api.authorization import NoAuthorization, RequestRule, ResourceRule
from sparkraft.server.api.registry import Api, served_apis

LISTENERS = {"broker": False, "controller": True}

SERVED = [
    pytest.param(api, id=f"{listener}-{api.key.name}")
    for listener, is_controller in LISTENERS.items()
    for api in served_apis(controller_listener=is_controller)
]


@pytest.mark.parametrize("api", SERVED)
def test_every_served_api_declares_what_it_authorizes(api: Api):
    if isinstance(api.authorize, NoAuthorization):
        assert api.authorize.reason
        return
    assert api.authorize, "declare its rules, or NoAuthorization with the reason"
    assert all(isinstance(rule, RequestRule | ResourceRule) for rule in api.authorize)


def test_handlers_are_reached_through_call_alone():
    """Who calls `api.handle` skips the rules of the request."""
    root = Path(sparkraft.server.__file__).parent
    found = [
        f"{path.relative_to(root)}: {line.strip()}"
        for path in sorted(root.rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(r"\bapi\.handle\b|\bAPI\.handle\b|\)\.handle\(", line)
    ]
    assert found == []
