"""SCRAM credentials of users (KIP-554, KIP-900), as Kafka's `ScramControlManager` decides them."""

from sparkraft.base.errors import ErrorCode
from sparkraft.controller.call import Call
from sparkraft.controller.decision import Decision, VersionedRecord, check_room
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.metadata.features import SCRAM_LEVEL
from sparkraft.protocol.messages import k51_alter_user_scram_credentials as k51
from sparkraft.protocol.messages.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from sparkraft.security.plain import WILDCARD_USER
from sparkraft.security.scram import BY_TYPE, ITERATIONS_MAX, ITERATIONS_MIN, keys_of

_Error = tuple[ErrorCode, str]

_TWICE: _Error = (
    ErrorCode.DUPLICATE_RESOURCE,
    "A user credential cannot be altered twice in the same request",
)


def alter_user_scram_credentials(
    context: DecisionContext, call: Call[k51.AlterUserScramCredentialsRequest]
) -> Decision:
    """Decide an AlterUserScramCredentials request: one result per user.

    A user named twice is not changed. The changes of all other users are one atomic batch.
    """
    request = call.request
    errors: dict[str, _Error] = {}
    changes: dict[str, VersionedRecord] = {}
    for deletion in request.deletions:
        if _is_first(deletion.name, changes, errors):
            error = _deletion_error(context, deletion)
            if error is not None:
                errors[deletion.name] = error
            else:
                record = RemoveUserScramCredentialRecord(
                    name=deletion.name, mechanism=deletion.mechanism
                )
                changes[deletion.name] = (record, 0)
    for upsertion in request.upsertions:
        if _is_first(upsertion.name, changes, errors):
            error = _upsertion_error(context, upsertion)
            if error is not None:
                errors[upsertion.name] = error
            else:
                changes[upsertion.name] = (_record(upsertion), 0)
    records = tuple(changes.values())
    check_room((), records)
    results = [
        k51.AlterUserScramCredentialsResult(user=user, error_message=None) for user in changes
    ]
    results += [
        k51.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=text)
        for user, (code, text) in errors.items()
    ]
    response = k51.AlterUserScramCredentialsResponse(results=results)
    return Decision(records=records, response=response)


def _is_first(user: str, changes: dict[str, VersionedRecord], errors: dict[str, _Error]) -> bool:
    """Whether the request has not named `user` before; otherwise nothing is done for that user."""
    if user in errors:
        return False
    if changes.pop(user, None) is not None:
        errors[user] = _TWICE
        return False
    return True


def _deletion_error(
    context: DecisionContext, deletion: k51.ScramCredentialDeletion
) -> _Error | None:
    error = _name_error(context, deletion.name, deletion.mechanism)
    if error is None and (deletion.mechanism, deletion.name) not in context.image.scram:
        text = "Attempt to delete a user credential that does not exist"
        return ErrorCode.RESOURCE_NOT_FOUND, text
    return error


def _upsertion_error(
    context: DecisionContext, upsertion: k51.ScramCredentialUpsertion
) -> _Error | None:
    error = _name_error(context, upsertion.name, upsertion.mechanism)
    if error is not None:
        return error
    if upsertion.iterations < ITERATIONS_MIN:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if upsertion.iterations > ITERATIONS_MAX:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if upsertion.name == WILDCARD_USER:  # in Kafka such a user can log in, and every request fails
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "User:* stands for all users"
    return None


def _name_error(context: DecisionContext, user: str, mechanism: int) -> _Error | None:
    if context.image.metadata_version < SCRAM_LEVEL:
        text = "The current metadata.version does not support SCRAM"
        return ErrorCode.UNSUPPORTED_VERSION, text
    if not user:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    if mechanism not in BY_TYPE:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def _record(upsertion: k51.ScramCredentialUpsertion) -> UserScramCredentialRecord:
    """The record; it holds keys that are derived from the salted password."""
    keys = keys_of(BY_TYPE[upsertion.mechanism], bytes(upsertion.salted_password))
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=bytes(upsertion.salt),
        stored_key=keys.stored_key,
        server_key=keys.server_key,
        iterations=upsertion.iterations,
    )
