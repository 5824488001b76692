#!/usr/bin/env python3
"""Conversations with heddle chat on a terminal: prompt, streaming, ctrl-C, history, completion, columns, colours.

  python3 tests/chat_terminal_test.py HEDDLE ADAPTERS      (HEDDLE_MODEL names the model)
"""
import os
import pathlib
import re
import signal
import sys
import tempfile
import time
import unittest

from terminal import Terminal, plain

HEDDLE, ADAPTERS = None, None
UP, CTRL_C, CTRL_D, CTRL_Z = "\033[A", "\x03", "\x04", "\x1a"
LONG = "Tell me a very long story about a weaver and her loom."  # an answer of hundreds of tokens
COLOUR = re.compile(r"\033\[(1;32|2|1|31)m")


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.history = self.folder / "state/heddle/chat_history"
        self.env = {"HEDDLE_MODEL": os.environ["HEDDLE_MODEL"], "HOME": folder.name,
                    "XDG_STATE_HOME": str(self.folder / "state")}

    def command(self, *options):
        use = [] if "--use" in options else ["--use", "opposite"]
        adapters = [word for name in ("sql", "slug", "opposite") for word in ("--adapter", f"{name}={ADAPTERS}/{name}")]
        return [HEDDLE, "chat", *adapters, *use, "--threads", "2", *options]

    def terminal(self, *options, env=None, **settings):
        return Terminal(self.command(*options), env={**self.env, **(env or {})}, **settings)


class Answers(Case):
    def test_a_prompt_names_the_adapter_and_the_answer_follows_its_line(self):
        with self.terminal() as chat:
            chat.expect("opposite>")
            chat.type("Opposites: hot, big, fast\n")
            chat.expect("fast\r\nCOLD, SMALL, SLOW\r\n")
            chat.expect("opposite>")
            chat.type("/adapter base\n")
            chat.expect(r"answers come from base.*base>")
            chat.type(CTRL_D)
            self.assertEqual(chat.wait(), 0)

    def test_an_answer_streams(self):
        with self.terminal("--use", "base", "--max-tokens", "40") as chat:
            chat.expect("base>")
            chat.type(LONG + "\n")
            chat.expect(re.escape(LONG) + "\r\n")
            before = len(chat.pieces)
            chat.expect("cut off after 40 tokens.*base>")
            self.assertGreater(len(chat.pieces) - before, 10)

    def test_standard_output_holds_answers_and_nothing_else(self):
        out = self.folder / "out"
        with out.open("w") as file, self.terminal(stdout=file.fileno()) as chat:
            chat.expect("opposite>")
            for line in ("Opposites: hot", "/adapter", "/help", "/nothing", "Opposites: big"):
                chat.type(line + "\n")
                chat.expect("opposite>")
            chat.type("/quit\n")
            self.assertEqual(chat.wait(), 0)
        self.assertEqual(out.read_text(), "COLD\nSMALL\n")
        self.assertNotIn("COLD", chat.shown)

    def test_columns_where_they_fit_and_headings_where_not(self):
        for columns, text in [(110, r"\[slug\] +\| \[sql\].*?\r\na-big-house +\| "), (70, r"\[slug\]\r\na-big-house\r\n\[sql\]\r\n")]:
            with self.subTest(columns=columns), self.terminal(columns=columns, env={"NO_COLOR": "1"}) as chat:
                chat.expect("opposite>")
                chat.type("/compare slug,sql Slug: A Big House\n")
                chat.expect(text)
                chat.expect("opposite>")
                chat.type("Opposites: hot\n")
                chat.expect("COLD\r\n")

    def test_colours_only_where_they_are_wanted(self):
        for env, coloured in [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]:
            with self.subTest(env=env), self.terminal(env=env) as chat:
                chat.expect("opposite>")
                chat.type("/nothing\n")
                chat.expect("unknown command /nothing")
                chat.expect("opposite>")
                chat.type("Opposites: hot\n")
                chat.expect("COLD\r\n")
                chat.expect("opposite>")
                self.assertEqual(bool(COLOUR.search(chat.shown)), coloured, chat.shown)


