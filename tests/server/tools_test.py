"""Calls of tools and thoughts in chat answers of `heddle serve`: fields, answers and streams, by the templates of the model and of its adapters.

A random model would call nothing: the grammar of tool_choice makes it.
"""
import dataclasses
import json
import pathlib
import re
import tempfile
import unittest

from serve_case import Server, events, main
from tiny_model import SPECIAL, TINY, byte_tokenizer, write_all

MARKS = ["[TOOL_CALLS]", "[/THINK]"]  # special tokens of the vocabulary
SHAPE = dataclasses.replace(TINY, words=len(MARKS))
HERMES = """{%- if tools %}<|user|>{%- for t in tools %}{{ t | tojson }}{% endfor %}
{{- "<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <args>}\\n</tool_call>" }}<|end|>{% endif %}
{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|end|>{% endfor %}
{%- if add_generation_prompt %}<|assistant|>{% if thinking %}<think>
{% elif thinking is defined %}<think>

</think>

{% endif %}{% endif %}{# content.split('</think>') #}
{%- if reasoning_effort %}{{ reasoning_effort }}{% endif %}"""
MISTRAL = """{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}
{%- if tools %}{{ tools | tojson }}{{ '[TOOL_CALLS][' if false }}{% endif %}<|assistant|>"""
SILENT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}{{ tools | tojson if tools }}<|assistant|>"


def tool(name, strict=True, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": "A tool.", "parameters": schema, "strict": strict}}


NOW = tool("now", zone={"enum": ["UTC"]})
ADD = tool("add", a={"enum": [1, 2]}, b={"enum": [3]})
SILENTLY = {"chat_template_kwargs": {"thinking": False}}
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 300, "temperature": 1.5, "seed": 7, **SILENTLY}
HISTORY = [{"role": "user", "content": "The time?"},
           {"role": "assistant", "content": None, "tool_calls": [
               {"id": "call_1", "type": "function", "function": {"name": "now", "arguments": '{"zone": "UTC"}'}}]},
           {"role": "tool", "tool_call_id": "call_1", "content": "12:00"}]
CALLED = {"now": [{"zone": "UTC"}], "add": [{"a": 1, "b": 3}, {"a": 2, "b": 3}]}
PATH = "/v1/chat/completions"


def write_models(folder):
    """The model calls tools as Hermes does, adapter a1 as Mistral does, a2 in no form that is known."""
    write_all(folder, 3, SHAPE)
    (folder / "secret.txt").write_text("")
    vocabulary = [MARKS[int(t[6:-1])] if t.startswith("<word ") else t for t in SHAPE.vocabulary()]
    (folder / "model/tokenizer.json").write_text(json.dumps(byte_tokenizer(vocabulary, SPECIAL + MARKS)))
    config = folder / "model/tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": HERMES}))
    (folder / "adapters/a1/chat_template.jinja").write_text(MISTRAL)
    (folder / "adapters/a2/chat_template.jinja").write_text(SILENT)


