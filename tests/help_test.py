#!/usr/bin/env python3
"""Help, topics, completions and the man page, through the program. Needs no model.

  python3 tests/help_test.py HEDDLE      (without bash, zsh, fish, man or mandoc their tests are skipped)
"""
import os
import pathlib
import pty
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

HEDDLE = None
TOPICS = ["rows", "answers", "models", "adapters", "exit-codes", "resume", "pipes", "environment", "files"]


def run(*arguments, **options):
    """(exit code, standard output, standard error) of the program."""
    done = subprocess.run([HEDDLE, *arguments], capture_output=True, text=True, **options)
    return done.returncode, done.stdout, done.stderr


def needs(program):
    return unittest.skipUnless(shutil.which(program), f"{program} is not installed")


class Terminal:
    """A program on a terminal of its own, 80 columns wide."""

    def __init__(self, *command, **environment):
        self.child, self.file = pty.fork()
        if self.child == 0:
            os.environ.update(environment, TERM="xterm", COLUMNS="80", LINES="50")
            os.execvp(command[0], command)
        self.shown = ""

    def send(self, text):
        os.write(self.file, text.encode())

    def wait_for(self, pattern, seconds=30):
        """What was shown up to the match, which is taken off."""
        end = time.monotonic() + seconds
        while True:
            match = re.search(pattern, self.shown)
            if match:
                before, self.shown = self.shown[:match.end()], self.shown[match.end():]
                return before
            if not select.select([self.file], [], [], max(0, end - time.monotonic()))[0]:
                raise AssertionError(f"no {pattern!r} in {self.shown!r}")
            try:
                self.shown += os.read(self.file, 65536).decode(errors="replace")
            except OSError:  # the program has ended
                end = 0

    def rest(self):
        try:
            while chunk := os.read(self.file, 65536):
                self.shown += chunk.decode()
        except OSError:
            pass
        return self.shown

    def close(self):
        os.close(self.file)
        try:
            os.kill(self.child, signal.SIGKILL)
        finally:
            os.waitpid(self.child, 0)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "models").mkdir()
        (self.folder / "adapters/my sql").mkdir(parents=True)
        for name in ("model.gguf", "rows.jsonl", "adapters/readme.txt"):
            (self.folder / name).write_text("")

    def script(self, shell):
        code, out, err = run("completion", shell)
        self.assertEqual((code, err), (0, ""))
        path = self.folder / "models" / ("_heddle" if shell == "zsh" else "completion." + shell)
        path.write_text(out)
        return path

    def terminal(self, *command, **environment):
        terminal = Terminal(*command, **environment)
        self.addCleanup(terminal.close)
        return terminal


class HelpTexts(Case):
    def test_the_same_text_by_all_ways(self):
        for group in ([["--help"], ["-h"], ["help"]],
                      [["generate", "--help"], ["generate", "-h"], ["help", "generate"], ["generate", "-m", "x", "-h"]]):
            texts = {run(*arguments) for arguments in group}
            self.assertEqual(len(texts), 1, group)
            (code, out, err), = texts
            self.assertEqual((code, err), (0, ""))
            self.assertIn("Usage: heddle ", out)
            self.assertIn("\nExamples\n", out)

    def test_groups_stand_in_order(self):
        _, out, _ = run("generate", "-h")
        places = [out.index(f"\n{group}\n") for group in ("Input", "Model", "Engine", "Answers", "Output", "Examples")]
        self.assertEqual(places, sorted(places))
        self.assertRegex(out, r"\n  -m, --model FILE  +GGUF")
        self.assertRegex(out, r"\n  -t, --threads N  +\S.*\[default: 0\]\n")
        self.assertNotRegex(out, r"Excludes| in \[\d|INT|FLOAT")

    def test_topics(self):
        _, program, _ = run("help")
        for topic in TOPICS:
            with self.subTest(topic=topic):
                code, out, err = run("help", topic)
                self.assertEqual((code, err), (0, ""))
                self.assertRegex(program, rf"\n  {topic}  +\S")
                self.assertGreater(len(out.splitlines()), 4)
        for topic, words in (("rows", ("messages", "custom_id", "min_p", "line")), ("answers", ("hash", "finish_reason")),
                             ("exit-codes", ("130", "143")), ("adapters", ("--use base",)), ("resume", ("incomplete",))):
            _, out, _ = run("help", topic)
            for word in words:
                self.assertIn(word, out)

    def test_errors(self):
        for arguments, words in ((["help", "rwos"], ["rwos", "nearest is rows", *TOPICS]), ([], ["a command is missing", "--help"]),
                                 (["completion", "tcsh"], ["tcsh", "bash"]), (["completion"], ["SHELL"]),
                                 (["help", "rows", "rows"], ["rows"])):
            code, out, err = run(*arguments)
            self.assertEqual((code, out, err.count("\n")), (2, "", 1), err)
            for word in words:
                self.assertIn(word, err)

    def test_an_output_that_cannot_be_written(self):
        for arguments in (["--help"], ["help", "rows"], ["man"], ["completion", "zsh"]):
            with open("/dev/full", "w") as full:
                done = subprocess.run([HEDDLE, *arguments], stdout=full, stderr=subprocess.PIPE, text=True)
            self.assertEqual(done.returncode, 2)
            self.assertIn("standard output", done.stderr)

    def test_bold_only_on_terminals_without_no_color(self):
        self.assertNotIn("\033", run("help")[1])
        self.assertIn("\033[1mExamples\033[0m", self.terminal(HEDDLE, "help", NO_COLOR="").rest())
        plain = self.terminal(HEDDLE, "help", NO_COLOR="1").rest()
        self.assertIn("Examples", plain)
        self.assertNotIn("\033", plain)


