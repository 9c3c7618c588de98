"""`delegation-tokens`: which options fit each other, and its JSON; tests/interop has Kafka's."""

import json
import re

import pytest

from sparkraft.cli import main as cli
from tests.support.sasl import PLAIN, SHA_256, client_properties, sasl_node

CONNECTION = ["--bootstrap-server", "localhost:1", "--command-config", "none.properties"]
MISUSE = {
    "no action": ([], "give exactly one of --create, --renew, --expire, --describe"),
    "two actions": (["--create", "--describe"], "give exactly one of"),
    "no lifetime": (["--create"], 'Missing required argument "[max-life-time-period]"'),
    "no HMAC": (["--renew", "--renew-time-period", "1"], 'required argument "[hmac]"'),
    "no period": (["--expire", "--hmac", "AAAA"], 'required argument "[expiry-time-period]"'),
    "an HMAC to create": (
        ["--create", "--max-life-time-period", "-1", "--hmac", "AAAA"],
        'Option "[create]" can\'t be used with option "[hmac]"',
    ),
    "an owner to renew": (
        ["--renew", "--hmac", "AAAA", "--renew-time-period", "-1", "--owner-principal", "User:a"],
        'Option "[renew]" can\'t be used with option "[owner-principal]"',
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_options_that_do_not_fit_are_refused(name, capsys):
    arguments, reason = MISUSE[name]
    assert cli.main(["delegation-tokens", *CONNECTION, *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_a_file_with_credentials_is_required(capsys):
    assert cli.main(["delegation-tokens", *CONNECTION[:2], "--describe"]) == 2
    assert 'Missing required argument "[command-config]"' in capsys.readouterr().err


def test_tokens_as_json(tmp_path, capsys):
    config = tmp_path / "alice.properties"
    config.write_text(client_properties("alice"))
    key = {"delegation.token.secret.key": "planted-secret-key-3391"}
    with sasl_node(tmp_path / "node", mechanisms=(PLAIN, SHA_256), **key) as node:
        to = ["delegation-tokens", "--bootstrap-server", node.bootstrap,
              "--command-config", str(config)]  # fmt: skip

        def result(*arguments: str, code: int = 0) -> str:
            capsys.readouterr()
            assert cli.main([*to, *arguments]) == code
            printed = capsys.readouterr()
            return printed.err if code else printed.out

        create = ["--create", "--max-life-time-period", "60000", "--renewer-principal", "User:bob"]
        token = json.loads(result(*create, "--output", "json"))
        assert (token["owner"], token["requester"]) == ("User:alice", "User:alice")
        assert token["renewers"] == ["User:bob"]
        assert token["maxTimestampMs"] - token["issueTimestampMs"] == 60_000
        hmac = token["hmac"]
        wrong = result("--renew", "--hmac", "no base64", "--renew-time-period", "1", code=2)
        assert "--hmac is not base64" in wrong
        unknown = result("--renew", "--hmac", "AAAA", "--renew-time-period", "1", code=1)
        assert "Delegation Token is not found on server. (DELEGATION_TOKEN_NOT_FOUND)" in unknown
        renewed = result("--renew", "--hmac", hmac, "--renew-time-period", "1000")
        assert re.search(r"New expiry date : \d{4}-\d\d-\d\dT\d\d:\d\d", renewed)
        shown = json.loads(result("--describe", "--output", "json"))
        assert {each["owner"] for each in shown} <= {"User:alice"}
        removal = ["--expire", "--hmac", hmac, "--expiry-time-period", "-1", "--output", "json"]
        assert json.loads(result(*removal))["expiryTimestampMs"] > token["issueTimestampMs"]
