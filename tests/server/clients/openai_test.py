"""The openai package against `heddle serve`: structured output and calls of tools in chat/completions, in streams and without.

Needs python/requirements-server.txt; without those packages it says so and ends with 77.
"""
import json
import re

try:
    import openai
    from client_case import ADAPTER, ASK, BAD_FORMAT, BASE, CLOCK, HELLO, MODEL, NAMED, WEATHER, WEATHER_SCHEMA, ClientCase, Person, Weather, main
except ImportError as error:
    print(f"left out: {error}")
    raise SystemExit(77)

GREEDY = {"temperature": 0, "max_tokens": 200}


def weather_of(call):
    """The arguments of a call, which the tool's schema must take."""
    return Weather.model_validate_json(call.function.arguments)


def check_chunks(test, chunks):
    """The calls of a stream put together, after a look at each piece: the first of a call alone has its id, type and name."""
    calls = {}
    for chunk in chunks:
        for choice in chunk.choices:
            for delta in choice.delta.tool_calls or []:
                if delta.index not in calls:
                    test.assertEqual(delta.index, len(calls))
                    test.assertEqual(delta.type, "function")
                    test.assertTrue(delta.id and delta.function.name)
                    calls[delta.index] = [delta.id, delta.function.name, ""]
                else:
                    test.assertFalse(delta.id or delta.function.name)
                calls[delta.index][2] += delta.function.arguments or ""
    return list(calls.values())