@needs("bash")
class Bash(Case):
    def replies(self, line, breaks=True):
        """COMPREPLY for a line that ends at the cursor; words as bash cuts them."""
        words = [w for w in re.split(r" +", line)]
        if breaks:
            words = [part for w in words for part in (re.findall(r"[=:]|[^=:]+", w) or [""])]
        program = (f"{'' if breaks else 'COMP_WORDBREAKS=${COMP_WORDBREAKS//[=:]/}'}\n"
                   f"source {shlex.quote(str(self.script('bash')))}\nCOMP_WORDS=({' '.join(map(shlex.quote, words))})\n"
                   "COMP_CWORD=$((${#COMP_WORDS[@]} - 1))\n_heddle\n[ ${#COMPREPLY[@]} -eq 0 ] || printf '%s\\n' \"${COMPREPLY[@]}\"")
        done = subprocess.run(["bash", "--norc", "-c", program], capture_output=True, text=True, cwd=self.folder)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return sorted(done.stdout.splitlines())

    def test_replies(self):
        shells = ["bash", "fish", "zsh"]
        for line, expected in (
                ("heddle gen", ["generate"]),
                ("heddle --v", ["--version"]),
                ("heddle generate --to", ["--top-k", "--top-logprobs", "--top-p"]),
                ("heddle generate -m mod", ["model.gguf", "models"]),
                ("heddle generate --model=mod", ["model.gguf", "models"]),
                ("heddle generate --prompts ro", ["rows.jsonl"]),
                ("heddle generate --adapter sql=ad", ["adapters"]),
                ("heddle generate --adapter sql=adapters/", ["adapters/my sql"]),
                ("heddle generate --adapter=sql=ad", ["adapters"]),
                ("heddle generate --adapter sql", []),
                ("heddle generate --adapter a=x --stop s --adapter=b=y hello --use ", ["a", "b", "base"]),
                ("heddle generate --stop --adapter c=x --use=", ["base"]),
                ("heddle generate --threads ", []),
                ("heddle generate hello", []),
                ("heddle generate -- --to", []),
                ("heddle -h generate --js", ["--json", "--json-schema"]),
                ("heddle help r", ["resume", "rows", "run-batch"]),
                ("heddle help ge", ["generate"]),
                ("heddle completion ", shells),
                ("heddle inspect mo", ["model.gguf", "models"])):
            with self.subTest(line=line):
                self.assertEqual(self.replies(line), expected)

    def test_replies_where_words_are_not_cut_at_equals_signs(self):
        self.assertEqual(self.replies("heddle generate --adapter=sql=ad", breaks=False), ["--adapter=sql=adapters"])
        self.assertEqual(self.replies("heddle generate --use=b", breaks=False), ["--use=base"])

    def test_on_a_terminal(self):
        terminal = self.terminal("bash", "--norc", "--noprofile", "-i", PS1="ready> ")
        terminal.send(f"bind 'set enable-bracketed-paste off'; cd {shlex.quote(str(self.folder))}; "
                      f"source {shlex.quote(str(self.script('bash')))}; heddle() {{ printf '<%s>' \"$@\"; echo; }}; echo is set\r")
        terminal.wait_for(r"[\r\n]is set")
        terminal.send("heddle gen\t--adapter sql=adap\tmy\t --mod\tmodel.g\t\r")
        terminal.wait_for(re.escape("<generate><--adapter><sql=adapters/my sql/><--model><model.gguf>"))


