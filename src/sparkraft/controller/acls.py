"""Access control entries: created and deleted (KIP-140, KIP-290, KIP-801).

The checks are those of Kafka's AclApis and AclControlManager. Entries are equal if all fields but
the id are: creating one that exists succeeds and writes nothing. Whether the client may do it, and
whether there is an authorizer at all, is checked by the API files.
"""

from collections.abc import Iterator
from enum import IntEnum
from typing import TypeVar

from sparkraft.base.env import random_uuid
from sparkraft.base.errors import ErrorCode, KafkaError
from sparkraft.base.ids import Uuid
from sparkraft.controller.call import Call
from sparkraft.controller.decision import RECORDS_MAX, Decision, VersionedRecord, check_room
from sparkraft.controller.decision_context import DecisionContext
from sparkraft.protocol.messages import k30_create_acls as k30
from sparkraft.protocol.messages import k31_delete_acls as k31
from sparkraft.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from sparkraft.security.acl_filter import AclFilter
from sparkraft.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    is_principal,
)

Code = TypeVar("Code", bound=IntEnum)


def create_acls(context: DecisionContext, call: Call[k30.CreateAclsRequest]) -> Decision:
    """Decide a CreateAcls request: each entry succeeds or fails on its own."""
    known = set(context.image.acls.values())
    records: list[VersionedRecord] = []
    results = []
    for creation in call.request.creations:
        result = k30.AclCreationResult(error_message=None)
        try:
            acl = new_acl(creation)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.detail
        else:
            if acl not in known:
                known.add(acl)
                record = (_record_of(_new_id(context), acl), 0)
                check_room(records, (record,))
                records.append(record)
        results.append(result)
    return Decision(records=tuple(records), response=k30.CreateAclsResponse(results=results))


def delete_acls(context: DecisionContext, call: Call[k31.DeleteAclsRequest]) -> Decision:
    """Decide a DeleteAcls request: each filter reports what it matches, deleted once."""
    deleted: dict[Uuid, None] = {}
    results = []
    for wanted in call.request.filters:
        result = k31.DeleteAclsFilterResult(error_message=None)
        try:
            selected = checked_filter(wanted)
        except KafkaError as error:
            result.error_code = error.code
            result.error_message = error.detail
        else:
            for id_, acl in _matching(context, selected):
                deleted[id_] = None
                result.matching_acls.append(match_of(acl))
            if len(deleted) > RECORDS_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Cannot remove more than {RECORDS_MAX} acls in a single delete operation.",
                )
        results.append(result)
    return Decision(
        records=tuple((RemoveAccessControlEntryRecord(id=id_), 0) for id_ in deleted),
        response=k31.DeleteAclsResponse(filter_results=results),
    )


def _matching(context: DecisionContext, selected: AclFilter) -> Iterator[tuple[Uuid, Acl]]:
    acls = context.image.acls
    for id_ in sorted(acls):
        if selected.matches(acls[id_]):
            yield id_, acls[id_]


def _new_id(context: DecisionContext) -> Uuid:
    while (made := random_uuid(context.entropy)) in context.image.acls:
        pass
    return made


def new_acl(creation: k30.AclCreation) -> Acl:
    """The entry to be created.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    acl = Acl(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )
    _check_new(acl)
    return acl


def _record_of(id_: Uuid, acl: Acl) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=id_,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def match_of(acl: Acl) -> k31.DeleteAclsMatchingAcl:
    """A deleted entry in the response."""
    return k31.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )


def _check_new(acl: Acl) -> None:
    if acl.resource_type == AclResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise _invalid(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not acl.resource_name:
        raise _invalid("Invalid empty resource name")
    resource_type = _named(AclResourceType, acl.resource_type)
    if resource_type in (AclResourceType.UNKNOWN, AclResourceType.ANY):
        raise _invalid(f"Invalid resourceType {resource_type.name}")
    pattern_type = _named(PatternType, acl.pattern_type)
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _invalid(f"Invalid patternType {pattern_type.name}")
    operation = _named(AclOperation, acl.operation)
    if operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        raise _invalid(f"Invalid operation {operation.name}")
    permission = _named(AclPermissionType, acl.permission_type)
    if permission not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        raise _invalid(f"Invalid permissionType {permission.name}")
    if not is_principal(acl.principal):
        raise _invalid(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the "
            "principal type from the principal name)"
        )


def checked_filter(wanted: k31.DeleteAclsFilter) -> AclFilter:
    """The filter of a request.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    selected = AclFilter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    if selected.has_unknown_pattern:
        raise _invalid("Unknown patternFilter.")
    if selected.has_unknown_entry:
        raise _invalid("Unknown entryFilter.")
    return selected


def _named(codes: type[Code], code: int) -> Code:
    """The member of that code; UNKNOWN for a code that Kafka does not have."""
    return codes(code) if code in codes.__members__.values() else codes(0)


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)