class Chat(ClientCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0)
        cls.chat = cls.client.chat.completions

    def refused(self, param, word, **fields):
        """That a request is 400 with its field and why, in a stream, too."""
        for stream in (False, True):
            with self.assertRaises(openai.BadRequestError) as caught:
                list(self.chat.create(**{"model": MODEL, "messages": HELLO, "max_tokens": 4, "stream": stream, **fields}))
            self.assertEqual(caught.exception.param.split(".")[0], param)
            self.assertIn(word, str(caught.exception))

    def test_parse(self):
        whole = self.chat.parse(model=MODEL, messages=ASK, response_format=Person, **GREEDY)
        self.assertEqual(whole.choices[0].finish_reason, "stop")
        person = whole.choices[0].message.parsed
        self.assertIsInstance(person, Person)
        self.assertEqual(Person.model_validate_json(whole.choices[0].message.content), person)
        with self.chat.stream(model=MODEL, messages=ASK, response_format=Person, **GREEDY) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.parsed, person)
        self.assertIn("content.delta", kinds)
        self.assertIn("content.done", kinds)

    def test_parse_that_is_cut(self):
        with self.assertRaises(openai.LengthFinishReasonError):
            self.chat.parse(model=MODEL, messages=ASK, response_format=Person, temperature=0, max_tokens=3)

    def test_many_answers_of_an_adapter(self):
        for stream in (False, True):
            answer = self.chat.create(model=ADAPTER, messages=ASK, n=3, temperature=1.5, seed=1, max_tokens=60, stream=stream,
                                      response_format={"type": "json_schema", "json_schema": {"name": "w", "strict": True, "schema": WEATHER_SCHEMA}})
            texts = {}
            for part in answer if stream else [answer]:
                for choice in part.choices:
                    texts[choice.index] = texts.get(choice.index, "") + ((choice.delta if stream else choice.message).content or "")
            self.assertEqual(sorted(texts), [0, 1, 2])
            for text in texts.values():
                Weather.model_validate_json(text)

    def test_json_object(self):
        answer = self.chat.create(model=MODEL, messages=ASK, response_format={"type": "json_object"}, temperature=0, max_tokens=60)
        self.assertTrue(answer.choices[0].message.content.lstrip().startswith("{"))
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_fields_of_vllm_and_llama_cpp(self):
        def text(**body):
            answer = self.chat.create(model=MODEL, messages=ASK, extra_body=body, **GREEDY)
            self.assertEqual(answer.choices[0].finish_reason, "stop")
            return answer.choices[0].message.content
        for body in ({"structured_outputs": {"choice": ["red", "green"]}}, {"guided_choice": ["red", "green"]}):
            self.assertIn(text(**body), ("red", "green"))
        for body in ({"structured_outputs": {"regex": "[ab]{3}-[0-9]{2}"}}, {"guided_regex": "[ab]{3}-[0-9]{2}"}):
            self.assertRegex(text(**body), "^[ab]{3}-[0-9]{2}$")
        for body in ({"structured_outputs": {"json": WEATHER_SCHEMA}}, {"guided_json": WEATHER_SCHEMA}, {"json_schema": WEATHER_SCHEMA},
                     {"response_format": {"type": "json_schema", "schema": WEATHER_SCHEMA}}):
            Weather.model_validate_json(text(**body))
        grammar = 'root ::= "yes" | "no" [!?]'
        for body in ({"structured_outputs": {"grammar": grammar}}, {"guided_grammar": grammar}, {"grammar": grammar}):
            self.assertIn(text(**body), ("yes", "no!", "no?"))

    def test_tools(self):
        for choice, ends in (("required", {"tool_calls"}), (NAMED, {"tool_calls", "stop"})):
            whole = self.chat.create(model=MODEL, messages=ASK, tools=[WEATHER, CLOCK] if choice is NAMED else [WEATHER], tool_choice=choice,
                                     parallel_tool_calls=False, **GREEDY)
            self.assertIn(whole.choices[0].finish_reason, ends)
            call, = whole.choices[0].message.tool_calls
            self.assertEqual((call.type, call.function.name), ("function", "weather"))
            self.assertFalse(whole.choices[0].message.content)
            arguments = weather_of(call)
            chunks = list(self.chat.create(model=MODEL, messages=ASK, tools=[WEATHER, CLOCK] if choice is NAMED else [WEATHER], tool_choice=choice,
                                           parallel_tool_calls=False, stream=True, stream_options={"include_usage": True}, **GREEDY))
            (_, name, text), = check_chunks(self, chunks)
            self.assertEqual((name, Weather.model_validate_json(text)), ("weather", arguments))
            reason, = [c.finish_reason for chunk in chunks for c in chunk.choices if c.finish_reason]
            self.assertEqual(reason, whole.choices[0].finish_reason)
            self.assertEqual(chunks[-1].usage.completion_tokens, whole.usage.completion_tokens)

    def test_tools_of_pydantic(self):
        tool = openai.pydantic_function_tool(Weather)
        whole = self.chat.parse(model=MODEL, messages=ASK, tools=[tool], tool_choice="required", parallel_tool_calls=False, **GREEDY)
        call, = whole.choices[0].message.tool_calls
        self.assertIsInstance(call.function.parsed_arguments, Weather)
        with self.chat.stream(model=MODEL, messages=ASK, tools=[tool], tool_choice="required", parallel_tool_calls=False, **GREEDY) as stream:
            kinds = {event.type for event in stream}
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].message.tool_calls[0].function.parsed_arguments, call.function.parsed_arguments)
        self.assertLessEqual({"tool_calls.function.arguments.delta", "tool_calls.function.arguments.done"}, kinds)

    def test_several_calls(self):
        answer = self.chat.create(model=MODEL, messages=ASK, tools=[CLOCK, WEATHER], tool_choice="required", n=4, temperature=1.5, seed=3, max_tokens=300)
        for choice in answer.choices:
            if choice.finish_reason == "length":
                continue
            self.assertTrue(choice.message.tool_calls)
            self.assertEqual(len({call.id for call in choice.message.tool_calls}), len(choice.message.tool_calls))
            for call in choice.message.tool_calls:
                self.assertIn(call.function.name, ("clock", "weather"))
                json.loads(call.function.arguments) if call.function.name == "clock" else weather_of(call)

    def test_tools_that_are_not_called(self):
        for choice in ("none", "auto"):
            answer = self.chat.create(model=MODEL, messages=HELLO, tools=[WEATHER], tool_choice=choice, temperature=0, max_tokens=16)
            self.assertFalse(answer.choices[0].message.tool_calls)
            self.assertTrue(answer.choices[0].message.content)

    def test_turns_with_calls(self):
        first = self.chat.create(model=MODEL, messages=ASK, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, **GREEDY)
        message = first.choices[0].message
        history = [*ASK, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}]
        for turn in (history, [*ASK, message.model_dump(), history[-1]], [*ASK, message.model_dump(exclude_none=True), history[-1]]):
            answer = self.chat.create(model=MODEL, messages=turn, tools=[WEATHER], tool_choice="none", temperature=0, max_tokens=8)
            self.assertTrue(answer.choices[0].message.content)
            self.assertGreater(answer.usage.prompt_tokens, first.usage.prompt_tokens)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError) as caught:
            self.chat.parse(model="none", messages=HELLO, response_format=Person)
        self.assertEqual(caught.exception.param, "model")
        self.refused("response_format", "strin", response_format=BAD_FORMAT)
        self.refused("response_format", "uniqueItems", response_format={"type": "json_schema", "json_schema": {"name": "u", "schema": {
            "type": "array", "items": {"type": "integer"}, "uniqueItems": True}}})
        self.refused("response_format", "xml", response_format={"type": "xml"})
        self.refused("tool_choice", "other", tools=[WEATHER], tool_choice={"type": "function", "function": {"name": "other"}})
        self.refused("tool_choice", "tools", tool_choice="required")
        self.refused("tools", "strin", tool_choice="required", tools=[
            {"type": "function", "function": {"name": "f", "strict": True, "parameters": BAD_FORMAT["json_schema"]["schema"]}}])
        self.refused("structured_outputs", "", extra_body={"structured_outputs": {"regex": "a(?=b)"}})
        self.refused("structured_outputs", "", extra_body={"structured_outputs": {"regex": "a", "choice": ["a"]}})

    def test_async(self):
        import asyncio

        async def both():
            client = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)
            answers = await asyncio.gather(*(client.chat.completions.parse(model=model, messages=ASK, response_format=Weather, **GREEDY)
                                             for model in (BASE, MODEL)))
            await client.close()
            return [a.choices[0].message.parsed for a in answers]
        alone = [self.chat.parse(model=model, messages=ASK, response_format=Weather, **GREEDY).choices[0].message.parsed for model in (BASE, MODEL)]
        self.assertEqual(asyncio.run(both()), alone)


