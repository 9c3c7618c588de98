"""Other people's tools, fetched by package name into `.cache` and never committed.

Each function gives a path, or the reason why there is none; tests skip with that reason.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache"
_JS = Path(__file__).resolve().parents[1] / "interop" / "js"


@dataclass(frozen=True, slots=True)
class Missing:
    """A tool that can't be had here, and why."""

    reason: str


@contextmanager
def fetching(folder: Path) -> Iterator[None]:
    """Let one process at a time look what is in `folder`, and fetch what is not."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(
    command: list[str],
    *,
    cwd: Path,
    seconds: float = 300,
    environment: Mapping[str, str] | None = None,
) -> str | None:
    """Run a package client; the end of what it said if it failed."""
    try:
        done = subprocess.run(
            command, cwd=cwd, capture_output=True, text=True, timeout=seconds, check=False,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"{command[0]} took more than {seconds:g} s"
    return None if done.returncode == 0 else (done.stderr or done.stdout)[-300:]


@fetching(CACHE / "js")
def javascript_clients() -> Path | Missing:
    """The folder whose `node_modules` holds kafkajs and @platformatic/kafka."""
    if not shutil.which("node") or not shutil.which("npm"):
        return Missing("needs Node.js and npm on the PATH")
    folder = CACHE / "js"
    wanted = (_JS / "package.json").read_text()
    stamp = folder / "installed.json"
    if not stamp.exists() or stamp.read_text() != wanted:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "package.json").write_text(wanted)
        failed = _run(
            ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"],
            cwd=folder,
        )
        if failed:
            return Missing(f"npm could not install the JavaScript clients: {failed}")
        stamp.write_text(wanted)
    for script in _JS.glob("*.js"):
        _copy(script, folder / script.name)
    return folder


def _copy(source: Path, target: Path) -> None:
    """At once and only where it differs: another process of tests may just be running it."""
    wanted = source.read_bytes()
    if not target.exists() or target.read_bytes() != wanted:
        fresh = target.with_name(f"{target.name}.{os.getpid()}")
        fresh.write_bytes(wanted)
        fresh.replace(target)


@fetching(CACHE / "kcat")
def kcat() -> Path | Missing:
    """A `kcat`: the machine's, or Debian's package unpacked without installing it."""
    if found := shutil.which("kcat"):
        return Path(found)
    root = CACHE / "kcat"
    wrapper = root / "kcat"
    if wrapper.exists():
        return wrapper
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return Missing("needs kcat, or apt-get and dpkg to unpack it")
    root.mkdir(parents=True, exist_ok=True)
    packages = ["kcat", "librdkafka1", "libyajl2"]
    failed = _run(["apt-get", "download", *packages], cwd=root)
    if failed and not _run(["apt-get", "update", "-qq"], cwd=root):
        failed = _run(["apt-get", "download", *packages], cwd=root)
    if failed:
        return Missing(f"apt-get could not download kcat: {failed}")
    for package in sorted(root.glob("*.deb")):
        if failed := _run(["dpkg", "-x", package.name, "unpacked"], cwd=root):
            return Missing(f"dpkg could not unpack {package.name}: {failed}")
    libraries = sorted({str(found.parent) for found in (root / "unpacked").rglob("*.so*")})
    binary = root / "unpacked" / "usr" / "bin" / "kcat"
    wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={":".join(libraries)} exec {binary} "$@"\n')
    wrapper.chmod(0o755)
    return wrapper


@fetching(CACHE / "chromium")
def chromium() -> Path | Missing:
    """Chromium: the machine's, or Debian's package, which is installed if this user may."""
    if found := shutil.which("chromium") or shutil.which("chromium-browser"):
        return Path(found)
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return Missing("needs Chromium on the PATH, or root and apt-get to install it")
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium"]
    failed = _run(install, cwd=CACHE)
    if failed and not _run(["apt-get", "update", "-qq"], cwd=CACHE):
        failed = _run(install, cwd=CACHE)
    if failed:
        return Missing(f"apt-get could not install chromium: {failed}")
    found = shutil.which("chromium")
    return Path(found) if found else Missing("the package has no chromium on the PATH")


@fetching(CACHE / "axe")
def axe_core() -> Path | Missing:
    """The script of axe-core, which checks the accessibility of a page."""
    if not shutil.which("npm"):
        return Missing("needs npm on the PATH")
    folder = CACHE / "axe"
    script = folder / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        folder.mkdir(parents=True, exist_ok=True)
        install = ["npm", "install", "--no-package-lock", "--ignore-scripts", "--no-audit"]
        failed = _run([*install, "--no-fund", "--prefix", str(folder), "axe-core@4"], cwd=folder)
        if failed:
            return Missing(f"npm could not install axe-core: {failed}")
    return script


_KERBEROS = ("krb5-kdc", "krb5-admin-server", "libkrb5-dev", "libsasl2-modules-gssapi-mit")
_KERBEROS_PACKAGES = re.compile(
    r"krb5-(?:kdc|admin-server|multidev|user)|comerr-dev|"
    r"lib(?:krb5|k5crypto|gss|kdb5|kadm5|com-err|ss2|ev4|verto|keyutils|sasl2).*"
)
_GSSAPI_PACKAGE = "gssapi==1.12.0"


@fetching(CACHE / "kerberos")
def kerberos() -> Path | Missing:
    """The root of an unpacked KDC of MIT Kerberos, with its libraries and their headers.

    It also has what librdkafka needs for GSSAPI: the plug-in of Cyrus SASL.
    """
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        return Missing("needs apt-get and dpkg to unpack Debian's Kerberos")
    folder = CACHE / "kerberos"
    root = folder / "unpacked"
    stamp = folder / "complete"
    if stamp.exists() and stamp.read_text() == " ".join(_KERBEROS):
        return root
    folder.mkdir(parents=True, exist_ok=True)
    failed = _download_kerberos(folder)
    if failed and not _run(["apt-get", "update", "-qq"], cwd=folder):
        failed = _download_kerberos(folder)
    if failed:
        return Missing(f"apt-get could not download Kerberos: {failed}")
    for package in sorted(folder.glob("*.deb")):
        if failed := _run(["dpkg", "-x", package.name, "unpacked"], cwd=folder):
            return Missing(f"dpkg could not unpack {package.name}: {failed}")
    stamp.write_text(" ".join(_KERBEROS))
    return root


def _download_kerberos(folder: Path) -> str | None:
    """Download the packages of a KDC, as if none was installed: their versions belong together."""
    plan = ["apt-get", "install", "--print-uris", "-y", "-qq", "--no-install-recommends"]
    found = subprocess.run(
        [*plan, "-o", "Dir::State::status=/dev/null", *_KERBEROS],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if found.returncode != 0:
        return found.stderr[-300:]
    files = [line.split()[1] for line in found.stdout.splitlines() if line.startswith("'")]
    names = {file.partition("_")[0] for file in files}
    wanted = sorted(name for name in names if _KERBEROS_PACKAGES.fullmatch(name))
    return _run(["apt-get", "download", *wanted], cwd=folder)


def library_folders(root: Path) -> str:
    """The value of LD_LIBRARY_PATH for the programs of `kerberos`."""
    return ":".join(sorted({str(found.parent) for found in root.rglob("lib*.so.*")}))


def gssapi_package() -> Path | Missing:
    """A folder for PYTHONPATH with the package `gssapi`, compiled for the library of `kerberos`."""
    root = kerberos()
    return root if isinstance(root, Missing) else _gssapi_for(root)


@fetching(CACHE / "gssapi")
def _gssapi_for(root: Path) -> Path | Missing:
    if not shutil.which("cc"):
        return Missing("needs a C compiler for the package gssapi")
    folder = CACHE / "gssapi"
    made = folder / f"{_GSSAPI_PACKAGE}-python{sys.version_info[0]}.{sys.version_info[1]}"
    if (made / "gssapi").exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    library = next(root.rglob("libgssapi_krb5.so.2"))
    headers = root / "usr" / "include"
    environment = {
        "GSSAPI_COMPILER_ARGS": f"-I{headers / 'mit-krb5'} -I{headers} -DHAS_GSSAPI_EXT_H",
        "GSSAPI_LINKER_ARGS": f"-L{library.parent / 'mit-krb5'} -lgssapi_krb5 -lkrb5",
        "GSSAPI_MAIN_LIB": str(library),
        "GSSAPI_KRB5_MAIN_LIB": str(next(root.rglob("libkrb5.so.3"))),
        "LD_LIBRARY_PATH": library_folders(root),
    }
    fresh = folder / f"fresh-{os.getpid()}"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(fresh)]
    failed = _run([*install, _GSSAPI_PACKAGE], cwd=folder, seconds=600, environment=environment)
    if failed:
        shutil.rmtree(fresh, ignore_errors=True)
        return Missing(f"pip could not install the package gssapi: {failed}")
    fresh.rename(made)
    return made
