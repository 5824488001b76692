"""Threads: as many as asked for, callers side by side, and a new start in a forked child."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import heddle
from heddle import ops


@pytest.fixture(autouse=True)
def keep_num_threads() -> Any:
    before = heddle.num_threads()
    yield
    heddle.set_num_threads(before)


def product(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A call that is worth several threads: y, x and the weight."""
    weight = heddle.PackedWeight(
        rng.standard_normal((512, 256)).astype(np.float32), "F32", 512, 256
    )
    x = rng.standard_normal((8, 256)).astype(np.float32)
    return np.empty((8, 512), np.float32), x, weight


def test_set_num_threads_changes_no_bit(rng: np.random.Generator) -> None:
    y, x, weight = product(rng)
    ops.linear(y, x, weight)
    for n in (1, 2, 3, 5):
        heddle.set_num_threads(n)
        assert heddle.num_threads() == n
        other = np.full_like(y, np.nan)
        ops.linear(other, x, weight)
        assert (other == y).all()
    for n in (0, -1, 5000):
        with pytest.raises(ValueError, match=f"num_threads is {n}, expected 1 to 1024"):
            heddle.set_num_threads(n)


def test_the_environment_sets_the_threads() -> None:
    code = "import heddle; print(heddle.num_threads())"

    def run(value: str | None) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k != "HEDDLE_NUM_THREADS"}
        if value is not None:
            environment["HEDDLE_NUM_THREADS"] = value
        return subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    assert run("3").stdout.strip() == "3"
    assert int(run(None).stdout) == len(os.sched_getaffinity(0))
    refused = run("many")
    assert (
        'ValueError: HEDDLE_NUM_THREADS is "many", expected a number from 1 to 1024'
        in refused.stderr
    )


def test_threads_that_the_system_does_not_give_are_an_error() -> None:
    code = """
import re, resource
import numpy as np
import heddle
from heddle import ops
x, weight = np.ones((2, 4), np.float32), np.ones(4, np.float32)
ops.rms_norm(x, x, weight)
heddle.set_num_threads(1024)
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (200 << 20),) * 2)
try:
    ops.rms_norm(x, x, weight)
except MemoryError as error:
    assert re.match(r"the system gives [0-9]+ of 1024 threads: ", str(error)), error
    heddle.set_num_threads(2)
    ops.rms_norm(x, x, weight)
    print("refused, and then", np.allclose(x, 1, atol=1e-4))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == "refused, and then True", done.stderr


def test_python_threads_call_at_once(rng: np.random.Generator) -> None:
    y, x, weight = product(rng)
    ops.linear(y, x, weight)
    wrong: list[str] = []

    def work(seed: int) -> None:
        # Errors of one thread must not reach another, nor its workspace.
        logits = np.random.default_rng(seed).standard_normal((4, 1000)).astype(np.float32)
        parameters = [
            np.full(4, v, t)
            for v, t in ((1, "f4"), (0, "i4"), (0.9, "f4"), (0, "f4"), (seed, "i8"), (0, "i8"))
        ]
        first = np.zeros(4, np.int64)
        ops.sample(first, None, logits, *parameters)
        for _ in range(30):
            out, ids = np.full_like(y, np.nan), np.full(4, -1, np.int64)
            ops.linear(out, x, weight)
            ops.sample(ids, None, logits, *parameters)
            try:
                ops.linear(out, x[:, : seed + 1], weight)
                wrong.append("no error")
            except ValueError as error:
                if f"is {seed + 1}" not in str(error):
                    wrong.append(str(error))
            if not (out == y).all() or not (ids == first).all():
                wrong.append("other values")

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_another_thread_runs_during_a_call(rng: np.random.Generator) -> None:
    heddle.set_num_threads(1)
    weight = heddle.PackedWeight(
        rng.standard_normal((1024, 1024)).astype(np.float32), "F32", 1024, 1024
    )
    x = rng.standard_normal((512, 1024)).astype(np.float32)
    y = np.empty((512, 1024), np.float32)
    inside = seen = False

    def call() -> None:
        nonlocal inside
        for _ in range(100):
            inside = True
            ops.linear(y, x, weight)
            inside = False
            if seen:
                return

    # The interpreter is now taken from no thread: during a call this one runs if that lets go.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        thread = threading.Thread(target=call)
        thread.start()
        while thread.is_alive() and not seen:
            seen = inside
            time.sleep(0)
        thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert seen


def test_a_forked_child_makes_its_own_threads(rng: np.random.Generator) -> None:
    heddle.set_num_threads(3)
    y, x, weight = product(rng)
    ops.linear(y, x, weight)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            out = np.full_like(y, np.nan)
            ops.linear(out, x, weight)
            heddle.set_num_threads(2)
            ops.linear(out, x, weight)
            status = 0 if (out == y).all() else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    ops.linear(y, x, weight)


def test_a_context_of_the_cpu_has_no_faults(rng: np.random.Generator) -> None:
    y, x, weight = product(rng)
    ops.linear(y, x, weight)
    for context in (heddle.Context("cpu"), heddle.Context.of(y), heddle.Context("cuda:5", 0)):
        context.check()
        assert context.poll() is None
    assert heddle.Context.of(y).device == "cpu"
    with pytest.raises(ValueError, match='device is "tpu"'):
        heddle.Context("tpu", 0).poll()