class Responses(ClientCase):
    options = (*ClientCase.options, "--response-store", "4")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.client = openai.OpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0)
        cls.responses = cls.client.responses
        cls.tool = {"type": "function", "name": "weather", "strict": True, "parameters": WEATHER_SCHEMA}

    def test_text(self):
        whole = self.responses.create(model=MODEL, input="Say hello.", temperature=0, max_output_tokens=16)
        self.assertRegex(whole.id, "^resp_")
        self.assertEqual(whole.object, "response")
        self.assertTrue(whole.output_text)
        self.assertEqual(whole.usage.total_tokens, whole.usage.input_tokens + whole.usage.output_tokens)
        events = list(self.responses.create(model=MODEL, input="Say hello.", temperature=0, max_output_tokens=16, stream=True))
        self.assertEqual([e.sequence_number for e in events], list(range(len(events))))
        self.assertEqual([e.type for e in events[:2]], ["response.created", "response.in_progress"])
        self.assertEqual("".join(e.delta for e in events if e.type == "response.output_text.delta"), whole.output_text)
        self.assertIn(events[-1].type, ("response.completed", "response.incomplete"))
        self.assertEqual(events[-1].response.status, whole.status)
        self.assertEqual(events[-1].response.output_text, whole.output_text)
        same = self.client.chat.completions.create(model=MODEL, messages=HELLO, temperature=0, max_tokens=16)
        self.assertEqual(whole.output_text, same.choices[0].message.content)

    def test_instructions_and_messages(self):
        answer = self.responses.create(model=ADAPTER, instructions="Be brief.", temperature=0, max_output_tokens=8, input=[
            {"role": "user", "content": [{"type": "input_text", "text": "Say hello."}]}, {"role": "assistant", "content": "Hello."},
            {"type": "message", "role": "user", "content": "Again."}])
        same = self.client.chat.completions.create(model=ADAPTER, temperature=0, max_tokens=8, messages=[
            {"role": "system", "content": "Be brief."}, *HELLO, {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Again."}])
        self.assertEqual(answer.output_text, same.choices[0].message.content)

    def test_parse(self):
        whole = self.responses.parse(model=MODEL, input="Ada is 36 years old.", text_format=Person, temperature=0, max_output_tokens=200)
        self.assertEqual(whole.status, "completed")
        self.assertIsInstance(whole.output_parsed, Person)
        with self.responses.stream(model=MODEL, input="Ada is 36 years old.", text_format=Person, temperature=0, max_output_tokens=200) as stream:
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
        self.assertEqual(final.output_parsed, whole.output_parsed)
        for kind in ("response.output_item.added", "response.content_part.added", "response.output_text.done", "response.output_item.done"):
            self.assertIn(kind, kinds)

    def test_tools_and_turns(self):
        more = {"model": MODEL, "tools": [self.tool], "temperature": 0, "max_output_tokens": 200, "parallel_tool_calls": False}
        for choice in ("required", {"type": "function", "name": "weather"}):
            whole = self.responses.create(input="How is the weather?", tool_choice=choice, **more)
            call, = [item for item in whole.output if item.type == "function_call"]
            Weather.model_validate_json(call.arguments)
            events = list(self.responses.create(input="How is the weather?", tool_choice=choice, stream=True, **more))
            pieces = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
            self.assertEqual(pieces, call.arguments)
            done, = [e for e in events if e.type == "response.function_call_arguments.done"]
            self.assertEqual(done.arguments, call.arguments)
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        after = self.responses.create(input=[*ASK, *whole.output, result], **{**more, "max_output_tokens": 8}, tool_choice="none")
        self.assertTrue(after.output_text)
        stored = self.responses.create(input="How is the weather?", tool_choice="required", store=True, **more)
        call, = [item for item in stored.output if item.type == "function_call"]
        result["call_id"] = call.call_id
        later = self.responses.create(input=[result], previous_response_id=stored.id, tool_choice="none", **{**more, "max_output_tokens": 8})
        self.assertEqual(later.previous_response_id, stored.id)
        self.assertGreater(later.usage.input_tokens, stored.usage.input_tokens)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.responses.create(model="none", input="Hi")
        for fields in ({"text": {"format": {"type": "json_schema", "name": "bad", "schema": BAD_FORMAT["json_schema"]["schema"]}}},
                       {"tools": [{"type": "web_search"}]}, {"input": [{"type": "nothing"}]},
                       {"tools": [self.tool], "tool_choice": {"type": "function", "name": "other"}}):
            for stream in (False, True):
                with self.assertRaises(openai.BadRequestError) as caught:
                    list(self.responses.create(**{"model": MODEL, "input": "Hi", "stream": stream, **fields}))
                self.assertTrue(re.match(r"[a-z_]+", caught.exception.param or ""), (fields, caught.exception))
        with self.assertRaises(openai.BadRequestError):
            self.responses.create(model=MODEL, input="Hi", temperature=-1)
        with self.assertRaises((openai.NotFoundError, openai.BadRequestError)):
            self.responses.create(model=MODEL, input="Hi", previous_response_id="resp_none")


if __name__ == "__main__":
    main()