class Case(unittest.TestCase):
    options = ()

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        write_models(pathlib.Path(temporary.name))
        cls.server = Server(temporary.name, *cls.options)
        cls.addClassCleanup(cls.server.stop)

    def chat(self, **fields):
        status, answer = self.server.post(PATH, {**CHAT, **fields})
        self.assertEqual(status, 200, answer)
        return answer

    def choice(self, **fields):
        return self.chat(**fields)["choices"][0]

    def deltas(self, **fields):
        """The deltas of a stream, and its finish_reason."""
        status, _, text = self.server.request("POST", PATH, {**CHAT, **fields, "stream": True})
        self.assertEqual(status, 200, text)
        messages = events(text)
        self.assertEqual(messages[-1], "[DONE]")
        choices = [json.loads(m)["choices"][0] for m in messages[:-1]]
        self.assertTrue(all(c["finish_reason"] is None for c in choices[:-1]))
        return [c["delta"] for c in choices], choices[-1]["finish_reason"]

    def streamed(self, **fields):
        """The message of a stream as a client puts it together."""
        deltas, reason = self.deltas(**fields)
        self.assertEqual(deltas[0], {"role": "assistant", "content": ""})
        message = {"content": "", "reasoning_content": "", "calls": []}
        for delta in deltas[1:]:
            self.assertLessEqual(len(delta.keys() - {"reasoning"}), 1, delta)
            self.assertEqual(delta.get("reasoning"), delta.get("reasoning_content"))
            for part in ("content", "reasoning_content"):
                message[part] += delta.get(part, "")
            for piece in delta.get("tool_calls", []):
                if "id" in piece:
                    self.assertEqual(piece["index"], len(message["calls"]))
                    self.assertEqual((piece["type"], piece["function"]["arguments"]), ("function", ""))
                    message["calls"].append([piece["function"]["name"], ""])
                else:
                    self.assertEqual(piece.keys(), {"index", "function"})
                    self.assertEqual(piece["function"].keys(), {"arguments"})
                    message["calls"][piece["index"]][1] += piece["function"]["arguments"]
        return message, reason

    def refused(self, param, *says, **fields):
        status, answer = self.server.post(PATH, {**CHAT, **fields})
        self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
        for part in says:
            self.assertIn(part, answer["error"]["message"])

    def assert_same(self, fields):
        """A stream and a whole answer have the same parts; returns the choice."""
        choice = self.choice(**fields)
        message = choice["message"]
        streamed, reason = self.streamed(**fields)
        self.assertEqual(streamed["content"], message["content"] or "")
        self.assertEqual(streamed["reasoning_content"], message.get("reasoning_content", ""))
        self.assertEqual(message.get("reasoning"), message.get("reasoning_content"))
        calls = [[c["function"]["name"], c["function"]["arguments"]] for c in message.get("tool_calls", [])]
        self.assertEqual(streamed["calls"], calls)
        self.assertEqual(reason, choice["finish_reason"])
        return choice

    def assert_calls(self, choice, names=("now", "add")):
        """The answer calls these tools with arguments of their schemas, and says nothing else."""
        calls = choice["message"]["tool_calls"]
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("tool_calls", None))
        self.assertGreater(len(calls), 0)
        self.assertEqual(len({c["id"] for c in calls}), len(calls))
        for call in calls:
            self.assertEqual((call.keys(), call["type"]), ({"id", "type", "function"}, "function"))
            self.assertIn(call["function"]["name"], names)
            self.assertIn(json.loads(call["function"]["arguments"]), CALLED[call["function"]["name"]])


