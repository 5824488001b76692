"""One prompt through several adapters as one request: `each_adapter` of /v1/chat/completions."""
import json
import shutil

from serve_case import Case, events, main

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "the loom"}]
SHORT = {"temperature": 0, "max_tokens": 8, "ignore_eos": True}
NAMES = ("a0", None, "a1", "a0")


class EachAdapter(Case):
    options = ("--served-model-name", "tiny")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.adapters = cls.server.folder / "adapters"

    def ask(self, messages=None, **fields):
        body = {**SHORT, **fields}
        if messages is not None:
            body["messages"] = messages
        return self.server.post(CHAT, body)

    def alone(self, name, messages=HELLO):
        status, answer = self.ask(messages, model=name or "tiny")
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["message"]["content"]

    def refused(self, wanted, field, **fields):
        status, answer = self.ask(**fields)
        self.assertEqual(status, 400, answer)
        self.assertIn(wanted, answer["error"]["message"])
        self.assertEqual(answer["error"]["param"], field)

    def test_answers_are_those_of_each_alone(self):
        status, answer = self.ask(HELLO, each_adapter=NAMES, model="tiny")
        self.assertEqual(status, 200, answer)
        wanted = [self.alone(name) for name in NAMES]
        self.assertEqual(len(set(wanted)), 3, "the answers differ")
        self.assertEqual([choice["message"]["content"] for choice in answer["choices"]], wanted)
        self.assertEqual([(choice["index"], choice["adapter"]) for choice in answer["choices"]], list(enumerate(NAMES)))
        self.assertEqual(answer["usage"]["completion_tokens"], 8 * len(NAMES))
        self.assertEqual(answer["model"], "tiny")
        self.assertIsNone(answer["system_fingerprint"], "each answer has a digest of its own")
        self.assertEqual([bool(choice.get("adapter_digest")) for choice in answer["choices"]], [True, False, True, True])

    def test_a_stream_has_the_answers_by_their_index(self):
        text = self.server.request("POST", CHAT, {**SHORT, "messages": HELLO, "each_adapter": NAMES, "stream": True})[2]
        told = [json.loads(message) for message in events(text) if message != "[DONE]"]
        texts, ends = [""] * len(NAMES), {}
        for choice in (choice for message in told for choice in message["choices"]):
            texts[choice["index"]] += choice["delta"].get("content") or ""
            if choice["finish_reason"]:
                ends[choice["index"]] = (choice["finish_reason"], choice["adapter"])
        self.assertEqual(texts, [self.alone(name) for name in NAMES])
        self.assertEqual(ends, {i: ("length", name) for i, name in enumerate(NAMES)})

    def test_each_may_have_a_conversation_of_its_own(self):
        own = [*HELLO, {"role": "assistant", "content": "weaves"}, {"role": "user", "content": "more"}]
        each = [{"name": "a0", "messages": own}, {"name": None, "messages": own}, "a1"]
        status, answer = self.ask(HELLO, each_adapter=each)
        self.assertEqual(status, 200, answer)
        wanted = [self.alone("a0", own), self.alone(None, own), self.alone("a1")]
        self.assertEqual([choice["message"]["content"] for choice in answer["choices"]], wanted)
        for unused in ([], None):
            self.assertEqual(self.ask(unused, each_adapter=each[:2])[0], 200)

    def test_lists_act_together(self):
        pair = [{"name": "a0", "scale": 0.5}, {"name": "a1"}]
        status, answer = self.ask(HELLO, each_adapter=[pair, {"name": "a2", "scale": 0.25}])
        self.assertEqual(status, 200, answer)
        wanted = [self.ask(HELLO, lora=each)[1]["choices"][0]["message"]["content"] for each in (pair, [{"name": "a2", "scale": 0.25}])]
        self.assertEqual([choice["message"]["content"] for choice in answer["choices"]], wanted)
        self.assertEqual(answer["choices"][0]["adapters"], [{"name": "a0", "scale": 0.5}, {"name": "a1", "scale": 1.0}])

    def test_what_cannot_go_with_it_is_refused(self):
        each = ["a0", "a1"]
        for field, value in (("lora", [{"name": "a0"}]), ("adapter_id", "a0"), ("n", 2), ("echo", True), ("adapter_source", "local")):
            self.refused(f"{field} is given with each_adapter", field, messages=HELLO, each_adapter=each, **{field: value})
        self.refused("model names an adapter", "model", messages=HELLO, each_adapter=each, model="a2")
        self.refused("each_adapter is empty", None, messages=HELLO, each_adapter=[])
        self.refused("each_adapter[1] is number", None, messages=HELLO, each_adapter=["a0", 7])
        self.refused("unknown field", None, messages=HELLO, each_adapter=[{"name": "a0", "weight": 2}])
        self.refused("unknown field", None, each_adapter=[{"name": None, "scale": 2, "messages": HELLO}])
        self.refused("has its own", "messages", messages=HELLO, each_adapter=[{"name": "a0", "messages": HELLO}])
        self.refused("messages is missing", "messages", each_adapter=["a0", {"name": "a1", "messages": HELLO}])
        self.refused("at most 64", "each_adapter", messages=HELLO, each_adapter=["a0"] * 65)
        long = [{"role": "user", "content": "x" * (2 << 20)}]
        self.refused("allowed together", "each_adapter", messages=long, each_adapter=["a0"] * 64)
        status, answer = self.ask(HELLO, each_adapter=["a0", "none-such"])
        self.assertEqual((status, answer["error"]["type"]), (404, "NotFoundError"))
        self.assert_alive()

    def test_an_adapter_that_fails_ends_alone(self):
        broken = self.adapters / "broken"
        shutil.copytree(self.adapters / "a3", broken)
        self.addCleanup(shutil.rmtree, broken)
        (broken / "adapter_model.safetensors").write_bytes(b"no weights")
        body = {**SHORT, "messages": HELLO, "each_adapter": ["a0", "broken", None], "logprobs": True, "return_token_ids": True}
        status, answer = self.server.post(CHAT, body)
        self.assertEqual(status, 200, answer)
        choices = answer["choices"]
        self.assertEqual([choice["finish_reason"] for choice in choices], ["length", "error", "length"])
        self.assertIn("broken", choices[1]["error"])
        self.assertNotIn(str(self.adapters.parent), choices[1]["error"], "no client learns where folders are")
        self.assertEqual([choices[i]["message"]["content"] for i in (0, 2)], [self.alone("a0"), self.alone(None)])
        text = self.server.request("POST", CHAT, {**body, "stream": True})[2]
        ends = {choice["index"]: choice["finish_reason"] for message in events(text) if message != "[DONE]"
                for choice in json.loads(message)["choices"] if choice["finish_reason"]}
        self.assertEqual(ends, {0: "length", 1: "error", 2: "length"})


class Shares(Case):
    """Where adapters share the engine, each row counts against the share of its own."""

    options = ("--fairness", "adapter", "--max-batch", "2", "--max-waiting", "6")

    def test_a_row_is_of_its_adapter(self):
        body = {**SHORT, "messages": HELLO}
        self.assertEqual(self.server.post(CHAT, {**body, "each_adapter": ["a0", "a1", "a2", "a3", None]})[0], 200)
        status, answer = self.server.post(CHAT, {**body, "each_adapter": ["a0"] * 8})
        self.assertEqual(status, 429, answer)
        self.assertIn("of this adapter", answer["error"]["message"])
        tenants = {tenant["name"]: tenant for tenant in json.loads(self.server.request("GET", "/state")[2])["tenants"]}
        self.assertEqual({name: tenant["answer_tokens"] for name, tenant in tenants.items()}, dict.fromkeys(("a0", "a1", "a2", "a3", "base"), 8))


if __name__ == "__main__":
    main()
