#!/usr/bin/env python3
"""`heddle demo` and `make demo`: every question with both answers in 80 columns, and next commands that work when pasted.

  python3 tests/demo_test.py HEDDLE      (HEDDLE_MODEL names the model)
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEDDLE = None


NEXT = r"^  (?:\S*heddle) ((?:.*\\\n)*.*)$"  # a command of the end of the demo


class Demo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.done = subprocess.run([HEDDLE, "demo"], cwd=ROOT, capture_output=True, text=True)

    def test_every_question_has_both_answers(self):
        self.assertEqual(self.done.returncode, 0, self.done.stderr)
        parts = self.done.stdout.split("\nQuestion: ")[1:]
        self.assertEqual(len(parts), 8)
        for part, (adapter, answer) in zip(parts, [
                ("iso-date", "2021-03-03"), ("cron", "30 9 * * 1-5"), ("person-json", '"city": "Porto"'), ("sql", "AVG(price)"),
                ("sentiment", "positive"), ("shell", "find /tmp"), ("slug", "the-quick-brown-river"),
                ("opposite", "COLD, SMALL, SLOW")]):
            heads, *lines = part.split("\n\n")[0].split("\n")[1:]
            self.assertRegex(heads, f"^base model: +[|] adapter {adapter}:$")
            columns = [" ".join(line[cut].strip() for line in lines) for cut in (slice(0, 38), slice(41, None))]
            self.assertTrue(columns[0].strip())
            self.assertIn(answer, columns[1])
            self.assertNotIn(answer, columns[0])
        self.assertNotRegex(self.done.stdout, "[^\n -~]")  # no colours where there is no terminal
        answers = self.done.stdout.split("\nNext, ")[0]
        self.assertLessEqual(max(map(len, answers.split("\n"))), 80)

    def test_each_adapter_alone_has_the_same_bits(self):
        self.assertIn("the same bits in 8 of 8 answers.\n", self.done.stdout)

    def test_on_a_terminal_answers_are_seen_while_they_are_written(self):
        out = subprocess.run(["script", "-qec", f"'{HEDDLE}' demo", "/dev/null"], cwd=ROOT, capture_output=True, text=True,
                             stdin=subprocess.DEVNULL).stdout
        steps = out.split("\033[8A\033[J")
        self.assertGreater(len(steps), 10)
        self.assertTrue(all(step.count("\n") == 8 for step in steps[1:-1]))
        self.assertRegex(steps[-2], r"iso-date +2021-03-03 ")
        self.assertIn("Question: ", steps[-1])

    def test_what_is_missing_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "nothing.gguf"
            model.touch()
            for arguments, sentence in ((["--model", model], "nothing.gguf"),
                                        (["--examples", folder], "expected a folder with demo.jsonl and a folder adapters")):
                done = subprocess.run([HEDDLE, "demo", *arguments], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
                self.assertIn(sentence, done.stderr)

    def test_the_next_commands_work_when_pasted(self):
        commands = re.findall(NEXT, self.done.stdout, re.M)
        self.assertEqual([c.split()[0] for c in commands if not c.startswith("serve")], ["generate", "chat"])
        for command in commands[:2]:
            done = subprocess.run(["bash", "-c", f"'{HEDDLE}' {command}"], cwd=ROOT, text=True, capture_output=True,
                                  stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, command + done.stderr)
            if command.startswith("generate"):
                self.assertIn("my-first-adapter", done.stdout)


class BuildLine(unittest.TestCase):
    """tools/build_line with a build that takes no time."""

    def build(self, script):
        with tempfile.TemporaryDirectory() as folder:
            log = pathlib.Path(folder) / "logs/build.log"
            done = subprocess.run([ROOT / "tools/build_line", "[3/4] build", log, "sh", "-c", script], capture_output=True, text=True)
            return done, log.read_text()

    def test_a_tenth_a_line_and_all_in_the_log(self):
        done, log = self.build('i=0; while [ $i -lt 50 ]; do i=$((i + 1)); echo "[$i/50] Building $i"; done')
        self.assertEqual(done.returncode, 0)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 12, done.stdout)
        self.assertRegex(lines[1], r"^\[3/4\] build 5/50$")
        self.assertRegex(lines[4], r"^\[3/4\] build 20/50, \d+ s left$")
        self.assertRegex(lines[-1], r"^\[3/4\] build: done in \d+ s$")
        self.assertEqual(log.count("Building"), 50)

    def test_a_build_that_fails_shows_the_end_of_its_log(self):
        done, _ = self.build('echo "[1/2] Building"; echo "error: no such thing" >&2; exit 3')
        self.assertEqual(done.returncode, 3)
        self.assertIn("failed; all of it is in ", done.stdout)
        self.assertTrue(done.stdout.endswith("error: no such thing\n"))


class Limit(unittest.TestCase):
    """tools/demo in a tree where everything else is a stub, and compiling takes two CPU seconds."""

    def demo(self, *arguments, built=False):
        with tempfile.TemporaryDirectory() as folder:
            tools, build = pathlib.Path(folder) / "tools", pathlib.Path(folder) / "build"
            tools.mkdir()
            build.mkdir()
            for name in ("demo", "cpu_time", "build_line"):
                shutil.copy(ROOT / "tools" / name, tools)
            program = build / "heddle"
            program.write_text("#!/bin/sh\necho $1 answers\n")
            program.chmod(0o755)
            burn = "import time; [0 for _ in iter(lambda: time.process_time() < 2, False)]"
            for name, does in (("bootstrap", "true"), ("fetch_model", "sleep 1"),
                               ("build", f'echo "[1/1] built $*"; python3 -c "{burn}"')):
                (tools / name).write_text(f"#!/bin/sh\n{does}\n")
                (tools / name).chmod(0o755)
            if built:
                (build / ".ninja_log").touch()
            environment = {key: value for key, value in os.environ.items() if not key.startswith("HEDDLE_")}
            environment["HEDDLE_WHEEL"] = "none"
            done = subprocess.run([tools / "demo", *arguments], capture_output=True, text=True, env=environment)
            self.assertEqual((build / "demo.log").read_text(), "[1/1] built release heddle_program\n")
        return done

    def test_it_says_how_long_it_took(self):
        done = self.demo()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"demo answers\ndemo, first compile to last answer: [2-9] CPU s in \d+ s\n")

    def test_above_the_limit_it_fails(self):
        self.assertEqual(self.demo("--limit", "60").returncode, 0)
        done = self.demo("--limit", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^demo, first .*: \d+ CPU s, \d+ on the reference machine: both above the limit of 1 s\n$")

    def test_an_incremental_build_is_told(self):
        self.assertRegex(self.demo(built=True).stdout, r"\ndemo, incremental build: \d+ CPU s in \d+ s\n")


class Wheels(unittest.TestCase):
    """tools/demo in a tree with nothing else, and wheels in the cache whose program says which one it is."""

    def wheel(self, folder, tag):
        path = folder / f"heddle_lora-0.1.0-{tag}-{sysconfig.get_platform().replace('-', '_')}.whl"
        meta = "heddle_lora-0.1.0.dist-info"
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("heddle_stub.py", f"def main(): print('{tag}')\n")
            file.writestr(f"{meta}/METADATA", "Metadata-Version: 2.1\nName: heddle-lora\nVersion: 0.1.0\n")
            file.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
            file.writestr(f"{meta}/entry_points.txt", "[console_scripts]\nheddle = heddle_stub:main\n")
            file.writestr(f"{meta}/RECORD", "")
        return path

    def test_one_that_fits_is_taken(self):
        minor = sys.version_info.minor
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            cache = root / "a cache-cp32-cp32-/heddle/wheels"
            old = root / "build/venv-wheel/bin"  # an environment of another Python
            for made in (root / "tools", old, cache, root / "path"):
                made.mkdir(parents=True)
            shutil.copy(ROOT / "tools/demo", root / "tools")
            (root / "CMakeLists.txt").write_text("project(heddle VERSION 0.1.0 LANGUAGES CXX)\n")
            (old / "python").write_text("#!/bin/sh\necho 3.0\n")
            (old / "python").chmod(0o755)
            (root / "path/python3").symlink_to(sys.executable)
            fits = self.wheel(cache, f"cp3{minor}-abi3")
            for tag, age in ((f"cp3{minor - 1}-cp3{minor - 1}", 1), (f"cp3{minor + 1}-abi3", 2)):
                newer = fits.stat().st_mtime + age
                os.utime(self.wheel(cache, tag), (newer, newer))
            environment = {key: value for key, value in os.environ.items() if not key.startswith("HEDDLE_")}
            environment |= {"XDG_CACHE_HOME": str(cache.parents[1]), "PATH": f"{root / 'path'}:{os.environ['PATH']}"}
            done = subprocess.run([root / "tools/demo"], capture_output=True, text=True, env=environment)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"[1/2] wheel {fits}\n[2/2] answers\ncp3{minor}-abi3\n")


if __name__ == "__main__":
    HEDDLE = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=sys.argv[:1])
