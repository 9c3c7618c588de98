"""The security of a local cluster: `up --secure`.

DIR/security/          the certificate authority, certificates and keys of nodes, passwords.json
DIR/clients/           files with which clients connect as a user, by the names of users:
    NAME.properties               Java clients, Kafka's tools and ours (`--command-config`)
    NAME.librdkafka.properties    librdkafka, such as confluent-kafka and kcat
    NAME.spark.properties         Spark's options: the first ones with the prefix `kafka.`

    clients and brokers → brokers    SASL_SSL, SCRAM-SHA-512; a node's user is node-N
    nodes → controllers              SSL; the user is the common name of the node's certificate

Super users are `admin` and the nodes. Every other user NAME may do everything with topics, groups
and transactional ids that begin with `NAME-`, and nothing else. Names have no `-`, so no user's
prefix contains another's.

Both directories and those of the nodes are readable by their owner only: the metadata log has the
salted keys of users.
"""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from sparkraft.cli.errors import CommandError, UsageError
from sparkraft.cli.private_files import escaped, make_private_directory, write_private
from sparkraft.security.jaas import SCRAM_MODULE
from sparkraft.security.standard_authorizer import CLASS_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sparkraft.client.cluster import Cluster

LISTENER = "SASL_SSL"
MECHANISM = "SCRAM-SHA-512"
ADMIN = "admin"

_PASSWORD_BYTES = 24
_USER = re.compile(r"[A-Za-z0-9_]{1,64}")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def check_user(name: str) -> str:
    """Return the name of a user; `UsageError` if it cannot be one."""
    if not _USER.fullmatch(name):
        raise UsageError(f"--user {name!r}: a name has 1 to 64 letters, digits and underscores")
    if name == ADMIN:
        raise UsageError(f"--user {ADMIN}: every secured cluster has this user")
    return name


def node_user(node_id: int) -> str:
    """The user of a node."""
    return f"node-{node_id}"


class LocalSecurity:
    """The files of a secured cluster in DIR."""

    def __init__(self, directory: str | Path) -> None:
        home = Path(directory)
        self._directory = home / "security"
        self.clients = home / "clients"
        self._passwords = self._directory / "passwords.json"

    @property
    def exists(self) -> bool:
        """Whether a secured cluster was created in DIR."""
        return self._passwords.exists()

    def create_directories(self) -> None:
        """Create the directories; nothing in them is readable by others."""
        make_private_directory(self._directory)
        make_private_directory(self.clients)

    def password_of(self, user: str) -> str:
        """The password of a user, chosen at its first use."""
        known: dict[str, str] = {}
        if self._passwords.exists():
            try:
                known = json.loads(self._passwords.read_text())
            except ValueError as error:
                raise CommandError(f"{self._passwords} cannot be read: {error}") from error
        if user not in known:
            known[user] = secrets.token_urlsafe(_PASSWORD_BYTES)
            write_private(self._passwords, json.dumps(known, indent=2) + "\n")
        return known[user]

    # ---- nodes

    def node_configs(
        self, node_id: int, *, is_broker: bool, hosts: Iterable[str], node_ids: Iterable[int]
    ) -> dict[str, str]:
        """The security configs of a node.

        Args:
            node_id: of the node.
            is_broker: whether clients may use it.
            hosts: to listen on and to advertise, beside loopback.
            node_ids: all nodes of the cluster.
        """
        from sparkraft.cli.local_certificates import LocalAuthority

        authority = LocalAuthority(self._directory)
        key_store = authority.renew(node_user(node_id), {*_LOOPBACK, *hosts})
        super_users = [ADMIN, *(node_user(each) for each in sorted(node_ids))]
        configs = {
            "listener.security.protocol.map": f"{LISTENER}:SASL_SSL,CONTROLLER:SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(key_store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(authority.ca_path),
            "listener.name.controller.ssl.client.auth": "required",
            "listener.name.controller.ssl.principal.mapping.rules": "RULE:^CN=(node-[0-9]+)$/$1/",
            "authorizer.class.name": CLASS_NAME,
            "super.users": ";".join(f"User:{name}" for name in super_users),
        }
        if is_broker:
            prefix = f"listener.name.{LISTENER.lower()}.{MECHANISM.lower()}"
            configs |= {
                "inter.broker.listener.name": LISTENER,
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                f"{prefix}.sasl.jaas.config": self._login_module(node_user(node_id)),
            }
        return configs

    def first_credentials(self, broker_ids: Iterable[int]) -> list[str]:
        """Values of `storage format --add-scram` for the users that a new cluster needs."""
        users = [ADMIN, *(node_user(each) for each in broker_ids)]
        return [f"{MECHANISM}=[name={each},password={self.password_of(each)}]" for each in users]

    # ---- clients

    def client_properties(self, user: str, bootstrap: str) -> dict[str, str]:
        """The client configs of a user, with the names that Java clients use."""
        return {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": self._login_module(user),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._directory / "ca.pem"),
        }

    def write_client_files(self, users: Sequence[str], bootstrap: str) -> None:
        """Write the files of these users and of `admin`."""
        for user in (ADMIN, *users):
            properties = self.client_properties(user, bootstrap)
            librdkafka = {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": MECHANISM,
                "sasl.username": user,
                "sasl.password": self.password_of(user),
                "ssl.ca.location": str(self._directory / "ca.pem"),
            }
            of_java = {key: escaped(value) for key, value in properties.items()}
            self._write(f"{user}.properties", of_java)
            self._write(f"{user}.librdkafka.properties", librdkafka)
            self._write(
                f"{user}.spark.properties", {f"kafka.{k}": v for k, v in properties.items()}
            )

    def _write(self, name: str, lines: Mapping[str, str]) -> None:
        write_private(self.clients / name, "".join(f"{k}={v}\n" for k, v in lines.items()))

    def _login_module(self, user: str) -> str:
        return f'{SCRAM_MODULE} required username="{user}" password="{self.password_of(user)}";'

    def connection_of(self, user: str, bootstrap: str, *, timeout_ms: int) -> Cluster:
        """A client that connects as a user; a call takes at most `timeout_ms`."""
        from sparkraft.client.cluster import Cluster
        from sparkraft.client.security import login_of_properties, secured_connect

        properties = self.client_properties(user, bootstrap)
        return Cluster(
            bootstrap,
            client_id="sparkraft-up",
            request_timeout_ms=timeout_ms,
            login=login_of_properties(properties),
            connect=secured_connect(properties),
        )
