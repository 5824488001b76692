"""Routes, fields and answers of `heddle serve`, as a client of the standard library sees them."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from serve_case import ADMIN_KEY, DEVICE, HEDDLE, Case, Server, events, main
from tiny_model import SPECIAL, TINY, byte_tokenizer

CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
TEXT = {"prompt": "hello", "max_tokens": 6, "temperature": 0, "ignore_eos": True}


class Api(Case):
    options = ("--served-model-name", "tiny", "--max-body", "1M")

    def chat(self, **fields):
        return self.server.post("/v1/chat/completions", {**CHAT, **fields})

    def text(self, **fields):
        return self.server.post("/v1/completions", {**TEXT, **fields})

    def stream(self, path, body):
        status, headers, text = self.server.request("POST", path, {**body, "stream": True})
        self.assertEqual((status, headers["Content-Type"]), (200, "text/event-stream"))
        self.assertNotIn(": ping", text, "only silence is broken by pings")
        return events(text)

    def refused(self, path, body, status, *words):
        found, answer = self.server.post(path, body)
        self.assertEqual(found, status, answer)
        for word in words:
            self.assertIn(word, answer["error"]["message"])
        return answer["error"]

    def test_chat_answer(self):
        status, answer = self.chat(model="a1")
        self.assertEqual(status, 200)
        self.assertEqual((answer["object"], answer["model"]), ("chat.completion", "a1"))
        choice = answer["choices"][0]
        self.assertEqual(choice["finish_reason"], "length")
        self.assertEqual(choice["message"]["role"], "assistant")
        self.assertEqual(answer["usage"]["completion_tokens"], 6)
        self.assertEqual(answer["usage"]["total_tokens"], answer["usage"]["prompt_tokens"] + 6)

    def test_streams_are_the_answer_in_pieces(self):
        whole = self.chat(model="a2")[1]["choices"][0]["message"]["content"]
        messages = self.stream("/v1/chat/completions", {**CHAT, "model": "a2", "stream_options": {"include_usage": True}})
        self.assertEqual(messages[-1], "[DONE]")
        chunks = [json.loads(m) for m in messages[:-1]]
        self.assertEqual(chunks[0]["choices"][0]["delta"], {"role": "assistant", "content": ""})
        self.assertEqual("".join(c["choices"][0]["delta"].get("content", "") for c in chunks[:-1]), whole)
        self.assertEqual(chunks[-2]["choices"][0]["finish_reason"], "length")
        self.assertEqual((chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]), ([], 6))
        self.assertEqual(len({c["id"] for c in chunks}), 1)
        text = self.text(model="a2")[1]["choices"][0]["text"]
        chunks = [json.loads(m) for m in self.stream("/v1/completions", {**TEXT, "model": "a2"})[:-1]]
        self.assertEqual("".join(c["choices"][0]["text"] for c in chunks), text)

    def test_the_log_begins_with_the_device(self):
        device = r"cpu \(2 threads\)" if DEVICE == "cpu" else r"cuda:0 \(.+, bf16 activations\)"
        self.assertRegex(self.server.log.read_text().splitlines()[0], f" info running on {device}$")

    def test_an_id_of_a_client_is_one_member_of_a_log_line(self):
        self.text(request_id="x status=500 outcome=error")
        self.server.log_line(' id="x status=500 outcome=error" status=200 ')

    def test_every_name_of_a_model(self):
        base = self.text(model="tiny")[1]["choices"][0]["text"]
        adapted = self.text(model="a3")[1]["choices"][0]["text"]
        self.assertNotEqual(base, adapted)
        for name in ("", "base"):
            self.assertEqual(self.text(model=name)[1]["choices"][0]["text"], base)
        for fields in ({"model": "tiny:a3"}, {"model": "tiny", "adapter_id": "a3"}, {"lora": [{"name": "a3"}]}):
            self.assertEqual(self.text(**fields)[1]["choices"][0]["text"], adapted, fields)
        self.assertNotEqual(self.text(lora=[{"name": "a3", "scale": 0.5}])[1]["choices"][0]["text"], adapted)
        error = self.refused("/v1/completions", {**TEXT, "model": "none"}, 404, "The model `none` does not exist.")
        self.assertEqual((error["type"], error["param"]), ("NotFoundError", "model"))

    def test_samples(self):
        answer = self.text(n=3, temperature=1, seed=7, prompt=["ab", "cd"])[1]
        self.assertEqual([c["index"] for c in answer["choices"]], list(range(6)))
        again = self.text(temperature=1, seed=8, prompt="ab")[1]["choices"][0]["text"]
        self.assertEqual(answer["choices"][1]["text"], again, "sample i draws with seed + i")
        self.assertEqual(self.text(temperature=1, seed=7)[1]["choices"], self.text(temperature=1, seed=7)[1]["choices"])
        best = self.text(temperature=1, seed=7, n=1, best_of=4)[1]
        self.assertEqual((len(best["choices"]), best["usage"]["completion_tokens"]), (1, 24))

    def test_log_probabilities(self):
        answer = self.text(logprobs=2, echo=True, return_token_ids=True)[1]["choices"][0]
        lists = answer["logprobs"]
        self.assertEqual("".join(lists["tokens"][:5]), "hello")
        self.assertEqual([len(lists[k]) for k in ("tokens", "token_logprobs", "top_logprobs", "text_offset")], [11] * 4)
        self.assertIsNone(lists["token_logprobs"][0])
        self.assertTrue(all(x <= 0 for x in lists["token_logprobs"][1:]))
        self.assertEqual((len(answer["prompt_token_ids"]), len(answer["token_ids"])), (5, 6))
        for token, top in list(zip(lists["tokens"], lists["top_logprobs"], strict=True))[5:]:
            self.assertEqual(max(top, key=top.get), token, "greedy tokens are the most likely ones")
        content = self.chat(logprobs=True, top_logprobs=3)[1]["choices"][0]["logprobs"]["content"]
        self.assertEqual([len(t["top_logprobs"]) for t in content], [3] * 6)
        streamed = [json.loads(m)["choices"][0]["logprobs"] for m in
                    self.stream("/v1/chat/completions", {**CHAT, "logprobs": True, "top_logprobs": 3})[:-1]]
        self.assertEqual([t for part in streamed if part for t in part["content"]], content)
        scored = self.text(prompt_logprobs=1)[1]["choices"][0]["prompt_logprobs"]
        self.assertIsNone(scored[0])
        self.assertEqual(len(scored), 5)

    def test_what_ends_an_answer(self):
        text = self.text(max_tokens=30)[1]["choices"][0]["text"]
        stop = text[6:8]
        cut = self.text(max_tokens=30, stop=[stop])[1]["choices"][0]
        self.assertEqual((cut["text"], cut["finish_reason"], cut["stop_reason"]), (text[:text.index(stop)], "stop", stop))
        kept = self.text(max_tokens=30, stop=stop, include_stop_str_in_output=True)[1]["choices"][0]
        self.assertEqual(kept["text"], text[:text.index(stop)] + stop)
        ids = self.text(return_token_ids=True)[1]["choices"][0]["token_ids"]
        ended = self.text(stop_token_ids=[ids[3]])[1]["choices"][0]
        self.assertEqual((ended["finish_reason"], ended["stop_reason"]), ("stop", ids[3]))

    def test_what_may_be_drawn(self):
        allowed = [70, 71, 72]
        ids = self.text(allowed_token_ids=allowed, return_token_ids=True)[1]["choices"][0]["token_ids"]
        self.assertLessEqual(set(ids), set(allowed))
        first = self.text(return_token_ids=True)[1]["choices"][0]["token_ids"][0]
        biased = self.text(logit_bias={str(first): -100}, return_token_ids=True)[1]["choices"][0]["token_ids"]
        self.assertNotEqual(biased[0], first)

    def test_prompts(self):
        by_ids = self.text(prompt=[ord(c) - 33 for c in "hello"])[1]
        self.assertEqual(by_ids["choices"], self.text()[1]["choices"])
        several = self.text(prompt=[[39, 40], [41]])[1]
        self.assertEqual(len(several["choices"]), 2)
        cut = self.text(prompt="xxhello", truncate_prompt_tokens=5)[1]
        self.assertEqual(cut["choices"][0]["text"], self.text()[1]["choices"][0]["text"])
        goes_on = {"messages": [*CHAT["messages"], {"role": "assistant", "content": "so"}], "add_generation_prompt": False,
                   "continue_final_message": True}
        answer = self.chat(**goes_on, return_token_ids=True)[1]["choices"][0]
        self.assertEqual(self.server.post("/detokenize", {"tokens": answer["prompt_token_ids"]})[1]["prompt"],
                         "<|user|>hello<|end|><|assistant|>so")

    def test_scores_alone(self):
        answer = self.text(max_tokens=0, echo=True, logprobs=0)[1]
        self.assertEqual(answer["choices"][0]["text"], "hello")
        self.assertEqual(answer["usage"]["completion_tokens"], 0)
        self.assertEqual(len(answer["choices"][0]["logprobs"]["token_logprobs"]), 5)

    def test_refusals_name_the_field(self):
        chat, text = "/v1/chat/completions", "/v1/completions"
        self.assertEqual(self.refused(chat, {**CHAT, "tempratur": 1}, 400, "temperature")["param"], "tempratur")
        for field, value in (("tools", [{"type": "function", "function": {"name": "f"}}]), ("regex", ""),
                             ("structured_outputs", {}), ("tool_choice", "required")):
            self.assertEqual(self.refused(chat, {**CHAT, field: value}, 400, field)["param"], field)
        self.refused(text, {**TEXT, "suffix": "end"}, 400, "suffix")
        self.refused(chat, {"model": "tiny"}, 400, "messages")
        self.refused(chat, {**CHAT, "temperature": -1}, 400, "temperature")
        self.refused(chat, {**CHAT, "n": 1000}, 400, "n")
        for priority in ("high", 0.5, 1 << 63):
            self.refused(chat, {**CHAT, "priority": priority}, 400, "priority is")
        self.refused(chat, {**CHAT, "prioritty": 1}, 400, 'did you mean "priority"?')
        self.refused(chat, {**CHAT, "top_logprobs": 2}, 400, "logprobs")
        self.refused(chat, {**CHAT, "stop": ["x"] * 17}, 400, "--max-stop-strings")
        self.refused(chat, {**CHAT, "bad_words": ["x"] * 257}, 400, "--max-bad-words")
        self.refused(chat, {**CHAT, "logit_bias": {str(i): 1 for i in range(1025)}}, 400, "--max-logit-bias")
        self.refused(chat, {**CHAT, "messages": CHAT["messages"] * 1025}, 400, "--max-messages")
        self.refused(text, {**TEXT, "prompt": "x" * 3000}, 400, "3000 tokens")
        self.refused(text, {**TEXT, "prompt": "x" * 3000, "stream": True}, 400, "3000 tokens")
        self.refused(chat, {**CHAT, "chat_template": "{{ 1 }}"}, 400, "chat_template")
        status, _, body = self.server.request("POST", chat, b"[1]")
        self.assertEqual((status, "array" in body), (400, True))

    def test_neutral_fields_pass(self):
        neutral = {"user": "u", "metadata": {"a": "b"}, "store": False, "response_format": {"type": "text"}, "tools": [],
                   "tool_choice": "none", "parallel_tool_calls": True, "priority": -3, "seed": None}
        self.assertEqual(self.chat(**neutral)[1]["choices"], self.chat()[1]["choices"])

    def test_lorax_routes(self):
        body = {"inputs": "hello", "parameters": {"max_new_tokens": 6, "adapter_id": "a1", "details": True, "ignore_eos_token": True,
                                                  "adapter_source": "local"}}
        status, answer = self.server.post("/generate", body)
        self.assertEqual((status, answer["generated_text"]), (200, self.text(model="a1")[1]["choices"][0]["text"]))
        details = answer["details"]
        self.assertEqual((details["finish_reason"], details["generated_tokens"], details["seed"]), ("length", 6, None))
        self.assertEqual("".join(t["text"] for t in details["tokens"]), answer["generated_text"])
        self.assertEqual(self.server.post("/", body)[1], [answer])
        streamed = [json.loads(m) for m in events(self.server.request("POST", "/generate_stream", body)[2])]
        self.assertEqual([m["token"]["id"] for m in streamed], [t["id"] for t in details["tokens"]])
        self.assertEqual(streamed[-1]["generated_text"], answer["generated_text"])
        self.assertTrue(all(m["details"] is None for m in streamed[:-1]))
        for field, value in (("watermark", True), ("adapter_source", "hub"), ("api_token", "t"), ("typical_p", 0.5),
                             ("merged_adapters", {"ids": ["a1", "a2"], "merge_strategy": "ties"}),
                             ("merged_adapters", {"ids": ["a1", "a2"], "density": 1.5}),
                             ("merged_adapters", {"ids": ["a1", "a2"], "majority_sign_method": "most"})):
            status, refusal = self.server.post("/generate", {"inputs": "x", "parameters": {field: value}})
            self.assertEqual((status, refusal["error_type"]), (422, "validation"), field)
        merged = {"ids": ["a1", "a2"], "weights": [0.5, 0.5], "merge_strategy": "linear"}
        of_merged = lambda **more: self.server.post(  # noqa: E731
            "/generate", {"inputs": "x", "parameters": {"merged_adapters": {**merged, **more}, "max_new_tokens": 6}})
        self.assertEqual(of_merged()[0], 200)
        self.assertEqual(of_merged(density=0.2, majority_sign_method="frequency"), of_merged(), "linear has no use for them")

    def test_merges(self):
        """LoRAX's strategies, and our own form of the same merge."""
        lora = [{"name": "a1", "scale": 0.5}, {"name": "a2", "scale": 2}]
        def text(**merge):
            status, answer = self.text(lora=lora, merge=merge)
            self.assertEqual(status, 200, answer)
            return answer["choices"][0]["text"]
        def lorax(**more):
            merged = {"ids": ["a1", "a2"], "weights": [0.5, 2], **more}
            return self.server.post("/generate", {"inputs": "hello", "parameters": {
                "merged_adapters": merged, "max_new_tokens": 6, "ignore_eos_token": True}})
        seen = set()
        for method, more in (("linear", {}), ("ties", {}), ("ties", {"majority_sign_method": "frequency"}), ("dare_linear", {}),
                             ("dare_linear", {"seed": 7}), ("dare_ties", {"seed": 7}), ("magnitude_prune", {})):
            given = more if method == "linear" else {"density": 0.5, **more}
            wanted = text(method=method, **given)
            status, answer = lorax(merge_strategy=method, **given)
            self.assertEqual((status, answer.get("generated_text")), (200, wanted), answer)
            seen.add(wanted)
        self.assertGreater(len(seen), 4)
        self.assertEqual(text(method="linear"), self.text(lora=lora)[1]["choices"][0]["text"])
        for more, word in (({"merge_strategy": "ties"}, "density"), ({"merge_strategy": "ties", "density": 0}, "density"),
                           ({"merge_strategy": "slerp", "density": 0.5}, "slerp"), ({"merge_strategy": "ties_svd", "density": 0.5}, "ties_svd"),
                           ({"merge_strategy": "ties", "density": 0.5, "ids": ["a1"], "weights": [1]}, "two adapters"),
                           ({"merge_strategy": "ties", "density": 0.5, "majority_sign_method": "most"}, "most")):
            status, refusal = lorax(**more)
            self.assertGreaterEqual(status, 400, more)
            self.assertLess(status, 500, more)
            self.assertIn(word, refusal["error"], more)
        for more, word in (({"merge": {"method": "ties", "density": 0.5}}, "lora"), ({"lora": lora, "merge": "ties"}, "an object"),
                           ({"lora": lora, "merge": {"density": 0.5}}, "method is missing"),
                           ({"lora": lora, "merge": {"method": "ties", "density": 0.5, "seed": 1}}, "draws nothing"),
                           ({"lora": lora[:1], "merge": {"method": "ties", "density": 0.5}}, "two adapters"),
                           ({"lora": lora, "merge": {"method": "ties", "density": 2}}, "expected 0 to 1")):
            status, refusal = self.text(**more)
            self.assertEqual(status, 400, more)
            self.assertIn(word, refusal["error"]["message"], more)

    def test_default_scales(self):
        """llama.cpp's /lora-adapters: what acts where a request names no adapter."""
        path = "/lora-adapters"
        lora = [{"name": "a2", "scale": 0.5}, {"name": "a3", "scale": -1}]
        wanted, plain = self.text(lora=lora)[1]["choices"], self.text()[1]["choices"]
        self.assertNotEqual(wanted, plain)
        shown = json.loads(self.server.admin(path, None, "GET")[2])
        self.assertEqual([a["scale"] for a in shown], [0] * len(shown))
        ids = {a["path"]: a["id"] for a in shown}
        self.assertEqual(len(set(ids.values())), len(shown))
        scales = [{"id": ids["a2"], "scale": 0.5}, {"id": ids["a3"], "scale": -1}, {"id": ids["a0"]}]
        self.assertEqual(json.loads(self.server.admin(path, scales)[2]), {"success": True})
        shown = {a["path"]: a["scale"] for a in json.loads(self.server.admin(path, None, "GET")[2])}
        self.assertEqual((shown["a2"], shown["a3"], shown["a0"]), (0.5, -1, 0))
        self.assertEqual(self.text()[1]["choices"], wanted)
        self.assertEqual(self.text(model="tiny")[1]["choices"], wanted)
        self.assertEqual(self.text(model="base")[1]["choices"], plain, "this name has none")
        self.assertNotEqual(self.text(model="a1")[1]["choices"], wanted)
        for wrong, word in (([{"id": 10 ** 6}], "1000000"), ([{"scale": 1}], "id"), ({"id": 0}, "array"), ([1], "number"),
                            ([{"id": 0}] * 2, "twice"), ([{"id": 0, "weight": 1}], "weight")):
            status, _, body = self.server.admin(path, wrong)
            self.assertEqual((status, word in body), (400, True), body)
        self.assertEqual(self.text()[1]["choices"], wanted, "what is refused changes nothing")
        self.assertEqual(self.server.admin(path, [])[0], 200)
        self.assertEqual(self.text()[1]["choices"], plain)
        self.assertEqual([self.server.request(m, path, b)[0] for m, b in (("GET", None), ("POST", []))], [401] * 2)

    def test_tokens(self):
        tokens = self.server.post("/tokenize", {"prompt": "hello", "return_token_strs": True})[1]
        self.assertEqual((tokens["count"], tokens["max_model_len"], tokens["token_strs"]), (5, 2048, list("hello")))
        chat = self.server.post("/tokenize", {"messages": CHAT["messages"]})[1]
        self.assertEqual(self.server.post("/detokenize", {"tokens": chat["tokens"]})[1]["prompt"],
                         "<|user|>hello<|end|><|assistant|>")
        lorax = self.server.post("/tokenize", {"inputs": "hi"})[1]
        self.assertEqual([(t["text"], t["start"], t["stop"]) for t in lorax], [("h", 0, 1), ("i", 1, 2)])
        self.refused("/detokenize", {"tokens": [99999]}, 400, "99999")

    def test_tokens_of_an_adapter_with_a_tokenizer_of_its_own(self):
        """All fields that say which adapter do so here, too; what has no meaning is refused by name."""
        own = self.server.folder / "adapters" / "reversed"
        shutil.copytree(self.server.folder / "adapters" / "a0", own)
        vocabulary = TINY.vocabulary()
        letters = vocabulary[:256][::-1] + vocabulary[256:]
        (own / "tokenizer.json").write_text(json.dumps(byte_tokenizer(letters, SPECIAL)))
        tokens = [letters.index(c) for c in "hello"]
        self.assertNotEqual(tokens, [vocabulary.index(c) for c in "hello"])
        for which in ({"model": "reversed"}, {"adapter_id": "reversed"}, {"adapter_id": "reversed", "adapter_source": "local"},
                      {"lora": [{"name": "reversed", "scale": 0.5}, {"name": "a1"}]}):
            self.assertEqual(self.server.post("/tokenize", {"prompt": "hello", **which})[1]["tokens"], tokens, which)
            self.assertEqual(self.server.post("/detokenize", {"tokens": tokens, **which}), (200, {"prompt": "hello"}), which)
        for parameters in ({"adapter_id": "reversed"}, {"merged_adapters": {"ids": ["reversed", "a1"]}}):
            lorax = self.server.post("/tokenize", {"inputs": "hello", "parameters": parameters})[1]
            self.assertEqual([t["id"] for t in lorax], tokens, parameters)
        for fields, status, word in (({"model": "none"}, 404, "none"), ({"lora": [{"name": "none"}]}, 404, "none"), ({"temperature": 1}, 400, "temperature"),
                                     ({"adapter_source": "hub"}, 400, "--adapter-source"), ({"api_token": "t"}, 400, "--adapter-source"),
                                     ({"merge": {"method": "ties", "density": 0.5}}, 400, "lora")):
            self.refused("/tokenize", {"prompt": "hello", **fields}, status, word)
            self.refused("/detokenize", {"tokens": tokens, **fields}, status, word)
        for field, value in (("add_generation_prompt", False), ("chat_template_kwargs", {"a": 1}), ("tools", [{"type": "function"}])):
            self.refused("/tokenize", {"prompt": "hello", field: value}, 400, field)
        for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": tokens})):
            self.assertEqual(self.server.request("POST", path, {**body, "user": "u"})[1]["X-Heddle-Ignored"], "user")

    def test_facts(self):
        get = self.server.request
        self.assertEqual([get("GET", p)[0] for p in ("/health", "/ping", "/startup", "/version", "/info", "/metrics")], [200] * 6)
        self.assertEqual(json.loads(get("GET", "/info")[2])["model_device_type"], DEVICE)
        self.text()
        self.assertGreater(self.server.metric("vllm:request_queue_time_seconds_count"), 0)
        self.assertLess(self.server.metric("vllm:request_queue_time_seconds_sum"), 60)
        models = {m["id"]: m for m in json.loads(get("GET", "/v1/models")[2])["data"]}
        self.assertEqual(set(models), {"tiny", "a0", "a1", "a2", "a3"})
        self.assertEqual((models["tiny"]["parent"], models["a1"]["parent"], models["a1"]["max_model_len"]), (None, "tiny", 2048))
        self.assertEqual(json.loads(get("GET", "/v1/models/a1")[2])["id"], "a1")
        self.assertEqual([get("GET", p)[0] for p in ("/v1/models/none", "/nothing", "/v1/chat/completions")], [404, 404, 405])

    def test_keep_alive(self):
        connection = self.server.connect()
        for _ in range(3):
            status, headers, _ = self.server.request("POST", "/v1/completions", TEXT, connection=connection)
            self.assertEqual(status, 200)
            self.assertNotEqual(headers.get("Connection"), "close")
        connection.close()

    def test_adapters_come_and_go(self):
        plain = self.text(model="a1")[1]["choices"][0]["text"]
        load = {"lora_name": "mine", "lora_path": "a1"}
        status, _, text = self.server.admin("/v1/load_lora_adapter", load)
        self.assertEqual((status, text.split("\n")[0]), (200, "Success: LoRA adapter 'mine' added successfully."))
        self.assertEqual(self.text(model="mine")[1]["choices"][0]["text"], plain)
        status, _, body = self.server.admin("/v1/load_lora_adapter", load)
        self.assertEqual((status, json.loads(body)["error"]["type"]), (400, "InvalidUserInput"))
        self.assertEqual(self.server.admin("/v1/load_lora_adapter", {**load, "lora_path": "a2", "load_inplace": True})[0], 200)
        self.assertNotEqual(self.text(model="mine")[1]["choices"][0]["text"], plain)
        self.assertEqual(self.server.admin("/v1/unload_lora_adapter", {"lora_name": "mine"})[0], 200)
        self.assertEqual(self.text(model="mine")[0], 404)
        status, _, body = self.server.admin("/v1/unload_lora_adapter", {"lora_name": "mine"})
        self.assertEqual((status, json.loads(body)["error"]["type"]), (404, "NotFoundError"))
        self.assertEqual(json.loads(self.server.admin("/v1/loras", load)[2])["status"], "success")
        self.assertEqual(self.server.admin("/v1/loras/mine", None, "DELETE")[0], 200)
        for lacking in ({"lora_name": "x"}, {"lora_path": "a1"}):
            self.assertEqual(self.server.admin("/v1/load_lora_adapter", lacking)[0], 400)
        wrong_key = {"Authorization": "Bearer " + ADMIN_KEY[:-1]}
        self.assertEqual(self.server.request("POST", "/v1/load_lora_adapter", load, wrong_key)[0], 401)