@needs("zsh")
class Zsh(Case):
    def start(self, by_fpath):
        script = self.script("zsh")
        terminal = self.terminal("zsh", "-f", "-i", ZDOTDIR=str(self.folder), PS1="ready> ")
        load = f"fpath=({script.parent} $fpath); " if by_fpath else ""
        source = "" if by_fpath else f"source {shlex.quote(str(script))}; "
        terminal.send(f"cd {shlex.quote(str(self.folder))}; {load}autoload -U compinit; compinit -u -D; {source}"
                      "unsetopt zle_bracketed_paste; LISTMAX=999; heddle() { printf '<%s>' \"$@\"; echo; }; echo 'is' set\r")
        terminal.wait_for(r"[\r\n]is set")
        return terminal

    def test_found_in_fpath_and_sourced(self):
        for by_fpath in (True, False):
            with self.subTest(by_fpath=by_fpath):
                terminal = self.start(by_fpath)
                terminal.send("heddle gen\t--adapter sql=adap\tmy\t --mod\tmodel.g\t\r")
                terminal.wait_for("<generate><--adapter><sql=adapters/my sql/?><--model=model.gguf>")

    def test_descriptions_and_values(self):
        terminal = self.start(by_fpath=False)
        terminal.send("heddle generate --adapter a=x --adapter=b=y --use \t\t")
        for name in ("a", "b", "base"):
            terminal.wait_for(rf"\b{name}\b")
        terminal.send("\x15heddle generate --to\t\t")
        terminal.wait_for(r"--top-k +-- Samples from the K most likely")
        terminal.send("\x15heddle help res\t\r")
        terminal.wait_for("<help><resume>")
        terminal.send("heddle completion \t\t")
        terminal.wait_for(r"bash +fish +zsh")


@needs("fish")
class Fish(Case):
    def replies(self, line):
        program = f"source {shlex.quote(str(self.script('fish')))}; complete -C {shlex.quote(line)}"
        done = subprocess.run(["fish", "--no-config", "-c", program], capture_output=True, text=True, cwd=self.folder,
                              env=dict(os.environ, HOME=str(self.folder)))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return dict((reply + "\t").split("\t")[:2] for reply in done.stdout.splitlines())

    def test_replies(self):
        for line, expected in (
                ("heddle gen", ["generate"]),
                ("heddle --v", ["--version"]),
                ("heddle generate --to", ["--top-k", "--top-logprobs", "--top-p"]),
                ("heddle generate -m mod", ["model.gguf", "models/"]),
                ("heddle generate --prompts ro", ["rows.jsonl"]),
                ("heddle generate --adapter sql=ad", ["sql=adapters/"]),
                ("heddle generate --adapter=sql=ad", ["--adapter=sql=adapters/"]),
                ("heddle generate --adapter a=x --adapter=b=y --use ", ["a", "b", "base"]),
                ("heddle generate --threads ", []),
                ("heddle help r", ["resume", "rows", "run-batch"]),
                ("heddle completion ", ["bash", "fish", "zsh"]),
                ("heddle inspect mo", ["model.gguf", "models/"])):
            with self.subTest(line=line):
                self.assertEqual(sorted(self.replies(line)), expected)

    def test_descriptions(self):
        self.assertIn("adapter", self.replies("heddle gen")["generate"])
        self.assertIn("K most likely", self.replies("heddle generate --top-")["--top-k"])


class ManPage(Case):
    def page(self):
        code, out, err = run("man")
        self.assertEqual((code, err), (0, ""))
        path = self.folder / "heddle.1"
        path.write_text(out)
        return path

    def test_sections(self):
        sections = re.findall(r"^\.SH (.*)$", self.page().read_text(), re.MULTILINE)
        for name in ("NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXIT STATUS", "ENVIRONMENT", "FILES", "EXAMPLES"):
            self.assertEqual(sections.count(name), 1, name)

    @needs("mandoc")
    def test_mandoc_has_no_complaint(self):
        done = subprocess.run(["mandoc", "-Tlint", "-Wall", self.page()], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))

    @needs("man")
    def test_man_has_no_complaint_and_lines_fit(self):
        done = subprocess.run(["man", "--warnings", "-l", self.page()], capture_output=True, text=True,
                              env=dict(os.environ, MANWIDTH="80", LC_ALL="C.UTF-8"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for word in ("HEDDLE(1)", "-m, --model FILE", "[default: 256]", "HEDDLE_MODEL", '"What is a loom?"'):
            self.assertIn(word, done.stdout)
        self.assertEqual([line for line in done.stdout.splitlines() if len(line) > 80], [])


if __name__ == "__main__":
    HEDDLE = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1])
