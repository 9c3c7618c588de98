"""Sessions: who sends, and when nothing needs to be checked."""

from sparkraft.security.principal import ANONYMOUS, KafkaPrincipal
from sparkraft.security.protocols import SecurityProtocol
from sparkraft.security.session import NodeSession
from tests.support.sessions import Deciding, client_session

ALICE = KafkaPrincipal("User", "alice")


def test_a_session_is_unhindered_only_while_no_quota_delays_it():
    session = client_session(authorizer=Deciding())
    assert session.is_unhindered
    session.mute()
    assert not session.is_unhindered
    session.unmute()
    assert session.is_unhindered


def test_sessions_of_two_principals_share_no_cache_entry():
    assert client_session(ALICE).cache_tag != client_session().cache_tag
    assert client_session(ALICE).cache_tag == client_session(ALICE).cache_tag


def test_a_principal_is_its_type_and_name_not_how_it_authenticated():
    assert str(ANONYMOUS) == "User:ANONYMOUS"
    assert KafkaPrincipal("User", "alice", token_authenticated=True) == ALICE
    assert KafkaPrincipal("Group", "alice") != ALICE


def test_the_nodes_own_session_is_allowed_everything():
    session = NodeSession("CONTROLLER")
    assert session.authorizer.allows_all
    assert session.security_protocol is SecurityProtocol.PLAINTEXT
