"""Answers of `heddle serve` that must be JSON by a schema, match a pattern, be one of several texts or follow a grammar: the fields of OpenAI, vLLM,
SGLang, llama.cpp and LoRAX, in chat, completions and LoRAX's routes, whole and streamed, next to others in one batch.

A random model answers at temperature 1.5: what it says has its format by the grammar alone.
"""
import concurrent.futures
import json
import re

from serve_case import Case, events, main

SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "pattern": "^[a-z]{0,8}$"}, "n": {"type": "integer", "minimum": 1, "maximum": 9}},
          "required": ["name", "n"], "additionalProperties": False}
NAMED = {"name": "thing", "strict": True, "schema": SCHEMA}
GBNF = 'root ::= "a" [0-9] [0-9] | "b"'
LARK = 'start: "a" /[0-9]/ /[0-9]/ | "b"'
TAG = {"format": {"type": "tag", "begin": "<n>", "content": {"type": "json_schema", "json_schema": {"enum": [1, 2]}}, "end": "</n>"}}
OLD_TAG = {"structures": [{"begin": "<n>", "schema": {"enum": [1, 2]}, "end": "</n>"}], "triggers": ["<n>"]}
HOT = {"temperature": 1.5, "max_tokens": 200}
CHAT = {"messages": [{"role": "user", "content": "hello"}], **HOT}
TEXT = {"prompt": "hello", **HOT}
LORAX = "/generate"


def is_thing(text):
    value = json.loads(text)
    return value.keys() == {"name", "n"} and isinstance(value["name"], str) and len(value["name"]) <= 8 and value["n"] in range(1, 10)


def matches(pattern):
    return lambda text: re.fullmatch(pattern, text) is not None


IS_JSON = lambda text: isinstance(json.loads(text), dict)
IS_TAG = matches("<n>[12]</n>")
# What each field asks for, and whether an answer is that.
FORMATS = {
    "json_schema": ({"response_format": {"type": "json_schema", "json_schema": NAMED}}, is_thing),
    "json_schema of llama.cpp": ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, is_thing),
    "json_object with a schema": ({"response_format": {"type": "json_object", "schema": SCHEMA}}, is_thing),
    "structured_outputs.json": ({"structured_outputs": {"json": SCHEMA}}, is_thing),
    "structured_outputs.json as text": ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, is_thing),
    "structured_outputs.regex": ({"structured_outputs": {"regex": "[ab]{3}c?"}}, matches("[ab]{3}c?")),
    "structured_outputs.choice": ({"structured_outputs": {"choice": ["teal", "ochre"]}}, matches("teal|ochre")),
    "structured_outputs.grammar": ({"structured_outputs": {"grammar": GBNF}}, matches("a[0-9][0-9]|b")),
    "structured_outputs.grammar in Lark": ({"structured_outputs": {"grammar": LARK}}, matches("a[0-9][0-9]|b")),
    "structured_outputs.structural_tag": ({"structured_outputs": {"structural_tag": json.dumps(TAG)}}, IS_TAG),
    "guided_json": ({"guided_json": SCHEMA}, is_thing),
    "guided_regex": ({"guided_regex": "[ab]{3}c?"}, matches("[ab]{3}c?")),
    "guided_choice": ({"guided_choice": ["teal", "ochre"]}, matches("teal|ochre")),
    "guided_grammar": ({"guided_grammar": GBNF}, matches("a[0-9][0-9]|b")),
    "regex": ({"regex": "[ab]{3}c?"}, matches("[ab]{3}c?")),
    "ebnf": ({"ebnf": GBNF}, matches("a[0-9][0-9]|b")),
    "json_schema of SGLang": ({"json_schema": json.dumps(SCHEMA)}, is_thing),
    "json_schema alone": ({"json_schema": SCHEMA}, is_thing),
    "grammar": ({"grammar": GBNF}, matches("a[0-9][0-9]|b")),
    "structural_tag": ({"response_format": {"type": "structural_tag", **TAG}}, IS_TAG),
}