class Tools(Case):
    def test_required_and_named_calls(self):
        for model in ("model", "a0", "a1"):
            for seed in range(4):
                body = {"model": model, "seed": seed, "tools": [NOW, ADD], "parallel_tool_calls": False}
                choice = self.assert_same({**body, "tool_choice": "required"})
                self.assert_calls(choice)
                self.assertEqual(len(choice["message"]["tool_calls"]), 1)
                named = self.assert_same({**body, "tool_choice": {"type": "function", "function": {"name": "add"}}})
                self.assert_calls(named, ["add"])
                ids = r"call_[0-9a-f]{24}" if model != "a1" else "[0-9a-zA-Z]{9}"
                self.assertRegex(named["message"]["tool_calls"][0]["id"], f"^{ids}$")

    def test_several_calls(self):
        for model in ("model", "a1"):
            choice = self.assert_same({"model": model, "tools": [NOW, ADD], "tool_choice": "required", "max_tokens": 900})
            if choice["finish_reason"] != "length":
                self.assert_calls(choice)

    def test_allowed_tools(self):
        allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "now"}}]}}
        for seed in range(4):
            self.assert_calls(self.choice(tools=[NOW, ADD], tool_choice=allowed, seed=seed, parallel_tool_calls=False), ["now"])

    def test_a_choice_of_text(self):
        """Tools that may be called change the prompt, and text that is no call is text."""
        loose = [tool("now", strict=None, zone={"enum": ["UTC"]})]
        auto = self.assert_same({"tools": loose, "max_tokens": 30})
        self.assertEqual(auto, self.choice(tools=loose, tool_choice="auto", max_tokens=30))
        none = self.assert_same({"tools": loose, "tool_choice": "none", "max_tokens": 30})
        self.assertEqual(auto["message"]["content"], none["message"]["content"], "the same prompt")
        self.assertNotIn("tool_calls", auto["message"])
        self.assertNotEqual(self.choice(max_tokens=30)["message"]["content"], none["message"]["content"], "another prompt")

    def test_a_call_that_was_not_parsed(self):
        choice = self.choice(tools=[NOW], tool_choice="required", parse_tool_calls=False, parallel_tool_calls=False)
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertRegex(choice["message"]["content"], r'^<tool_call>\s*{"name": "now", "arguments": {\s*"zone"\s*:\s*"UTC"\s*}}\s*</tool_call>$')

    def test_several_answers_log_probabilities_and_usage(self):
        answer = self.chat(tools=[NOW, ADD], tool_choice="required", parallel_tool_calls=False, n=3, logprobs=True, return_token_ids=True)
        for choice in answer["choices"]:
            self.assert_calls(choice)
            self.assertEqual(len(choice["logprobs"]["content"]), len(choice["token_ids"]))
            self.assertIn('"name"', "".join(t["token"] for t in choice["logprobs"]["content"]), "tokens are those of the model")
        self.assertEqual(answer["usage"]["completion_tokens"], sum(len(c["token_ids"]) for c in answer["choices"]))

    def test_a_format_and_tools(self):
        """The text is what the format says, where no call must be made."""
        for choice in ("none", "auto"):
            answer = self.choice(tools=[NOW], tool_choice=choice, guided_choice=["teal", "ochre"])
            calls = answer["message"].get("tool_calls")
            self.assertTrue(calls or answer["message"]["content"] in ("teal", "ochre"), answer)
        self.assert_calls(self.choice(tools=[NOW], tool_choice="required", guided_choice=["teal"], parallel_tool_calls=False))

    def test_history(self):
        status, answer = self.server.post("/tokenize", {"messages": HISTORY, "tools": [NOW]})
        self.assertEqual(status, 200, answer)
        prompt = self.server.post("/detokenize", {"tokens": answer["tokens"]})[1]["prompt"]
        self.assertIn('{"name": "now", "arguments": {"zone": "UTC"}}', prompt)
        self.assertIn("<|tool|>12:00<|end|>", prompt)
        self.assertIsInstance(self.choice(messages=HISTORY, tools=[NOW], max_tokens=3)["message"]["content"], str)
        for calls in (None, []):
            messages = [{"role": "assistant", "content": "x", "tool_calls": calls}, HISTORY[0]]
            self.assertEqual(self.server.post("/tokenize", {"messages": messages})[0], 200)

    def test_refusals(self):
        function = NOW["function"]
        self.refused("tool_choice", "no tools", tool_choice="required")
        self.refused("tool_choice", "no tools", tool_choice={"type": "function", "function": {"name": "now"}}, tools=[])
        self.refused("tool_choice", '"any"', tool_choice="any", tools=[NOW])
        self.refused("tool_choice.function.name", '"later"', tool_choice={"type": "function", "function": {"name": "later"}}, tools=[NOW])
        self.refused("tool_choice.type", tool_choice={"function": {"name": "now"}}, tools=[NOW])
        self.refused("tools", "string", tools="now")
        self.refused("tools[0].type", '"custom"', tools=[{"type": "custom", "custom": {"name": "x"}}])
        self.refused("tools[1].function.name", "another tool", tools=[NOW, NOW])
        self.refused("tools[0].function.name", tools=[{"type": "function", "function": {**function, "name": ""}}])
        self.refused("tools[0].function.parameters", tools=[{"type": "function", "function": {**function, "parameters": "{}"}}])
        self.refused("tools[0].function.strict", tools=[{"type": "function", "function": {**function, "strict": "yes"}}])
        self.refused("functions", "tools and tool_choice", functions=[function])
        self.refused("tools", "--tool-parser", "tool_choice", tools=[NOW], model="a2")
        self.assertIsInstance(self.choice(tools=[NOW], tool_choice="none", model="a2", max_tokens=3)["message"]["content"], str)
        for neutral in ({"tool_choice": "none"}, {"tool_choice": "auto", "tools": []}, {"function_call": "none"}, {"parallel_tool_calls": True}):
            self.choice(**neutral, max_tokens=2)
        status, answer = self.server.post("/v1/completions", {"prompt": "a", "tools": [NOW]})
        self.assertEqual((status, answer["error"]["param"]), (400, "tools"))


THINKS = {"chat_template_kwargs": {"thinking": True}, "thinking_token_budget": 6}
TEAL = {"guided_choice": ["teal"]}


