"""OpenAI's Responses API: answers and streams of them, what the store keeps and for whom, and what is refused.

  python3 tests/server/responses_test.py HEDDLE [TEST...]
"""
import json
import threading

from serve_case import ConversationCase, main
from tools_test import write_models

PATH = "/v1/responses"
ASK = {"input": "hello", "max_output_tokens": 6, "temperature": 0, "ignore_eos": True}
KEYS = ({"Authorization": "Bearer one"}, {"Authorization": "Bearer two"}, {"x-api-key": "three"}, {})
ORDER = ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
         "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done"]


def item(role, text):
    return {"role": role, "content": text}


class Asking(ConversationCase):
    def ask(self, status=200, headers=None, **fields):
        body = {**ASK, **fields}
        got, answer = self.server.post(PATH, {name: value for name, value in body.items() if value is not ...}, headers=headers)
        self.assertEqual(got, status, answer)
        return answer

    def stream(self, **fields):
        told = self.named_events(PATH, {**ASK, "stream": True, **fields})
        self.assertEqual([event["sequence_number"] for event in told], list(range(len(told))))
        return told

    @staticmethod
    def text(answer):
        return "".join(part["text"] for one in answer["output"] if one["type"] == "message" for part in one["content"])


class Responses(Asking):
    def test_an_answer_is_that_of_a_chat_completion(self):
        for model in ("base", "a0", "a1"):
            chat = self.chat([item("user", "hello")], model=model)
            answer = self.ask(model=model)
            self.assertEqual(self.text(answer), chat["choices"][0]["message"]["content"])
            self.assertEqual((answer["object"], answer["model"], answer["status"]), ("response", model, "incomplete"))
            self.assertEqual(answer["incomplete_details"], {"reason": "max_output_tokens"})
            usage = answer["usage"]
            self.assertEqual((usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]),
                             tuple(chat["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")))
        self.assertTrue(answer["id"].startswith("resp_"))
        self.assertNotEqual(answer["id"], self.ask()["id"])

    def test_instructions_and_items_are_the_messages(self):
        chat = self.chat([item("system", "Be brief."), item("user", "a"), item("assistant", "b"), item("user", "c")])
        answer = self.ask(instructions="Be brief.", input=[
            item("user", [{"type": "input_text", "text": "a"}]),
            {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant",
             "content": [{"type": "output_text", "text": "b", "annotations": []}]},
            {"type": "message", **item("user", "c")}])
        self.assertEqual(self.text(answer), self.text({"output": [{"type": "message", "content": [
            {"text": chat["choices"][0]["message"]["content"]}]}]}))
        self.assertEqual(answer["usage"]["input_tokens"], chat["usage"]["prompt_tokens"])
        self.assertEqual(answer["instructions"], "Be brief.")

    def test_a_stream_has_the_answer_in_order(self):
        whole, told = self.ask(), self.stream()
        kinds = [name for i, name in enumerate(event["type"] for event in told) if i == 0 or told[i - 1]["type"] != name]
        self.assertEqual(kinds, [*ORDER, "response.incomplete"])
        self.assertEqual("".join(event["delta"] for event in told if event["type"].endswith(".delta")), self.text(whole))
        final = told[-1]["response"]
        self.assertEqual(final["output"][0], told[-2]["item"])
        self.assertEqual(told[0]["response"]["status"], "in_progress")
        for answer in (whole, final):
            for random in ("id", "created_at", "completed_at", "output"):
                answer.pop(random)
            answer["usage"].pop("input_tokens_details")
        self.assertEqual(final, whole)

    def test_an_answer_that_ends_is_completed(self):
        text = self.text(self.ask(max_output_tokens=12))
        stop = next(c for i, c in enumerate(text) if i >= 3 and c not in text[:i])
        for answer in (self.ask(max_output_tokens=12, stop=stop), self.stream(max_output_tokens=12, stop=stop)[-1]["response"]):
            self.assertEqual(self.text(answer), text[:text.index(stop)])
            self.assertEqual((answer["status"], answer["incomplete_details"]), ("completed", None))
            self.assertEqual(answer["output"][0]["status"], "completed")
            self.assertGreaterEqual(answer["completed_at"], answer["created_at"])

    def test_log_probabilities_are_those_of_chat(self):
        include = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        wanted = self.chat([item("user", "hello")], logprobs=True, top_logprobs=2)["choices"][0]["logprobs"]["content"]
        self.assertEqual(self.ask(**include)["output"][0]["content"][0]["logprobs"], wanted)
        told = self.stream(**include)
        self.assertEqual(told[-1]["response"]["output"][0]["content"][0]["logprobs"], wanted)
        self.assertEqual([one for event in told if event["type"].endswith("text.delta") for one in event["logprobs"]], wanted)
        self.assertEqual(self.ask()["output"][0]["content"][0]["logprobs"], [])

    def test_truncation_keeps_the_last_tokens(self):
        long = "x" * 4000
        self.assertIn("tokens", self.ask(400, input=long)["error"]["message"])
        self.assertEqual(self.ask(input=long, truncation="auto")["usage"]["input_tokens"], 2048 - 6)

    def test_what_has_no_effect_is_named(self):
        fields = {"user": "u", "safety_identifier": "s", "prompt_cache_key": "k", "max_tool_calls": 1, "store": True,
                  "reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]}
        status, headers, text = self.server.request("POST", PATH, {**ASK, **fields})
        self.assertEqual(status, 200, text)
        self.assertEqual(set(headers["X-Heddle-Ignored"].split(", ")), {*fields, "reasoning.summary"} - {"reasoning"})
        self.assertIs(json.loads(text)["store"], False)
        self.assertNotIn("X-Heddle-Ignored", self.server.request("POST", PATH, ASK)[1])

    def test_what_is_wrong_is_refused_by_name(self):
        image = [item("user", [{"type": "input_image", "image_url": "x"}])]
        for field, value in (("input", ...), ("input", []), ("input", 1), ("max_output_tokens", 0), ("max_output_tokens", "x"),
                             ("background", True), ("conversation", "c"), ("prompt", {"id": "p"}), ("truncation", "left"),
                             ("metadata", {"a": 1}), ("n", 2), ("max_tokens", 5), ("instructions", 5), ("store", 5),
                             ("previous_response_id", "resp_1")):
            with self.subTest(field=field, value=value):
                self.assertEqual(self.ask(400, **{field: value})["error"]["param"], field)
        for place, fields in (("input[0].content[0]", {"input": image}), ("input[0]", {"input": [{"type": "item_reference", "id": "x"}]}),
                              ("tools[0]", {"tools": [{"type": "web_search"}]}), ("include[0]", {"include": ["x"]}),
                              ("text.format", {"text": {"format": {"type": "grammar"}}}), ("tool_choice", {"tool_choice": {"type": "mcp"}})):
            with self.subTest(place=place):
                self.assertEqual(self.ask(400, **fields)["error"]["param"], place)
        for fields in ({"temperature": -1}, {"temperature": "x"}, {"top_p": 2}, {"top_logprobs": 500}, {"stream": "x"}, {"seed": "x"}):
            self.assertIn(next(iter(fields)), self.ask(400, **fields)["error"]["message"])
        self.assertEqual(self.ask(404, model="none")["error"]["param"], "model")
        self.assertEqual(self.server.request("GET", PATH)[0], 405)
        self.assertEqual(self.server.request("PUT", PATH + "/x", b"")[0], 405)
        self.assert_alive()

    def test_without_a_store_nothing_is_kept(self):
        answer = self.ask()
        self.assertIs(answer["store"], False)
        for method in ("GET", "DELETE"):
            status, _, text = self.server.request(method, f"{PATH}/{answer['id']}")
            self.assertEqual(status, 404)
            self.assertIn("--response-store", text)
        self.assertIn("--response-store", self.ask(400, previous_response_id=answer["id"])["error"]["message"])

    def test_many_at_once_are_what_they_are_alone(self):
        names = ["base", "a0", "a1", "a2"] * 3
        alone = {name: self.text(self.ask(model=name)) for name in set(names)}
        got = [None] * len(names)

        def run(i):
            got[i] = self.text(self.ask(model=names[i]) if i % 2 else self.stream(model=names[i])[-1]["response"])

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(got, [alone[name] for name in names])


class Stored(Asking):
    options = ("--response-store", "6", "--response-store-size", "200K")

    def get(self, answer, headers=None, method="GET"):
        status, _, text = self.server.request(method, f"{PATH}/{answer['id']}", headers=headers)
        return status, json.loads(text)

    def test_what_has_no_effect_is_named(self):
        status, headers, text = self.server.request("POST", PATH, {**ASK, "store": True, "user": "u"})
        self.assertEqual((status, headers["X-Heddle-Ignored"]), (200, "user"), text)

    def test_what_is_kept_is_the_response(self):
        for answer in (self.ask(metadata={"a": "b"}), self.stream(metadata={"a": "b"})[-1]["response"]):
            self.assertIs(answer["store"], True)
            self.assertEqual(self.get(answer), (200, answer))
        self.assertEqual(self.get(answer, method="DELETE"), (200, {"id": answer["id"], "object": "response", "deleted": True}))
        for method in ("GET", "DELETE"):
            status, error = self.get(answer, method=method)
            self.assertEqual((status, error["error"]["type"]), (404, "NotFoundError"))
        answer = self.ask(store=False)
        self.assertIs(answer["store"], False)
        self.assertEqual(self.get(answer)[0], 404)
        self.assertEqual(self.get({"id": self.ask()["id"] + "?stream=true"})[0], 400)

    def test_an_answer_goes_on_with_a_stored_one(self):
        first = self.ask(input="a", instructions="Be brief.")
        second = self.ask(input="c", previous_response_id=first["id"])
        chat = self.chat([item("user", "a"), item("assistant", self.text(first)), item("user", "c")])
        self.assertEqual(self.text(second), chat["choices"][0]["message"]["content"])
        self.assertEqual(second["usage"]["input_tokens"], chat["usage"]["prompt_tokens"])
        self.assertEqual(second["previous_response_id"], first["id"])
        self.get(first, method="DELETE")
        third = self.ask(input="d", previous_response_id=second["id"])
        self.assertGreater(third["usage"]["input_tokens"], second["usage"]["input_tokens"], "it has what the first one had")
        self.assertEqual(self.ask(400, previous_response_id=first["id"])["error"]["param"], "previous_response_id")

    def test_a_key_finds_its_own_responses_alone(self):
        answers = [self.ask(headers=headers) for headers in KEYS]
        for i, answer in enumerate(answers):
            for j, headers in enumerate(KEYS):
                self.assertEqual(self.get(answer, headers)[0], 200 if i == j else 404)
                self.ask(200 if i == j else 400, headers, previous_response_id=answer["id"], store=False)
        self.assertEqual(self.get(answers[0], KEYS[1], "DELETE")[0], 404)
        self.assertEqual(self.get(answers[0], KEYS[0])[0], 200)

    def test_the_store_has_bounds(self):
        answers = [self.ask() for _ in range(6)]
        self.assertEqual(self.get(answers[0])[0], 200)
        answers.append(self.ask())
        self.assertEqual([self.get(answer)[0] for answer in answers], [200, 404, 200, 200, 200, 200, 200])
        large = [self.ask(metadata={"x": "x" * 60_000}) for _ in range(4)]
        self.assertEqual([self.get(answer)[0] for answer in large], [404, 200, 200, 200])
        self.assertEqual(self.get(answers[-1])[0], 404)
        small = self.ask()
        self.assertEqual((self.get(small)[0], self.get(large[-1])[0]), (200, 200))
        self.assert_alive()


def function(name, strict=True, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "name": name, "description": "A tool.", "parameters": schema, "strict": strict}


NOW, ADD = function("now", zone={"enum": ["UTC"]}), function("add", a={"enum": [1, 2]}, b={"enum": [3]})
CALL = {"input": "hello", "max_output_tokens": 300, "temperature": 1.5, "seed": 7, "ignore_eos": ..., "tools": [NOW, ADD], "tool_choice": "required",
        "parallel_tool_calls": False, "chat_template_kwargs": {"thinking": False}}
THINK = {**CALL, "chat_template_kwargs": {"thinking": True}, "thinking_token_budget": 6}
SCHEMA = {"type": "object", "properties": {"zone": {"enum": ["UTC"]}}, "required": ["zone"], "additionalProperties": False}


class Agents(Asking):
    """On a model whose template has tools and thoughts; the grammar makes it call them."""

    options = ("--response-store", "10")

    @classmethod
    def write_models(cls, folder):
        write_models(folder)

    def streamed(self, **fields):
        """The output of a stream as its events have it one by one, which is that of its end."""
        told = self.stream(**{name: value for name, value in fields.items() if value is not ...})
        items, deltas = [], {}
        for event in told:
            kind = event["type"].removeprefix("response.")
            if kind == "output_item.added":
                self.assertEqual(event["output_index"], len(items))
                items.append(None)
            if kind == "output_item.done":
                self.assertEqual(event["output_index"], len(items) - 1, "one item at a time")
                items[-1] = event["item"]
            if kind.endswith(".delta"):
                deltas[event["output_index"]] = deltas.get(event["output_index"], "") + event["delta"]
        self.assertEqual(told[-1]["response"]["output"], items)
        for i, item in enumerate(items):
            whole = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
            self.assertEqual(deltas.get(i, ""), whole)
        return told[-1]["response"]

    @staticmethod
    def bare(output):
        """Without what is drawn at random."""
        return [{name: value for name, value in item.items() if name not in ("id", "call_id")} for item in output]

    def both(self, **fields):
        answer = self.ask(ignore_eos=..., **{name: value for name, value in fields.items() if value is not ...})
        streamed = self.streamed(**{**fields, "ignore_eos": False})
        self.assertEqual(self.bare(answer["output"]), self.bare(streamed["output"]))
        self.assertEqual(answer["usage"]["output_tokens_details"], streamed["usage"]["output_tokens_details"])
        return answer

    def test_calls(self):
        for choice, names in (("required", {"now", "add"}), ({"type": "function", "name": "add"}, {"add"}),
                              ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "now"}]}, {"now"})):
            for seed in range(3):
                answer = self.both(**{**CALL, "tool_choice": choice, "seed": seed})
                self.assertEqual(answer["status"], "completed")
                call, = answer["output"]
                self.assertEqual(call["type"], "function_call")
                self.assertIn(call["name"], names)
                self.assertIn(json.loads(call["arguments"]), [{"zone": "UTC"}, {"a": 1, "b": 3}, {"a": 2, "b": 3}])
                self.assertRegex(call["call_id"], "^call_[0-9a-f]{24}$")
                self.assertEqual(answer["tool_choice"], choice)
                self.assertEqual([tool["name"] for tool in answer["tools"]], ["now", "add"])

    def test_several_calls_are_items_of_their_own(self):
        answer = self.both(**{**CALL, "parallel_tool_calls": True, "max_output_tokens": 900})
        self.assertEqual({item["type"] for item in answer["output"][:-1]} or {"function_call"}, {"function_call"}, "the last may be cut off")
        self.assertEqual(len({item["id"] for item in answer["output"]}), len(answer["output"]))

    def test_thoughts_then_a_call(self):
        answer = self.both(**THINK)
        self.assertEqual([item["type"] for item in answer["output"]], ["reasoning", "function_call"])
        thoughts = answer["output"][0]
        self.assertEqual((thoughts["summary"], thoughts["content"][0]["type"]), ([], "reasoning_text"))
        self.assertEqual(answer["usage"]["output_tokens_details"]["reasoning_tokens"], 6 + len("</think>"))

    def test_thoughts_then_a_schema(self):
        fields = {**THINK, "tools": ..., "tool_choice": ..., "parallel_tool_calls": ...,
                  "text": {"format": {"type": "json_schema", "name": "zone", "schema": SCHEMA, "strict": True}}}
        answer = self.both(**fields)
        self.assertEqual([item["type"] for item in answer["output"]], ["reasoning", "message"])
        self.assertEqual(json.loads(self.text(answer)), {"zone": "UTC"})
        self.assertEqual(answer["text"], fields["text"])
        answer = self.ask(ignore_eos=..., max_output_tokens=30, text={"format": {"type": "json_object"}})
        self.assertRegex(self.text(answer), r"^\s*{")

    def test_log_probabilities_are_of_the_text_alone(self):
        fields = {**THINK, "tools": ..., "tool_choice": ..., "parallel_tool_calls": ..., "include": ["message.output_text.logprobs"],
                  "structured_outputs": {"choice": ["teal"]}}
        answer = self.both(**fields)
        part = answer["output"][1]["content"][0]
        self.assertEqual((part["text"], "".join(token["token"] for token in part["logprobs"])[-4:]), ("teal", "teal"))
        self.assertLessEqual(len(part["logprobs"]), 4)

    def test_a_conversation_with_a_tool_through_the_store(self):
        first = self.ask(**CALL)
        call, = first["output"]
        result = {"type": "function_call_output", "call_id": call["call_id"], "output": "12:00"}
        fields = {"tools": CALL["tools"], "tool_choice": "none", "chat_template_kwargs": CALL["chat_template_kwargs"]}
        stored = self.ask(input=[result], previous_response_id=first["id"], **fields)
        sent = self.ask(input=[item("user", "hello"), *first["output"], result], **fields)
        self.assertEqual(self.text(stored), self.text(sent))
        self.assertEqual(stored["usage"]["input_tokens"], sent["usage"]["input_tokens"])
        self.assertGreater(stored["usage"]["input_tokens"], first["usage"]["input_tokens"])

    def test_errors_have_the_names_of_this_api(self):
        wrong = {**NOW, "parameters": "{}"}
        for place, fields in (("tools[0].parameters", {"tools": [wrong]}), ("tools[1].name", {"tools": [NOW, NOW]}),
                              ("tool_choice.name", {"tool_choice": {"type": "function", "name": "later"}}),
                              ("text.format", {"tools": ..., "tool_choice": ..., "text": {
                                  "format": {"type": "json_schema", "name": "a", "schema": {"type": "none"}}}}),
                              ("text.format.schema", {"text": {"format": {"type": "json_schema", "name": "a", "schema": 5}}})):
            with self.subTest(place=place, fields=fields):
                error = self.ask(400, **{**CALL, **fields})["error"]
                self.assertEqual(error["param"], place, error)
                self.assertNotIn("response_format", error["message"])
        headers = self.server.request("POST", PATH, {**ASK, "reasoning": {"effort": "low"}, "model": "a2"})[1]
        self.assertEqual(headers["X-Heddle-Ignored"], "reasoning.effort")

    def test_adapters_of_several_forms_at_once(self):
        names, got = ["base", "a0", "a1"] * 3, {}
        alone = {name: self.bare(self.ask(model=name, **CALL)["output"]) for name in set(names)}

        def run(i):
            got[i] = self.bare(self.ask(model=names[i], **CALL)["output"])

        threads = [threading.Thread(target=run, args=(i,)) for i in range(len(names))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for i, name in enumerate(names):
            self.assertEqual(got[i], alone[name])


if __name__ == "__main__":
    main()
