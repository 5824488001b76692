"""Anthropic's Messages API: answers and streams of them, counts of tokens, the form of errors, and what is refused.

  python3 tests/server/messages_test.py HEDDLE [TEST...]
"""
import json

from serve_case import Case, ConversationCase, main
from tools_test import write_models

PATH, COUNT = "/v1/messages", "/v1/messages/count_tokens"
USER = [{"role": "user", "content": "hello"}]
ASK = {"messages": USER, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
VERSION = {"anthropic-version": "2023-06-01"}


def text_of(answer):
    return "".join(block["text"] for block in answer["content"] if block["type"] == "text")


class Asking(ConversationCase):
    def ask(self, status=200, path=PATH, **fields):
        body = {**ASK, **fields}
        got, answer = self.server.post(path, {name: value for name, value in body.items() if value is not ...}, headers=VERSION)
        self.assertEqual(got, status, answer)
        return answer

    def stream(self, **fields):
        told = self.named_events(PATH, {**ASK, "stream": True, **fields}, VERSION)
        return told

    def assert_refused(self, status, kind, what, answer):
        self.assertEqual((answer["type"], answer["error"]["type"]), ("error", kind), answer)
        self.assertIn(what, answer["error"]["message"])
        self.assertEqual(status, {"invalid_request_error": 400, "not_found_error": 404, "authentication_error": 401,
                                  "request_too_large": 413, "permission_error": 403}[kind])


class Messages(Asking):
    def test_an_answer_is_that_of_a_chat_completion(self):
        for model in ("base", "a0", "a1"):
            chat = self.chat(USER, model=model)
            answer = self.ask(model=model)
            self.assertEqual(text_of(answer), chat["choices"][0]["message"]["content"])
            self.assertEqual((answer["type"], answer["role"], answer["model"]), ("message", "assistant", model))
            self.assertEqual((answer["stop_reason"], answer["stop_sequence"]), ("max_tokens", None))
            usage = answer["usage"]
            self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], chat["usage"]["prompt_tokens"])
            self.assertEqual(usage["output_tokens"], 6)
        self.assertTrue(answer["id"].startswith("msg_"))

    def test_system_and_blocks_are_the_messages(self):
        chat = self.chat([{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                          {"role": "user", "content": "c"}])
        blocks = [{"role": "user", "content": [{"type": "text", "text": "a"}]},
                  {"role": "assistant", "content": [{"type": "text", "text": "b", "citations": None}]}, {"role": "user", "content": "c"}]
        for system in ("S", [{"type": "text", "text": "S"}]):
            self.assertEqual(text_of(self.ask(system=system, messages=blocks)), chat["choices"][0]["message"]["content"])

    def test_an_answer_goes_on_with_the_last_message(self):
        begun = [*USER, {"role": "assistant", "content": "I th"}]
        chat = self.chat(begun, continue_final_message=True, add_generation_prompt=False)
        self.assertEqual(text_of(self.ask(messages=begun)), chat["choices"][0]["message"]["content"])

    def test_a_stream_has_the_answer_in_order(self):
        whole, told = self.ask(), self.stream()
        kinds = [name for i, name in enumerate(event["type"] for event in told) if i == 0 or told[i - 1]["type"] != name]
        self.assertEqual(kinds, ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta",
                                 "message_stop"])
        start, delta = told[0]["message"], told[-2]
        self.assertEqual(start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"], 8)
        self.assertEqual((start["content"], start["stop_reason"]), ([], None))
        self.assertEqual("".join(event["delta"]["text"] for event in told if event["type"] == "content_block_delta"), text_of(whole))
        self.assertEqual(delta["delta"], {"stop_reason": "max_tokens", "stop_sequence": None})
        self.assertEqual(delta["usage"]["output_tokens"], 6)

    def test_why_an_answer_ends(self):
        text = text_of(self.ask(max_tokens=12))
        stop = next(c for i, c in enumerate(text) if i >= 3 and c not in text[:i])
        told = self.stream(max_tokens=12, stop_sequences=["none of it", stop])
        for end in (self.ask(max_tokens=12, stop_sequences=["none of it", stop]), told[-2]["delta"]):
            self.assertEqual((end["stop_reason"], end["stop_sequence"]), ("stop_sequence", stop))
        ids = self.chat(USER, return_token_ids=True)["choices"][0]["token_ids"]
        answer = self.ask(stop_token_ids=[ids[2]])
        self.assertEqual((answer["stop_reason"], answer["stop_sequence"]), ("end_turn", None))
        long = [{"role": "user", "content": "x" * 2030}]
        answer = self.ask(messages=long, max_tokens=1000)
        self.assertEqual(answer["stop_reason"], "model_context_window_exceeded")

    def test_counts_are_those_of_the_answers(self):
        for fields in ({}, {"system": "Be brief."}, {"model": "a1"}, {"messages": [*USER, {"role": "assistant", "content": "b"}]}):
            usage = self.ask(**fields)["usage"]
            counted = self.ask(path=COUNT, max_tokens=..., temperature=..., **fields)
            self.assertEqual(counted, {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]})
        self.assert_refused(400, "invalid_request_error", "max_tokens", self.ask(400, COUNT))

    def test_what_has_no_effect_is_named(self):
        marked = [{"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}]
        status, headers, text = self.server.request(
            "POST", PATH + "?beta=true", {**ASK, "metadata": {"user_id": "u"}, "service_tier": "auto", "messages": marked}, VERSION)
        self.assertEqual(status, 200, text)
        self.assertEqual(set(headers["X-Heddle-Ignored"].split(", ")), {"metadata", "service_tier", "messages.content.cache_control"})
        self.assertTrue(headers["Request-Id"].startswith("req_"))

    def test_what_is_wrong_is_refused_by_name(self):
        user = {"role": "user", "content": "x"}
        for what, fields in (
                ("max_tokens", {"max_tokens": ...}), ("max_tokens", {"max_tokens": 0}), ("max_tokens", {"max_tokens": "x"}),
                ("messages", {"messages": ...}), ("messages", {"messages": []}), ("messages", {"messages": "x"}),
                ("messages[0]", {"messages": ["x"]}), ("messages[0]", {"messages": [{"role": "tool", "content": "x"}]}),
                ("messages[0]", {"messages": [{**user, "who": 1}]}), ("messages[1]", {"messages": [user, {"role": "assistant"}]}),
                ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
                ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]}),
                ("messages[0].content[0]", {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "a"}]}]}),
                ("stop_sequences[1]", {"stop_sequences": ["a", ""]}), ("system", {"system": 5}), ("n", {"n": 2}),
                ("tools[0]", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
                ("tools[0]", {"tools": [{"name": "f"}]}), ("tool_choice", {"tool_choice": {"type": "any"}}),
                ("thinking", {"thinking": {"type": "on"}}), ("container", {"container": "c"}), ("temperature", {"temperature": -1}),
                ("output_config.format", {"output_config": {"format": {"type": "xml"}}})):
            with self.subTest(what=what, fields=fields):
                self.assert_refused(400, "invalid_request_error", what, self.ask(400, **fields))
        self.assert_refused(404, "not_found_error", "none", self.ask(404, model="none"))
        self.assert_refused(400, "invalid_request_error", "tokens", self.ask(400, messages=[{"role": "user", "content": "x" * 3000}]))
        self.assert_alive()

    def test_errors_before_a_body_is_read_have_the_form_too(self):
        for method, path, body, headers, wanted in (
                ("POST", PATH, b"{", {}, 400), ("POST", PATH, b"{}", {"Content-Type": "text/plain"}, 415),
                ("POST", PATH, b"{}", {"Origin": "http://x.example"}, 403), ("GET", PATH, None, {}, 405), ("POST", PATH + "/x", b"{}", {}, 404)):
            status, _, text = self.server.request(method, path, body, headers)
            self.assertEqual((status, json.loads(text)["type"]), (wanted, "error"), text)
        head = f"POST {COUNT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {1 << 30}\r\n\r\n"
        answer = self.server.raw(head.encode())
        self.assertRegex(answer[:12], rb"^HTTP/1.1 413")
        self.assertEqual(json.loads(answer.split(b"\r\n\r\n")[1])["error"]["type"], "request_too_large")


