"""What clients of other servers send without thinking: their neutral fields and hints, fields inside messages, headers in any case."""
import json
import pathlib
import re
import unittest

from serve_case import Case, Server, main

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
TEXT = {"prompt": "hello", "max_tokens": 4, "temperature": 0, "ignore_eos": True}
TOOL = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "now", "arguments": "{}"}}
IGNORED = "X-Heddle-Ignored"

# Fields that say how an answer is wished for: accepted, and named as those without effect.
HINTS = {
    "user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "reasoning_effort": "low", "verbosity": "low",
    "prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "s",
    "prediction": {"type": "content", "content": "x"}, "session_id": "s",
    "spaces_between_special_tokens": True, "stream_interval": 4, "guided_decoding_backend": "xgrammar", "cache_prompt": True, "n_keep": 2,
    "id_slot": -1, "xtc_threshold": 0.1, "mirostat_tau": 5.0, "keep_alive": "5m",
}
# Values at which a field asks for nothing, and one that is refused.
NEUTRAL = {
    "functions": ([], [TOOL["function"]]), "function_call": ("auto", {"name": "now"}), "modalities": (["text"], ["text", "audio"]),
    "use_beam_search": (False, True), "length_penalty": (1.0, 2.0), "early_stopping": (False, True),
    "truncation_side": ("left", "right"), "logits_processors": ([], ["x"]), "vllm_xargs": ({}, {"a": 1}),
    "mirostat": (0, 2), "typical_p": (1.0, 0.5), "dry_multiplier": (0.0, 0.8), "xtc_probability": (0, 0.5),
    "guided_whitespace_pattern": ("", "[ ]*"),
    "repeat_last_n": (-1, 64), "return_hidden_states": (False, True), "watermarking": (False, True), "stop_regex": ([], ["a+"]),
}
# Refused at any value but null.
REFUSED = {"audio": {"voice": "v"}, "web_search_options": {}, "prompt_embeds": "x"}
KNOWN = ("logit_bias", "stop", "seed", "n", "top_p", "max_tokens", "max_completion_tokens", "truncate_prompt_tokens", "stream_options", "top_logprobs",
         "logprobs", "min_tokens", "bad_words", "chat_template", "documents", "tools", "tool_choice", "allowed_token_ids",
         "parallel_tool_calls", "include_reasoning", "reasoning_format", "thinking_token_budget", "response_format", "structured_outputs", "guided_json", "regex", "grammar")


