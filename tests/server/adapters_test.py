"""Adapters of the server and of `generate`: names that are taken, what unloading means, damaged values and what is a warning.

  python3 tests/server/adapters_test.py HEDDLE
"""
import base64
import json
import pathlib
import pickle
import shutil
import subprocess
import tempfile
import unittest
import urllib.parse

import numpy as np
from serve_case import ADMIN_KEY, DEVICE, HEDDLE, Case, Server, events, main
from tiny_model import write_adapter, write_all

TENSORS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def change_values(path, name, change):
    """Of the tensor in an f32 file, in place: change(values)."""
    data = bytearray(path.read_bytes())
    size = int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8: 8 + size])[name]["data_offsets"]
    values = np.frombuffer(data[8 + size + begin: 8 + size + end], "<f4").copy()
    change(values)
    data[8 + size + begin: 8 + size + end] = values.tobytes()
    path.write_bytes(data)


def put(value):
    def change(values):
        values[7] = value
    return change


def change_config(folder, **fields):
    path = folder / CONFIG
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


B_OF_Q = "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"


class Files(unittest.TestCase):
    """Tests of programs on files of their own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        write_all(self.folder, 2)
        self.root = self.folder / "adapters"

    def generate(self, *options, rows=None):
        """(exit code, answers, standard error)"""
        text = "".join(json.dumps({"max_tokens": 4, "prompt": "ab", **row}) + "\n" for row in rows or [{}])
        done = subprocess.run([HEDDLE, "generate", "--model", self.folder / "model", "--device", DEVICE, "--threads", "1", "--kv-memory",
                               "100M", "--raw", "--json", "--keep-going", *map(str, options), "-"],
                              input=text, capture_output=True, text=True, cwd="/")
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        return done.returncode, sorted(answers, key=lambda answer: answer["index"]), done.stderr

    def refused(self, *options, says):
        code, answers, error = self.generate(*options)
        self.assertEqual((code, answers), (2, []), error)
        for word in says:
            self.assertIn(word, error)


class Names(Files):
    def does_not_start(self, *options, says):
        with self.assertRaises(AssertionError) as refused:
            Server(self.folder, *options).stop()
        for word in ("does not start", *says):
            self.assertIn(word, str(refused.exception))

    def test_an_adapter_and_the_base_model_of_one_name(self):
        for name, path in (("sql", self.root / "sql"), ("model", self.root / "model"), ("base", self.root / "base")):
            write_adapter(path, 3)
            self.does_not_start("--served-model-name", "sql", says=[f'"{name}"', "a name of the base model"])
            if name != "sql":  # which is no name of it without --served-model-name
                self.refused("--adapters", self.root, says=[f'"{name}"', "a name of the base model"])
            shutil.rmtree(path)
        adapter = ("--adapter", f"model={self.root / 'a0'}")
        self.refused(*adapter, says=['"model"', "a name of the base model"])
        self.does_not_start(*adapter, says=['"model"', "a name of the base model"])

    def test_two_adapters_of_one_name(self):
        given = ("--adapter", f"a1={self.root / 'a0'}")
        self.does_not_start(*given, says=['two adapters are called "a1"', "adapters/a0", "adapters/a1"])
        self.refused(*given, "--adapters", self.root, says=['two adapters are called "a1"', "adapters/a0", "adapters/a1"])
        chat = subprocess.run([HEDDLE, "chat", "--model", self.folder / "model", "--device", DEVICE, *given, "--adapters", self.root],
                              input="hi\n", capture_output=True, text=True)
        self.assertEqual(chat.returncode, 2, chat.stderr)
        self.assertIn('two adapters are called "a1"', chat.stderr)
        same = ("--adapter", f"a1={self.root / 'a1'}", "--adapters", self.root)  # it stays in memory so
        self.assertEqual(self.generate(*same, rows=[{"adapter": "a1"}])[0], 0)

    def test_empty_values_of_options(self):
        for option in ("--use", "--model", "--adapters", "--device", "--kv-type", "--stats", "--weights"):
            self.refused(option, "", says=[option, "is empty"])
        for option in ("--api-key-file", "--admin-key-file", "--lora-root", "--host", "--served-model-name", "--tls-cert", "--allowed-host"):
            self.does_not_start(option, "", says=[option, "is empty"])


class Values(Files):
    def test_nan_and_infinity_are_refused_by_name(self):
        file = self.root / "a0" / TENSORS
        for value, word in ((np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")):
            change_values(file, B_OF_Q, put(value))
            says = [f"adapters/a0: tensor '{B_OF_Q}' has {word} at [1, 3]"]
            inspected = subprocess.run([HEDDLE, "inspect", self.root / "a0"], capture_output=True, text=True)
            self.assertEqual((inspected.returncode, inspected.stdout), (2, ""))
            self.assertIn(says[0], inspected.stderr)
            self.refused("--adapter", f"x={self.root / 'a0'}", says=says)
            code, answers, _ = self.generate("--adapters", self.root, rows=[{"adapter": "a0"}, {"adapter": "a1"}])
            self.assertEqual(code, 1)
            self.assertIn(says[0], answers[0]["error"])
            self.assertIsNone(answers[1]["error"])
        server = Server(self.folder)
        self.addCleanup(server.stop)
        status, answer = server.post("/v1/completions", {"model": "a0", "prompt": "ab", "max_tokens": 2})
        self.assertEqual(status, 400)
        self.assertIn(B_OF_Q, answer["error"]["message"])
        status, _, text = server.admin("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "a0"})
        self.assertEqual(status, 400)
        self.assertIn(B_OF_Q, text)
        server.complete("a1")

    def test_logits_that_are_nan_end_the_row_alone(self):
        """Of the model: the embedding of one token is NaN, and rows without it are fine."""
        hidden = 64

        def damage(values):
            values[hidden * 257: hidden * 258] = np.nan  # of <|user|>, after the bytes and <|end|>: no answer has it

        clean = self.generate(rows=[{"prompt": "ab"}])[1][0]["token_ids"]
        change_values(self.folder / "model" / "model.safetensors", "model.embed_tokens.weight", damage)
        code, answers, _ = self.generate(rows=[
            {"prompt": "a<|user|>"}, {"prompt": "ab"}, {"prompt": "<|user|>", "adapter": "base", "max_tokens": 1}])
        self.assertEqual(code, 1)
        for damaged in (answers[0], answers[2]):
            self.assertIn("the logits of the row are NaN or infinite: the model has weights", damaged["error"])
            self.assertEqual((damaged["finish_reason"], damaged["token_ids"]), ("error", []))
        self.assertEqual((answers[1]["token_ids"], answers[1]["error"]), (clean, None))
        server = Server(self.folder)
        self.addCleanup(server.stop)
        for fields in ({"prompt": "a<|user|>"}, {"prompt": "a<|user|>", "temperature": 1.0}, {"prompt": ["ab", "<|user|>"]}):
            status, answer = server.post("/v1/completions", {"max_tokens": 2, **fields})
            self.assertEqual((status, answer["error"]["type"]), (500, "InternalServerError"), fields)
            self.assertIn("the logits of the row are NaN", answer["error"]["message"])
        server.complete("base")


class Warnings(Files):
    def test_what_is_odd_is_a_warning_and_with_strict_an_error(self):
        cases = (({"rank_patern": {"q_proj": 1}}, "'rank_patern' is a field that heddle does not know, and so is ignored; did you mean rank_pattern?"),
                 ({"base_model_name_or_path": "acme/other-7b"}, "was made for acme/other-7b, the model is "),
                 ({"target_modules": ["q_proj", "lm_head"]}, "has no tensors for 1 module that target_modules of "))
        for fields, sentence in cases:
            with self.subTest(sentence):
                shutil.rmtree(self.root / "a0")
                write_adapter(self.root / "a0", 0)
                if "target_modules" in fields:
                    fields = {"target_modules": [*json.loads((self.root / "a0" / CONFIG).read_text())["target_modules"], "lm_head"]}
                change_config(self.root / "a0", **fields)
                for options in (("--adapter", f"x={self.root / 'a0'}"), ("--adapters", self.root)):
                    row = [{"adapter": "x" if options[0] == "--adapter" else "a0"}] * 2
                    code, answers, error = self.generate(*options, rows=row)
                    self.assertEqual((code, [answer["error"] for answer in answers]), (0, [None, None]), error)
                    self.assertEqual(error.count(sentence), 1, error)
                if "rank_patern" in fields:
                    inspected = subprocess.run([HEDDLE, "inspect", self.root / "a0"], capture_output=True, text=True)
                    self.assertIn("  warning: ", inspected.stdout)
                    self.assertIn(sentence, inspected.stdout)
                self.refused("--strict", "--adapter", f"x={self.root / 'a0'}", says=[sentence])
                code, answers, _ = self.generate("--strict", "--adapters", self.root, rows=[{"adapter": "a0"}, {"adapter": "a1"}])
                self.assertIn(sentence, answers[0]["error"])
                self.assertIsNone(answers[1]["error"])
        server = Server(self.folder, "--strict")
        self.addCleanup(server.stop)
        load = {"lora_name": "x", "lora_path": "a0"}
        self.assertEqual(server.admin("/v1/load_lora_adapter", load)[0], 400)
        self.assertEqual(server.admin("/v1/load_lora_adapter", load | {"lora_path": "a1"})[0], 200)


class Receipts(Case):
    num_adapters = 3
    options = ("--max-batch", "2")

    def card(self, name):
        return json.loads(self.server.request("GET", f"/v1/models/{name}")[2])["lora"]

    def ask(self, route, name, **more):
        body = {"model": name, "max_tokens": 2, **more}
        body |= {"prompt": "ab"} if route == "/v1/completions" else {"messages": [{"role": "user", "content": "ab"}]}
        return self.server.post(route, body)[1]

    def test_answers_name_the_weights_that_wrote_them(self):
        self.server.complete("a0")
        receipt = self.card("a0")["receipt"]
        self.assertRegex(receipt["digest"], "^[0-9a-f]{32}$")
        for route in ("/v1/completions", "/v1/chat/completions"):
            answer = self.ask(route, "a0")
            self.assertEqual(answer["system_fingerprint"], receipt["digest"])
            self.assertEqual(answer["choices"][0]["adapter_digest"], receipt["digest"])
            answer = self.ask(route, "base")
            self.assertIsNone(answer["system_fingerprint"])
            self.assertNotIn("adapter_digest", answer["choices"][0])
            body = {"model": "a0", "max_tokens": 2, "stream": True}
            body |= {"prompt": "ab"} if route == "/v1/completions" else {"messages": [{"role": "user", "content": "ab"}]}
            chunks = [json.loads(text) for text in events(self.server.request("POST", route, body)[2]) if text != "[DONE]"]
            told = [choice["adapter_digest"] for chunk in chunks for choice in chunk["choices"] if "adapter_digest" in choice]
            self.assertEqual(told, [receipt["digest"]])
        self.assertEqual(self.ask("/v1/completions", "a1")["system_fingerprint"], self.card("a1")["digest"])
        messages = [{"role": "user", "content": "ab"}]
        for route, body, take in (("/v1/messages", {"messages": messages, "max_tokens": 2}, lambda answer: answer),
                                  ("/v1/responses", {"input": "ab", "max_output_tokens": 2, "store": False}, lambda answer: answer),
                                  ("/generate", {"inputs": "ab", "parameters": {"adapter_id": "a0", "max_new_tokens": 2, "details": True}},
                                   lambda answer: answer["details"])):
            status, answer = self.server.post(route, body if route == "/generate" else {"model": "a0", **body})
            self.assertEqual((status, take(answer).get("adapter_digest")), (200, receipt["digest"]), answer)
        self.assertNotEqual(self.card("a1")["digest"], receipt["digest"])

    def test_a_receipt_says_what_was_loaded(self):
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "x", "lora_path": "a2"})
        self.assertEqual(status, 200)
        self.addCleanup(self.server.admin, "/v1/unload_lora_adapter", {"lora_name": "x"})
        first, summary = text.split("\n")
        self.assertEqual(first, "Success: LoRA adapter 'x' added successfully.")
        card = self.card("x")
        self.assertEqual(card["receipt"]["summary"], summary)
        self.assertRegex(summary, r"^28 tensors, 14 sites, rank 4, scale 0.9, f32, \|delta\| / \|W\| 0\.[89]\d*, digest [0-9a-f]{32}$")
        self.assertIn(f"adapter x: {summary}", self.server.log.read_text())
        receipt = card["receipt"]
        self.assertEqual((receipt["tensors_given"], receipt["tensors_applied"], receipt["is_zero"]), (28, 28, False))
        squares = {name: sum(site[name] ** 2 for site in receipt["sites"]) for name in ("delta_norm", "base_norm")}
        for name, square in squares.items():
            self.assertAlmostEqual(receipt[name], square ** 0.5, delta=1e-9 * receipt[name])
        self.assertEqual(receipt["sites"][0]["module"], "model.layers.0.self_attn.q_proj")
        listed = {m["id"]: m for m in json.loads(self.server.request("GET", "/v1/models")[2])["data"]}
        self.assertEqual(listed["x"]["lora"]["digest"], receipt["digest"])
        self.assertNotIn("receipt", listed["x"]["lora"])

    def test_adapters_of_the_folder_have_a_line_in_the_log(self):
        self.server.complete("a1")
        self.assertRegex(self.server.log.read_text(), r"adapters/a1: 28 tensors, 14 sites, .*digest [0-9a-f]{32}")


class Bodies(Case):
    """Adapters that the body of a load brings."""
    num_adapters = 2
    options = ("--max-adapter-body", "100K", "--max-body", "16K")

    def setUp(self):
        self.folder = self.server.folder / "adapters" / "a1"
        self.weights = (self.folder / TENSORS).read_bytes()
        self.config = (self.folder / CONFIG).read_text()
        self.addCleanup(self.server.admin, "/v1/unload_lora_adapter", {"lora_name": "policy"})

    def load(self, query, body, kind="application/octet-stream", key=ADMIN_KEY):
        headers = {"Authorization": f"Bearer {key}", "Content-Type": kind}
        return self.server.request("POST", "/v1/load_lora_adapter?" + query, body, headers)[::2]

    def query(self, **fields):
        return urllib.parse.urlencode({"lora_name": "policy", "adapter_config": self.config, **fields}, quote_via=urllib.parse.quote)

    def with_metadata(self, metadata):
        size = int.from_bytes(self.weights[:8], "little")
        head = json.dumps(json.loads(self.weights[8:8 + size]) | {"__metadata__": metadata}).encode()
        return len(head).to_bytes(8, "little") + head + self.weights[8 + size:]

    def test_weights_in_the_body(self):
        self.assertGreater(len(self.weights), 16 << 10)  # more than other bodies may have
        status, text = self.load(self.query(), self.weights)
        self.assertEqual((status, text.split("\n")[0]), (200, "Success: LoRA adapter 'policy' added successfully."))
        digest = text.rsplit(" ", 1)[1]
        self.assertEqual(self.server.complete("policy"), self.server.complete("a1"))
        answer = self.server.post("/v1/completions", {"model": "policy", "prompt": "ab", "max_tokens": 1})[1]
        self.assertEqual(answer["system_fingerprint"], digest)
        self.assertEqual(self.load(self.query(), self.weights)[0], 400)  # the name is in use
        self.assertEqual(self.load(self.query(running="switch"), self.weights)[0], 400)  # needs load_inplace
        other = bytearray(self.weights)
        other[-4:] = b"\0\0\0\0"
        status, text = self.load(self.query(load_inplace="true", running="switch", keep_versions="2"), bytes(other))
        self.assertEqual(status, 200, text)
        self.assertNotEqual(text.rsplit(" ", 1)[1], digest)

    def test_a_config_in_the_metadata(self):
        status, text = self.load("lora_name=policy", self.with_metadata({"adapter_config": self.config}))
        self.assertEqual(status, 200, text)
        self.assertEqual(self.server.complete("policy"), self.server.complete("a1"))
        status, text = self.load("lora_name=policy&load_inplace=true", self.weights)
        self.assertEqual(status, 400)
        self.assertIn("adapter policy: has no config", text)

    def test_what_is_refused(self):
        for query, body, code, says in (
                (self.query(), self.weights[:-1], 400, "adapter policy"),
                (self.query(), b"", 400, "adapter policy"),
                (self.query(adapter_config="{}"), self.weights, 400, "adapter policy/adapter_config.json"),
                (self.query(lora_name="base"), self.weights, 400, "lora_name"),
                (self.query(lora_name="a0"), self.weights, 400, "is another adapter of --lora-root"),
                ("", self.weights, 400, "has no lora_name"),
                (self.query(rank="3"), self.weights, 400, "rank=3"),
                (self.query(load_inplace="yes"), self.weights, 400, "load_inplace=yes"),
                (self.query(keep_versions="65"), self.weights, 400, "keep_versions=65"),
                (self.query(load_inplace="true", running="stop"), self.weights, 400, "running"),
                (self.query(), bytes(201 << 10), 413, "--max-adapter-body")):
            with self.subTest(query[:40], says=says):
                status, text = self.load(query, body)
                self.assertEqual(status, code, text)
                self.assertIn(says, text)
        self.assertEqual(self.load(self.query(), self.weights, key="x" + ADMIN_KEY)[0], 401)
        self.assertEqual(self.load(self.query(), b"x", kind="application/x-tar")[0], 415)
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "x" * (70 << 10), "lora_path": "a1"})
        self.assertEqual(status, 413)
        self.assertIn("--max-body", text)
        self.assert_alive()

    def from_tensors(self, **fields):
        body = {"lora_name": "policy", "config_dict": json.loads(self.config),
                "serialized_tensors": base64.b64encode(self.weights).decode(), "pinned": False, **fields}
        status, _, text = self.server.admin("/load_lora_adapter_from_tensors", body)
        return status, text

    def test_tensors_as_sglang_sends_them(self):
        status, text = self.from_tensors()
        self.assertEqual((status, json.loads(text)["success"]), (200, True), text)
        self.assertEqual(self.server.complete("policy"), self.server.complete("a1"))
        pickled = base64.b64encode(pickle.dumps({"x": 1})).decode()
        for fields, says in (({"serialized_tensors": pickled}, "is a pickle"), ({"serialized_tensors": "A" * 9}, "not base64"),
                             ({"serialized_tensors": "****"}, "not base64"), ({"config_dict": "{}"}, "config_dict"),
                             ({"added_tokens_config": {"x": 1}}, "added_tokens_config"), ({"load_format": "flattened_bucket"}, "load_format"),
                             ({"unknown": 1}, "unknown")):
            with self.subTest(says):
                status, text = self.from_tensors(load_inplace=True, **fields)
                self.assertEqual(status, 400, text)
                self.assertIn(says, text)


class Loading(Case):
    num_adapters = 3

    def models(self):
        return {m["id"] for m in json.loads(self.server.request("GET", "/v1/models")[2])["data"]}

    def status(self, name):
        return self.server.post("/v1/completions", {"model": name, "prompt": "ab", "max_tokens": 1})[0]

    def load(self, name, path, **more):
        return self.server.admin("/v1/load_lora_adapter", {"lora_name": name, "lora_path": path, **more})[0]

    def unload(self, name):
        return self.server.admin("/v1/unload_lora_adapter", {"lora_name": name})[::2]


class Unloading(Loading):
    def test_an_adapter_of_the_folder_is_gone_until_it_is_loaded_again(self):
        self.assertEqual(self.status("a0"), 200)
        before = self.server.complete("a0")
        self.assertEqual(self.unload("a0"), (200, "Success: LoRA adapter 'a0' removed successfully."))
        for _ in range(2):
            self.assertEqual(self.status("a0"), 404)
            self.assertNotIn("a0", self.models())
            self.assertEqual(self.server.request("GET", "/v1/models/a0")[0], 404)
            self.assertEqual(self.unload("a0")[0], 404)
            self.server.process.send_signal(1)  # SIGHUP lists the folder again
        self.assertEqual(self.status("a1"), 200)
        self.assertEqual(self.load("a0", "a0"), 200)
        self.assertEqual(self.server.complete("a0"), before)
        self.assertIn("a0", self.models())
        self.assertEqual(self.unload("a0")[0], 200)  # also where it was loaded by its name
        self.assertEqual(self.status("a0"), 404)
        self.assertEqual(self.load("a0", "a1"), 200)  # the name is free
        self.assertEqual(self.server.complete("a0"), self.server.complete("a1"))

    def test_names_that_are_taken(self):
        for name in ("base", "model"):
            self.assertEqual(self.load(name, "a1"), 400)
            self.assertEqual(self.load(name, "a1", load_inplace=True), 400)
        self.assertEqual(self.load("a2", "a1"), 400)  # another adapter of the folder has the name
        self.assertEqual(self.load("a2", "a2"), 200)
        self.assertEqual(self.load("a2", "a2"), 400)
        self.assertEqual(self.load("a2", "a1", load_inplace=True), 200)
        self.assertEqual(self.server.complete("a2"), self.server.complete("a1"))
        self.assertEqual(self.server.request("POST", "/v1/unload_lora_adapter", {"lora_name": "a1"},
                                             {"Authorization": "Bearer x" + ADMIN_KEY})[0], 401)
        self.assertEqual(self.status("a1"), 200)


class Replacing(Loading):
    def test_unfinished_answers_end_as_they_began_or_go_on_with_other_weights(self):
        for name in ("a1", "a2"):
            self.server.complete(name)  # which are known by their names from here on
        body = {"model": "mine", "prompt": "ab", "max_tokens": 1900, "temperature": 0, "ignore_eos": True, "stream": True, "return_token_ids": True, "logprobs": 1}
        for running in ("finish", "switch"):
            self.assertEqual(self.load("mine", "a1", load_inplace=True), 200)
            connection = self.server.connect()
            connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
            response = connection.getresponse()
            first = response.readline()
            self.assertIn(b"data: ", first)
            self.assertEqual(self.load("mine", "a2", load_inplace=True, running=running), 200)
            choices = [json.loads(chunk)["choices"][0] for chunk in events((first + response.read()).decode()) if chunk != "[DONE]"]
            connection.close()
            ids = [token for choice in choices for token in choice.get("token_ids", [])]
            self.assertEqual(len(ids), 1900)
            if running == "finish":
                self.assertFalse(any("adapter_switches" in choice for choice in choices))
                whole = self.server.post("/v1/completions", body | {"model": "a1", "stream": False})[1]["choices"][0]
                self.assertEqual(ids, whole["token_ids"])
                continue
            (switch,) = choices[-1]["adapter_switches"]
            self.assertEqual(switch["position"], switch["token"] + 1, "a prompt of two tokens")
            self.assertGreater(switch["token"], 0)
            self.assertEqual([switch["before"], choices[-1]["adapter_digest"]],
                             [json.loads(self.server.request("GET", f"/v1/models/{name}")[2])["lora"]["digest"] for name in ("a1", "a2")])
            before = self.server.post("/v1/completions", body | {"model": "a1", "stream": False})[1]["choices"][0]["token_ids"]
            self.assertEqual(ids[:switch["token"]], before[:switch["token"]])
            self.assertNotEqual(ids, before)
        for wrong in ({"running": "stop"}, {"running": 1}):
            self.assertEqual(self.load("mine", "a1", load_inplace=True, **wrong), 400)
        self.assertEqual(self.load("other", "a1", running="switch"), 400, "it needs load_inplace")
        self.assertEqual(self.unload("mine")[0], 200)

    def test_versions_of_a_name(self):
        of = {version: self.server.complete(f"a{version - 1}") for version in (1, 2, 3)}
        self.assertEqual(self.load("mine", "a0", keep_versions=2), 200)
        for path in ("a1", "a2"):
            self.assertEqual(self.load("mine", path, load_inplace=True), 200)
        for version, answer in of.items():
            self.assertEqual(self.server.complete(f"mine@{version}"), answer)
        self.assertEqual(self.status("mine@4"), 404)
        back = lambda version, **more: self.server.admin("/v1/load_lora_adapter", {"lora_name": "mine", "version": version, **more})[0]
        self.assertEqual(back(1), 200)
        self.assertEqual(self.server.complete("mine"), of[1])
        lora = json.loads(self.server.request("GET", "/v1/models/mine")[2])["lora"]
        self.assertEqual((lora["version"], lora["versions"]), (1, [2, 3]))
        self.assertEqual(back(2, running="switch"), 200)
        self.assertEqual(self.server.complete("mine"), of[2])
        self.assertEqual(back(9), 404)
        self.assertEqual(back(1, lora_path="a0"), 400)
        self.assertEqual(back(0), 400)
        self.assertEqual(self.server.admin("/v1/load_lora_adapter", {"lora_name": "a1", "version": 1})[0], 404, "it was not loaded")
        self.assertEqual(self.unload("mine")[0], 200)
        self.assertEqual(self.status("mine@3"), 404)


if __name__ == "__main__":
    main()
