"""`heddle run-batch`: lines of every route, whose answers are those of the server, lines that are wrong, files that are, and how it ends."""
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import HEDDLE, Server, main  # noqa: E402
from tiny_model import write_all  # noqa: E402

TEXT = {"prompt": "ab", "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 2}
CHAT = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
BODIES = [("/v1/completions", TEXT), ("/v1/completions", {**TEXT, "model": "a1", "n": 2, "seed": 5, "temperature": 1}),
          ("/v1/chat/completions", {**CHAT, "model": "a0"}), ("/v1/chat/completions", {**CHAT, "model": "none"}),
          ("/v1/embeddings", {"input": ["a", "b"]}), ("/v1/responses", {"input": "Hi", "max_output_tokens": 3, "temperature": 0}),
          ("/v1/messages", {"messages": CHAT["messages"], "max_tokens": 3, "temperature": 0}), ("/tokenize", {"prompt": "x"}),
          ("/v1/completions", {**TEXT, "nonsense": 1}), ("/v1/completions", {**TEXT, "model": "a1", "priority": -2}), ("/v1/completions", {**TEXT, "prompt": ["x"] * 100, "max_tokens": 1})]


def line(custom_id, url, body, **more):
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body, **more})


def steady(body):
    """What two answers to one request have in common: not ids and times."""
    if isinstance(body, dict):
        return {key: steady(value) for key, value in body.items() if key not in ("id", "created", "created_at", "completed_at", "request_id")}
    return [steady(value) for value in body] if isinstance(body, list) else body


class Batch(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.input, self.output = self.folder / "in.jsonl", self.folder / "out.jsonl"
        write_all(self.folder, 2)

    def command(self, *options, **given):
        paths = {"model": self.folder / "model", "input_file": self.input, "output_file": self.output, **given}
        named = [word for name, path in paths.items() for word in (f"--{name.replace('_', '-')}", path)]
        return [HEDDLE, "run-batch", "--lora-root", self.folder / "adapters", "--threads", "2", "--device", "cpu", *map(str, [*named, *options])]

    def run_batch(self, lines, *options, status, **given):
        self.input.write_text("\n".join(lines) + "\n")
        done = subprocess.run(self.command(*options, **given), capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def answers(self):
        """{custom_id: answer}"""
        found = [json.loads(text) for text in self.output.read_text().splitlines()]
        self.assertEqual(len({answer["custom_id"] for answer in found}), len(found))
        return {answer["custom_id"]: answer for answer in found}

    def test_answers_are_those_of_the_server(self):
        done = self.run_batch([line(f"id {i}", url, body) for i, (url, body) in enumerate(BODIES)], status=1)
        self.assertIn(f"{len(BODIES)} lines answered, 2 of them with an error, in {self.output}", done.stderr)
        self.assertNotIn("route=", done.stderr, "no line of the log for each request")
        answers = self.answers()
        self.assertEqual(len(answers), len(BODIES))
        server = Server(self.folder, has_admin=False)
        self.addCleanup(server.stop)
        for i, (url, body) in enumerate(BODIES):
            with self.subTest(url=url, body=body):
                answer = answers[f"id {i}"]
                self.assertEqual(list(answer), ["id", "custom_id", "response", "error"])
                status, want = server.post(url, body)
                self.assertEqual(answer["response"]["status_code"], status)
                self.assertEqual(steady(answer["response"]["body"]), steady(want))
                self.assertEqual(answer["id"], "batch_req_" + answer["response"]["request_id"])
                if status == 200:
                    self.assertIsNone(answer["error"])
                else:
                    self.assertEqual(answer["error"], {"code": str(status), "message": want["error"]["message"]})

    def test_lines_that_are_wrong_have_errors_of_their_own(self):
        lines = ["{", line("a", "/v1/completions", TEXT), "", line("a", "/v1/completions", TEXT), line("b", "/v1/audio", {}),
                 line("c", "/v1/completions", {**TEXT, "stream": True}), line("d", "/v1/completions", TEXT, bodi=1),
                 line("e", "/v1/completions", TEXT, method="GET"), "[1]"]
        self.run_batch(lines, "--quiet", status=1)
        found = [json.loads(text) for text in self.output.read_text().splitlines()]
        self.assertEqual(len(found), 8)
        messages = {answer["error"]["message"]: answer for answer in found if answer["error"]}
        for words, custom_id in (("line 1: the line: malformed JSON", None), ('line 4: custom_id "a" is that of line 2', "a"),
                                 ('line 5: the line: url is "/v1/audio"', "b"), ("stream: answers in a batch file are whole", "c"),
                                 ('did you mean "body"?', "d"), ('line 8: the line: method is "GET"', "e"), ("line 9: the line is an array", None)):
            message, = [text for text in messages if words in text]
            self.assertEqual(messages[message]["custom_id"], custom_id)
            self.assertEqual(messages[message]["response"] is None, custom_id != "c")
        good, = [answer for answer in found if answer["error"] is None]
        self.assertEqual((good["custom_id"], good["response"]["status_code"]), ("a", 200))

    def test_all_good_is_exit_code_0_and_an_earlier_file_is_replaced(self):
        self.output.write_text("earlier\n")
        done = self.run_batch([line(str(i), "/v1/completions", {**TEXT, "max_tokens": 2}) for i in range(200)], "--max-batch", 4, status=0)
        self.assertEqual(set(self.answers()), set(map(str, range(200))))
        self.assertIn("200 lines answered, 0 of them with an error", done.stderr)
        done = self.run_batch([line("x", "/v1/completions", TEXT)], "--quiet", status=0)
        self.assertEqual((done.stderr, done.stdout, list(self.answers())), ("", "", ["x"]))

    def test_files_that_are_wrong(self):
        good = line("x", "/v1/completions", TEXT)
        self.assertIn("is the file of --input-file", self.run_batch([good], output_file=self.input, status=2).stderr)
        self.assertEqual(self.input.read_text(), good + "\n")
        self.assertIn("has no lines", self.run_batch(["", ""], status=2).stderr)
        self.assertIn("cannot be written", self.run_batch([good], output_file="/nothing/out", status=2).stderr)
        self.assertIn("/nothing", self.run_batch([good], input_file="/nothing", status=2).stderr)
        self.output.write_text("earlier\n")
        self.run_batch([good], model="/none", status=2)
        self.assertEqual(self.output.read_text(), "earlier\n", "until there is something to write")

    def test_a_signal_ends_it_after_the_answers_in_flight(self):
        self.input.write_text("\n".join(line(str(i), "/v1/completions", {**TEXT, "max_tokens": 60}) for i in range(3000)) + "\n")
        batch = subprocess.Popen(self.command("--max-batch", "4"), stderr=subprocess.PIPE, text=True)
        self.addCleanup(batch.stderr.close)
        deadline = time.monotonic() + 60
        while (not self.output.exists() or not self.output.read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        batch.send_signal(signal.SIGTERM)
        self.assertEqual(batch.wait(60), 128 + signal.SIGTERM)
        answers = self.answers()
        self.assertTrue(0 < len(answers) < 3000)
        self.assertTrue(all(answer["error"] is None for answer in answers.values()))
        self.assertIn(f"{3000 - len(answers)} of 3000 lines were not answered", batch.stderr.read())


if __name__ == "__main__":
    main()
