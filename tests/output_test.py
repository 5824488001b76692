#!/usr/bin/env python3
"""Nothing finished is lost: answers as they finish, order, signals, --resume, pipes, and what goes to which stream."""
import contextlib
import json
import os
import pathlib
import pty
import random
import select
import signal
import subprocess
import time

import gguf_copy
from program_case import ENDLESS, HEDDLE, Case, adapters, main, run
from terminal import Terminal

SHORT = {"prompt": "a", "max_tokens": 1}
LONG = {"prompt": ENDLESS, "max_tokens": 4000}


class Order(Case):
    def test_a_finished_row_is_written_at_once_and_the_batch_stays_full(self):
        """Ten thousand rows and a very long one: memory does not grow with their number."""
        path = self.folder / "stats.json"
        peaks = []
        for count in (500, 10000):
            rows = self.rows(dict(LONG, max_tokens=250), *[SHORT] * (count - 1))
            answers = self.answers_as_written("--raw", "--max-batch", 64, "--stats", path, "--prompts", rows)
            self.assertEqual(sorted(a["index"] for a in answers), list(range(count)))
            self.assertEqual(answers[-1]["index"], 0)  # all others were finished and written before it
            stats = json.loads(path.read_text())
            # Each of the other 63 places ends its row in one step and takes the next.
            self.assertLessEqual(stats["prefill_steps"], -(-(count - 1) // 63) + 1)
            peaks.append(stats["peak_memory_bytes"])
        self.assertLess(peaks[1] - peaks[0], 20e6)

    def test_ordered_rows_wait_in_bounded_number(self):
        path = self.folder / "stats.json"
        rows = self.rows(dict(LONG, max_tokens=40), *[SHORT] * 300)
        answers = self.answers_as_written("--raw", "--ordered", "--hold", 20, "--max-batch", 8, "--stats", path, "--prompts", rows)
        self.assertEqual([a["index"] for a in answers], list(range(301)))
        # Until the first row ends at most 20 + 7 others run, 7 a step; then the rest, 8 a step.
        self.assertGreaterEqual(json.loads(path.read_text())["prefill_steps"], (300 - 27) / 8)
        held = self.answers_as_written("--raw", "--ordered", "--hold", 20, "--max-batch", 8, "--prompts", rows)
        free = self.answers("--raw", "--prompts", rows)
        self.assertEqual([a["token_ids"] for a in held], [a["token_ids"] for a in free])

    def test_text_comes_in_order(self):
        rows = self.rows(dict(SHORT, prompt=ENDLESS, max_tokens=9), SHORT, dict(SHORT, adapter="slug"))
        code, out, err = run("generate", "--raw", *adapters("slug"), "--prompts", rows)
        self.assertEqual(code, 0, err)
        self.assertEqual([line.split("]")[0] for line in out.rstrip("\n").split("\n")], ["[0 base", "[1 base", "[2 slug"])


class Signals(Case):
    def interrupted(self, number, *options):
        """(answers, standard error) of a run that gets the signal once short rows are finished while an endless one runs."""
        rows = self.rows(LONG, *[dict(SHORT, max_tokens=3)] * 6)
        process = self.start("generate", "--raw", "--json", *options, "--max-batch", 4, "--stats", self.folder / "stats.json",
                             "--prompts", rows, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if "--ordered" in options:
            time.sleep(6)
            out = ""
        else:
            out = "".join(process.stdout.readline() for _ in range(6))
        process.send_signal(number)
        rest, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 128 + number, err)
        return self.parse(out + rest), err

    def test_they_write_what_is_finished_then_statistics(self):
        for number, options in ((signal.SIGINT, []), (signal.SIGTERM, []), (signal.SIGTERM, ["--ordered"]),
                                (signal.SIGINT, ["--ordered"])):
            answers, err = self.interrupted(number, *options)
            self.assertEqual(sorted(a["index"] for a in answers), [1, 2, 3, 4, 5, 6])
            if options:
                self.assertEqual([a["index"] for a in answers], [1, 2, 3, 4, 5, 6])
            self.assertIn("6 rows", err)
            self.assertIn("tokens/s", err)
            stats = json.loads((self.folder / "stats.json").read_text())
            self.assertEqual((stats["rows"], stats["failed_rows"]), (6, 0))

    def test_a_pipe_that_waits_is_interrupted_at_once(self):
        process = self.start("generate", "--json", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdin.write(json.dumps(dict(SHORT, id="x")) + "\n")
        process.stdin.flush()
        self.assertEqual(json.loads(process.stdout.readline())["id"], "x")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=10), 143)

    def test_a_text_that_breaks_off_ends_its_line(self):
        process = self.start("generate", "--raw", "--max-tokens", 4000, ENDLESS, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        begin = process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, err)
        self.assertTrue((begin + out).startswith(" 11 12 13"))
        self.assertTrue(out.endswith("\n"))


class Resume(Case):
    def setUp(self):
        super().setUp()
        self.path = self.folder / "answers.jsonl"

    def resume(self, *arguments, code=0):
        """(rows run, rows skipped, standard error)"""
        stats = self.folder / "stats.json"
        got, out, err = run("generate", "--raw", "--resume", self.path, "--stats", stats, *arguments)
        self.assertEqual((got, out), (code, ""), err)
        counts = json.loads(stats.read_text())
        return counts["rows"], counts["skipped_rows"], err

    def stored(self):
        return self.parse(self.path.read_text())

    def test_a_row_whose_id_is_an_object_is_known_again(self):
        path = self.rows({"prompt": "1 2 3", "max_tokens": 2, "id": {"b": 1, "a": [{"d": None, "c": 2.0}]}})
        self.assertEqual(self.resume("--prompts", path)[:2], (1, 0))
        self.assertEqual(self.stored()[0]["id"], {"b": 1, "a": [{"d": None, "c": 2.0}]})
        self.assertEqual(self.resume("--prompts", path)[:2], (0, 1))

    def test_a_killed_run_goes_on_until_each_row_is_answered_once(self):
        rows = [{"prompt": f"{i} {i + 1} {i + 2}", "max_tokens": 1 + i % 7, **({"id": f"row-{i}"} if i % 2 else {})}
                for i in range(120)]
        path = self.rows(*rows)
        wanted = {a["index"]: a["token_ids"] for a in self.answers("--raw", "--prompts", path)}
        for _ in range(3):
            process = self.start("generate", "--raw", "--max-batch", 4, "--resume", self.path, "--prompts", path,
                                 stderr=subprocess.DEVNULL)
            time.sleep(random.uniform(0.6, 1.2))
            process.kill()
            process.wait()
        before = self.path.read_text() if self.path.exists() else ""
        self.path.write_text(before + '{"index": 119, "id": "row-119", "te')  # torn
        done = len(self.parse(before))
        num_run, skipped, err = self.resume("--prompts", path)
        self.assertEqual((num_run, skipped), (120 - done, done))
        self.assertIn("incomplete", err)
        stored = self.stored()
        self.assertEqual(sorted(a["index"] for a in stored), list(range(120)))
        self.assertEqual({a["index"]: a["token_ids"] for a in stored}, wanted)
        self.assertEqual(self.resume("--prompts", path)[:2], (0, 120))

    def test_rows_that_differ_run_again(self):
        first, second, third = dict(SHORT, id="a"), dict(SHORT, id="b"), SHORT
        self.assertEqual(self.resume("--prompts", self.rows(first, second, third))[:2], (3, 0))
        # An id is found at any place, a row without one at its index alone.
        self.assertEqual(self.resume("--prompts", self.rows(second, first, third))[:2], (0, 3))
        self.assertEqual(self.resume("--prompts", self.rows(third, second, first))[:2], (1, 2))
        for changed in (dict(first, prompt="b"), dict(first, max_tokens=2), dict(first, temperature=1.0), dict(first, stop="x"),
                        dict(first, adapter="slug")):
            with self.subTest(row=changed):
                self.assertEqual(self.resume(*adapters("slug"), "--prompts", self.rows(changed, second))[:2], (1, 1))
        # With temperature 0 a seed and filters change nothing; nor do threads and batches.
        same = dict(first, seed=5, top_p=0.5)
        self.assertEqual(self.resume("--threads", 1, "--max-batch", 1, "--prompts", self.rows(same))[:2], (0, 1))
        self.assertEqual(self.resume("--logprobs", "--prompts", self.rows(first))[:2], (1, 0))

    def test_an_adapter_with_other_weights_differs(self):
        row = dict(SHORT, id="a", adapter="x")
        self.assertEqual(self.resume("--adapter", f"x={adapters('slug')[1][5:]}", "--prompts", self.rows(row))[:2], (1, 0))
        self.assertEqual(self.resume("--adapter", f"x={adapters('slug')[1][5:]}", "--prompts", self.rows(row))[:2], (0, 1))
        self.assertEqual(self.resume("--adapter", f"x={adapters('cron')[1][5:]}", "--prompts", self.rows(row))[:2], (1, 0))

    def test_failed_rows_are_no_answers(self):
        rows = self.rows(SHORT, dict(SHORT, adapter="nobody"))
        self.assertEqual(self.resume("--keep-going", "--prompts", rows, code=1)[:2], (2, 0))
        self.assertEqual(self.resume("--keep-going", "--prompts", rows, code=1)[:2], (1, 1))

    def test_a_whole_last_line_without_its_end_counts(self):
        rows = self.rows(dict(SHORT, id=1), dict(SHORT, id=2))
        self.resume("--prompts", rows)
        self.path.write_text(self.path.read_text().rstrip("\n"))
        self.assertEqual(self.resume("--prompts", self.rows(dict(SHORT, id=1), dict(SHORT, id=3)))[:2], (1, 1))
        self.assertEqual(sorted(a["id"] for a in self.stored()), [1, 2, 3])

    def test_other_files_are_left_alone(self):
        rows = self.rows(SHORT)
        content = rows.read_bytes()
        self.refused("generate", "--resume", rows, "--prompts", rows, says=["rows.jsonl, line 1", "not an answer"])
        self.assertEqual(rows.read_bytes(), content)
        self.refused("generate", "--resume", self.path, "--prompts", self.rows("{"), says=["line 1"])
        self.assertFalse(self.path.exists())
        self.refused("generate", "--resume", "/no/such/folder/x", "--prompts", self.rows(SHORT), says=["/no/such/folder/x"])

    def test_a_file_in_use_is_refused(self):
        process = self.start("generate", "--resume", self.path, "-", stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdin.write(json.dumps(SHORT) + "\n")
        process.stdin.flush()
        while not self.path.exists() or not self.path.stat().st_size:
            time.sleep(0.05)
        self.refused("generate", "--resume", self.path, "Hi", says=[self.path, "another program"])
        process.stdin.close()
        self.assertEqual(process.wait(timeout=60), 0)

    def test_prompts_of_the_command_line(self):
        self.assertEqual(self.resume("--max-tokens", 1, "a", "b")[:2], (2, 0))
        self.assertEqual(self.resume("--max-tokens", 1, "a", "c")[:2], (1, 1))


class Pipes(Case):
    def test_another_program_keeps_heddle_open(self):
        for arguments in (["-"], ["--prompts", "-"], ["--prompts", "/dev/stdin"]):
            process = self.start("generate", "--json", *adapters("opposite"), *arguments,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for asked, wanted in [("hot, big, fast", "COLD, SMALL, SLOW"), ("hot", "COLD")]:
                process.stdin.write(json.dumps({"prompt": f"Opposites: {asked}", "adapter": "opposite", "id": asked}) + "\n")
                process.stdin.flush()
                answer = json.loads(process.stdout.readline())  # while the pipe stays open
                self.assertEqual((answer["id"], answer["text"]), (asked, wanted))
            process.stdin.close()
            self.assertEqual(process.wait(timeout=60), 0)

    def test_a_wrong_row_is_answered_and_the_others_go_on(self):
        lines = self.lines(SHORT, "{", dict(SHORT, id="x", wrong=1), {"prompt": "loom " * 9000}, dict(SHORT, adapter="no"), "", SHORT)
        answers = self.answers("--raw", "-", stdin=lines, code=1)
        self.assertEqual([a["finish_reason"] for a in answers], ["length", *["error"] * 4, "length"])
        self.assertEqual(answers[2]["id"], "x")
        for answer, word in zip(answers[1:5], ["line 2: malformed JSON", "line 3: unknown field", "8192", '"no"']):
            self.assertIn(word, answer["error"])

    def test_rows_in_pieces_and_a_last_line_without_end(self):
        process = self.start("generate", "--raw", "--json", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE)
        text = (self.lines(dict(SHORT, id="é")) + self.lines(dict(SHORT, id=2))).rstrip("\n")
        for i in range(0, len(text), 9):
            process.stdin.write(text[i:i + 9])
            process.stdin.flush()
            time.sleep(0.01)
        out, err = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 0, err)
        self.assertEqual(sorted(str(a["id"]) for a in self.parse(out)), ["2", "é"])

    def test_a_named_pipe(self):
        path = self.folder / "pipe"
        os.mkfifo(path)
        process = self.start("generate", "--raw", "--json", "--prompts", path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with path.open("w") as pipe:
            pipe.write(self.lines(SHORT))
            pipe.flush()
            self.assertEqual(json.loads(process.stdout.readline())["index"], 0)
        self.assertEqual(process.wait(timeout=60), 0)

    def test_a_reader_that_goes_away_ends_the_run(self):
        process = self.start("generate", "--raw", "--json", "--prompts", self.rows(*[SHORT] * 3000), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL)
        process.stdout.readline()
        process.stdout.close()
        self.assertEqual(process.wait(timeout=60), -signal.SIGPIPE)

    def test_a_full_disk_is_told(self):
        with open("/dev/full", "w") as full:
            process = self.start("generate", "--json", "Hi", "--max-tokens", 1, stdout=full, stderr=subprocess.PIPE)
            err = process.communicate(timeout=60)[1]
        self.assertEqual(process.returncode, 1)
        self.assertIn("cannot write answers", err)


class Streams(Case):
    def test_answers_and_nothing_else_on_standard_output(self):
        code, out, err = run("generate", *adapters("opposite"), "Opposites: hot")
        self.assertEqual((code, out), (0, "COLD\n"))
        for word in ("1 row", "prefill", "decode", "LoRA", "tokens/s"):
            self.assertIn(word, err)
        code, out, err = run("generate", "-q", *adapters("opposite"), "Opposites: hot")
        self.assertEqual((code, out, err), (0, "COLD\n", ""))
        for text in (out, err):
            self.assertNotIn("\033", text)

    def test_progress_on_a_terminal(self):
        controller, terminal = pty.openpty()
        self.addCleanup(os.close, controller)
        rows = self.rows(*[dict(SHORT, prompt=ENDLESS, max_tokens=60)] * 6)
        process = self.start("generate", "--raw", "--json", "--max-batch", 1, "--prompts", rows, stdout=subprocess.DEVNULL,
                             stderr=terminal)
        os.close(terminal)
        seen = b""
        while True:
            if not select.select([controller], [], [], 60)[0]:
                self.fail("the program neither writes nor ends")
            try:
                part = os.read(controller, 4096)
            except OSError:  # the program has closed the terminal
                break
            if not part:
                break
            seen += part
        self.assertEqual(process.wait(timeout=60), 0)
        self.assertRegex(seen.decode(), r"\r\x1b\[K[1-5] of 6 rows, \d+ tokens/s, \d+:\d\d left")
        self.assertRegex(seen.decode(), r"\x1b\[K\r\n6 rows")


class Loading(Case):
    """A terminal shows how far a load is that takes longer than a second."""

    def setUp(self):
        super().setUp()
        self.model = gguf_copy.copy(pathlib.Path(os.environ["HEDDLE_MODEL"]), self.folder / "m.gguf", matrices=gguf_copy.BF16)
        self.command = [str(HEDDLE), "generate", "--model", str(self.model), "--weights", "q8_0", "--threads", "1", "--raw",
                        "--max-tokens", "1", "a"]

    def is_open(self, pid):
        """Whether the process has the model's file open."""
        for file in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(file) == str(self.model):
                    return True
        return False

    def shown(self, *options):
        """What a terminal shows of a load that is stopped for longer than a second when the file has been opened."""
        with Terminal(self.command + list(options)) as terminal:
            end = time.monotonic() + 60
            while not self.is_open(terminal.pid):
                self.assertLess(time.monotonic(), end)
                time.sleep(0.001)
            terminal.kill(signal.SIGSTOP)
            time.sleep(1.2)
            terminal.kill(signal.SIGCONT)
            self.assertEqual(terminal.wait(), 0, terminal.shown)
            return terminal.shown

    def test_the_line_is_there_and_goes(self):
        shown = self.shown()
        lines = shown.split("loading [")
        self.assertGreater(len(lines), 1, shown)
        for line in lines[1:]:
            self.assertRegex(line, r"^#* *\] \d+ % of 0\.\d GB\r\x1b\[K")
            self.assertEqual(line.index("]"), 30)
        self.assertIn("weights: BF16 packed to Q8_0", lines[-1])

    def test_not_where_it_is_quiet_or_no_terminal(self):
        self.assertNotIn("loading", self.shown("--quiet"))
        code, _, err = run(*self.command[1:])
        self.assertEqual(code, 0, err)
        self.assertNotIn("loading", err)
        self.assertNotIn("\x1b", err)


if __name__ == "__main__":
    main()