class Fields(Case):
    options = ("--served-model-name", "tiny")

    def send(self, path, body):
        status, headers, text = self.server.request("POST", path, body)
        return status, {name.lower(): value for name, value in headers.items()}.get(IGNORED.lower()), json.loads(text)

    def chat(self, **fields):
        return self.send("/v1/chat/completions", {**CHAT, **fields})

    def content(self, **fields):
        status, _, answer = self.chat(**fields)
        self.assertEqual(status, 200, answer)
        return answer["choices"][0]["message"]["content"]

    def prompt(self, messages, **fields):
        """What the template makes of the messages."""
        status, _, answer = self.send("/tokenize", {"messages": messages, **fields})
        self.assertEqual(status, 200, answer)
        return self.send("/detokenize", {"tokens": answer["tokens"]})[2]["prompt"]

    def test_hints_are_accepted_and_named(self):
        plain = self.content()
        for path, base in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
            for field, value in HINTS.items():
                status, ignored, answer = self.send(path, {**base, field: value})
                self.assertEqual((status, ignored), (200, field), answer)
        status, ignored, answer = self.chat(**HINTS)
        self.assertEqual((status, set(ignored.split(", "))), (200, set(HINTS)))
        self.assertEqual(answer["choices"][0]["message"]["content"], plain)
        self.assertIsNone(self.chat()[1])

    def test_neutral_values_are_accepted_and_others_refused_by_name(self):
        plain = self.content()
        for field, (value, other) in NEUTRAL.items():
            status, ignored, answer = self.chat(**{field: value})
            self.assertEqual((status, ignored), (200, None), (field, answer))
            self.assertEqual(answer["choices"][0]["message"]["content"], plain, field)
            status, _, answer = self.chat(**{field: other})
            self.assertEqual((status, answer["error"]["param"]), (400, field), answer)
            self.assertTrue(answer["error"]["message"].startswith(field + ": "), answer)
        for field, value in REFUSED.items():
            status, _, answer = self.chat(**{field: value})
            self.assertEqual((status, answer["error"]["param"]), (400, field), answer)

    def test_null_is_not_given(self):
        plain = self.content()
        nulls = dict.fromkeys([*HINTS, *NEUTRAL, *REFUSED, *(k for k in KNOWN if k not in CHAT)])
        status, ignored, answer = self.chat(**nulls)
        self.assertEqual((status, ignored), (200, None), answer)
        self.assertEqual(answer["choices"][0]["message"]["content"], plain)

    def test_every_field_of_the_table_is_documented(self):
        table = (ROOT / "apps/heddle-serve/api/field_table.cpp").read_text()
        names = re.findall(r'(?:hint\(|^    \{)"(\w+)"', table, re.MULTILINE)
        self.assertGreater(len(names), 90)
        self.assertEqual(len(names), len(set(names)))
        documented = set(re.findall(r"`(\w+)", (ROOT / "docs/server.md").read_text()))
        self.assertEqual(set(names) - documented, set())

    def test_what_was_meant(self):
        for field, meant in (("tempratur", "temperature"), ("topP", "top_p"), ("repeat_penalty", "repetition_penalty"), ("n_predict", "max_tokens"),
                             ("max_new_tokens", "max_tokens"), ("num_predict", "max_tokens"), ("stop_sequences", "stop"), ("lora_path", "adapter_id"),
                             ("top_n_tokens", "top_logprobs")):
            status, _, answer = self.chat(**{field: 1})
            self.assertEqual((status, answer["error"]["param"]), (400, field))
            self.assertEqual(answer["error"]["message"], f'unknown field "{field}"; did you mean "{meant}"?')
        for field in ("something", "xy", "transforms"):
            self.assertEqual(self.chat(**{field: 1})[2]["error"]["message"], f'unknown field "{field}"', "nothing is near")

    def test_lengths(self):
        body = {**TEXT, "ignore_eos": True}
        used = lambda **fields: self.send("/v1/completions", {**body, **fields})[2]["usage"]  # noqa: E731
        self.assertEqual(used(max_tokens=4.0)["completion_tokens"], 4, "some languages have no integers")
        self.assertEqual(self.send("/v1/completions", {**body, "max_tokens": 4.5})[0], 400)
        for most in (-1, 100_000):  # to the end of the context
            self.assertEqual(used(max_tokens=most, prompt="x" * 2040)["total_tokens"], 2048)
        self.assertEqual(self.send("/v1/completions", {**body, "max_tokens": -2})[0], 400)
        self.assertEqual(self.chat(max_tokens=7, max_completion_tokens=3)[2]["usage"]["completion_tokens"], 3, "OpenAI's newer name")
        self.assertEqual(self.chat(max_tokens=None, max_completion_tokens=3)[2]["usage"]["completion_tokens"], 3)
        cut = used(prompt="x" * 3000, truncate_prompt_tokens=-1, max_tokens=8)
        self.assertEqual((cut["prompt_tokens"], cut["completion_tokens"]), (2040, 8), "room for the answer is left")
        self.assertEqual(used(prompt="x" * 3000, truncate_prompt_tokens=-1, max_tokens=-1)["prompt_tokens"], 2047)
        self.assertEqual(used(prompt="hello", truncate_prompt_tokens=-1)["prompt_tokens"], 5)

    def test_seed_minus_1_is_any(self):
        answers = {self.content(seed=-1, temperature=5, max_tokens=12) for _ in range(6)}
        self.assertGreater(len(answers), 4)
        self.assertEqual(len({self.content(seed=-2, temperature=5, max_tokens=12) for _ in range(2)}), 1, "others are seeds")

    def test_a_byte_order_mark_is_no_part_of_the_body(self):
        body = json.dumps(TEXT).encode()
        self.assertEqual(self.server.request("POST", "/v1/completions", b"\xef\xbb\xbf" + body)[0], 200)
        self.assertEqual(self.server.request("POST", "/v1/completions", b"\xef\xbb\xbf" * 2 + body)[0], 400)

    def test_top_p_0_is_the_most_likely_token(self):
        self.assertEqual(self.content(top_p=0, temperature=1, seed=3), self.content(temperature=0))

    def test_parts_become_one_text(self):
        parts = [{"type": "text", "text": "a"}, "b", {"type": "input_text", "text": "c"}]
        self.assertEqual(self.prompt([{"role": "user", "content": parts}]), "<|user|>a\nb\nc<|end|><|assistant|>")
        image = {"type": "image_url", "image_url": {"url": "data:"}}
        error = self.chat(messages=[{"role": "user", "content": [parts[0], image]}])[2]["error"]
        self.assertIn('"image_url"', error["message"])

    def test_histories_of_agents(self):
        for content in ({"content": None}, {}, {"content": ""}):
            history = [{"role": "user", "content": "x"}, {"role": "assistant", **content, "tool_calls": [{**CALL, "index": 0}]},
                       {"role": "tool", "tool_call_id": "c1", "content": "12"}]
            self.assertEqual(self.prompt(history), "<|user|>x<|end|><|assistant|><|end|><|tool|>12<|end|><|assistant|>")
        sent_back = {"role": "assistant", "content": "y", "refusal": None, "annotations": [], "audio": None, "function_call": None, "tool_calls": []}
        status, ignored, answer = self.chat(messages=[CHAT["messages"][0], sent_back, {"role": "user", "content": "z"}])
        self.assertEqual((status, ignored), (200, "messages.annotations"), answer)
        self.assertEqual(self.prompt([{"role": "developer", "content": "d"}]), "<|system|>d<|end|><|assistant|>")
        marked = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}
        self.assertEqual(self.chat(messages=[{"role": "user", "content": [marked]}])[:2], (200, "messages.content.cache_control"))
        self.assertEqual(self.chat(messages=[{"role": "user", "content": None}])[0], 400)

    def test_unknown_fields_of_messages_are_refused(self):
        for message, words in (({"role": "user", "content": "x", "id": 1}, "messages[0]"), ({"role": "user", "contents": "x"}, '"content"'),
                               ({"role": "user", "content": [{"type": "text", "text": "x", "lang": "en"}]}, "messages[0].content[0]")):
            status, _, answer = self.chat(messages=[message])
            self.assertEqual((status, words in answer["error"]["message"]), (400, True), answer)
        for options, words in (({"usage": True}, '"usage"'), ({"continuous_usage_stats": True}, "continuous_usage_stats")):
            status, _, answer = self.chat(stream=True, stream_options=options)
            self.assertEqual((status, words in answer["error"]["message"]), (400, True), answer)
        quiet = {"include_usage": False, "continuous_usage_stats": False, "include_obfuscation": False}
        self.assertEqual(self.server.request("POST", "/v1/chat/completions", {**CHAT, "stream": True, "stream_options": quiet})[0], 200)

    def test_tools_need_a_template_that_has_them(self):
        for choice in ("none", "auto", "required"):
            status, _, answer = self.chat(tools=[TOOL], tool_choice=choice)
            self.assertEqual((status, answer["error"]["param"]), (400, "tools"))
            self.assertIn("has no place for tools", answer["error"]["message"])
        status, _, answer = self.chat(documents=[{"title": "t", "text": "x"}])
        self.assertEqual((status, "has no place for documents" in answer["error"]["message"]), (400, True), answer)

    def test_the_answer_goes_on_with_the_last_message(self):
        start = [{"role": "user", "content": "x"}]
        last = lambda content, **more: [*start, {"role": "assistant", "content": content, **more}]  # noqa: E731
        for content in ("", "so", " so ", "x", "  "):
            wanted = f"<|user|>x<|end|><|assistant|>{content}"
            self.assertEqual(self.prompt(last(content), continue_final_message=True), wanted)
            self.assertEqual(self.prompt(last(content), continue_final_message=True, add_generation_prompt=False), wanted)
            self.assertEqual(self.prompt(last(content, prefix=True)), wanted, "Mistral's and DeepSeek's form")
        self.assertEqual(self.prompt(last("so", prefix=False)), "<|user|>x<|end|><|assistant|>so<|end|><|assistant|>")
        for body in ({"messages": last("so", prefix=True), "add_generation_prompt": True},
                     {"messages": last("so"), "continue_final_message": True, "add_generation_prompt": True},
                     {"messages": [{"role": "user", "content": "x", "prefix": True}]}):
            self.assertEqual(self.chat(**body)[0], 400, body)

    def test_names_of_tokens(self):
        odd = list(range(94, 110))  # bytes that are no characters
        body = {**TEXT, "logprobs": 8, "allowed_token_ids": odd, "max_tokens": 3}
        text = self.server.request("POST", "/v1/completions", body)[2]
        twice = []

        def pairs(members):
            names = [name for name, _ in members]
            twice.extend({name for name in names if names.count(name) > 1})
            return dict(members)

        lists = json.loads(text, object_pairs_hook=pairs)["choices"][0]["logprobs"]
        self.assertEqual(twice, [])
        for name, top in zip(lists["tokens"], lists["top_logprobs"], strict=True):
            self.assertRegex(name, r"^bytes:(\\x[0-9a-f]{2})+$")
            self.assertIn(name, top)
            self.assertIn(len(top), (8, 9))
        named = self.send("/v1/completions", {**body, "return_tokens_as_token_ids": True, "return_token_ids": True})[2]["choices"][0]
        self.assertEqual(named["logprobs"]["tokens"], [f"token_id:{i}" for i in named["token_ids"]])
        self.assertTrue(all(re.fullmatch(r"token_id:\d+", name) for top in named["logprobs"]["top_logprobs"] for name in top))
        content = self.chat(logprobs=True, top_logprobs=3, allowed_token_ids=odd)[2]["choices"][0]["logprobs"]["content"]
        self.assertEqual(len({tuple(t["bytes"]) for t in content[0]["top_logprobs"]}), 3, "told apart by their bytes")
        named = self.chat(logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True)[2]["choices"][0]["logprobs"]["content"]
        self.assertRegex(named[0]["token"] + named[0]["top_logprobs"][0]["token"], r"^(token_id:\d+){2}$")

    def test_seeds_of_lorax_are_random(self):
        body = {"inputs": "ab", "parameters": {"do_sample": True, "max_new_tokens": 2, "details": True}}
        seeds = {self.send("/generate", body)[2]["details"]["seed"] for _ in range(8)}
        self.assertEqual(len(seeds), 8, "none is the time")
        status, ignored, _ = self.send("/generate", {"inputs": "ab", "parameters": {"max_new_tokens": 2, "user": "u", "response_format": None}})
        self.assertEqual((status, ignored), (200, "user"))
        self.assertEqual(self.send("/generate", {"inputs": "ab", "parameters": {"response_format": {"type": "jsn"}}})[0], 422)


