"""A function in a process of its own, which a model's text can neither hang nor crash.

Graders hand what a model wrote to symbolic algebra, and some texts take for ever, fill the memory
or kill the interpreter. Alarm signals do not help: they work in the main thread only, and not
inside one long operation.
"""

import contextlib
import json
import logging
import os
import subprocess
import sys
import threading
import weakref
from typing import Any

from evenodds.errors import RewardError

logger = logging.getLogger(__name__)

WORKER = "evenodds.rewards.worker"
READY = "ready"


class Sandbox:
    """Calls a function in a worker process, which is started when first needed.

    It may be used from any thread, pickled, and used after a fork.

    Args:
        function: `module:function`, importable by a fresh Python. It is called with None once,
            to import what it needs, and then with each request.
        time_limit_s: Longest time for one answer, in seconds.
    """

    def __init__(self, function: str, time_limit_s: float = 5.0) -> None:
        self.function = function
        self.time_limit_s = time_limit_s
        self._lock = threading.Lock()
        self._worker: _Worker | None = None

    def ask(self, request: Any) -> Any:
        """The function's answer to `request`; both are JSON values.

        Returns:
            None where the function raised, ran out of time or memory, or crashed.

        Raises:
            RewardError: the function cannot be loaded.
        """
        with self._lock:
            if self._worker is None or not self._worker.is_usable():
                self._worker = _Worker(self.function, self.time_limit_s)
            reply = self._worker.exchange(json.dumps(request))
        if reply:
            return json.loads(reply)
        logger.info("a grader took over %g s or crashed; the answer is wrong", self.time_limit_s)
        return None

    def __getstate__(self) -> dict[str, Any]:
        return {"function": self.function, "time_limit_s": self.time_limit_s}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Sandbox.__init__(self, **state)


class _Worker:
    """The process and its two pipes; it ends with this object."""

    def __init__(self, function: str, time_limit_s: float) -> None:
        self.process = subprocess.Popen(
            # -P: a file `random.py` in the current folder must not be taken for Python's own.
            [sys.executable, "-P", "-m", WORKER, function, str(time_limit_s)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
            start_new_session=True,  # an interrupt from the keyboard is the trainer's to handle
        )
        self.owner = os.getpid()
        weakref.finalize(self, _end, self.process, self.owner)
        greeting = self.read()
        if not greeting or json.loads(greeting) != READY:
            raise RewardError(
                f"the grader {function} cannot be loaded",
                got=json.loads(greeting) if greeting else "its process ended at once",
            )

    def is_usable(self) -> bool:
        """Whether it runs and is ours: a fork shares its pipes, but must not use them."""
        return self.owner == os.getpid() and self.process.poll() is None

    def exchange(self, line: str) -> str:
        """Send one line and wait for one; empty where the process ended instead."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # it ended while we wrote
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """One line; where there is none any more, the process has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
        return line


def _end(process: subprocess.Popen[str], owner: int) -> None:
    if os.getpid() == owner:
        process.kill()
        process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):  # what could not be written to a process that ended
            pipe.close()
