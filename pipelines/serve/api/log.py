"""The log of the server: lines of JSON, which never contain the texts of requests."""

import json
import logging
import time
from contextvars import ContextVar
from typing import Any

logger = logging.getLogger("kerasbert.serve")
NOTES: ContextVar[dict[str, Any]] = ContextVar("notes")  # what is noted of a request while it is answered


class JsonLines(logging.Formatter):
    """Formats log records as lines of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03}Z"
        line = {"time": moment, "level": record.levelname.lower(), "event": record.getMessage()}
        line |= getattr(record, "told", {})
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line)
