"""`--add-scram 'SCRAM-SHA-256=[name=alice,password=…]'` as a metadata record (KIP-900).

Either `password`, or `saltedpassword` with `salt`, both in base64; `iterations` 4096 to 16384.
"""

from base64 import b64decode
from binascii import Error as Base64Error

from sparkraft.base.env import Entropy
from sparkraft.cli.errors import CommandError
from sparkraft.protocol.messages.metadata_records import UserScramCredentialRecord
from sparkraft.security.scram import (
    BY_NAME,
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    ScramMechanism,
    keys_of,
    salted_password,
)
from sparkraft.security.secret import Secret

_SALT_BYTES = 32
_FIELDS = ("name", "salt", "iterations", "password", "saltedpassword")


def scram_record(argument: str, entropy: Entropy) -> UserScramCredentialRecord:
    """The credential that `argument` describes; only derived keys are kept of a password."""
    mechanism, equals, rest = argument.strip().partition("=")
    if not equals or mechanism not in BY_NAME:
        raise CommandError(f"--add-scram: {mechanism!r} is neither {' nor '.join(BY_NAME)}")
    if not (rest.startswith("[") and rest.endswith("]")):
        raise CommandError("--add-scram wants MECHANISM=[name=…,password=…]")
    fields = _fields(rest[1:-1])
    iterations = _iterations(fields.get("iterations", str(ITERATIONS_MIN)))
    salt = _base64(fields, "salt") if "salt" in fields else entropy.random_bytes(_SALT_BYTES)
    keys = keys_of(BY_NAME[mechanism], _salted(fields, BY_NAME[mechanism], salt, iterations))
    return UserScramCredentialRecord(
        name=fields["name"],
        mechanism=BY_NAME[mechanism].type,
        salt=salt,
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=iterations,
    )


def _fields(text: str) -> dict[str, str]:
    fields = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise CommandError("--add-scram: every component wants name=value")
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        fields[name] = value[1:-1] if quoted else value
    unknown = sorted(set(fields) - set(_FIELDS))
    if unknown:
        raise CommandError(f"--add-scram knows no {', '.join(unknown)}")
    if not fields.get("name"):
        raise CommandError("--add-scram wants a name")
    return fields


def _iterations(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise CommandError(f"--add-scram: iterations {text!r} is not a number")
    if not ITERATIONS_MIN <= int(text) <= ITERATIONS_MAX:
        raise CommandError(
            f"--add-scram: iterations must be within {ITERATIONS_MIN} and {ITERATIONS_MAX}"
        )
    return int(text)


def _base64(fields: dict[str, str], name: str) -> bytes:
    try:
        return b64decode(fields[name], validate=True)
    except (Base64Error, ValueError) as error:
        raise CommandError(f"--add-scram: {name} is not base64") from error


def _salted(
    fields: dict[str, str], mechanism: ScramMechanism, salt: bytes, iterations: int
) -> bytes:
    if "password" in fields:
        return salted_password(mechanism, Secret(fields["password"]), salt, iterations)
    if "saltedpassword" not in fields:
        raise CommandError("--add-scram wants a password, or a saltedpassword with its salt")
    if "salt" not in fields:
        raise CommandError("--add-scram: a saltedpassword goes with its salt")
    return _base64(fields, "saltedpassword")