class UnknownFields(Case):
    options = ("--ignore-unknown-fields",)

    def test_they_are_ignored_everywhere_and_named(self):
        message = {"role": "user", "content": [{"type": "text", "text": "x", "lang": "en"}], "id": 1, "opts": {"visible": True}}
        calls = {"role": "assistant", "tool_calls": [{**CALL, "extra": 1, "function": {**CALL["function"], "strict": True}}]}
        body = {**CHAT, "messages": [message, calls], "stream": True, "surprise": 1,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True, "more": 1}}
        status, headers, text = self.server.request("POST", "/v1/chat/completions", body)
        self.assertEqual(status, 200, text)
        self.assertEqual(set(headers[IGNORED].split(", ")),
                         {"surprise", "stream_options.more", "stream_options.continuous_usage_stats", "messages.id", "messages.opts",
                          "messages.content.lang", "messages.tool_calls.extra", "messages.tool_calls.function.strict"})
        self.assertEqual(self.server.post("/v1/chat/completions", {**CHAT, "suffix": "x"})[0], 400, "known, and not done")

    def test_the_header_is_short_and_plain(self):
        names = {f"x\r\ny{'é' * 100}": 1} | {f"field{i}": i for i in range(1000)}
        status, headers, text = self.server.request("POST", "/v1/completions", {**TEXT, **names})
        self.assertEqual(status, 200, text)
        self.assertLess(len(headers[IGNORED]), 4000)
        self.assertRegex(headers[IGNORED], r"^[\w?, .]+$")


