"""The process of a `Sandbox`: answers requests on its standard input, one JSON value a line.

    python -m evenodds.rewards.worker MODULE:FUNCTION SECONDS

A watchdog, which needs no help from Python, ends the process when an answer takes too long, also
in the midst of one huge power.
"""

import contextlib
import faulthandler
import importlib
import json
import os
import sys
from collections.abc import Callable
from typing import Any

from evenodds.rewards.sandbox import READY

MEMORY_BYTES = 4 * 1024**3


def main(function: str, time_limit_s: float) -> None:
    """Load the function, say `READY`, and serve until the input ends."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints must not mix with the replies
    _limit_memory()

    def send(reply: Any) -> None:
        replies.write(json.dumps(reply) + "\n")
        replies.flush()

    try:
        module, _, name = function.partition(":")
        answer = getattr(importlib.import_module(module), name)
        answer(None)
    except Exception as error:
        send(f"{type(error).__name__}: {error}")
        return
    send(READY)
    for line in sys.stdin:
        faulthandler.dump_traceback_later(time_limit_s, exit=True)
        reply = _answer(answer, json.loads(line))
        faulthandler.cancel_dump_traceback_later()
        send(reply)


def _answer(function: Callable[[Any], Any], request: Any) -> Any:
    try:
        return function(request)
    except Exception:  # whatever a grader trips over in a model's text
        return None


def _limit_memory() -> None:
    """Make a huge number a `MemoryError` here rather than the end of the whole run."""
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on every system
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