class Structured(Case):
    options = ("--max-batch", 32)

    def answer(self, path, body):
        """(text, finish_reason) of a request."""
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        choice = answer["choices"][0]
        return choice["message"]["content"] if "message" in choice else choice["text"], choice["finish_reason"]

    def streamed(self, path, body):
        status, _, text = self.server.request("POST", path, {**body, "stream": True})
        self.assertEqual(status, 200, text)
        choices = [json.loads(m)["choices"][0] for m in events(text)[:-1]]
        pieces = [c["delta"].get("content", "") if "delta" in c else c["text"] for c in choices]
        return "".join(pieces), choices[-1]["finish_reason"]

    def refused(self, body, param, *says, path="/v1/chat/completions"):
        base = TEXT if path == "/v1/completions" else CHAT
        status, answer = self.server.post(path, {**base, **body})
        self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
        for part in says:
            self.assertIn(part, answer["error"]["message"])

    def test_every_field_holds_its_answers(self):
        for name, (fields, is_right) in FORMATS.items():
            for path, base in (("/v1/chat/completions", CHAT), ("/v1/completions", TEXT)):
                with self.subTest(field=name, path=path):
                    for seed in range(4):
                        body = {**base, **fields, "seed": seed}
                        text, reason = self.answer(path, body)
                        self.assertEqual(reason, "stop", text)
                        self.assertTrue(is_right(text), text)
                    self.assertEqual(self.streamed(path, body), (text, reason))

    def test_json_objects(self):
        numbers = 0
        for seed in range(8):
            text, reason = self.answer("/v1/chat/completions", {**CHAT, "response_format": {"type": "json_object"}, "seed": seed, "max_tokens": 900})
            self.assertTrue(text.startswith("{"), text)
            if reason == "stop":
                numbers += IS_JSON(text)
        self.assertGreater(numbers, 0)

    def test_a_tag_among_text(self):
        """Text is free up to a trigger, which likely tokens bring about."""
        tokens = self.server.post("/tokenize", {"prompt": "<n>"})[1]["tokens"]
        likely = {str(t): 9 for t in tokens}
        text, _ = self.answer("/v1/chat/completions", {**CHAT, "structural_tag": OLD_TAG, "seed": 1, "max_tokens": 200, "logit_bias": likely})
        tags = re.findall("<n>.{0,5}", text[:-8], re.DOTALL)
        self.assertGreater(len(tags), 1, text)
        self.assertTrue(all(re.fullmatch("<n>[12]</n>", tag[:8]) for tag in tags), text)

    def test_text_asks_for_nothing(self):
        plain = self.answer("/v1/chat/completions", {**CHAT, "seed": 3})
        for fields in ({"response_format": {"type": "text"}}, {"grammar": ""}, {"guided_json": None}):
            self.assertEqual(self.answer("/v1/chat/completions", {**CHAT, "seed": 3, **fields}), plain)

    def test_an_answer_that_is_cut_is_the_beginning_of_one(self):
        fields = {"guided_regex": "(abc){40}", "max_tokens": 7}
        self.assertEqual(self.answer("/v1/completions", {**TEXT, **fields}), ("abcabca", "length"))

    def test_several_answers_and_adapters(self):
        body = {**CHAT, "n": 4, "guided_regex": "[a-z]{5}", "model": "a1", "logprobs": True}
        status, answer = self.server.post("/v1/chat/completions", body)
        self.assertEqual(status, 200, answer)
        texts = [c["message"]["content"] for c in answer["choices"]]
        self.assertTrue(all(re.fullmatch("[a-z]{5}", t) for t in texts), texts)
        self.assertGreater(len(set(texts)), 1)
        for choice in answer["choices"]:
            self.assertEqual("".join(t["token"] for t in choice["logprobs"]["content"]), choice["message"]["content"])

    def test_rows_of_a_batch_are_what_they_are_alone(self):
        bodies = [{**CHAT, **fields, "seed": i, "model": ("model", "a0", "a1", "a2")[i % 4]} for i, (fields, _) in enumerate(FORMATS.values())]
        bodies += [{**CHAT, "seed": i} for i in range(4)]
        alone = [self.answer("/v1/chat/completions", body) for body in bodies]
        with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
            together = list(pool.map(lambda body: self.answer("/v1/chat/completions", body), bodies))
        self.assertEqual(together, alone)

    def test_lorax(self):
        for schema in (SCHEMA, json.dumps(SCHEMA)):
            parameters = {"max_new_tokens": 200, "do_sample": True, "temperature": 1.5, "seed": 5,
                          "response_format": {"type": "json_object", "schema": schema}}
            status, answer = self.server.post(LORAX, {"inputs": "hello", "parameters": parameters})
            self.assertEqual(status, 200, answer)
            self.assertTrue(is_thing(answer["generated_text"]), answer)
        status, answer = self.server.post(LORAX, {"inputs": "a", "parameters": {"response_format": {"type": "jsn"}}})
        self.assertEqual((status, answer["error_type"]), (422, "validation"))

    def test_refusals_name_the_field(self):
        self.refused({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "response_format and guided_regex")
        self.refused({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs.regex", "structured_outputs.json and")
        self.refused({"structured_outputs": {}}, "structured_outputs")
        self.refused({"structured_outputs": {"whitespace_pattern": " ", "json": {}}}, "structured_outputs.whitespace_pattern")
        self.refused({"response_format": "json"}, "response_format", path="/v1/completions")
        self.refused({"guided_json": "{"}, "guided_json", "malformed JSON", path="/v1/completions")
        self.refused({"guided_json": {"x": "y" * 300000}}, "guided_json", "262144")
        self.refused({"guided_choice": "a"}, "guided_choice")

    def test_what_the_engine_refuses(self):
        for fields in ({"guided_regex": "a(b"}, {"grammar": "root ::= other"}, {"guided_json": {"type": "nothing"}}, {"structural_tag": {"format": {"type": "x"}}}):
            status, answer = self.server.post("/v1/chat/completions", {**CHAT, **fields})
            self.assertEqual((status, answer["error"]["param"]), (400, next(iter(fields))), (fields, answer))
            status, _, text = self.server.request("POST", "/v1/completions", {**TEXT, **fields, "stream": True})
            self.assertEqual(status, 400, (fields, text))
        self.assert_alive()


if __name__ == "__main__":
    main()
