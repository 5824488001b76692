"""Runs the programs of tools/gpu_check and records what came of each."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import time
from xml.etree import ElementTree

from gpu.machine import ClockSampler, output_of


def with_cublas():
    """Environment for benches that use cuBLASLt: it lies in the toolkit, or among the packages that PyTorch brings for Python."""
    packages = output_of("python3", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
    folders = [pathlib.Path("/usr/local/cuda/lib64"), *(sorted(pathlib.Path(packages).glob("nvidia/*/lib")) if packages else [])]
    found = next((str(folder) for folder in folders if any(folder.glob("libcublasLt.so.*"))), None)
    others = os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": ":".join(filter(None, [others, found]))} if found else {}


def seed_in(output):
    """What repeats the random data of a test run."""
    seed = re.search(r"^HEDDLE_TEST_SEED=(\d+)", output, re.MULTILINE)
    return seed.group(1) if seed else None


def cases_in(report):
    """The tests that a program of GoogleTest has run, None where it died before the end."""
    try:
        suites = json.load(report)["testsuites"]
    except ValueError:
        return None
    return [case for suite in suites for case in suite["testsuite"] if case["status"] == "RUN"]


class Runner:
    """Runs programs one at a time and records what came of each."""

    def __init__(self, cwd, quick, timeout, rounds=None):
        self.cwd, self.quick, self.timeout, self.rounds = cwd, quick, timeout, rounds

    def run(self, command, extra_environment):
        """(exit code, output, seconds); no code where it did not start or was stopped at the time limit."""
        environment = {**os.environ, **extra_environment}
        start = time.monotonic()
        try:
            done = subprocess.run([str(part) for part in command], cwd=self.cwd, env=environment, timeout=self.timeout,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
            code, output = done.returncode, done.stdout
        except OSError as missing:  # compute-sanitizer may be
            code, output = None, str(missing)
        except subprocess.TimeoutExpired as late:
            code, output = None, late.stdout or ""
            if isinstance(output, bytes):  # Python does not decode what it had read so far
                output = output.decode(errors="replace")
        return code, output, time.monotonic() - start

    def tests(self, step, program, environment, wrapper=()):
        """One run of a test program, also under a wrapper such as compute-sanitizer."""
        with tempfile.NamedTemporaryFile(suffix=".json") as report:
            code, output, seconds = self.run([*wrapper, program, f"--gtest_output=json:{report.name}"], environment)
            reported = cases_in(report)
        cases = reported or []
        failed = [f"{case['classname']}.{case['name']}" for case in cases if case.get("failures")]
        skipped = sum(case.get("result") == "SKIPPED" for case in cases)
        targets = re.search(r"^CPU targets:(.*)$", output, re.MULTILINE)
        result = {
            "step": step, "program": program.name, "passed": len(cases) - len(failed) - skipped, "failed": len(failed),
            "skipped": skipped, "failures": failed, "seconds": round(seconds, 2), "exit_code": code,
            "seed": seed_in(output),
            "ok": code == 0 and bool(cases) and not failed and (skipped == 0 or step in ("cpu", "engine", "model")),
        }
        if code is not None and reported is None:
            result["died"] = True
        if step == "cpu":
            result["cpu_targets"] = targets.group(1).split() if targets else []
        if not result["ok"]:
            result["output"] = output[-20_000:]
        return result, output

    def sanitized(self, tool, program, more=()):
        """A test program under a tool of compute-sanitizer; once more where it died there and the tool had found nothing."""
        first = self.sanitized_once(tool, program, more)
        if not first.get("died") or first["errors"]:
            return first
        kept = ("exit_code", "seconds", "seed", "errors", "output")
        return {**self.sanitized_once(tool, program, more), "first_run": {key: first[key] for key in kept}}

    def sanitized_once(self, tool, program, more):
        wrapper = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "99", "--report-api-errors", "no"]
        environment = {"HEDDLE_REQUIRE_CUDA": "1", "HEDDLE_TEST_SMALL": "1", **dict(more)}
        result, output = self.tests("sanitizer", program, environment, wrapper)
        errors = re.findall(r"(?:ERROR SUMMARY: (\d+) error|RACECHECK SUMMARY: (\d+) hazard)", output)
        found = [int(a or b) for a, b in errors]
        result.update(tool=tool, errors=sum(found) if found else None)
        if result["errors"] != 0:  # also where no summary came, so that a tool that did not start is no success
            result.update(ok=False, output=output[-20_000:])
        return result

    def python_tests(self, step, python, path, environment):
        """One file of tests; some of it may be skipped, for lack of a second GPU, say, but not all."""
        with tempfile.NamedTemporaryFile(suffix=".xml") as report:
            command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report.name}", path]
            code, output, seconds = self.run(command, environment)
            try:
                cases = list(ElementTree.parse(report).iter("testcase"))
            except ElementTree.ParseError:
                cases = []  # it died before the end
        failed = [f"{case.get('classname')}.{case.get('name')}" for case in cases
                  if case.find("failure") is not None or case.find("error") is not None]
        skipped = sum(case.find("skipped") is not None for case in cases)
        passed = len(cases) - len(failed) - skipped
        result = {"step": step, "program": path.name, "passed": passed, "failed": len(failed), "skipped": skipped,
                  "failures": failed, "seconds": round(seconds, 2), "exit_code": code, "seed": seed_in(output),
                  "ok": code == 0 and passed > 0 and not failed}
        if not result["ok"]:
            result["output"] = output[-20_000:]
        return result

    def bench(self, program):
        with tempfile.NamedTemporaryFile(suffix=".json") as report, ClockSampler() as clocks:
            command = [program, "--json", report.name, *(["--quick"] if self.quick else [])]
            code, output, seconds = self.run(command, with_cublas())
            try:
                records = json.load(report)
            except ValueError:
                records = []
        ok = code == 0 and isinstance(records, list) and bool(records)
        result = {"program": program.name, "seconds": round(seconds, 2), "exit_code": code, "ok": ok, "clocks": clocks.summary(),
                  "records": records}
        if not ok:
            result["output"] = output[-20_000:]
        return result


def show(result, what):
    tests = ""
    if "passed" in result:
        tests = f"{result['passed']:5} passed {result['failed']:4} failed {result['skipped']:4} skipped"
    elif "records" in result:
        tests = f"{len(result['records']):5} records"
    if result.get("tool"):
        tests += f"  errors: {result['errors']}"
    if "first_run" in result:
        tests += "  (second run: the first one died)"
    print(f"{'ok  ' if result['ok'] else 'FAIL'} {what:10} {result['program']:28} {result['seconds']:7.1f} s {tests}", flush=True)
    if not result["ok"]:
        print("\n".join("     | " + line for line in result["output"].splitlines()[-25:]), flush=True)
