"""What --limits lets the keys of `heddle serve` do: requests and tokens a minute, answers at once, adapters; what is left in headers and refusals;
mistakes in the file, which end the program before the model is read."""
import json
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import HEDDLE, Case, main  # noqa: E402

TEXT = {"prompt": "ab", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
LONG = {**TEXT, "max_tokens": 2000}
LIMITS = """
adapters = ["*"]  # of keys that have no section

[few]
requests-per-minute = 3

[small]
tokens-per-minute = 60

[narrow]
max-rows = 2

[sql]
adapters = ["a1", "acme/*"]

[plain]
adapters = ["base"]

[late]
priority = 5
"""
NAMES = ("few", "small", "narrow", "sql", "plain", "late", "free")


class LimitsCase(Case):
    keys = "".join(f"{name} sesame-{name}\n" for name in NAMES)

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        file = pathlib.Path(folder.name) / "limits.toml"
        file.write_text(LIMITS)
        cls.options = ("--limits", file)
        super().setUpClass()

    def ask(self, name, path="/v1/completions", body=TEXT, **fields):
        """(status, headers in lower case, answer)"""
        status, headers, text = self.server.request("POST", path, {**body, **fields}, {"Authorization": f"Bearer sesame-{name}"})
        return status, {key.lower(): value for key, value in headers.items()}, json.loads(text)

    def stream(self, name, body):
        connection = self.server.connect()
        send = {"Content-Type": "application/json", "Authorization": f"Bearer sesame-{name}"}
        connection.request("POST", "/v1/completions", json.dumps({**body, "stream": True}), send)
        response = connection.getresponse()
        self.assertEqual(response.status, 200)
        return connection, response


class Limits(LimitsCase):
    def test_requests_a_minute(self):
        for left in (2, 1, 0):
            status, headers, _ = self.ask("few")
            self.assertEqual((status, headers["x-ratelimit-limit-requests"], headers["x-ratelimit-remaining-requests"]), (200, "3", str(left)))
            self.assertRegex(headers["x-ratelimit-reset-requests"], r"^(\d+m)?\d+s$")
            self.assertNotIn("x-ratelimit-limit-tokens", headers)
        status, headers, answer = self.ask("few")
        self.assertEqual((status, headers["x-ratelimit-remaining-requests"]), (429, "0"))
        self.assertTrue(0 < int(headers["retry-after"]) <= 20, headers)
        error = answer["error"]
        self.assertEqual(error["type"], "RateLimitError")
        self.assertRegex(error["message"], r"^this key has used its 3 requests a minute \(--limits\); try again in \d+s$")
        for path, body in (("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}), ("/v1/embeddings", {"input": "x"}),
                           ("/v1/responses", {"input": "x"}), ("/generate", {"inputs": "x"}),
                           ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]})):
            self.assertEqual(self.ask("few", path, body)[0], 429, path)
        self.assertEqual(self.ask("few", "/tokenize", {"prompt": "x"})[0], 200, "makes no tokens")
        status, headers, _ = self.ask("free")
        self.assertEqual((status, [name for name in headers if "ratelimit" in name]), (200, []))

    def test_tokens_a_minute(self):
        status, headers, answer = self.ask("small", max_tokens=70)
        self.assertEqual((status, headers["x-ratelimit-remaining-tokens"]), (200, "60"), "before the answer")
        status, headers, answer = self.ask("small")
        self.assertEqual((status, headers["x-ratelimit-limit-tokens"], headers["x-ratelimit-remaining-tokens"]), (429, "60", "0"))
        self.assertIn("60 tokens a minute", answer["error"]["message"])
        wait = int(headers["retry-after"])
        self.assertTrue(8 <= wait <= 14, "72 tokens of 60, at one a second")
        time.sleep(wait)
        self.assertEqual(self.ask("small", max_tokens=1)[0], 200)

    def test_answers_at_once(self):
        first, second = self.stream("narrow", LONG), self.stream("narrow", LONG)
        status, headers, answer = self.ask("narrow")
        self.assertEqual((status, headers["retry-after"]), (429, "1"))
        self.assertIn("this key has 2 of 2 answers that it may have at once", answer["error"]["message"])
        self.assertEqual(self.ask("free")[0], 200)
        for connection, response in (first, second):
            response.close()
            connection.close()
        deadline = time.monotonic() + 20
        while (status := self.ask("narrow")[0]) == 429 and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertEqual(status, 200, "given back when the clients had gone")
        self.assertEqual(self.ask("narrow", n=2)[0], 200)
        status, _, answer = self.ask("narrow", n=3)
        self.assertEqual(status, 400)
        self.assertIn("the request asks for 3 answers, this key may have 2 at once", answer["error"]["message"])

    def test_adapters(self):
        for name, fields, status in (("sql", {"model": "a1"}, 200), ("sql", {"model": "model:a1"}, 200), ("sql", {"lora": [{"name": "a1"}]}, 200),
                                     ("sql", {}, 403), ("sql", {"model": "base"}, 403), ("sql", {"model": "a0"}, 403),
                                     ("sql", {"lora": [{"name": "a1"}, {"name": "a0"}]}, 403), ("sql", {"model": "model:a0"}, 403),
                                     ("sql", {"model": "acme/none"}, 404), ("plain", {}, 200), ("plain", {"model": "a1"}, 403),
                                     ("free", {"model": "a0"}, 200)):
            with self.subTest(name=name, fields=fields):
                got, _, answer = self.ask(name, **fields)
                self.assertEqual(got, status, answer)
                if status == 403:
                    self.assertRegex(answer["error"]["message"], r'^this key may not use "\w+" \(--limits\)$')
                    self.assertEqual(answer["error"]["type"], "PermissionDeniedError")
        load = {"lora_name": "a1", "lora_path": "a1", "load_inplace": True, "keep_versions": 2}
        self.assertEqual(self.server.admin("/v1/load_lora_adapter", load)[0], 200)
        self.assertEqual(self.server.admin("/v1/load_lora_adapter", load)[0], 200)
        self.assertEqual(self.ask("sql", model="a1@1")[0], 200, "a version is of its adapter")
        self.assertEqual(self.ask("plain", model="a1@1")[0], 403)

    def test_each_adapter_of_a_request_has_to_be_allowed(self):
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        for each, status in ((["a1"], 200), (["a1", "a1"], 200), (["a1", "a0"], 403), (["a1", None], 403),
                             ([[{"name": "a1"}, {"name": "a0"}]], 403)):
            with self.subTest(each=each):
                got, _, answer = self.ask("sql", "/v1/chat/completions", chat, each_adapter=each)
                self.assertEqual(got, status, answer)
        status, _, answer = self.ask("narrow", "/v1/chat/completions", chat, each_adapter=[None, "a0", "a1"])
        self.assertIn(status, (400, 429), "three answers at once are more than two")

    def test_priority(self):
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        routes = {"/v1/completions": TEXT, "/v1/chat/completions": chat, "/v1/responses": {"input": "x"}, "/v1/messages": chat,
                  "/v1/embeddings": {"input": "x"}, "/v1/score": {"text_1": "x", "text_2": "y"}}
        refusal = "this key may not have priority 4, but 5 or more (--limits)"
        for path, body in routes.items():
            with self.subTest(path=path):
                status, _, answer = self.ask("late", path, body, priority=4)
                self.assertEqual((status, answer["error"]["message"]), (403, refusal))
                self.assertNotEqual(self.ask("late", path, body, priority=5)[0], 403)
                self.assertNotEqual(self.ask("late", path, body)[0], 403, "it is 5 where it is not given")
                self.assertNotEqual(self.ask("free", path, body, priority=-(1 << 63))[0], 403)
        status, _, answer = self.ask("late", "/generate", {"inputs": "x", "parameters": {"priority": 4, "max_new_tokens": 1}})
        self.assertEqual((status, answer["error"]), (422, refusal), "as LoRAX has it")
        self.assertEqual(self.ask("late", "/generate", {"inputs": "x", "parameters": {"priority": 6, "max_new_tokens": 1}})[0], 200)
        self.assertEqual(self.ask("late", priority=4)[2]["error"]["param"], "priority")

    def test_models_are_those_that_a_key_may_use(self):
        def listed(name):
            status, _, text = self.server.request("GET", "/v1/models", None, {"Authorization": f"Bearer sesame-{name}"})
            self.assertEqual(status, 200)
            return [card["id"] for card in json.loads(text)["data"]]

        def shown(name, model):
            return self.server.request("GET", f"/v1/models/{model}", None, {"Authorization": f"Bearer sesame-{name}"})

        everything = listed("free")
        base = [name for name in everything if name not in ("a0", "a1", "a2", "a3")]
        self.assertEqual((sorted(everything), base), (["a0", "a1", "a2", "a3", "model"], ["model"]))
        self.assertEqual((listed("sql"), listed("plain")), ([*base, "a1"], base))
        self.assertEqual([json.loads(shown("sql", model)[2])["id"] for model in (*base, "a1")], [*base, "a1"])
        status, _, text = shown("sql", "a0")
        self.assertEqual((status, json.loads(text)["error"]["message"]), (403, 'this key may not use "a0" (--limits)'))
        self.assertEqual([shown("plain", "a1")[0], shown("free", "a0")[0], shown("sql", "acme/none")[0]], [403, 200, 404])
        self.assertEqual(shown("sql", "none")[0], 403, "nor does it learn whether there is one")
        examples = [self.server.request("GET", f"/examples/{name}", None, {"Authorization": "Bearer sesame-sql"})[0] for name in ("a0", "a1")]
        self.assertEqual((examples[0], examples[1] == 403), (403, False))

    def test_keys_of_administrators_have_no_limit(self):
        for _ in range(5):
            self.assertEqual(self.server.admin("/v1/completions", {**TEXT, "model": "a0"})[0], 200)