class Headers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import tempfile
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        (folder / "keys").write_text("the-key\n")
        cls.server = Server(folder, "--allowed-host", "Example.org.", "--api-key-file", folder / "keys")
        cls.addClassCleanup(cls.server.stop)

    def status(self, method, path, body=None, **headers):
        """Of a request with these headers and no others; the status and the response's headers."""
        data = b"" if body is None else json.dumps(body).encode()
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        length = f"Content-Length: {len(data)}\r\n" if body is not None else ""
        answer = self.server.raw(f"{method} {path} HTTP/1.1\r\n{head}{length}Connection: close\r\n\r\n".encode() + data).decode()
        lines = answer.split("\r\n\r\n")[0].split("\r\n")
        return int(lines[0].split()[1]), {line.split(": ")[0].lower(): line.split(": ", 1)[1] for line in lines[1:]}

    def complete(self, path="/v1/completions", **headers):
        given = {"Host": "localhost", "Content_Type": "application/json", "Authorization": "Bearer the-key"} | headers
        return self.status("POST", path, TEXT, **given)[0]

    def test_media_types(self):
        for kind in ("application/json", "Application/JSON", "application/json;charset=utf-8", 'APPLICATION/JSON ; charset="UTF-8"', " application/json"):
            self.assertEqual(self.complete(Content_Type=kind), 200, kind)
        for kind in ("text/plain", "application/jsonp", "application/json-patch+json", "json", ""):
            self.assertEqual(self.complete(Content_Type=kind), 415, kind)
        self.assertEqual(self.status("POST", "/v1/completions", TEXT, Host="localhost", Authorization="Bearer the-key")[0], 415, "as in vLLM")

    def test_hosts(self):
        for host in ("LOCALHOST", "LocalHost:8000", "localhost.", "localhost.:80", "EXAMPLE.ORG", "example.org.", "Example.Org:443", "127.0.0.1", "[::1]:80"):
            self.assertEqual(self.complete(Host=host), 200, host)
        for host in ("localhost.evil.org", "evil.org", "example.org.evil", "localhost.."):
            self.assertEqual(self.complete(Host=host), 403, host)
        self.assertEqual(self.complete(Host=""), 400)
        self.assertEqual(self.complete(Origin="HTTP://Localhost"), 200)
        self.assertEqual(self.complete(Origin="http://evil.org"), 403)

    def test_names_of_headers_and_schemes(self):
        for headers in ({"hOST": "localhost", "cONTENT_tYPE": "application/json", "aUTHORIZATION": "bEARER the-key"},
                        {"Host": "localhost", "Content_Type": "application/json", "Authorization": "Bearer  the-key "}):
            self.assertEqual(self.status("POST", "/v1/completions", TEXT, **headers)[0], 200, headers)
        self.assertEqual(self.complete(Authorization="Bearer THE-KEY"), 401, "keys have their case")
        self.assertEqual(self.complete(Authorization="Basic the-key"), 401)

    def test_probes_need_no_host(self):
        for path in ("/health", "/livez", "/readyz", "/ping", "/startup", "/health/", "/livez?verbose"):
            self.assertEqual(self.status("GET", path)[0], 200, path)
            self.assertEqual(self.status("HEAD", path)[0], 200, path)
        self.assertEqual(self.status("GET", "/health", Host="evil.org")[0], 403)
        self.assertEqual(self.status("GET", "/v1/models", Authorization="Bearer the-key")[0], 400)

    def test_methods(self):
        key = {"Host": "localhost", "Authorization": "Bearer the-key"}
        for method, path, allowed in (("GET", "/v1/chat/completions", "POST"), ("HEAD", "/v1/completions", "POST"), ("PUT", "/v1/completions", "POST"),
                                      ("GET", "/generate", "POST"), ("DELETE", "/v1/models", "GET, HEAD"), ("POST", "/health", "GET, HEAD"),
                                      ("POST", "/v1/models/a0", "GET, HEAD"), ("PUT", "/", "GET, HEAD, POST"), ("POST", "/page/page.js", "GET, HEAD")):
            status, headers = self.status(method, path, **key)
            self.assertEqual((status, headers.get("allow")), (405, allowed), (method, path))
        self.assertEqual(self.status("GET", "/nothing", **key)[0], 404)
        status, headers = self.status("OPTIONS", "/v1/completions", Host="localhost")
        self.assertEqual((status, headers["allow"]), (204, "POST, OPTIONS"))
        self.assertEqual(self.status("GET", "/v1/completions", Host="localhost")[0], 401, "who has no key learns nothing of routes")

    def test_paths(self):
        for path in ("/v1/completions/", "/completions", "/completions/", "/v1/completions?api-version=1"):
            self.assertEqual(self.complete(path), 200, path)
        for path in ("/models", "/v1/models/", "/v1/models/a0/"):
            self.assertEqual(self.status("GET", path, Host="localhost", Authorization="Bearer the-key")[0], 200, path)
        self.assertEqual(self.status("POST", "/chat/completions", CHAT, Host="localhost", Authorization="Bearer the-key", Content_Type="application/json")[0], 200)
        self.assertEqual(self.status("GET", "/v1/loras/", Host="localhost", Authorization="Bearer the-key")[0], 401, "the slash opens nothing")


if __name__ == "__main__":
    main()