class Thoughts(Case):
    def test_thoughts_then_a_format(self):
        for fields, is_right in ((TEAL, lambda text: text.strip() == "teal"),
                                 ({"response_format": {"type": "json_object", "schema": NOW["function"]["parameters"]}},
                                  lambda text: json.loads(text) == {"zone": "UTC"})):
            choice = self.assert_same({**THINKS, **fields})
            self.assertEqual(choice["finish_reason"], "stop")
            self.assertTrue(is_right(choice["message"]["content"]), choice)
            self.assertTrue(choice["message"]["reasoning"])
            self.assertNotIn("think>", choice["message"]["content"] + choice["message"].get("reasoning", ""))

    def test_thoughts_then_calls(self):
        choice = self.assert_same({**THINKS, "tools": [NOW], "tool_choice": "required", "parallel_tool_calls": False})
        self.assert_calls(choice)

    def test_how_many_tokens_are_thoughts(self):
        answer = self.chat(**THINKS, **TEAL)
        content, usage = answer["choices"][0]["message"]["content"], answer["usage"]
        thoughts = usage["completion_tokens_details"]["reasoning_tokens"]
        self.assertEqual(usage["completion_tokens"] - thoughts, len(self.choice(**THINKS, **TEAL, separate_reasoning=False)["message"]["content"].split("</think>")[1]))
        self.assertEqual((thoughts, content), (6 + len("</think>"), "teal"))
        self.assertEqual(self.chat(**SILENTLY, **TEAL)["usage"]["completion_tokens_details"]["reasoning_tokens"], 0)

    def test_without_thoughts(self):
        choice = self.assert_same({**SILENTLY, **TEAL, "thinking_token_budget": 5})
        self.assertEqual(choice["message"], {"role": "assistant", "content": "teal"})

    def test_where_thoughts_go(self):
        raw = self.choice(**THINKS, **TEAL, separate_reasoning=False)["message"]
        self.assertRegex(raw["content"], r"(?s)</think>\s*teal$")
        self.assertNotIn("reasoning_content", raw)
        self.assertEqual(self.choice(**THINKS, **TEAL, reasoning_format="none")["message"], raw)
        whole = self.choice(**THINKS, **TEAL, reasoning_format="deepseek")["message"]
        thoughts, text = raw["content"].split("</think>")
        self.assertEqual((thoughts, text.strip()), (whole["reasoning_content"], whole["content"]), "line ends between them are no text")
        hidden = self.choice(**THINKS, **TEAL, include_reasoning=False)["message"]
        self.assertEqual(hidden, {"role": "assistant", "content": whole["content"]})
        deltas, _ = self.deltas(**THINKS, **TEAL, stream_reasoning=False)
        self.assertEqual([d["reasoning"] for d in deltas if "reasoning" in d], [whole["reasoning"]])
        deltas, _ = self.deltas(**THINKS, **TEAL, include_reasoning=False)
        self.assertFalse(any("reasoning" in d for d in deltas))

    def test_thoughts_that_are_cut(self):
        choice = self.assert_same({**THINKS, "thinking_token_budget": -1, "max_tokens": 5})
        self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("length", None))
        self.assertTrue(choice["message"]["reasoning"])

    def test_effort(self):
        def header(**fields):
            return {k.lower(): v for k, v in self.server.request("POST", PATH, {**CHAT, "max_tokens": 1, **fields})[1].items()}.get("x-heddle-ignored")
        self.assertIsNone(header(reasoning_effort="low"))
        self.assertEqual(header(reasoning_effort="low", model="a2"), "reasoning_effort")
        self.assertEqual(self.chat(reasoning_effort="low", max_tokens=1)["usage"]["prompt_tokens"] - self.chat(max_tokens=1)["usage"]["prompt_tokens"], 3)
        kwargs = {"chat_template_kwargs": {"reasoning_effort": "medium"}}
        self.assertEqual(self.chat(reasoning_effort="low", **kwargs, max_tokens=1)["usage"], self.chat(**kwargs, max_tokens=1)["usage"])

    def test_refusals(self):
        self.refused("reasoning_format", '"raw"', reasoning_format="raw")
        self.refused("thinking_token_budget", "no marks of thoughts", thinking_token_budget=5, model="a2")
        for fields in ({"thinking_token_budget": -2}, {"reasoning_effort": 3}, {"include_reasoning": "no"}):
            status, answer = self.server.post(PATH, {**CHAT, **fields})
            self.assertEqual((status, next(iter(fields)) in answer["error"]["message"]), (400, True), answer)


class Parsers(Case):
    options = ("--tool-call-parser", "mistral", "--reasoning-parser", "mistral", "--enable-auto-tool-choice", "--tool-strict-level", "parameter")

    def test_the_operator_goes_before_the_template(self):
        """Marks that are special tokens are no text of the answer, and are found in it."""
        for model in ("model", "a2"):
            choice = self.assert_same({"model": model, "tools": [tool("now", strict=False, zone={"enum": ["UTC"]})], "tool_choice": "required",
                                       "parallel_tool_calls": False})
            self.assert_calls(choice, ["now"])
        raw = self.choice(tools=[NOW], tool_choice="required", parse_tool_calls=False, parallel_tool_calls=False, skip_special_tokens=False)
        self.assertTrue(raw["message"]["content"].startswith("[TOOL_CALLS]"), raw)


class Options(unittest.TestCase):
    def test_unknown_parsers_end_the_start(self):
        with tempfile.TemporaryDirectory() as folder:
            for option in ("--tool-parser", "--reasoning-parser"):
                with self.assertRaises(AssertionError) as failure:
                    Server(folder, option, "nothing", num_adapters=0)
                self.assertIn(f"{option} nothing: expected one of ", str(failure.exception))


if __name__ == "__main__":
    main()
