"""What requests, rows and options that say nothing get: defaults of generation_config.json, and the names of the base model."""
import json
import pathlib
import subprocess
import tempfile
import unittest

from serve_case import HEDDLE, Case, Server, events, main
from tiny_model import write_all

SETTINGS = {"temperature": 5.0, "top_k": 1, "max_new_tokens": 3, "do_sample": True, "transformers_version": "5.0"}
USER = 257  # the token <|user|>
ONLY_USER = {"logit_bias": {str(USER): 100}, "temperature": 0, "max_tokens": 4, "ignore_eos": True}


def run(*arguments, stdin=""):
    done = subprocess.run([HEDDLE, *map(str, arguments)], input=stdin, text=True, capture_output=True, cwd="/")
    return done.returncode, done.stdout, done.stderr


class ServerDefaults(unittest.TestCase):
    def serve(self, settings, *options):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        write_all(folder, 1)
        (folder / "secret.txt").write_text("")
        (folder / "model" / "generation_config.json").write_text(json.dumps(settings))
        server = Server(folder, *options)
        self.addCleanup(server.stop)
        return server

    def chat(self, server, **fields):
        status, answer = server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "hello"}], "ignore_eos": True, "return_token_ids": True, **fields})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["token_ids"]

    def text(self, server, **fields):
        status, answer = server.post("/v1/completions", {"prompt": "hello", "ignore_eos": True, "return_token_ids": True, **fields})
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["token_ids"]

    def test_they_hold_field_by_field(self):
        server = self.serve(SETTINGS)
        path = server.folder / "model" / "generation_config.json"
        self.assertIn(f"from {path}, where options and requests do not set it: temperature 5, top_k 1, max_tokens 3",
                      server.log.read_text())
        greedy = self.chat(server, temperature=0, max_tokens=24)
        self.assertEqual(len(greedy), 24)
        self.assertEqual(self.chat(server), greedy[:3], "top_k 1 of the file, and its max_new_tokens")
        self.assertEqual(self.chat(server, max_tokens=24), greedy)
        self.assertEqual(self.chat(server, temperature=9, max_tokens=24), greedy, "a temperature alone keeps the file's top_k")
        self.assertEqual(self.chat(server, temperature=None, top_k=None, max_tokens=24), greedy, "null is not given")
        self.assertNotEqual(self.chat(server, top_k=0, max_tokens=24), greedy, "drawn with the file's temperature")
        self.assertEqual(len(self.text(server)), 16, "as OpenAI has it")
        self.assertEqual(self.text(server), self.text(server, temperature=0))
        lorax = server.post("/generate", {"inputs": "hello", "parameters": {"details": True, "ignore_eos_token": True}})[1]
        self.assertEqual([t["id"] for t in lorax["details"]["tokens"]][:16], self.text(server, temperature=0))
        self.assertEqual(len(lorax["details"]["tokens"]), 20, "LoRAX's own default")

    def test_they_are_left_out(self):
        server = self.serve({**SETTINGS, "top_p": 7}, "--generation-config", "none", "--default-max-tokens", 5)
        self.assertNotIn("generation_config", server.log.read_text())
        self.assertEqual(len(self.chat(server)), 5)
        self.assertGreater(len({tuple(self.text(server)) for _ in range(4)}), 1, "temperature 1")

    def test_greedy_by_the_file(self):
        server = self.serve({"do_sample": False, "temperature": 0.7, "num_beams": 4, "max_new_tokens": 7}, "--default-max-tokens", 5)
        self.assertIn("generation_config.json: num_beams is 4, which heddle does not support", server.log.read_text())
        self.assertEqual(self.chat(server), self.chat(server, temperature=0))
        self.assertEqual(len(self.chat(server)), 5, "the option goes before the file")

    def test_several_end_tokens(self):
        server = self.serve({"eos_token_id": [256, USER]})
        status, answer = server.post("/v1/completions", {**ONLY_USER, "prompt": "hello", "ignore_eos": False})
        self.assertEqual((status, answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]), (200, "", "stop"))

    def test_a_wrong_value_ends_the_start(self):
        for settings, says in (({"top_p": 1.5}, "top_p is 1.5, expected above 0 and up to 1"),
                               ({"temperature": "warm"}, 'temperature is "warm", expected a number')):
            with self.assertRaises(AssertionError) as failure:
                self.serve(settings)
            self.assertIn(f"generation_config.json: {says}", str(failure.exception))
            self.assertIn("--generation-config none", str(failure.exception))


