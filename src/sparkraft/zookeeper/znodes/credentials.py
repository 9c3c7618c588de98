"""SCRAM credentials in the configs of a user (`ScramCredentialUtils`).

    /config/users/NAME   {"SCRAM-SHA-256": "salt=...,stored_key=...,server_key=...,iterations=4096"}

Salt and keys are in base64. Errors never show a value.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from sparkraft.metadata.image import ScramCredential
from sparkraft.zookeeper.znodes.json_form import ZnodeError


def decode_credential(path: str, mechanism: str, text: str) -> ScramCredential:
    """The credential of a mechanism.

    Raises:
        ZnodeError: malformed.
    """
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        return ScramCredential(
            salt=b64decode(fields["salt"], validate=True),
            stored_key=b64decode(fields["stored_key"], validate=True),
            server_key=b64decode(fields["server_key"], validate=True),
            iterations=int(fields["iterations"]),
        )
    except (KeyError, ValueError, Base64Error):
        raise ZnodeError(path, f"malformed {mechanism} credential") from None


def encode_credential(credential: ScramCredential) -> str:
    """The value of a mechanism's key."""
    return (
        f"salt={b64encode(credential.salt).decode()},"
        f"stored_key={b64encode(credential.stored_key).decode()},"
        f"server_key={b64encode(credential.server_key).decode()},"
        f"iterations={credential.iterations}"
    )