class Configuration(unittest.TestCase):
    def test_file_environment_and_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "config.toml"
            config.write_text('served-model-name = ["one", "two"]\nmax-n = 3\nignore-unknown-fields = true\nmax-prompts = 5\n')
            os.environ["HEDDLE_SERVE_MAX_STOP_STRINGS"] = "2"
            self.addCleanup(os.environ.pop, "HEDDLE_SERVE_MAX_STOP_STRINGS")
            server = Server(folder, "--config", config, "--max-prompts", 2)
            self.addCleanup(server.stop)

            def status(**fields):
                return server.post("/v1/completions", {**TEXT, "max_tokens": 1, **fields})[0]

            self.assertEqual([status(model="one"), status(model="two"), status(model="three")], [200, 200, 404])
            self.assertEqual([status(n=3), status(n=4), status(unknown=1)], [200, 400, 200], "of the file")
            self.assertEqual([status(stop=["x", "y"]), status(stop=["x"] * 3)], [200, 400], "of the environment")
            self.assertEqual([status(prompt=["x"] * 2), status(prompt=["x"] * 3)], [200, 400], "an argument goes before the file")

    def test_an_empty_value_takes_no_other_argument_for_its_value(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "config.toml"
            config.write_text('lora-root = ""\nport = 0\n')
            for arguments in (["--config", config], ["--lora-root=", "--port", "0"]):
                done = subprocess.run([HEDDLE, "serve", *map(str, arguments)], capture_output=True, text=True, timeout=30)
                self.assertEqual(done.returncode, 2)
                self.assertIn("--lora-root: is empty, expected DIR", done.stderr)


class Keys(Case):
    keys = "first-key\nsecond-key\n"
    options = ("--ignore-unknown-fields", "--allow-request-templates", "--cors-origin", "https://ok.example", "--log-json")

    def test_keys(self):
        for key, status in (("first-key", 200), ("second-key", 200), (ADMIN_KEY, 200), ("third-key", 401), ("", 401)):
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            self.assertEqual(self.server.request("POST", "/v1/completions", TEXT, headers)[0], status, key)
        self.assertEqual(self.server.request("GET", "/v1/models")[0], 401)
        self.assertEqual([self.server.request("GET", p)[0] for p in ("/health", "/ping", "/version")], [200] * 3)

    def test_unknown_fields_are_ignored_when_asked_for(self):
        key = {"Authorization": "Bearer first-key"}
        self.assertEqual(self.server.request("POST", "/v1/completions", {**TEXT, "unknown": 1}, key)[0], 200)
        self.assertEqual(self.server.request("POST", "/v1/completions", {**TEXT, "suffix": "x"}, key)[0], 400, "known, not done")

    def test_templates_of_requests(self):
        def chat(source, **fields):
            body = {**CHAT, "chat_template": source, "return_token_ids": True, **fields}
            status, _, text = self.server.request("POST", "/v1/chat/completions", body, {"Authorization": "Bearer first-key"})
            return status, json.loads(text)

        status, answer = chat("{% for m in messages %}[{{ m.content }}]{% endfor %}")
        self.assertEqual(status, 200)
        ids = answer["choices"][0]["prompt_token_ids"]
        self.assertEqual("".join(chr(i + 33) for i in ids), "[hello]")
        for source, word in (("{% for", "chat_template"), ("{{ x.__class__ }}", "chat_template"),
                             ("{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}", "chat_template"),
                             (7, "expected a text")):
            status, answer = chat(source)
            self.assertEqual((status, word in answer["error"]["message"]), (400, True), answer)
        long = {"messages": [{"role": "user", "content": "x" * 200_000}]}
        self.assertEqual(chat("{{ messages[0].content[:4] }}", **long)[0], 200, "a long body is read by the worker")

    def test_cross_origin(self):
        ok = {"Origin": "https://ok.example", "Authorization": "Bearer first-key"}
        status, headers, _ = self.server.request("GET", "/v1/models", None, ok)
        self.assertEqual((status, headers["Access-Control-Allow-Origin"]), (200, "https://ok.example"))
        for fields in ({}, {"stream": True}, {"temperature": -1}):
            headers = self.server.request("POST", "/v1/completions", {**TEXT, **fields}, ok)[1]
            self.assertEqual(headers["Access-Control-Allow-Origin"], "https://ok.example", fields)
        status, headers, _ = self.server.request("OPTIONS", "/v1/completions", None, {"Origin": "https://ok.example"})
        self.assertEqual((status, "POST" in headers["Access-Control-Allow-Methods"]), (204, True))
        self.assertEqual(self.server.request("GET", "/v1/models", None, {**ok, "Origin": "https://other.example"})[0], 403)

    def test_log_lines_are_json_without_texts_and_keys(self):
        body = {**TEXT, "prompt": "a text that nobody logs"}
        self.server.request("POST", "/v1/completions", body, {"Authorization": "Bearer second-key"})
        text = self.server.log.read_text()
        lines = [json.loads(line) for line in text.splitlines()]
        self.assertTrue(any(line.get("route") == "/v1/completions" and line["status"] == 200 for line in lines))
        for secret in ("nobody logs", "second-key", ADMIN_KEY):
            self.assertNotIn(secret, text)


if __name__ == "__main__":
    main()
