#!/usr/bin/env python3
"""What `make demo` shows: every question with both answers in 80 columns, and next commands that work when pasted.

  python3 tests/demo_test.py HEDDLE      (HEDDLE_MODEL names the model)
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEDDLE = None


class Demo(unittest.TestCase):
    def test_every_question_has_both_answers(self):
        done = subprocess.run([ROOT / "tools/demo.py", "--heddle", HEDDLE], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        parts = done.stdout.split("\nQuestion: ")[1:]
        self.assertEqual(len(parts), 8)
        for part, (adapter, answer) in zip(parts, [
                ("iso-date", "2021-03-03"), ("cron", "30 9 * * 1-5"), ("person-json", '"city": "Porto"'), ("sql", "AVG(price)"),
                ("sentiment", "positive"), ("shell", "find /tmp"), ("slug", "the-quick-brown-river"),
                ("opposite", "COLD, SMALL, SLOW")]):
            heads, *lines = part.split("\n")[1:]
            self.assertRegex(heads, f"^  base model: +adapter {adapter}:$")
            columns = [" ".join(line[cut].strip() for line in lines) for cut in (slice(0, 40), slice(40, None))]
            self.assertTrue(columns[0].strip())
            self.assertIn(answer, columns[1])
            self.assertNotIn(answer, columns[0])
        self.assertNotRegex(done.stdout, "[^\\n -~]")  # no colours where there is no terminal
        self.assertLessEqual(max(map(len, done.stdout.split("\n"))), 80)

    def test_a_model_that_is_missing_fails(self):
        with tempfile.NamedTemporaryFile() as nothing:
            done = subprocess.run([ROOT / "tools/demo.py", "--heddle", HEDDLE], capture_output=True, text=True,
                                  env={"HEDDLE_MODEL": nothing.name, "PATH": "/usr/bin:/bin"})
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)

    def test_the_next_commands_work_when_pasted(self):
        text = re.search(r"<<'END'\n(.*)^END$", (ROOT / "tools/demo").read_text(), re.M | re.S).group(1)
        self.assertLessEqual(max(map(len, text.split("\n"))), 80)
        commands = re.findall(r"^  build/heddle ((?:.*\\\n)*.*)$", text, re.M)
        self.assertEqual([c.split()[0] for c in commands], ["generate", "chat"])
        for command in commands:
            done = subprocess.run(["bash", "-c", f"'{HEDDLE}' {command}"], cwd=ROOT, text=True, capture_output=True,
                                  stdin=subprocess.DEVNULL)
            self.assertEqual(done.returncode, 0, command + done.stderr)
            if command.startswith("generate"):
                self.assertIn("my-first-adapter", done.stdout)


class Limit(unittest.TestCase):
    """tools/demo in a tree where everything else is a stub, and compiling takes two CPU seconds."""

    def demo(self, *arguments, built=False):
        with tempfile.TemporaryDirectory() as folder:
            tools, build = pathlib.Path(folder) / "tools", pathlib.Path(folder) / "build"
            tools.mkdir()
            for name in ("demo", "cpu_time"):
                shutil.copy(ROOT / "tools" / name, tools)
            burn = "import time; [0 for _ in iter(lambda: time.process_time() < 2, False)]"
            for name, does in (("bootstrap", "true"), ("fetch_model", "sleep 1"),
                               ("build", f'echo "built $*"; python3 -c "{burn}"'), ("demo.py", "echo answers")):
                (tools / name).write_text(f"#!/bin/sh\n{does}\n")
                (tools / name).chmod(0o755)
            if built:
                build.mkdir()
                (build / ".ninja_log").touch()
            environment = {key: value for key, value in os.environ.items() if not key.startswith("HEDDLE_")}
            done = subprocess.run([tools / "demo", *arguments], capture_output=True, text=True, env=environment)
        self.assertIn("built release heddle_program\n", done.stdout)
        return done

    def test_it_says_before_and_after_how_long_it_takes(self):
        done = self.demo()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("about 3 minutes on 2 cores", done.stdout.split("\n")[0])
        self.assertRegex(done.stdout, r"answers\ndemo, first compile to last answer: [2-9] CPU s in \d+ s\n")

    def test_above_the_limit_it_fails(self):
        self.assertEqual(self.demo("--limit", "60").returncode, 0)
        done = self.demo("--limit", "1")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^demo, first .*: \d+ CPU s, \d+ on the reference machine: both above the limit of 1 s\n$")

    def test_an_incremental_build_is_told(self):
        self.assertRegex(self.demo(built=True).stdout, r"\ndemo, incremental build: \d+ CPU s in \d+ s\n")


if __name__ == "__main__":
    HEDDLE = str(pathlib.Path(sys.argv[1]).resolve())
    unittest.main(argv=sys.argv[:1])
