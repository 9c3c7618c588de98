"""Access control entries from outside: describe, create and delete them (KIP-140, KIP-290).

The same manners as `admin`: retries inside, results per entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.client.admin import Admin
from sparkraft.client.partition_calls import refusal_of
from sparkraft.security.acls import Acl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkraft.base.errors import KafkaError
    from sparkraft.security.acl_filter import AclFilter


class AclAdmin(Admin):
    """Calls on access control entries over a `Cluster`, which stays the caller's to close."""

    async def describe_acls(self, wanted: AclFilter) -> list[Acl]:
        """The entries that match, sorted.

        Raises:
            KafkaError: SECURITY_DISABLED without an authorizer, CLUSTER_AUTHORIZATION_FAILED.
        """
        from sparkraft.protocol.messages.k29_describe_acls import DescribeAclsRequest

        request = DescribeAclsRequest(
            resource_type_filter=wanted.resource_type,
            resource_name_filter=wanted.resource_name,
            pattern_type_filter=wanted.pattern_type,
            principal_filter=wanted.principal,
            host_filter=wanted.host,
            operation=wanted.operation,
            permission_type=wanted.permission_type,
        )
        answer = await self._checked(lambda: self.cluster.ask_any(request))
        return sorted(
            Acl(
                resource.resource_type,
                resource.resource_name,
                resource.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission_type,
            )
            for resource in answer.resources
            for acl in resource.acls
        )

    async def create_acls(self, acls: Sequence[Acl]) -> list[KafkaError | None]:
        """Create entries; the error of each in their order, None for success."""
        from sparkraft.protocol.messages import k30_create_acls as k30

        request = k30.CreateAclsRequest(
            creations=[
                k30.AclCreation(
                    resource_type=acl.resource_type,
                    resource_name=acl.resource_name,
                    resource_pattern_type=acl.pattern_type,
                    principal=acl.principal,
                    host=acl.host,
                    operation=acl.operation,
                    permission_type=acl.permission_type,
                )
                for acl in acls
            ]
        )
        answer = await self._submit(request, lambda a: a.results)
        return [refusal_of(result) for result in answer.results]

    async def delete_acls(self, filters: Sequence[AclFilter]) -> list[list[Acl] | KafkaError]:
        """Delete what matches; the deleted entries of each filter, or its error."""
        from sparkraft.protocol.messages import k31_delete_acls as k31

        request = k31.DeleteAclsRequest(
            filters=[
                k31.DeleteAclsFilter(
                    resource_type_filter=wanted.resource_type,
                    resource_name_filter=wanted.resource_name,
                    pattern_type_filter=wanted.pattern_type,
                    principal_filter=wanted.principal,
                    host_filter=wanted.host,
                    operation=wanted.operation,
                    permission_type=wanted.permission_type,
                )
                for wanted in filters
            ]
        )
        answer = await self._submit(request, lambda a: a.filter_results)
        return [
            refusal_of(result)
            or [
                Acl(
                    match.resource_type,
                    match.resource_name,
                    match.pattern_type,
                    match.principal,
                    match.host,
                    match.operation,
                    match.permission_type,
                )
                for match in result.matching_acls
            ]
            for result in answer.filter_results
        ]
