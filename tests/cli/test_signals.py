"""Ctrl-C and SIGTERM at random moments end a command quickly and quietly; run again, it finishes."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress

import pytest
from helpers.clusters import catches, gdm, is_running, same_model, until
from helpers.store_helpers import chunks_below, some_labels, some_matrix, write_svmlight

#: Seconds in which a signalled command must end; a busy machine may take a few times as long as for a whole command.
SOON = 15.0
#: Signals per command and scheduler; ``make chaos`` sends more.
N_SIGNALS = int(os.environ.get("GDM_CHAOS_SIGNALS", 2))


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Return the arguments of each command for a scheduler and an output, and a check of that output."""
    folder = tmp_path_factory.mktemp("signals")
    source = write_svmlight(folder / "x.svm", some_matrix(300, 100), some_labels(300))
    whole = {"ingest": folder / "store", "fit": folder / "run"}

    def ingest(scheduler, store):
        return ["ingest", source, store, "--block-size", "15kB", "--run-size", "25kB", "--scheduler", scheduler]

    def fit(scheduler, run):
        resume = ["--resume"] if run.exists() else []
        return ["fit", whole["ingest"], "--run", run, "-k", 8, "--scheduler", scheduler, *resume]

    def same_store(one, other):
        assert chunks_below(one) == chunks_below(other)

    found = {"ingest": (ingest, same_store), "fit": (fit, same_model)}
    for name, (arguments, _) in found.items():
        assert gdm(*arguments("synchronous", whole[name]), log=folder / name).wait() == 0
    return {name: (arguments, check, whole[name]) for name, (arguments, check) in found.items()}


def run_for(seconds, number, arguments, log, soon):
    """Run a command and signal it after a delay; returns whether it had already ended."""
    command = gdm(*arguments, log=log)
    until(lambda: catches(command.pid, signal.SIGTERM) or not is_running(command.pid), "the command installs handlers")
    with suppress(subprocess.TimeoutExpired):
        command.process.wait(seconds)
    if number == signal.SIGINT:
        with suppress(ProcessLookupError):
            os.killpg(command.pid, number)  # as a terminal does
    elif command.process.poll() is None:
        command.signal(number)
    signalled = time.monotonic()
    code = command.wait()
    assert time.monotonic() - signalled < soon, command.text
    assert code in (0, 128 + number), command.text
    for word in ("Traceback", "ignored", "leaked"):
        assert word not in command.text, command.text
    return code == 0


@pytest.mark.parametrize("scheduler", ["synchronous", "threads", "processes"])
@pytest.mark.parametrize("name", ["ingest", "fit"])
def test_signals_at_random_moments(commands, tmp_path, name, scheduler):
    arguments, check, whole = commands[name]
    chance = random.Random(f"{name} {scheduler}")
    began = time.monotonic()
    assert gdm(*arguments(scheduler, tmp_path / "whole"), log=tmp_path / "log").wait() == 0
    usual = time.monotonic() - began
    out = tmp_path / "out"
    for attempt in range(N_SIGNALS):
        number = chance.choice([signal.SIGINT, signal.SIGTERM])
        log = tmp_path / f"{attempt}.log"
        ended = run_for(chance.uniform(0, 1) * usual, number, arguments(scheduler, out), log, max(SOON, 5 * usual))
        if ended or is_done(out):  # the command may have been about to end
            break
    else:
        last = gdm(*arguments(scheduler, out), log=tmp_path / "last.log")
        assert last.wait() == 0, last.text
    check(out, whole)


def is_done(out):
    """Tell whether a store is published, which is the last, atomic step, or a run has its model."""
    return (out / "zarr.json").exists() or (out / "model.json").exists()
