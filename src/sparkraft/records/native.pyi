"""Types of the compiled module, which is absent from a pure Python build (`native.c`)."""

from sparkraft.records.batch import Buffer
from sparkraft.records.filter import Place

def walk_part(
    data: Buffer, at: int, first: int, last: int, /
) -> tuple[int, int, int, int] | None: ...
def places(kind: type[Place], data: Buffer, count: int, /) -> list[Place] | None: ...