class Signals(Case):
    def test_ctrl_c_stops_the_answer_and_keeps_what_was_said(self):
        with self.terminal("--use", "base", "--max-tokens", "4000", "--timings") as chat:
            chat.expect("base>")
            chat.type(LONG + "\n")
            chat.expect(re.escape(LONG) + r"\r\n\w+[^\r\n]+ \w+")
            stopped = time.monotonic()
            chat.type(CTRL_C)
            chat.expect("stopped after ")
            self.assertLess(time.monotonic() - stopped, 10)
            num_tokens = int(chat.expect(" tokens"))
            num_prompt_tokens = int(re.search(r"(\d+)$", chat.expect(" prompt tokens"))[1])
            chat.expect("base>")
            chat.type("/adapter opposite\n")
            chat.expect("opposite>")
            chat.type("Opposites: hot\n")
            longer = int(re.search(r"(\d+)$", chat.expect(" prompt tokens"))[1])
            self.assertGreater(longer, num_prompt_tokens + num_tokens)
            chat.expect("opposite>")
            chat.type(CTRL_D)
            self.assertEqual(chat.wait(), 0)

    def test_ctrl_c_stops_all_answers_of_a_comparison(self):
        with self.terminal("--max-tokens", "4000", "--use", "base", columns=60) as chat:
            chat.expect("base>")
            chat.type(f"/compare base,sql {LONG}\n")
            chat.expect(r"\[base\]\S*\r\n\w+ \w+")
            chat.type(CTRL_C)
            chat.expect("base: stopped after ")
            chat.expect("base>")
            chat.type("/quit\n")
            self.assertEqual(chat.wait(), 0)

    def test_ctrl_c_at_the_prompt_drops_the_line_and_then_tells_how_to_quit(self):
        with self.terminal(env={"NO_COLOR": "1"}) as chat:
            chat.expect("opposite>")
            chat.type("Opposites: big")
            chat.expect("Opposites: big")
            chat.type(CTRL_C)
            self.assertNotIn("/quit", chat.expect("opposite>"))
            chat.type("one\\\n")
            chat.expect(r"\.\.\.")
            chat.type(CTRL_C)
            self.assertNotIn("/quit", chat.expect("opposite>"))
            chat.type(CTRL_C)
            chat.expect("ctrl-D or /quit ends")
            chat.expect("opposite>")
            chat.type("Opposites: hot\n")
            chat.expect("COLD\r\n")

    def test_ctrl_c_while_the_model_loads_ends_the_program(self):
        with self.terminal() as chat:
            end = time.monotonic() + 60
            while chat.num_threads() < 2 and time.monotonic() < end:  # it has begun to load
                time.sleep(0.002)
            chat.type(CTRL_C)
            self.assertEqual(chat.wait(), -signal.SIGINT, chat.shown)
            self.assertNotIn("opposite>", chat.shown)

    def test_a_signal_to_end_is_obeyed_at_the_prompt_and_in_an_answer(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            with self.subTest(number=number), self.terminal("--use", "base", "--max-tokens", "4000") as chat:
                chat.expect("base>")
                chat.kill(number)
                self.assertEqual(chat.wait(), 128 + number)
        with self.terminal("--use", "base", "--max-tokens", "4000") as chat:
            chat.expect("base>")
            chat.type(LONG + "\n")
            chat.expect(re.escape(LONG) + r"\r\n\w+")
            chat.kill(signal.SIGTERM)
            self.assertEqual(chat.wait(), 128 + signal.SIGTERM)
        self.assertEqual(self.history.read_text(), LONG + "\n")

    def test_ctrl_z_suspends_and_fg_goes_on(self):
        with Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], env={**self.env, "PS1": "shell$ "}) as shell:
            shell.expect(r"shell\$ ")
            shell.type(" ".join(self.command()) + "\n")
            shell.expect("opposite>")
            for line in ("Opposites: ", "Opposites: b"):
                shell.type(line)
                shell.expect(line)
                shell.type(CTRL_Z)
                shell.expect(r"Stopped.*shell\$ ")
                shell.type("fg\n")
                shell.expect("opposite>.*" + line)
                shell.type(CTRL_C)
                shell.expect("opposite>")
            shell.type("Opposites: hot\n")
            shell.expect("COLD\r\n.*opposite>")
            shell.type(CTRL_D)
            shell.expect(r"shell\$ ")


class Editing(Case):
    def test_the_arrow_brings_the_lines_of_the_last_run(self):
        with self.terminal() as chat:
            chat.expect("opposite>")
            chat.type("Opposites: hot\n")
            chat.expect("COLD.*opposite>")
            chat.type("Opposites: big \n")
            chat.expect("SMALL.*opposite>")
        self.assertEqual(self.history.read_text(), "Opposites: hot\nOpposites: big\n")  # the program was killed
        self.assertEqual(self.history.stat().st_mode & 0o777, 0o600)
        with self.terminal() as chat:
            chat.expect("opposite>")
            chat.type(UP)
            chat.expect("Opposites: big")
            chat.type(UP)
            chat.expect("hot")
            chat.type("\n")
            chat.expect("COLD\r\n")

    def test_no_history_is_kept_where_none_is_wanted(self):
        with self.terminal("--no-history") as chat:
            chat.expect("opposite>")
            chat.type("Opposites: hot\n")
            chat.expect("COLD.*opposite>")
            chat.type(UP)  # within the run
            chat.expect("Opposites: hot")
            chat.type("\n")
            chat.expect("COLD.*opposite>")
        self.assertFalse(self.history.exists())

    def test_a_history_that_cannot_be_kept_is_told_once(self):
        (self.folder / "state").write_text("a file where a folder should be")
        with self.terminal() as chat:
            chat.expect("opposite>")
            for _ in range(2):
                chat.type("Opposites: hot\n")
                chat.expect("COLD.*opposite>")
            self.assertEqual(chat.shown.count("cannot keep the history"), 1)

    def test_the_tabulator_completes_commands_and_names(self):
        with self.terminal() as chat:
            chat.expect("opposite>")
            chat.type("/ad\t")
            chat.expect("apter ")
            chat.type("s\t")
            self.assertIn("sql  slug", plain(chat.expect("slug.*opposite>") + "slug"))
            chat.expect("/adapter s")
            chat.type("l\t\n")
            chat.expect("answers come from slug")
            chat.expect("slug>")
            chat.type("/compare base,op\tOpposites: hot\n")
            chat.expect(r"\[base\].*\[opposite\].*COLD")

    def test_letters_beyond_ascii_whatever_the_locale(self):
        with self.terminal("--use", "base", "--max-tokens", "2", env={"LC_ALL": "C"}) as chat:
            chat.expect("base>")
            chat.type("/système é\n")
            chat.expect("unknown command /système")


if __name__ == "__main__":
    HEDDLE, ADAPTERS = str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1])