class StopStrings(Case):
    """The model says <|user|> without end, which answers do not show."""

    def complete(self, **fields):
        status, answer = self.server.post("/v1/completions", {"prompt": "hello", **ONLY_USER, **fields})
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        return choice["text"], choice["finish_reason"], choice["stop_reason"], answer["usage"]["completion_tokens"]

    def test_special_tokens_match(self):
        self.assertEqual(self.complete(), ("", "length", None, 4))
        for stop, tokens in (("<|user|>", 1), ("|user", 1), ("er|><|us", 2), ("<|user|><|user|><|user|>", 3)):
            self.assertEqual(self.complete(stop=[stop, "nothing"]), ("", "stop", stop, tokens))
            shown = self.complete(stop=stop, include_stop_str_in_output=True)
            self.assertEqual(shown, (stop, "stop", stop, tokens))
        self.assertEqual(self.complete(stop="<|user|>", min_tokens=2)[3], 3)

    def test_text_before_them_is_whole_and_no_piece_is_streamed(self):
        body = {"prompt": "hello", **ONLY_USER, "stop": "<|user|><|user|>!", "stream": True}
        chunks = [json.loads(m) for m in events(self.server.request("POST", "/v1/completions", body)[2])[:-1]]
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), "")
        shown = self.server.post("/v1/completions", {**body, "stream": False, "skip_special_tokens": False})[1]
        self.assertEqual(shown["choices"][0]["text"], "<|user|>" * 4)

    def test_the_end_token_matches(self):
        end = {"logit_bias": {"256": 100}, "ignore_eos": False, "min_tokens": 0}
        self.assertEqual(self.complete(**end), ("", "stop", None, 0))
        self.assertEqual(self.complete(**end, stop="<|end|>")[:3], ("", "stop", "<|end|>"))


class Names(unittest.TestCase):
    def ids(self, server):
        return [m["id"] for m in json.loads(server.request("GET", "/v1/models")[2])["data"] if m["parent"] is None]

    def status(self, server, model):
        return server.post("/v1/completions", {"model": model, "prompt": "hello", "max_tokens": 1})[0]

    def test_of_the_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, num_adapters=1)
            self.addCleanup(server.stop)
            self.assertEqual(self.ids(server), ["model"])
            self.assertEqual(server.post("/v1/completions", {"prompt": "hello", "max_tokens": 1})[1]["model"], "model")
            names = ("model", "base", f"{folder}/model", "", "model:a0", "base:a0", "other", "model:a9", "other:a0")
            self.assertEqual([self.status(server, name) for name in names], [200] * 6 + [404] * 3)
            self.assertEqual(json.loads(server.request("GET", "/v1/models/base")[2])["id"], "model")
            self.assertEqual(json.loads(server.request("GET", "/v1/models/a0")[2])["parent"], "model")

    def test_that_are_given(self):
        with tempfile.TemporaryDirectory() as folder:
            server = Server(folder, "--served-model-name", "ORG/One", "two", "--served-model-name", "three:x", num_adapters=1)
            self.addCleanup(server.stop)
            self.assertEqual(self.ids(server), ["ORG/One", "two", "three:x"])
            names = ("ORG/One", "two", "three:x", "model", "base", "ORG/One:a0", "three:x:a0", "One")
            self.assertEqual([self.status(server, name) for name in names], [200] * 7 + [404])
            for path in ("ORG/One", "ORG%2FOne", "two"):
                found = json.loads(server.request("GET", f"/v1/models/{path}")[2])
                self.assertEqual((found["id"], found["root"]), (path.replace("%2F", "/"), "ORG/One"))


class OnTinyModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        write_all(cls.folder, 1)
        cls.model = cls.folder / "model"

    def tokens(self, *arguments, stdin=""):
        code, out, err = run("generate", "--model", self.model, "--raw", "--json", "--ordered", "--threads", 1, *arguments, stdin=stdin)
        self.assertEqual(code, 0, err)
        return [json.loads(line)["token_ids"] for line in out.splitlines()], err


class Generate(OnTinyModel):
    def test_options_and_rows_go_before_the_file(self):
        settings = self.folder / "generation_config.json"
        settings.write_text(json.dumps(SETTINGS))
        (greedy,), err = self.tokens("--max-tokens", 12, "hello")
        self.assertNotIn("generation_config", err)
        file = ("--generation-config", self.folder)
        (by_file,), err = self.tokens(*file, "hello")
        self.assertEqual(by_file, greedy[:3])
        self.assertIn(f"heddle: from {settings}, where options and requests do not set it: temperature 5, top_k 1, max_tokens 3", err)
        self.assertEqual(self.tokens(*file, "--max-tokens", 12, "--temperature", 7, "hello")[0], [greedy])
        self.assertNotEqual(self.tokens(*file, "--max-tokens", 12, "--top-k", 0, "hello")[0], [greedy])
        rows = [{"prompt": "hello"}, {"prompt": "hello", "max_tokens": 12}, {"prompt": "hello", "max_tokens": 12, "top_k": 0},
                {"prompt": "hello", "max_tokens": None}]
        got, _ = self.tokens(*file, "-", stdin="".join(json.dumps(r) + "\n" for r in rows))
        self.assertEqual([got[0], got[1], got[3]], [greedy[:3], greedy, greedy[:3]])
        self.assertNotEqual(got[2], greedy)
        self.assertEqual(self.tokens("--generation-config", "none", "--max-tokens", 12, "hello")[0], [greedy])
        self.assertEqual(self.tokens("--generation-config", "vllm", "--max-tokens", 12, "hello")[0], [greedy])
        self.assertEqual(self.tokens(*file, "--min-tokens", 2, "hello")[0], [greedy[:3]])
        code, _, err = run("generate", "--model", self.model, "--raw", *file, "--min-tokens", 4, "hello")
        self.assertEqual(code, 2)
        self.assertIn("min_tokens is 4, expected 0 to max_tokens = 3", err)

    def test_settings_that_are_not_done(self):
        settings = self.folder / "beams.json"
        settings.write_text(json.dumps({"num_beams": 2, "max_new_tokens": 2}))
        self.assertIn(f"warning: {settings}: num_beams is 2, which heddle does not support\n",
                      self.tokens("--generation-config", settings, "hello")[1])
        code, out, err = run("generate", "--model", self.model, "--strict", "--generation-config", settings, "hello")
        self.assertEqual((code, out), (2, ""))
        self.assertIn("num_beams is 2", err)
        code, _, err = run("generate", "--model", self.model, "--generation-config", "/no/such", "hello")
        self.assertEqual(code, 2)
        self.assertIn("generation_config /no/such: there is no file", err)

    def test_chat(self):
        settings = self.folder / "short.json"
        settings.write_text(json.dumps({"max_new_tokens": 2}))
        code, _, err = run("chat", "--model", self.model, "--threads", 1, "--generation-config", settings, "--timings", stdin="hello\n")
        self.assertEqual(code, 0, err)
        self.assertIn(" 2 tokens,", err)


