"""What the tests of the program heddle share: they start it as a user does, from another folder.

  python3 tests/X_test.py HEDDLE ADAPTERS      (HEDDLE_MODEL names the model)
"""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

HEDDLE, ADAPTERS = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()

# Greedy tokens of this raw text go on for ever.
ENDLESS = "1 2 3 4 5 6 7 8 9 10"


def main():
    unittest.main(argv=sys.argv[:1])


def run(*arguments, env=None, stdin=None):
    """(exit code, standard output, standard error) of the program."""
    done = subprocess.run([HEDDLE, *map(str, arguments)], capture_output=True, text=True, env=env, cwd="/",
                          input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL)
    return done.returncode, done.stdout, done.stderr


def adapters(*names):
    """The options that load these adapters."""
    return [option for name in names for option in ("--adapter", f"{name}={ADAPTERS / name}")]


class Case(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def file(self, name, content):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def rows(self, *rows):
        return self.file("rows.jsonl", self.lines(*rows))

    @staticmethod
    def lines(*rows):
        return "".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows)

    @staticmethod
    def parse(text):
        return [json.loads(line) for line in text.split("\n") if line]

    def answers(self, *arguments, code=0, stdin=None):
        """The rows of `generate --json`, in the order of the input."""
        return sorted(self.answers_as_written(*arguments, code=code, stdin=stdin), key=lambda row: row["index"])

    def answers_as_written(self, *arguments, code=0, stdin=None):
        got, out, err = run("generate", "--json", *arguments, stdin=stdin)
        self.assertEqual(got, code, err)
        return self.parse(out)

    @staticmethod
    def said(answers):
        """The rows without what the prefix cache had of their prompts: that depends on what ran before."""
        return [{name: value for name, value in row.items() if name != "cached_tokens"} for row in answers]

    def refused(self, *arguments, says=(), lacks=(), env=None, stdin=None):
        """Exit code 2, nothing on standard output, one line on standard error that holds the words, and one of those of `lacks`."""
        code, out, err = run(*arguments, env=env, stdin=stdin)
        self.assertEqual((code, out), (2, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        for word in says:
            self.assertIn(str(word), err)
        self.assertTrue(not lacks or any(word in err for word in lacks), err)

    def start(self, *arguments, **options):
        """The running program; it is ended with the test."""
        process = subprocess.Popen([HEDDLE, *map(str, arguments)], text=True, cwd="/", **options)
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream and not stream.closed:
                stream.close()
