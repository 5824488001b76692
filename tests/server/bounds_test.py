"""Every field of a request has a bound: what is as large as docs/server.md says is accepted, what is one larger is refused with 400, which
names the field, the bound and the value.

  python3 tests/server/bounds_test.py HEDDLE [TEST...]
"""
import json
import pathlib
import re

from serve_case import Case, main

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
COMPLETE, CHAT, LORAX, TOKENIZE, DETOKENIZE = "/v1/completions", "/v1/chat/completions", "/generate", "/tokenize", "/detokenize"
BODIES = {COMPLETE: {"model": "a0", "prompt": "ab", "max_tokens": 1},
          CHAT: {"model": "a0", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 1},
          RESPONSES: {"model": "a0", "input": "ab", "max_output_tokens": 1, "truncation": "auto"},
          MESSAGES: {"model": "a0", "messages": [{"role": "user", "content": "ab"}], "max_tokens": 1},
          LORAX: {"inputs": "ab"}, TOKENIZE: {"prompt": "ab"}, DETOKENIZE: {"tokens": [1]}}
# A template that does not read documents refuses them.
SHOWS_DOCUMENTS = {"chat_template": "{{ documents | length }}{{ messages[0].content }}"}
TEXT = "x".__mul__


def texts(count):
    return ["x"] * count


def words(count):
    return [chr(ord("a") + i % 26) + str(i) for i in range(count)]


def tokens(count):
    return [i % 250 for i in range(count)]


def biases(count):
    return {str(i): 0 for i in range(count)}


def pairs(size):
    """A JSON object of so many bytes."""
    return {"a": "x" * (size - len('{"a":""}'))}


def adapters(count):
    return [{"name": f"a{i}", "scale": 0.5} for i in range(count)]


# field, what makes a value of a size, the bound; for routes.
SIZES = [
    ("request_id", TEXT, 256, [COMPLETE, CHAT]), ("user", TEXT, 1024, [COMPLETE, CHAT]), ("cache_salt", TEXT, 1024, [COMPLETE, CHAT]),
    ("metadata", pairs, 65536, [COMPLETE, CHAT]), ("stop", texts, 16, [COMPLETE, CHAT]),
    ("stop", TEXT, 1024, [COMPLETE]), ("bad_words", words, 256, [COMPLETE, CHAT]),
    ("logit_bias", biases, 200, [COMPLETE, CHAT]), ("stop_token_ids", tokens, 4096, [COMPLETE, CHAT]),
    ("allowed_token_ids", tokens, 262144, [COMPLETE]), ("lora", adapters, 64, [COMPLETE, CHAT]),
    ("prompt", texts, 128, [COMPLETE]), ("messages", lambda n: [{"role": "user", "content": "a"}] * n, 300, [CHAT]),
    ("documents", lambda n: [{"text": "a"}] * n, 1024, [CHAT]), ("chat_template_kwargs", pairs, 65536, [CHAT]),
    ("chat_template", lambda n: "a{#" + "x" * (n - 5) + "#}", 262144, [CHAT]),
    ("prediction", lambda n: {"type": "content", "content": "x" * (n - len('{"type":"content","content":""}'))}, 262144, [CHAT]),
    ("tokens", tokens, 262144, [DETOKENIZE]),
    ("instructions", TEXT, 262144, [RESPONSES]), ("metadata", pairs, 65536, [RESPONSES]), ("cache_salt", TEXT, 1024, [RESPONSES, MESSAGES]),
    ("input", lambda n: [{"role": "user", "content": "a"}] * n, 300, [RESPONSES]), ("stop_sequences", texts, 16, [MESSAGES]),
    ("messages", lambda n: [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}] * (n // 2) + [
        {"role": "user", "content": "a"}] * (n % 2), 300, [MESSAGES]),
]
# field, the bound of its number, one beyond it, the fields that it needs; for routes.
NUMBERS = [
    ("n", 16, 17, {}, [COMPLETE, CHAT]), ("best_of", 16, 17, {}, [COMPLETE]), ("logprobs", 20, 21, {}, [COMPLETE]),
    ("top_logprobs", 20, 21, {"logprobs": True}, [CHAT]), ("prompt_logprobs", 20, 21, {}, [COMPLETE, CHAT]),
    ("temperature", 1e6, 1e6 + 1, {}, [COMPLETE, CHAT]), ("top_p", 1, 1.001, {}, [COMPLETE, CHAT]),
    ("min_p", 1, 1.001, {}, [COMPLETE, CHAT]), ("top_k", 2**31 - 1, 2**31, {}, [COMPLETE, CHAT]),
    ("presence_penalty", 2, 2.001, {}, [COMPLETE, CHAT]), ("frequency_penalty", 2, 2.001, {}, [COMPLETE, CHAT]),
    ("repetition_penalty", 1e6, 1e6 + 1, {}, [COMPLETE, CHAT]), ("seed", 2**63 - 1, 2**63, {}, [COMPLETE, CHAT]),
    ("min_tokens", 1, 2, {}, [COMPLETE, CHAT]), ("truncate_prompt_tokens", 2**63 - 1, 2**63, {}, [COMPLETE, CHAT]),
]
LORAX_FIELDS = [("stop", texts, 16), ("stop", TEXT, 1024), ("best_of", int, 16), ("return_k_alternatives", int, 20)]
# What holds a name is refused within its bound as well: there is no such adapter.
NAMES = [("model", RESPONSES, {}), ("model", MESSAGES, {}), ("model", COMPLETE, {}), ("adapter_id", COMPLETE, {}), ("model", TOKENIZE, {}), ("adapter_id", DETOKENIZE, {})]