class LinesOfText(OnTinyModel):
    """Prompts, one a line, and JSON objects."""

    def test_each_is_a_prompt(self):
        prompts = ("hello", "{ brace", " a", "é")
        alone = [self.tokens("--max-tokens", 6, prompt)[0][0] for prompt in prompts]
        few = ("--max-tokens", 6)
        by_options = lambda text, *options: self.tokens(*few, *options, "-", stdin=text)[0]  # noqa: E731
        self.assertEqual(by_options("hello\n a\né\n"), [alone[0], alone[2], alone[3]])
        self.assertEqual(by_options("\ufeff\n\nhello\r\n\r\n a\r\né"), [alone[0], alone[2], alone[3]], "Windows, and no last end")
        self.assertEqual(by_options("{ brace\nhello\n", "--input", "text"), [alone[1], alone[0]])
        rows = json.dumps({"prompt": "hello"}) + "\n" + json.dumps({"prompt": " a"}) + "\n"
        self.assertEqual(by_options("\ufeff" + rows), [alone[0], alone[2]])
        self.assertEqual(by_options(rows, "--input", "jsonl"), [alone[0], alone[2]])
        for name, text in (("p.txt", "hello\n a\n"), ("rows", rows), ("p.jsonl", rows)):
            (self.folder / name).write_text(text)
            self.assertEqual(self.tokens(*few, "--prompts", self.folder / name)[0], [alone[0], alone[2]])

    def refused(self, text, *options, name=None, says):
        source = "-"
        if name:
            source = self.folder / name
            source.write_bytes(text if isinstance(text, bytes) else text.encode())
        done = subprocess.run([HEDDLE, "generate", "--model", self.model, "--raw", "--json", *options, "--prompts", source], cwd="/",
                              input=text if isinstance(text, bytes) else text.encode(), capture_output=True)
        self.assertIn(done.returncode, (1, 2))
        self.assertIn(says, (done.stdout + done.stderr).decode())

    def test_what_is_refused(self):
        for name, text in (("x.txt", "hello\n{\"prompt\": \"a\"}\n"), (None, "hello\n{\"prompt\": \"a\"}\n")):
            self.refused(text, name=name, says="line 2: the line begins with {, but the first line is plain text")
        mixed = json.dumps({"prompt": "a"}) + "\nhello\n"
        self.refused(mixed, says="line 2: the line does not begin with {")
        self.refused("hello\n", name="y.jsonl", says="line 1: malformed JSON")
        self.refused("hello\n", "--input", "jsonl", says="line 1: malformed JSON")
        self.refused(b"hello\nh\xe9llo\n", says="line 2: the line is not UTF-8")
        self.refused("hello\n".encode("utf-16"), says="is UTF-16, expected UTF-8")
        code, _, err = run("generate", "--model", self.model, "--input", "text", "hello")
        self.assertEqual(code, 2)
        self.assertIn("--input: prompts on the command line are text", err)

    def test_the_adapter_that_answers(self):
        """An only adapter answers, as it answers prompts of the command line; of several --use names one."""
        one = ("--adapter", f"a={self.folder}/adapters/a0", "--max-tokens", 6)
        want = self.tokens(*one, "hello")[0]
        self.assertEqual(self.tokens(*one, "-", stdin="hello\n")[0], want)
        self.assertNotEqual(self.tokens(*one, "--use", "base", "-", stdin="hello\n")[0], want)
        code, _, err = run("generate", "--model", self.model, *one, "--adapter", f"b={self.folder}/adapters/a0", "-", stdin="hello\n")
        self.assertEqual(code, 2)
        self.assertIn("choose one with --use: a, b, base", err)


if __name__ == "__main__":
    main()
