"""Answers, streams and errors of the Responses and Messages APIs as the types of the official clients have them, in strict mode.

  python3 tests/server/clients/types_test.py HEDDLE [TEST...]
"""
import functools
import json
import pathlib
import sys

from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import Case, events, main  # noqa: E402
from tools_test import write_models  # noqa: E402

USER = [{"role": "user", "content": "hello"}]
RESPONSE = {"input": "hello", "max_output_tokens": 6, "temperature": 0, "ignore_eos": True}
MESSAGE = {"messages": USER, "max_tokens": 6, "temperature": 0, "ignore_eos": True}


adapter = functools.cache(TypeAdapter)


def checked(kind, text):
    """The text as one of these types, which must have all that is in it."""
    value = adapter(kind).validate_json(text, strict=True)
    told = json.loads(text)
    assert value.type == told["type"] if "type" in told else True
    return value


NOW = {"type": "object", "properties": {"zone": {"enum": ["UTC"]}}, "required": ["zone"], "additionalProperties": False}
THINK = {"chat_template_kwargs": {"thinking": True}, "thinking_token_budget": 5, "temperature": 1.5, "seed": 7, "ignore_eos": False}


class StrictTypes(Case):
    options = ("--response-store", "10")

    @classmethod
    def write_models(cls, folder):
        write_models(folder)

    def post(self, path, body, status=200):
        got, _, text = self.server.request("POST", path, body)
        self.assertEqual(got, status, text)
        return text

    def check_response(self, **fields):
        answer = checked(Response, self.post("/v1/responses", {**RESPONSE, **fields}))
        checked(Response, self.server.request("GET", f"/v1/responses/{answer.id}")[2])
        told = events(self.post("/v1/responses", {**RESPONSE, **fields, "stream": True}))
        for event in told:
            self.assertIsNotNone(checked(ResponseStreamEvent, event).sequence_number)
        return answer, [checked(ResponseStreamEvent, event) for event in told]

    def check_message(self, **fields):
        answer = checked(Message, self.post("/v1/messages", {**MESSAGE, **fields}))
        told = events(self.post("/v1/messages", {**MESSAGE, **fields, "stream": True}))
        return answer, [checked(RawMessageStreamEvent, event) for event in told]

    def test_responses(self):
        answer, told = self.check_response()
        self.assertEqual(answer.output_text, told[-1].response.output_text)
        self.check_response(instructions="Be brief.", metadata={"a": "b"}, include=["message.output_text.logprobs"], top_logprobs=3,
                            reasoning={"effort": None}, text={"format": {"type": "text"}, "verbosity": "low"}, truncation="auto")
        self.check_response(previous_response_id=answer.id)

    def test_messages(self):
        answer, told = self.check_message()
        self.assertEqual("".join(event.delta.text for event in told if event.type == "content_block_delta"), answer.content[0].text)
        self.check_message(system=[{"type": "text", "text": "S"}], metadata={"user_id": "u"}, stop_sequences=["x"])
        checked(MessageTokensCount, self.post("/v1/messages/count_tokens", {"messages": USER}))

    def test_thoughts_and_calls_of_responses(self):
        tools = {"tools": [{"type": "function", "name": "now", "parameters": NOW, "strict": True}], "max_output_tokens": 200}
        for choice in ("required", {"type": "function", "name": "now"}, {"type": "allowed_tools", "mode": "required", "tools": [
                {"type": "function", "name": "now"}]}):
            answer, told = self.check_response(**THINK, **tools, tool_choice=choice, parallel_tool_calls=False)
            self.assertEqual([item.type for item in answer.output], ["reasoning", "function_call"])
            self.assertEqual([item.type for item in told[-1].response.output], ["reasoning", "function_call"])
        schema = {"format": {"type": "json_schema", "name": "zone", "schema": NOW, "strict": True}}
        answer, _ = self.check_response(**THINK, text=schema, max_output_tokens=200, include=["message.output_text.logprobs"])
        self.assertEqual(json.loads(answer.output_text), {"zone": "UTC"})

    def test_thoughts_and_calls_of_messages(self):
        tools = {"tools": [{"name": "now", "input_schema": NOW}], "tool_choice": {"type": "any", "disable_parallel_tool_use": True},
                 "max_tokens": 200}
        answer, told = self.check_message(**THINK, **tools)
        self.assertEqual([block.type for block in answer.content], ["thinking", "tool_use"])
        self.assertEqual({event.type for event in told}, {"message_start", "content_block_start", "content_block_delta", "content_block_stop",
                                                           "message_delta", "message_stop"})

    def test_errors(self):
        for body, status in (({}, 400), ({**MESSAGE, "model": "none"}, 404)):
            checked(ErrorResponse, self.post("/v1/messages", body, status))
        checked(ErrorResponse, self.server.request("GET", "/v1/messages")[2])


if __name__ == "__main__":
    main()