class Gone(LimitsCase):
    def test_who_leaves_has_had_the_tokens_until_then(self):
        connection, response = self.stream("small", {**LONG, "max_tokens": 400})
        read = 0
        while read < 40 and (line := response.readline()):
            read += line.startswith(b"data:")
        response.close()
        connection.close()
        deadline = time.monotonic() + 20
        while self.server.metric("vllm:num_requests_running") > 0 and time.monotonic() < deadline:
            time.sleep(0.02)
        left = int(self.ask("small", max_tokens=1)[1]["x-ratelimit-remaining-tokens"])
        self.assertLess(left, 35, "of 60")


class Wrong(unittest.TestCase):
    def fails(self, *options, words):
        done = subprocess.run([HEDDLE, "serve", "--model", "/none", *map(str, options)], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(words, done.stderr)
        self.assertNotIn("/none", done.stderr)

    def test_mistakes_end_the_program_before_the_model_is_read(self):
        with tempfile.TemporaryDirectory() as folder:
            keys, limits = pathlib.Path(folder) / "keys", pathlib.Path(folder) / "limits.toml"
            keys.write_text("chat sesame\n")
            limits.write_text("")
            self.fails("--limits", limits, words="--limits: there are no keys to limit; name them with --api-key-file")
            for text, words in (("[chats]\n", 'line 1: there is no key of the name "chats"; did you mean "chat"?'),
                                ("[chat]\nmax-row = 1\n", 'line 2: there is no limit "max-row"; did you mean "max-rows"?'),
                                ("\nmax-rows = 0\n", "line 2: max-rows: expected a whole number from 1 to"),
                                ("priority = low\n", "line 1: "), ("priority = 1.5\n", "line 1: priority: expected a whole number from -1000000000"),
                                ("max-rows\n", "line 1: ")):
                limits.write_text(text)
                self.fails("--api-key-file", keys, "--limits", limits, words=f"--limits {limits}: {words}")
            self.fails("--api-key-file", keys, "--limits", "/nothing", words="--limits /nothing: there is no such file")


if __name__ == "__main__":
    main()
