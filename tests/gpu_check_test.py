"""tools/gpu_check on stand-ins for a test program and for compute-sanitizer: which runs it repeats, and what it says of them."""
import json
import os
import pathlib
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
# The n-th run of the program does what the n-th word of the file `plan` next to it says; the last word stands for all further ones.
PROGRAM = """#!{python}
import json, os, pathlib, sys
here = pathlib.Path(sys.argv[0]).parent
plan = (here / "plan").read_text().split()
word = plan.pop(0) if len(plan) > 1 else plan[0]
(here / "plan").write_text(" ".join(plan))
(here / "runs").open("a").write("x")
if word == "dies":
    os._exit(1)
case = {{"classname": "Suite", "name": "Case", "status": "RUN"}}
if word == "fails":
    case["failures"] = [{{}}]
report = next(a for a in sys.argv if a.startswith("--gtest_output=json:")).split(":", 1)[1]
pathlib.Path(report).write_text(json.dumps({{"testsuites": [{{"testsuite": [case]}}]}}))
sys.exit(word == "fails")
"""
# compute-sanitizer --tool T --error-exitcode 99 --report-api-errors no PROGRAM ARGUMENT...
SANITIZER = """#!{python}
import pathlib, subprocess, sys
program = sys.argv[7:]
code = subprocess.run(program, check=False).returncode
found = int((pathlib.Path(program[0]).parent / "found").read_text())
print("=========", f"ERROR SUMMARY: {{found}} errors")
sys.exit(99 if found else code)
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.write("test_one_cuda", PROGRAM)
        self.write("bin/compute-sanitizer", SANITIZER)
        self.write("build.json", json.dumps({"commit": "0123456", "nvcc": None, "built_on": {}}))

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.format(python=sys.executable) if text.startswith("#!") else text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def sanitize(self, plan, found=0):
        """Exit code, table, number of runs and the result of memcheck."""
        self.write("plan", plan)
        self.write("found", str(found))
        report = self.folder / "out.json"
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        done = subprocess.run([sys.executable, ROOT / "tools/gpu_check", "--prebuilt", self.folder, "--steps", "sanitizer", "--quick",
                               "--out", report], capture_output=True, text=True, env=environment, check=False)
        self.assertTrue(report.exists(), done.stderr)
        (result,) = json.loads(report.read_text())["tests"]
        return done.returncode, done.stdout, len((self.folder / "runs").read_text()), result

    def test_a_run_without_fault_is_one_run(self):
        code, _, runs, result = self.sanitize("passes")
        self.assertEqual((code, runs, result["ok"], result["errors"], result["passed"]), (0, 1, True, 0, 1))
        self.assertNotIn("first_run", result)

    def test_a_run_that_died_is_repeated_once(self):
        code, table, runs, result = self.sanitize("dies passes")
        self.assertEqual((code, runs, result["ok"]), (0, 2, True))
        self.assertEqual((result["first_run"]["exit_code"], result["first_run"]["errors"]), (1, 0))
        self.assertIn("second run: the first one died", table)

    def test_a_run_that_dies_twice_has_failed(self):
        code, _, runs, result = self.sanitize("dies")
        self.assertEqual((code, runs, result["ok"], result["died"]), (1, 2, False, True))

    def test_what_was_found_is_not_repeated(self):
        for plan in ("dies", "passes"):
            (self.folder / "runs").unlink(missing_ok=True)
            code, _, runs, result = self.sanitize(plan, found=3)
            self.assertEqual((code, runs, result["ok"], result["errors"]), (1, 1, False, 3))

    def test_a_test_that_fails_is_not_repeated(self):
        code, _, runs, result = self.sanitize("fails passes")
        self.assertEqual((code, runs, result["ok"], result["failures"]), (1, 1, False, ["Suite.Case"]))

    def test_only_the_programs_that_were_named_run(self):
        self.write("test_two_cuda", PROGRAM)
        self.write("plan", "passes")
        self.write("found", "0")
        report = self.folder / "out.json"
        environment = {**os.environ, "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        command = [sys.executable, ROOT / "tools/gpu_check", "--prebuilt", self.folder, "--steps", "gpu", "--only", "two", "--out", report]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        written = json.loads(report.read_text())
        self.assertEqual([result["program"] for result in written["tests"]], ["test_two_cuda"])
        self.assertEqual(written["only"], "two")


if __name__ == "__main__":
    unittest.main()
