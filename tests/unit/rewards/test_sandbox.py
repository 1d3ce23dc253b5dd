"""A worker process that may hang, crash or eat memory, and a trainer that goes on."""

import os
import pickle
import threading
from pathlib import Path

import pytest

from evenodds.errors import RewardError
from evenodds.rewards.sandbox import Sandbox

MODULE = """
import os, sys, time

def play(request):
    if request is None:
        return None
    print("this must not mix with the replies")
    os.write(1, b"nor this\\n")
    if request == "pid":
        return os.getpid()
    if request == "raise":
        raise KeyError("a fault of the grader")
    if request == "power":
        return 9 ** 9 ** 9 > 0  # one operation that no Python signal handler can break
    if request == "crash":
        os.abort()
    if request == "memory":
        return len(bytearray(1 << 40))
    if request == "recurse":
        return play("recurse")
    return request * 2

def broken(request):
    raise ImportError("no module named abacus")
"""


@pytest.fixture
def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    (tmp_path / "playground.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return Sandbox("playground:play", time_limit_s=1.0)


def test_answers_come_back(play: Sandbox) -> None:
    assert play.ask(21) == 42
    assert play.ask("é😀\ud83d\n") == "é😀\ud83d\n" * 2
    assert len(play.ask("x" * 1_000_000)) == 2_000_000


@pytest.mark.parametrize("request_", ["raise", "power", "crash", "memory", "recurse"])
def test_what_goes_wrong_is_none_and_the_next_one_is_answered(play: Sandbox, request_: str) -> None:
    assert play.ask(request_) is None
    assert play.ask(21) == 42


def test_one_process_serves_until_it_ends(play: Sandbox) -> None:
    first = play.ask("pid")
    assert play.ask("pid") == first != os.getpid()
    assert play._worker is not None
    play._worker.process.kill()
    play._worker.process.wait()
    assert play.ask("pid") not in (first, None)  # an idle worker that was killed costs no answer


def test_any_thread_may_ask(play: Sandbox) -> None:
    found: list[int] = []
    threads = [threading.Thread(target=lambda n=n: found.append(play.ask(n))) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == list(range(0, 40, 2))


def test_a_copy_by_pickle_has_a_process_of_its_own(play: Sandbox) -> None:
    first = play.ask("pid")
    copy = pickle.loads(pickle.dumps(play))
    assert copy.time_limit_s == 1.0
    assert copy.ask("pid") not in (first, None)


def test_a_fork_leaves_its_parents_process_alone(
    play: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, first = os.getpid(), play.ask("pid")
    worker = play._worker
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: parent + 1)
        assert play.ask("pid") not in (first, None)
        play._worker = None
    play._worker = worker
    assert play.ask("pid") == first


def test_the_process_ends_with_the_sandbox(play: Sandbox) -> None:
    pid = play.ask("pid")
    play._worker = None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        ("playground:broken", "ImportError: no module named abacus"),
        ("playground:absent", "has no attribute 'absent'"),
        ("abacus:count", "No module named 'abacus'"),
    ],
)
def test_functions_that_cannot_be_loaded(play: Sandbox, function: str, reason: str) -> None:
    with pytest.raises(RewardError, match=f"the grader {function} cannot be loaded") as caught:
        Sandbox(function).ask(1)
    assert reason in str(caught.value)


def test_files_of_the_current_folder_do_not_shadow_modules(
    play: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (here / "json.py").write_text("raise RuntimeError")
    monkeypatch.chdir(here)
    assert play.ask(21) == 42
