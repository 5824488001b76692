"""`heddle serve` through the clients that people use: the openai package, lorax-client, LangChain, and Prometheus' own parser.

Needs python/requirements-server.txt; without those packages it says so and ends with 77.
"""
import sys

try:
    import lorax
    import openai
    from langchain_openai import ChatOpenAI
    from prometheus_client.parser import text_string_to_metric_families
except ImportError as error:
    print(f"left out: {error}")
    sys.exit(77)

from serve_case import Case, main

CHAT = [{"role": "user", "content": "hello"}]
MORE = {"ignore_eos": True}


class Clients(Case):
    options = ("--served-model-name", "tiny")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = f"http://127.0.0.1:{cls.server.port}"
        cls.openai = openai.OpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0)

    def test_openai_chat(self):
        chat = self.openai.chat.completions
        whole = chat.create(model="a1", messages=CHAT, max_tokens=8, temperature=0, extra_body=MORE)
        self.assertEqual((whole.choices[0].finish_reason, whole.usage.completion_tokens), ("length", 8))
        chunks = list(chat.create(model="a1", messages=CHAT, max_completion_tokens=8, temperature=0, stream=True, extra_body=MORE,
                                  stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens, 8)
        told = chat.create(model="a1", messages=CHAT, max_tokens=4, temperature=0, logprobs=True, top_logprobs=2, extra_body=MORE)
        content = told.choices[0].logprobs.content
        self.assertEqual([len(t.top_logprobs) for t in content], [2] * 4)
        self.assertEqual(b"".join(bytes(t.bytes) for t in content).decode("utf-8", "replace"), told.choices[0].message.content)

    def test_openai_completions(self):
        answer = self.openai.completions.create(model="a2", prompt=["ab", "cd"], max_tokens=5, temperature=0, echo=True, logprobs=1,
                                                extra_body={**MORE, "return_token_ids": True})
        self.assertEqual([c.index for c in answer.choices], [0, 1])
        first = answer.choices[0]
        self.assertTrue(first.text.startswith("ab"))
        self.assertEqual((len(first.logprobs.tokens), len(first.token_ids), len(first.prompt_token_ids)), (7, 5, 2))
        self.assertIsNone(first.logprobs.token_logprobs[0])
        by_ids = self.openai.completions.create(model="a2", prompt=first.prompt_token_ids, max_tokens=5, temperature=0, extra_body=MORE)
        self.assertEqual("ab" + by_ids.choices[0].text, first.text)

    def test_openai_models_and_errors(self):
        self.assertEqual({m.id for m in self.openai.models.list()}, {"tiny", "a0", "a1", "a2", "a3"})
        self.assertEqual(self.openai.models.retrieve("a1").parent, "tiny")
        with self.assertRaises(openai.NotFoundError) as caught:
            self.openai.chat.completions.create(model="none", messages=CHAT)
        self.assertEqual(caught.exception.body["param"], "model")
        with self.assertRaises(openai.BadRequestError):
            self.openai.chat.completions.create(model="a1", messages=CHAT, temperature=-1)
        with self.assertRaises(openai.BadRequestError) as caught:
            list(self.openai.completions.create(model="a1", prompt="x" * 3000, stream=True))
        self.assertIn("3000 tokens", str(caught.exception))

    def test_openai_fields_without_effect(self):
        chat = self.openai.chat.completions
        plain = chat.create(model="a1", messages=CHAT, max_tokens=6, temperature=0, extra_body=MORE)
        raw = chat.with_raw_response.create(
            model="a1", messages=CHAT, max_completion_tokens=6, temperature=0, extra_body=MORE, service_tier="auto", reasoning_effort="low",
            verbosity="low", store=True, metadata={"a": "b"}, prompt_cache_key="k", safety_identifier="s", modalities=["text"], user="u",
            response_format={"type": "text"}, tools=[], functions=[], parallel_tool_calls=True, logit_bias={}, stop=None, seed=None, audio=None)
        self.assertEqual(raw.parse().choices[0].message.content, plain.choices[0].message.content)
        self.assertEqual(set(raw.headers["x-heddle-ignored"].split(", ")),
                         {"service_tier", "reasoning_effort", "verbosity", "store", "metadata", "prompt_cache_key", "safety_identifier", "user"})
        # The client's own message, as agents send it back, and the roles that it has.
        history = [{"role": "developer", "content": "Be brief."}, *CHAT, plain.choices[0].message.model_dump(),
                   {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                   {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "12"}]}]
        self.assertEqual(chat.create(model="a1", messages=history, max_tokens=6, extra_body=MORE).usage.completion_tokens, 6)
        with self.assertRaises(openai.BadRequestError) as caught:
            chat.create(model="a1", messages=CHAT, tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
        self.assertEqual(caught.exception.param, "tools")
        root = openai.OpenAI(base_url=self.url, api_key="none", max_retries=0)  # without /v1
        self.assertEqual(root.completions.create(model="a1", prompt="ab", max_tokens=2, extra_body=MORE).usage.completion_tokens, 2)

    def test_lorax_client(self):
        client = lorax.Client(self.url, timeout=60)
        whole = client.generate("hello", adapter_id="a1", max_new_tokens=8, ignore_eos_token=True)
        self.assertEqual((whole.details.generated_tokens, whole.details.finish_reason), (8, "length"))
        streamed = list(client.generate_stream("hello", adapter_id="a1", max_new_tokens=8, ignore_eos_token=True))
        self.assertEqual([t.token.id for t in streamed], [t.id for t in whole.details.tokens])
        self.assertEqual(streamed[-1].generated_text, whole.generated_text)
        self.assertEqual(client.embed("hello").embeddings, self.openai.embeddings.create(model="tiny", input="hello", encoding_format="float").data[0].embedding)
        with self.assertRaises(Exception) as caught:
            client.generate("hello", adapter_id="none")
        self.assertIn("none", str(caught.exception))

    def test_lorax_merges(self):
        client = lorax.Client(self.url, timeout=60)
        lora = [{"name": "a1", "scale": 0.5}, {"name": "a2", "scale": 2}]
        for method in ("linear", "ties", "dare_linear", "dare_ties"):
            merged = lorax.types.MergedAdapters(ids=["a1", "a2"], weights=[0.5, 2], merge_strategy=method, density=0.5,
                                                majority_sign_method="frequency")
            got = client.generate("hello", merged_adapters=merged, max_new_tokens=8, ignore_eos_token=True)
            elects = {"majority_sign_method": "frequency"} if "ties" in method else {}
            merge = {"method": method} if method == "linear" else {"method": method, "density": 0.5, **elects}
            own = self.openai.completions.create(model="tiny", prompt="hello", max_tokens=8, temperature=0,
                                                 extra_body={**MORE, "lora": lora, "merge": merge})
            self.assertEqual(got.generated_text, own.choices[0].text, method)
        with self.assertRaises(Exception) as caught:
            client.generate("hello", merged_adapters=lorax.types.MergedAdapters(ids=["a1", "a2"], weights=[1, 1], merge_strategy="ties", density=0))
        self.assertIn("density", str(caught.exception))

    def test_langchain(self):
        model = ChatOpenAI(model="a3", base_url=f"{self.url}/v1", api_key="none", max_tokens=8, temperature=0, max_retries=0, seed=1)
        whole = model.invoke("hello").content
        self.assertEqual("".join(part.content for part in model.stream("hello")), whole)
        expected = self.openai.chat.completions.create(model="a3", messages=CHAT, max_tokens=8, temperature=0)
        self.assertEqual(whole, expected.choices[0].message.content)

    def test_prometheus(self):
        self.server.complete("a0")
        families = {f.name: f for f in text_string_to_metric_families(self.server.request("GET", "/metrics")[2])}
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc", "cache_config_info", "lora_requests_info",
                     "prompt_tokens", "generation_tokens", "request_success", "time_to_first_token_seconds",
                     "prefix_cache_queries", "prefix_cache_hits", "num_preemptions",
                     "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
            self.assertIn("vllm:" + name, families)
        self.assertGreaterEqual(families["vllm:generation_tokens"].samples[0].value, 16)
        count = [s.value for s in families["vllm:time_to_first_token_seconds"].samples if s.name.endswith("_count")]
        self.assertGreaterEqual(count[0], 1)
        self.assertEqual(set(families["vllm:lora_requests_info"].samples[0].labels) - {"model_name"},
                         {"max_lora", "running_lora_adapters", "waiting_lora_adapters"})


if __name__ == "__main__":
    main()
