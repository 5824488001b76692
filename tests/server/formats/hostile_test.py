"""Formats of answers that are hostile: each is answered or refused within seconds, and holds up no one else."""
import json
import pathlib
import sys
import threading
import time

from hostile_formats import large, small
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import Case, main  # noqa: E402

PLAIN = {"model": "a1", "prompt": "ab", "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
SECONDS = 8  # of the processor for one request
MEMORY = 1536 << 20


def body_of(field, value):
    """A request as bytes: those of the corpus need not be UTF-8."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    body = {"model": "a0", "prompt": "ab", "max_tokens": 8, "temperature": 1.5, "seed": 1, "structured_outputs": {field: value}}
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogateescape")


class Formats(Case):
    options = ("--max-batch", "8")

    def ask(self, field, value):
        """(status, the answer, seconds of the processor)"""
        begin = self.server.processor_seconds()
        connection = self.server.connect(timeout=300)  # the machine may do other things, too
        try:
            status, _, text = self.server.request("POST", "/v1/completions", body_of(field, value), connection=connection)
        finally:
            connection.close()
        return status, json.loads(text), self.server.processor_seconds() - begin

    def check(self, formats):
        problems = []
        for name, field, value in formats:
            status, answer, seconds = self.ask(field, value)
            if status == 400:
                right = answer["error"]["message"] and len(answer["error"]["message"]) < 2000
            else:
                right = status == 200 and answer["choices"][0]["finish_reason"] in ("stop", "length")
            if not right or seconds > SECONDS:
                problems.append(f"{name} ({field}): {status} after {seconds:.1f} s: {str(answer)[:200]}")
        self.assertFalse(problems, "\n".join(problems))
        self.assert_alive()
        self.assertLess(self.server.peak_bytes(), MEMORY)

    def test_corpus(self):
        self.check(small())

    def test_large(self):
        self.check(large())

    def test_that_others_go_on(self):
        """While hostile formats compile, the answers of others are those that they are alone, and come as soon."""
        alone = self.server.post("/v1/completions", PLAIN)[1]["choices"][0]["token_ids"]
        ended = threading.Event()

        def trouble():
            for name, field, value in large():
                if field in ("regex", "grammar") or "deep" in name:
                    self.ask(field, value)
            ended.set()
        thread = threading.Thread(target=trouble)
        thread.start()
        longest, num = 0.0, 0
        while not ended.is_set():
            begin = time.monotonic()
            status, answer = self.server.post("/v1/completions", PLAIN)
            longest, num = max(longest, time.monotonic() - begin), num + 1
            self.assertEqual((status, answer["choices"][0]["token_ids"]), (200, alone))
            time.sleep(0.02)
        thread.join()
        self.assertGreater(num, 2)
        self.assertLess(longest, 5)

    def test_formats_that_no_answer_has(self):
        """A grammar without any text: refused, or an error that ends this answer alone."""
        for grammar in ("root ::= root", "root ::= a\na ::= b\nb ::= a"):
            status, answer, seconds = self.ask("grammar", grammar)
            self.assertEqual(status, 400, answer)
            self.assertLess(seconds, SECONDS)


if __name__ == "__main__":
    main()
