"""DIGEST-MD5, with the example of RFC 2831."""

import re

import pytest

from sparkraft.security.digest_md5 import DigestClient
from sparkraft.security.sasl import SaslError
from sparkraft.security.secret import Secret

CHALLENGE = (
    b'realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",qop="auth",'
    b"algorithm=md5-sess,charset=utf-8"
)


def chris(user="chris", password="secret"):
    return DigestClient(
        user, Secret(password), uri="imap/elwood.innosoft.com", cnonce="OA6MHXh6VqTrRk"
    )


def test_the_example_of_the_rfc():
    client = chris()
    assert client.first() == b""
    answer = client.respond(CHALLENGE)
    assert answer == (
        b'charset=utf-8,username="chris",realm="elwood.innosoft.com",nonce="OA6MG9tEQGm2hh",'
        b'nc=00000001,cnonce="OA6MHXh6VqTrRk",digest-uri="imap/elwood.innosoft.com",qop=auth,'
        b"response=d388dad90d4bbd760a152321f2143af7"
    )
    assert client.respond(b"rspauth=ea40f60335c427b5527b84dbabcdfffd") is None


def test_a_server_that_does_not_know_the_password_is_refused():
    for reply in (b"rspauth=00000000000000000000000000000000", b"", b"nonce=x"):
        client = chris()
        client.respond(CHALLENGE)
        with pytest.raises(SaslError, match="does not know the password"):
            client.respond(reply)


@pytest.mark.parametrize(
    "challenge",
    [
        b"",
        b'realm="r"',
        b'nonce="n"',
        b'nonce="n",algorithm=md5',
        b'nonce="n",algorithm=md5-sess,qop="auth-int"',
        b'nonce="n,algorithm=md5-sess',
        b"=,",
        b'nonce="n",algorithm=md5-sess,' + b"x=y," * 600,
    ],
)
def test_other_challenges_are_refused_without_a_response(challenge):
    with pytest.raises(SaslError) as raised:
        chris().respond(challenge)
    assert "secret" not in str(raised.value)


def test_quotes_are_escaped_and_the_response_depends_on_user_and_password():
    seen = set()
    for user, password in (('a"b\\c', "p"), ("müller", "p"), ("名", "p"), ("a", "q")):
        answer = chris(user, password).respond(CHALLENGE)
        assert answer is not None
        found = re.search(rb"response=([0-9a-f]{32})$", answer)
        assert found is not None
        seen.add(found[1])
    assert len(seen) == 4
    answer = chris('a"b\\c').respond(CHALLENGE)
    assert answer is not None
    assert b'username="a\\"b\\\\c"' in answer
