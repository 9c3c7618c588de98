"""A KDC of MIT Kerberos on loopback, and the environment of its clients."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from sparkraft.security.jaas import KERBEROS_MODULE
from tests.support.certificates import Authority, pem_configs
from tests.support.nodes import SparkraftNode
from tests.support.outside_tools import Missing, gssapi_package, kerberos, library_folders
from tests.support.ports import accepts, lasting_ports, wait_until
from tests.support.sasl import protocol_lines
from tests.support.zookeeper import Ensemble, ZooKeeperServer

REALM = "SPARKRAFT.TEST"
HOST = "localhost"
SERVICE = f"kafka/{HOST}"
START_SECONDS = 60


class Kdc:
    """A realm of its own: use it as a context manager."""

    def __init__(self, directory: Path, root: Path, gssapi: Path) -> None:
        """Write the configuration; `root` is that of `kerberos`, `gssapi` of `gssapi_package`."""
        self._directory = directory
        self._root = root
        self.port = lasting_ports(1)[0]
        self.config = directory / "krb5.conf"
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(directory / "kdc.conf"),
            "KRB5RCACHENAME": f"dfl:{directory}",
            "KRB5RCACHEDIR": str(directory),
            "KRB5CCNAME": f"FILE:{directory / 'no-tickets'}",
            "LD_LIBRARY_PATH": library_folders(root),
            "SASL_PATH": str(next(root.rglob("libgssapiv2.so")).parent),
            "PYTHONPATH": os.pathsep.join(
                filter(None, [os.environ.get("PYTHONPATH"), str(gssapi)])
            ),
        }
        """For our processes and those of MIT Kerberos."""
        self.kinit = root / "usr/bin/kinit"
        self.java_flag = f"-Djava.security.krb5.conf={self.config}"
        self._process: subprocess.Popen[bytes] | None = None
        self._write()

    def _write(self) -> None:
        plugins = next(self._root.rglob("kdb/db2.so")).parent
        self.config.write_text(
            f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n"
            " dns_lookup_realm = false\n dns_canonicalize_hostname = false\n rdns = false\n"
            " udp_preference_limit = 1\n"
            f"[realms]\n {REALM} = {{\n  kdc = 127.0.0.1:{self.port}\n }}\n"
            f"[domain_realm]\n {HOST} = {REALM}\n"
            f"[dbmodules]\n db_module_dir = {plugins}\n"
        )
        (self._directory / "kdc.conf").write_text(
            f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{self.port}\n"
            f" kdc_tcp_listen = 127.0.0.1:{self.port}\n"
            f"[realms]\n {REALM} = {{\n  database_name = {self._directory / 'principal'}\n"
            f"  key_stash_file = {self._directory / 'stash'}\n  max_life = 1h\n"
            "  max_renewable_life = 1h\n }\n"
            f"[logging]\n kdc = FILE:{self._directory / 'kdc.log'}\n"
        )

    def __enter__(self) -> Self:
        """Create the realm and start the KDC."""
        self._run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
        self._process = subprocess.Popen(
            [str(self._root / "usr/sbin/krb5kdc"), "-n"],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        wait_until(lambda: accepts(self.port), "the KDC listens", START_SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(60)

    def keytab(self, *principals: str) -> Path:
        """Create principals with random keys, which are in the returned file."""
        path = self._directory / f"{principals[0].replace('/', '-')}.keytab"
        lines = [f"addprinc -randkey {name}" for name in principals]
        lines.append(f"ktadd -k {path} {' '.join(principals)}")
        self._run("kadmin.local", "-r", REALM, stdin="\n".join(lines) + "\n")
        assert path.exists()
        return path

    def _run(self, program: str, *arguments: str, stdin: str = "") -> None:
        done = subprocess.run(
            [str(self._root / "usr/sbin" / program), *arguments],
            env={**os.environ, **self.environment},
            input=stdin, capture_output=True, text=True, timeout=START_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    """A KDC with its files in `directory`; skips the test if its programs are missing."""
    root, package = kerberos(), gssapi_package()
    for found in (root, package):
        if isinstance(found, Missing):
            pytest.skip(found.reason)
    assert isinstance(root, Path)
    assert isinstance(package, Path)
    with Kdc(directory, root, package) as running:
        yield running


def module(keytab: Path, principal: str) -> str:
    """The login module of a node or a client."""
    return (
        f'{KERBEROS_MODULE} required useKeyTab="true" storeKey="true" keyTab="{keytab}" '
        f'principal="{principal}@{REALM}";'
    )


def client_properties(keytab: Path, principal: str, *, ca: Path | None = None) -> str:
    """A Java client's properties file, which our tools read too; over TLS if it trusts a `ca`."""
    return protocol_lines(ca) + (
        "sasl.mechanism=GSSAPI\n"
        f"sasl.kerberos.service.name=kafka\nsasl.jaas.config={module(keytab, principal)}\n"
    )


def gssapi_node(
    directory: Path,
    kdc: Kdc,
    keytab: Path,
    *,
    authority: Authority | None = None,
    **overrides: str,
) -> SparkraftNode:
    """A combined node: GSSAPI for clients and between nodes; underscores stand for dots.

    With an `authority` both listeners are SASL_SSL, with a certificate that it signs.
    """
    node = SparkraftNode(directory)
    jaas = module(keytab, SERVICE)
    protocol = "SASL_PLAINTEXT"
    if authority is not None:
        protocol = "SASL_SSL"
        node.overrides |= pem_configs(authority.issue("node"), authority.ca_path)
    node.overrides |= {
        "listeners": f"CLIENTS://127.0.0.1:{node.port},CONTROLLER://{HOST}:{node.controller_port}",
        "advertised.listeners": f"CLIENTS://{HOST}:{node.port}",
        "controller.quorum.bootstrap.servers": f"{HOST}:{node.controller_port}",
        "listener.security.protocol.map": f"CLIENTS:{protocol},CONTROLLER:{protocol}",
        "inter.broker.listener.name": "CLIENTS",
        "sasl.enabled.mechanisms": "GSSAPI",
        "sasl.kerberos.service.name": "kafka",
        "sasl.mechanism.inter.broker.protocol": "GSSAPI",
        "sasl.mechanism.controller.protocol": "GSSAPI",
        "listener.name.clients.gssapi.sasl.jaas.config": jaas,
        "listener.name.controller.gssapi.sasl.jaas.config": jaas,
        **{name.replace("_", "."): value for name, value in overrides.items()},
    }
    node.write_properties()
    node.environment = dict(kdc.environment)
    return node


class KerberosEnsemble(Ensemble):
    """One ZooKeeper server whose users are principals, without their hosts and realms."""

    def __init__(self, jars: Path, folder: Path, kdc: Kdc, keytab: Path, principal: str) -> None:
        """Write its configuration; `keytab` has the key of `principal`."""
        jaas = folder / "server-jaas.conf"
        jaas.write_text(f"Server {{ {module(keytab, principal)} }};\n")
        more = [
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
            "kerberos.removeHostFromPrincipal=true",
            "kerberos.removeRealmFromPrincipal=true",
        ]
        flags = [f"-Djava.security.auth.login.config={jaas}", kdc.java_flag]
        ports = [lasting_ports(3)]
        self.servers = [
            ZooKeeperServer(jars, folder / "zookeeper-0", 0, ports, more=more, flags=flags)
        ]
