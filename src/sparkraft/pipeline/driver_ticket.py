"""The ticket of a stream's running batch, in a file that processes of its driver share.

Spark runs the methods of a stream's writer in several Python processes of the driver's machine,
each of which builds the writer again: one opens a batch, another one commits or aborts it. The file
is in Spark's own folder of temporary files, which each application has for itself and deletes at
its end. An older application finds its own ticket, so it knows that a newer one has taken over.

Within an application, the checkpoint separates two queries with the same options. Spark runs one
query of a checkpoint at a time. Without `checkpointLocation` among the options, as with the setting
`spark.sql.streaming.checkpointLocation`, nothing is kept.

Not here: the use of a ticket (`exactly_once`).
"""

from __future__ import annotations

import os
import pickle
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sparkraft.pipeline.decisions import Ticket
    from sparkraft.pipeline.options import SinkOptions


def keep(ticket: Ticket, options: SinkOptions) -> None:
    """Replace the ticket of the writer with these options."""
    path = _file(options)
    if path is None:
        return
    new = path.with_suffix(".new")
    new.write_bytes(pickle.dumps(ticket))
    new.replace(path)


def kept(options: SinkOptions) -> Ticket | None:
    """The last ticket of the writer; None if this application has opened no batch, or kept none."""
    path = _file(options)
    if path is None or not path.exists():
        return None
    ticket: Ticket = pickle.loads(path.read_bytes())
    return ticket


def _file(options: SinkOptions) -> Path | None:
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    if not folder or options.checkpoint is None:
        return None
    name = f"{options.transactional_id_prefix}\n{options.checkpoint}"
    return Path(folder) / f"sparkraft-{sha256(name.encode()).hexdigest()[:16]}.ticket"
