"""Signals while a pool works are raised at a safe point, never in the middle of its queue."""

import multiprocessing
import os
import queue
import signal
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager

import dask.local
import pytest

from gdm_dask.engine.local import LocalEngine
from gdm_dask.system import interrupts


def double(number):
    return 2 * number


def sleep(number):
    threading.Event().wait(600)


def signal_us(number):
    """A task whose thread still puts its result while the main thread handles the signal."""
    os.kill(os.getpid(), signal.SIGINT)
    return number


def begin_a_result(number):
    """A task whose process has sent the length of its result, but not the result, when the signal comes."""
    frame = sys._getframe()
    while "result_queue" not in frame.f_locals:
        frame = frame.f_back
    os.write(frame.f_locals["result_queue"]._writer.fileno(), struct.pack("!i", 1000))
    os.kill(multiprocessing.parent_process().pid, signal.SIGINT)
    sleep(number)


class CriticalLock(threading.Condition):
    """Signal the main thread when it has just got the lock, which stays locked if the handler raises there."""

    def __enter__(self):
        entered = super().__enter__()
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        return entered


class CriticalQueue(queue.Queue):
    def __init__(self):
        super().__init__()
        self.not_empty = CriticalLock(self.mutex)


@pytest.fixture
def handler():
    """Use Python's own handler, and restore the previous handlers afterwards."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def test_a_signal_while_the_queue_is_locked(handler, monkeypatch):
    monkeypatch.setattr(dask.local, "Queue", CriticalQueue)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), LocalEngine("threads", 2) as engine:
        engine.map(double, range(8))
    assert_new_threads_end(before)


def assert_new_threads_end(before):
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
        assert not thread.is_alive(), "a thread of the pool waits for a lock that nobody will free"


def test_a_signal_with_every_result(handler):
    before = set(threading.enumerate())
    for _ in range(100):
        with pytest.raises(KeyboardInterrupt), LocalEngine("threads", 2) as engine:
            engine.map(signal_us, range(8))
    assert_new_threads_end(before)


def test_no_task_runs_on_after_a_signal(handler):
    """The next thread to take one of our locks must not see them."""
    began, ended = threading.Event(), threading.Event()

    def task(number):
        if number == 0:
            assert began.wait(20)
            return signal_us(number)
        began.set()
        try:
            while True:
                interrupts.check()
        finally:
            ended.set()

    with LocalEngine("threads", 2) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.map(task, range(2))
        assert ended.is_set()


def test_work_goes_on_where_the_handler_returns(handler):
    seen = []
    signal.signal(signal.SIGINT, lambda number, frame: seen.append(number))
    try:
        with LocalEngine("threads", 2) as engine:
            assert engine.map(signal_us, range(8)) == list(range(8))
    finally:
        signal.signal(signal.SIGINT, handler)
    assert seen


def test_work_of_other_threads_is_left_alone(handler):
    theirs_began, over = threading.Event(), threading.Event()
    results = []

    def other(number):
        theirs_began.set()
        assert over.wait(20)
        interrupts.check()
        return number

    def in_another_thread():
        with LocalEngine("threads", 1) as engine:
            results.extend(engine.map(other, range(3)))

    def task(number):
        assert theirs_began.wait(20)
        return signal_us(number)

    thread = threading.Thread(target=in_another_thread)
    thread.start()
    with pytest.raises(KeyboardInterrupt), LocalEngine("threads", 1) as engine:
        engine.map(task, range(3))
    over.set()
    thread.join(20)
    assert results == [0, 1, 2]


@contextmanager
def signalled_after(seconds):
    """Signal this process while the body runs."""
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def test_processes_are_killed_in_the_middle_of_a_task(handler):
    """Also if they have not fully started."""
    with pytest.raises(KeyboardInterrupt), signalled_after(0.2), LocalEngine("processes", 2) as engine:
        engine.map(sleep, range(2))


def test_a_process_killed_in_the_middle_of_a_result(handler):
    with pytest.raises(KeyboardInterrupt), LocalEngine("processes", 2) as engine:
        engine.map(begin_a_result, [0])


ENDS = """
import os, signal, sys, threading
from gdm_dask.cli import main
main._GRACE = {}
def command():
    {}
main._run = command
main.run()
"""


@pytest.mark.parametrize(
    ("command", "grace"),
    [
        ("signal.raise_signal(signal.SIGTERM)", 60),
        # in a destructor, where Python ignores what is raised
        (
            "type('Lost', (), {'__del__': lambda self: signal.raise_signal(signal.SIGTERM)})()\n"
            "    threading.Event().wait()",
            60,
        ),
        # swallowed by a library
        ("try: signal.raise_signal(signal.SIGTERM)\n    except: threading.Event().wait()", 0.2),
        # its echo while the command cleans up
        ("try: signal.raise_signal(signal.SIGTERM)\n    finally: signal.raise_signal(signal.SIGTERM)", 60),
        # with no alarm left when Python has removed the handlers
        (
            "main.last = type('Last', (), {'__del__': lambda self, left=signal.getitimer, say=os.write:"
            " left(0)[0] and say(2, b'armed\\n')})()\n"
            "    signal.raise_signal(signal.SIGTERM)",
            60,
        ),
    ],
)
def test_a_signalled_command_ends(command, grace):
    ended = subprocess.run(
        [sys.executable, "-c", ENDS.format(grace, command)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 128 + signal.SIGTERM
    assert ended.stderr.startswith("ended by SIGTERM: the same command resumes where it stopped")
    assert ended.stderr.count("\n") == 1
