"""Answers, streams and errors of the Responses and Messages APIs as the types of the official clients have them, in strict mode.

  python3 tests/server/strict_types_test.py HEDDLE [TEST...]
"""
import json

from anthropic.types import Message, MessageTokensCount, RawMessageStreamEvent
from anthropic.types.shared import ErrorResponse
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from serve_case import Case, events, main

USER = [{"role": "user", "content": "hello"}]
RESPONSE = {"input": "hello", "max_output_tokens": 6, "temperature": 0, "ignore_eos": True}
MESSAGE = {"messages": USER, "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def checked(kind, text):
    """The text as one of these types, which must have all that is in it."""
    value = TypeAdapter(kind).validate_json(text, strict=True)
    told = json.loads(text)
    assert value.type == told["type"] if "type" in told else True
    return value


class StrictTypes(Case):
    options = ("--response-store", "10")

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

    def test_errors(self):
        for body, status in (({}, 400), ({**MESSAGE, "model": "none"}, 404)):
            checked(ErrorResponse, self.post("/v1/messages", body, status))
        checked(ErrorResponse, self.server.request("GET", "/v1/messages")[2])


if __name__ == "__main__":
    main()