class Keys(Case):
    keys = "a-key\n"

    def test_the_key_may_be_in_either_header(self):
        for headers, wanted in (({}, 401), ({"x-api-key": "a-key"}, 200), ({"X-Api-Key": " a-key "}, 200), ({"x-api-key": "b"}, 401),
                                ({"Authorization": "Bearer a-key"}, 200), ({"Authorization": "Bearer b", "x-api-key": "a-key"}, 200)):
            status, answer = self.server.post(PATH, ASK, headers={**VERSION, **headers})
            self.assertEqual(status, wanted, headers)
            if status == 401:
                self.assertEqual(answer["error"]["type"], "authentication_error")


def tool(name, strict=True, **properties):
    return {"name": name, "description": "A tool.", "strict": strict, "input_schema": {
        "type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}}


NOW, ADD = tool("now", zone={"enum": ["UTC"]}), tool("add", a={"enum": [1, 2]}, b={"enum": [3]})
CALL = {"max_tokens": 300, "temperature": 1.5, "seed": 7, "ignore_eos": ..., "tools": [NOW, ADD], "thinking": {"type": "disabled"},
        "tool_choice": {"type": "any", "disable_parallel_tool_use": True}}
THINK = {"thinking": {"type": "enabled", "budget_tokens": 6}}
SCHEMA = {"format": {"type": "json_schema", "schema": {**NOW["input_schema"]}}}


class Agents(Asking):
    """On a model whose template has tools and thoughts; the grammar makes it call them."""

    @classmethod
    def write_models(cls, folder):
        write_models(folder)

    def streamed(self, **fields):
        """The message of a stream as a client puts it together."""
        told = self.stream(**{name: value for name, value in fields.items() if value is not ...})
        message, grown, is_open = {**told[0]["message"]}, [], False
        for event in told[1:]:
            kind = event["type"]
            if kind == "content_block_start":
                self.assertEqual((event["index"], is_open), (len(message["content"]), False))
                message["content"].append(event["content_block"])
                is_open, block = True, event["content_block"]
                if block["type"] == "tool_use":
                    self.assertEqual(block["input"], {})
                grown.append("")
            if kind == "content_block_delta":
                self.assertEqual((event["index"], is_open), (len(grown) - 1, True))
                delta = event["delta"]
                kind = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json", "signature_delta": "signature"}
                value = delta[kind[delta["type"]]]
                if delta["type"] == "input_json_delta":
                    grown[-1] += value
                else:
                    block[kind[delta["type"]]] += value
            if kind == "content_block_stop":
                is_open = False
                if block["type"] == "tool_use":
                    block["input"] = json.loads(grown[-1])
            if kind == "message_delta":
                message.update(event["delta"], usage=event["usage"])
        self.assertFalse(is_open)
        self.assertEqual([event["type"] for event in told[-2:]], ["message_delta", "message_stop"])
        return message

    @staticmethod
    def bare(message):
        """Without what is drawn at random, and what the prefix cache may have had."""
        content = [{name: value for name, value in block.items() if name not in ("id", "signature")} for block in message["content"]]
        usage = {name: message["usage"][name] for name in ("output_tokens", "output_tokens_details")}
        return {**message, "id": "", "content": content, "usage": usage}

    def both(self, **fields):
        answer = self.ask(**{**CALL, **fields})
        self.assertEqual(self.bare(answer), self.bare(self.streamed(**{**CALL, **fields, "ignore_eos": False})))
        return answer

    def test_calls(self):
        for choice, names in ((CALL["tool_choice"], {"now", "add"}), ({"type": "tool", "name": "add", "disable_parallel_tool_use": True}, {"add"})):
            for seed in range(3):
                answer = self.both(tool_choice=choice, seed=seed)
                call, = answer["content"]
                self.assertEqual((call["type"], answer["stop_reason"]), ("tool_use", "tool_use"))
                self.assertIn(call["name"], names)
                self.assertIn(call["input"], [{"zone": "UTC"}, {"a": 1, "b": 3}, {"a": 2, "b": 3}])
                self.assertRegex(call["id"], "^toolu_[0-9a-f]{24}$")

    def test_thoughts_then_a_call(self):
        answer = self.both(**THINK)
        self.assertEqual([block["type"] for block in answer["content"]], ["thinking", "tool_use"])
        self.assertTrue(answer["content"][0]["thinking"] and answer["content"][0]["signature"])
        self.assertEqual(answer["usage"]["output_tokens_details"]["thinking_tokens"], 6 + len("</think>"))
        hidden = self.both(thinking={**THINK["thinking"], "display": "omitted"})
        self.assertEqual(hidden["content"][0]["thinking"], "")
        self.assertTrue(hidden["content"][0]["signature"])

    def test_thoughts_then_a_schema(self):
        answer = self.both(**THINK, tools=..., tool_choice=..., output_config=SCHEMA)
        self.assertEqual([block["type"] for block in answer["content"]], ["thinking", "text"])
        self.assertEqual(json.loads(text_of(answer)), {"zone": "UTC"})
        self.assertEqual(answer["stop_reason"], "end_turn")
        answer = self.both(tools=..., tool_choice=..., output_config=SCHEMA)
        self.assertEqual(json.loads(text_of(answer)), {"zone": "UTC"})

    def test_an_answer_that_is_cut_off(self):
        answer = self.both(max_tokens=30)
        self.assertEqual(answer["stop_reason"], "max_tokens")

    def test_results_go_back(self):
        first = self.ask(**{**CALL, **THINK})
        call = first["content"][1]
        for content in ("12:00", [{"type": "text", "text": "12:00"}], ...):
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": content}
            messages = [*USER, {"role": "assistant", "content": first["content"]},
                        {"role": "user", "content": [{name: value for name, value in result.items() if value is not ...}]}]
            answer = self.ask(messages=messages, tools=CALL["tools"], tool_choice={"type": "none"})
            self.assertEqual(answer["stop_reason"], "max_tokens")
            counted = self.ask(path=COUNT, max_tokens=..., temperature=..., ignore_eos=..., messages=messages, tools=CALL["tools"])
            self.assertEqual(counted["input_tokens"], answer["usage"]["input_tokens"] + answer["usage"]["cache_read_input_tokens"])
        self.assert_refused(400, "invalid_request_error", "results", self.ask(400, messages=messages[:2]))

    def test_a_model_without_thoughts(self):
        status, headers, text = self.server.request("POST", PATH, {**ASK, **THINK, "model": "a2"}, VERSION)
        self.assertEqual(status, 200, text)
        self.assertEqual(set(headers["X-Heddle-Ignored"].split(", ")), {"thinking", "thinking.budget_tokens"})

    def test_errors_have_the_names_of_this_api(self):
        for what, fields in (("tools[1].name", {"tools": [NOW, NOW]}), ("tool_choice.name", {"tool_choice": {"type": "tool", "name": "later"}}),
                             ("output_config", {"tools": ..., "tool_choice": ..., "output_config": {
                                 "format": {"type": "json_schema", "schema": {"type": "none"}}}})):
            answer = self.ask(400, **{**CALL, **fields})
            self.assert_refused(400, "invalid_request_error", what if what != "output_config" else "format", answer)
            self.assertNotIn("response_format", answer["error"]["message"])


if __name__ == "__main__":
    main()