class Bounds(Case):
    options = ("--allow-request-templates", "--max-messages", 300, "--max-logit-bias", 200, "--max-batch", 8)
    num_adapters = 64

    def passes(self, path, body, what):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, (what, str(answer)[:300]))

    def refused(self, path, body, field, *values):
        status, answer = self.server.post(path, body)
        self.assertIn(status, (400, 422), (field, str(answer)[:300]))
        message = answer["error"] if isinstance(answer["error"], str) else answer["error"]["message"]
        self.assertLess(len(message), 400)
        for value in (field, *values):
            self.assertIn(str(value), message)

    def test_sizes(self):
        for field, make, bound, paths in SIZES:
            for path in paths:
                with self.subTest(field=field, path=path):
                    body = {**BODIES[path], **(SHOWS_DOCUMENTS if field == "documents" else {})}
                    self.passes(path, {**body, field: make(bound)}, field)
                    self.refused(path, {**body, field: make(bound + 1)}, field, bound, bound + 1)

    def test_numbers(self):
        for field, bound, beyond, more, paths in NUMBERS:
            for path in paths:
                with self.subTest(field=field, path=path):
                    self.passes(path, {**BODIES[path], **more, field: bound}, field)
                    self.refused(path, {**BODIES[path], **more, field: beyond}, field, "expected")

    def test_lorax(self):
        for field, make, bound in LORAX_FIELDS:
            with self.subTest(field=field):
                def body(size):
                    return {"inputs": "ab", "parameters": {"max_new_tokens": 1, field: make(size)}}
                self.passes(LORAX, body(bound), field)
                self.refused(LORAX, body(bound + 1), field, bound, bound + 1)
        weights = [0.5] * 64
        merged = {"ids": [f"a{i}" for i in range(64)], "weights": weights}
        self.passes(LORAX, {"inputs": "ab", "parameters": {"max_new_tokens": 1, "merged_adapters": merged}}, "merged_adapters")
        for field in merged:
            more = {**merged, field: [*merged[field], merged[field][0]]}
            self.refused(LORAX, {"inputs": "ab", "parameters": {"merged_adapters": more}}, field, 64, 65)

    def test_names(self):
        for field, path, more in NAMES:
            with self.subTest(field=field, path=path):
                status, answer = self.server.post(path, {**BODIES[path], **more, field: "x" * 512})
                self.assertEqual(status, 404, answer)
                self.refused(path, {**BODIES[path], **more, field: "x" * 513}, field, 512, 513)
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "n" * 513, "lora_path": "a0"})
        self.assertEqual((status, "lora_name has 513 bytes, at most 512" in text), (400, True), text)
        status, _, text = self.server.admin("/v1/load_lora_adapter", {"lora_name": "n", "lora_path": "p" * 4097})
        self.assertEqual((status, "lora_path has 4097 bytes, at most 4096" in text), (400, True), text)

    def test_entries_of_lists(self):
        self.refused(MESSAGES, {**BODIES[MESSAGES], "stop_sequences": ["a", "x" * 1025]}, "stop_sequences[1]", 1024, 1025)
        for field in ("stop", "bad_words"):
            self.passes(COMPLETE, {**BODIES[COMPLETE], field: ["a", "x" * 1024]}, field)
            self.refused(COMPLETE, {**BODIES[COMPLETE], field: ["a", "x" * 1025]}, f"{field}[1]", 1024, 1025)

    def test_what_has_no_row_is_bounded(self):
        for field, path in (("metadata", COMPLETE), ("stream_options", CHAT), ("unheard_of", COMPLETE)):
            self.refused(path, {**BODIES[path], field: pairs(65537)}, field, 65536, 65537)
        for field in ("response_format", "guided_json", "structural_tag"):
            self.refused(COMPLETE, {**BODIES[COMPLETE], field: pairs(262145)}, field, 262144, 262145)
        for field in ("text", "output_config"):
            path = RESPONSES if field == "text" else MESSAGES
            self.refused(path, {**BODIES[path], field: pairs(262145)}, field, 262144, 262145)
        many = {f"f{i}": 1 for i in range(1025)}
        self.refused(COMPLETE, many, "the request", 1024, 1025)

    def test_copies_of_a_list(self):
        body = {**BODIES[COMPLETE], "prompt": ["ab"] * 4, "allowed_token_ids": tokens(262144)}
        self.passes(COMPLETE, body, "allowed_token_ids")
        body["prompt"].append("ab")
        self.refused(COMPLETE, body, "allowed_token_ids", 262144, "5 prompts", 1048576)

    def test_the_context_bounds_prompts(self):
        for prompt in (tokens(2048), "x" * 2048):
            self.refused(COMPLETE, {**BODIES[COMPLETE], "prompt": prompt}, "the prompt has 2048 tokens", 2048)
            self.passes(COMPLETE, {**BODIES[COMPLETE], "prompt": prompt[1:]}, "prompt")
            self.passes(COMPLETE, {**BODIES[COMPLETE], "prompt": prompt, "truncate_prompt_tokens": 5}, "prompt")

    def test_an_answer_is_bounded_by_its_tokens(self):
        """What is echoed is what the model has seen, whatever came before that."""
        prompt = "".join(chr(ord("a") + i % 26) for i in range(100_000))
        body = {**BODIES[COMPLETE], "prompt": prompt, "truncate_prompt_tokens": 5, "echo": True, "n": 4}
        status, answer = self.server.post(COMPLETE, body)
        self.assertEqual(status, 200, answer)
        for choice in answer["choices"]:
            self.assertTrue(choice["text"].startswith(prompt[-5:]))
            self.assertLess(len(choice["text"]), 20)
        text = self.server.request("POST", COMPLETE, {**body, "n": 1, "stream": True})[2]
        self.assertLess(len(text), 2000)
        self.assertIn(prompt[-5:], text)
        parameters = {"truncate": 5, "return_full_text": True, "max_new_tokens": 1}
        status, answer = self.server.post(LORAX, {"inputs": prompt, "parameters": parameters})
        self.assertEqual((status, answer["generated_text"][:5]), (200, prompt[-5:]))

    def test_the_table_of_the_documentation(self):
        """It has each of these rows, and a row for each field that requests may have."""
        text = (pathlib.Path(__file__).resolve().parents[2] / "docs/server.md").read_text()
        section = text.split("## Bounds\n", 1)[1].split("\n## ", 1)[0]
        table = {name for line in section.splitlines() if line.startswith("|") for name in re.findall(r"`(\w+)`", line.split("|")[1])}
        for field in [row[0] for row in (*SIZES, *NUMBERS, *LORAX_FIELDS, *NAMES)]:
            self.assertIn(field, table)
        numbers = {int(number.replace(",", "")) for number in re.findall(r"\b[\d,]*\d\b", section)}
        for field, _, bound, _ in SIZES:
            if field not in ("messages", "input", "logit_bias"):  # this server has options of its own for these
                self.assertIn(bound, numbers, field)


if __name__ == "__main__":
    main()
