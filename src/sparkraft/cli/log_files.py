"""A node's log as JSON lines and in files, besides the text on standard output.

    server.log         everything
    controller.log     the controller and the metadata quorum
    state-change.log   changes of ISRs
    log-cleaner.log    compaction

The names are Kafka's. Each file is rotated at `sparkraft.log.file.bytes` and at midnight UTC;
`sparkraft.log.file.count` old ones are kept, the newest with the suffix `.1`.

    {"ts": "2026-11-25T02:30:00.123Z", "level": "INFO", "logger": "sparkraft.raft", "msg": "...",
     "node": 1, "role": "broker,controller"}       with an exception also "exc", its traceback

A record may have more fields, in its attribute `fields`: those of denials (`security.denials`).
"""

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

FILES: dict[str, tuple[str, ...]] = {
    "server.log": ("",),
    "controller.log": ("sparkraft.controller", "sparkraft.raft", "sparkraft.server.controller"),
    "state-change.log": ("sparkraft.server.broker.isr_journal",),
    "log-cleaner.log": ("sparkraft.server.broker.compaction", "sparkraft.storage.cleaner"),
}
"""File to the loggers it gets, with all below them; the empty name is every logger."""

_LEVELS = {logging.WARNING: "WARN", logging.CRITICAL: "FATAL"}
"""Kafka's names of the levels that Python names differently."""


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON."""

    def __init__(self, node_id: int, role: str) -> None:
        super().__init__()
        self._node = {"node": node_id, "role": role}

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line = {
            "ts": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": _LEVELS.get(record.levelno, record.levelname),
            "logger": record.name,
            "msg": record.getMessage(),
            **self._node,
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exc"] = self.formatException(record.exc_info)
        text = json.dumps(line, ensure_ascii=False)
        # Some readers end a line at U+0085 or U+2028, and clients choose names.
        return text if text.isprintable() else json.dumps(line)


class RotatedFile(RotatingFileHandler):
    """A log file that is rotated by size and by day."""

    def __init__(self, path: Path, *, bytes_max: int, count: int) -> None:
        super().__init__(path, maxBytes=bytes_max, backupCount=count, encoding="utf-8", delay=True)
        written = path.stat().st_mtime if path.exists() else None
        self._day = None if written is None else _day_of(written)

    def shouldRollover(self, record: logging.LogRecord) -> bool:  # noqa: N802 (its name in logging)
        day = _day_of(record.created)
        is_new_day = self._day is not None and day != self._day
        self._day = day
        return is_new_day or bool(super().shouldRollover(record))


def _day_of(seconds: float) -> int:
    return int(seconds // 86_400)


def log_to_files(
    folder: Path, formatter: logging.Formatter, *, bytes_max: int, count: int
) -> list[logging.Handler]:
    """Write the files of `FILES` into `folder`, which is created; return their handlers.

    Raises:
        OSError: the folder cannot be created.
    """
    folder.mkdir(parents=True, exist_ok=True)
    handlers: list[logging.Handler] = []
    for name, loggers in FILES.items():
        handler = RotatedFile(folder / name, bytes_max=bytes_max, count=count)
        handler.setFormatter(formatter)
        handlers.append(handler)
        for logger in loggers:
            logging.getLogger(logger or None).addHandler(handler)
    return handlers
