"""What the tests share: fresh random data, and the array frameworks that every test runs with."""

from __future__ import annotations

import frameworks
import numpy as np
import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The seed of this run, and whether torch takes part; -q leaves headers out, but not this."""
    torch = "with torch" if frameworks.TORCH_WANTED else "without torch (HEDDLE_TEST_TORCH=0)"
    terminalreporter.write_line(f"HEDDLE_TEST_SEED={frameworks.SEED}, {torch}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A module that is left out as a whole is no failure; one that has no tests is."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    left_out = reporter is not None and bool(reporter.stats.get("skipped"))
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and left_out:
        session.exitstatus = pytest.ExitCode.OK


@pytest.fixture
def rng() -> np.random.Generator:
    """Random data that differ from run to run; HEDDLE_TEST_SEED repeats a run."""
    return np.random.default_rng(frameworks.SEED)


@pytest.fixture(params=["numpy", "torch"])
def framework(request: pytest.FixtureRequest) -> frameworks.Framework:
    """Makes and reads arrays: NumPy's, then torch's."""
    if request.param == "numpy":
        return frameworks.NumpyFramework()
    if not frameworks.TORCH_WANTED:
        pytest.skip("skipped: HEDDLE_TEST_TORCH=0")
    return frameworks.TorchFramework()
