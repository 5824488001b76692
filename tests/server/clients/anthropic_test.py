"""The anthropic package, and pydantic-ai over it, against `/v1/messages` of `heddle serve`, in streams and without.

Needs python/requirements-server.txt; without those packages it says so and ends with 77.
"""
import json
from typing import Literal

try:
    import anthropic
    from pydantic import BaseModel
    from pydantic_ai import Agent, ModelHTTPError
    from pydantic_ai.models.anthropic import AnthropicModel
    from pydantic_ai.providers.anthropic import AnthropicProvider
    from client_case import ADAPTER, BAD_SCHEMA, HELLO, MODEL, WEATHER_SCHEMA, ClientCase, Weather, main
except ImportError as error:
    print(f"left out: {error}")
    raise SystemExit(77)

ASK = [{"role": "user", "content": "How is the weather in Paris?"}]
TOOL = {"name": "weather", "description": "How the weather is.", "strict": True, "input_schema": WEATHER_SCHEMA}


class Sky(BaseModel):
    """Without bounds of numbers and lengths, which the client takes out of schemas."""
    city: Literal["Paris", "Rome"]
    clear: bool


def tokens_of(message):
    """Of the prompt, those of the cache included."""
    return message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0)


class Messages(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = anthropic.Anthropic(base_url=cls.url, api_key="none", max_retries=0)
        cls.messages = cls.client.messages

    def create(self, **fields):
        return self.messages.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 16, "extra_body": {"temperature": 0}, **fields})

    def test_text(self):
        whole = self.create()
        self.assertRegex(whole.id, "^msg_")
        self.assertEqual((whole.type, whole.role, whole.model), ("message", "assistant", MODEL))
        block, = whole.content
        self.assertEqual(block.type, "text")
        self.assertIn(whole.stop_reason, ("end_turn", "max_tokens"))
        self.assertGreater(whole.usage.input_tokens, 0)
        with self.messages.stream(model=MODEL, messages=HELLO, max_tokens=16, extra_body={"temperature": 0}) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_message()
        self.assertEqual(final.content[0].text, block.text)
        self.assertEqual((final.stop_reason, final.usage.output_tokens), (whole.stop_reason, whole.usage.output_tokens))
        self.assertEqual((kinds[0], kinds[-1]), ("message_start", "message_stop"))
        raw = [event.type for event in self.create(stream=True)]
        self.assertEqual([kind for kind in raw if kind != "ping"][:2], ["message_start", "content_block_start"])
        self.assertEqual(raw[-3:], ["content_block_stop", "message_delta", "message_stop"])

    def test_system_turns_and_stops(self):
        turns = [*HELLO, {"role": "assistant", "content": [{"type": "text", "text": "Hello."}]}, {"role": "user", "content": [{"type": "text", "text": "Again."}]}]
        words = self.create(model=ADAPTER, messages=turns, system=[{"type": "text", "text": "Be brief."}])
        self.assertTrue(words.content[0].text)
        same = self.create(model=ADAPTER, messages=turns, system="Be brief.")
        self.assertEqual(words.content[0].text, same.content[0].text)
        text = self.create(max_tokens=32).content[0].text
        stopped = self.create(max_tokens=32, stop_sequences=[text[3:6]])
        self.assertEqual((stopped.stop_reason, stopped.stop_sequence), ("stop_sequence", text[3:6]))
        self.assertEqual(stopped.content[0].text if stopped.content else "", text[:text.index(text[3:6])])

    def test_tools(self):
        for choice in ({"type": "any"}, {"type": "tool", "name": "weather"}):
            more = {"messages": ASK, "tools": [TOOL], "tool_choice": {**choice, "disable_parallel_tool_use": True}, "max_tokens": 200}
            whole = self.create(**more)
            self.assertEqual(whole.stop_reason, "tool_use")
            call, = [block for block in whole.content if block.type == "tool_use"]
            self.assertEqual(call.name, "weather")
            arguments = Weather.model_validate(call.input)
            with self.messages.stream(model=MODEL, extra_body={"temperature": 0}, **more) as stream:
                pieces = "".join(event.delta.partial_json for event in stream
                                 if event.type == "content_block_delta" and event.delta.type == "input_json_delta")
                final = stream.get_final_message()
            self.assertEqual(Weather.model_validate(json.loads(pieces)), arguments)
            self.assertEqual((final.stop_reason, final.content[-1].input), ("tool_use", call.input))
        for result in ("sunny", [{"type": "text", "text": "sunny"}]):
            after = self.create(messages=[*ASK, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": call.id, "content": result}]}], tools=[TOOL], tool_choice={"type": "none"})
            self.assertTrue(after.content[0].text)
            self.assertGreater(tokens_of(after), tokens_of(whole))

    def test_parse(self):
        parsed = self.messages.parse(model=MODEL, messages=ASK, max_tokens=200, output_format=Sky, extra_body={"temperature": 0})
        self.assertIsInstance(parsed.parsed_output, Sky)

    def test_count_tokens(self):
        count = self.messages.count_tokens(model=MODEL, messages=HELLO)
        self.assertEqual(count.input_tokens, tokens_of(self.create(max_tokens=1)))
        more = self.messages.count_tokens(model=MODEL, messages=HELLO, system="Be brief.", tools=[TOOL])
        self.assertGreater(more.input_tokens, count.input_tokens)

    def test_errors(self):
        with self.assertRaises(anthropic.NotFoundError) as caught:
            self.create(model="none")
        self.assertEqual(caught.exception.body["type"], "error")
        self.assertEqual(caught.exception.body["error"]["type"], "not_found_error")
        for fields in ({"tools": [{**TOOL, "input_schema": BAD_SCHEMA}], "tool_choice": {"type": "any"}},
                       {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "other"}}, {"messages": []}, {"extra_body": {"temperature": -1}},
                       {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://nowhere/a.png"}}]}]},
                       {"messages": [{"role": "user", "content": "x" * 30000}]}):
            for stream in (False, True):
                with self.assertRaises(anthropic.BadRequestError) as caught:
                    list(self.create(stream=stream, **fields))
                self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error", fields)
                self.assertTrue(caught.exception.body["error"]["message"])

    def test_pydantic_ai(self):
        def agent(name, **more):
            provider = AnthropicProvider(anthropic_client=anthropic.AsyncAnthropic(base_url=self.url, api_key="none", max_retries=0))
            return Agent(AnthropicModel(name, provider=provider), model_settings={"max_tokens": 200, "temperature": 0}, **more)
        answer = agent(MODEL, output_type=Weather).run_sync("How is the weather in Paris?")
        self.assertIsInstance(answer.output, Weather)
        with self.assertRaises(ModelHTTPError) as caught:
            agent("none").run_sync("Hi")
        self.assertEqual(caught.exception.status_code, 404)


if __name__ == "__main__":
    main()
