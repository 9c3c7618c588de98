"""Client quotas from outside: describe and alter them (KIP-546).

The same manners as `admin`: retries inside, results per entity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkraft.client.admin import Admin
from sparkraft.client.partition_calls import refusal_of
from sparkraft.security.quotas import quota_entity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkraft.base.errors import KafkaError
    from sparkraft.security.quotas import QuotaEntity

_EXACT, _DEFAULT, _ANY = 0, 1, 2


class QuotaAdmin(Admin):
    """Calls on client quotas over a `Cluster`, which stays the caller's to close."""

    async def describe_client_quotas(
        self, wanted: Mapping[str, str | None]
    ) -> dict[QuotaEntity, dict[str, float]]:
        """The quotas of entities that have exactly the types in `wanted`.

        Args:
            wanted: entity type → a name, "" for the default of the type, None for any name.
        """
        from sparkraft.protocol.messages import k48_describe_client_quotas as k48

        request = k48.DescribeClientQuotasRequest(strict=True)
        for kind, name in wanted.items():
            match_type = _ANY if name is None else _EXACT if name else _DEFAULT
            request.components.append(
                k48.ComponentData(entity_type=kind, match_type=match_type, match=name or None)
            )
        answer = await self._checked(lambda: self.cluster.ask_any(request))
        return {
            quota_entity((part.entity_type, part.entity_name) for part in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries
        }

    async def alter_client_quotas(
        self, entity: QuotaEntity, changes: Mapping[str, float | None]
    ) -> KafkaError | None:
        """Set quotas of an entity, or remove those that are None; the error, None for success."""
        from sparkraft.protocol.messages import k49_alter_client_quotas as k49

        entry = k49.AlterClientQuotasRequestEntryData(
            entity=[k49.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
            ops=[
                k49.OpData(key=key, value=value or 0.0, remove=value is None)
                for key, value in changes.items()
            ],
        )
        request = k49.AlterClientQuotasRequest(entries=[entry])
        answer = await self._submit(request, lambda a: a.entries)
        return refusal_of(answer.entries[0])
