"""LlamaIndex, instructor and litellm against `heddle serve`, in streams and without.

Needs python/requirements-frameworks.txt, an environment of their own; without those packages it says so and ends with 77.
"""
import os

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else it looks on the network for prices

try:
    import instructor
    import litellm
    import openai
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.openai_like import OpenAILike
    from client_case import ADAPTER, ASK, BAD_FORMAT, HELLO, MODEL, NAMED, WEATHER, WEATHER_SCHEMA, ClientCase, Person, Weather, main
except ImportError as error:
    print(f"left out: {error}")
    raise SystemExit(77)

QUESTION = ASK[0]["content"]
FORMAT = {"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": WEATHER_SCHEMA}}


class LlamaIndex(ClientCase):
    def model(self, name=MODEL, **more):
        return OpenAILike(model=name, api_base=f"{self.url}/v1", api_key="none", is_chat_model=True, is_function_calling_model=True, strict=True, temperature=0,
                          max_retries=0, context_window=2048, max_tokens=more.pop("max_tokens", 200), **more)

    def test_text(self):
        model = self.model(max_tokens=8)
        whole = model.chat([ChatMessage(role="user", content="Say hello.")])
        self.assertTrue(whole.message.content)
        self.assertEqual("".join(part.delta or "" for part in model.stream_chat([ChatMessage(role="user", content="Say hello.")])), whole.message.content)
        plain = OpenAILike(model=MODEL, api_base=f"{self.url}/v1", api_key="none", is_chat_model=False, temperature=0, max_tokens=8, max_retries=0)
        self.assertEqual("".join(part.delta for part in plain.stream_complete("The loom is")), plain.complete("The loom is").text)

    def test_structured_output(self):
        native = self.model(should_use_structured_outputs=True)
        for model in (self.model(), native):
            self.assertIsInstance(model.as_structured_llm(Weather).complete(QUESTION).raw, Weather)
        parts = list(native.as_structured_llm(Weather).stream_chat([ChatMessage(role="user", content=QUESTION)]))
        self.assertIsInstance(parts[-1].raw, Weather)

    def test_tools(self):
        def weather(city: str, days: int) -> str:
            """How the weather is."""
            return f"sunny in {city} for {days} days"
        tool = FunctionTool.from_defaults(weather, fn_schema=Weather)
        model = self.model()
        whole = model.chat_with_tools([tool], user_msg=QUESTION, tool_required=True)
        call, = model.get_tool_calls_from_response(whole)
        Weather.model_validate(call.tool_kwargs)
        last = list(model.stream_chat_with_tools([tool], user_msg=QUESTION, tool_required=True))[-1]
        self.assertEqual(model.get_tool_calls_from_response(last)[0].tool_kwargs, call.tool_kwargs)
        done = model.predict_and_call([tool], user_msg=QUESTION, tool_required=True)
        self.assertIn("sunny in", str(done))

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.model("none").complete("Hi")
        with self.assertRaises(openai.BadRequestError):
            self.model().complete("Hi", response_format=BAD_FORMAT)


class Instructor(ClientCase):
    def client(self, mode):
        return instructor.from_openai(openai.OpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0), mode=mode)

    def test_modes(self):
        for mode in (instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA):
            person, completion = self.client(mode).chat.completions.create_with_completion(
                model=MODEL, messages=ASK, response_model=Person, temperature=0, max_tokens=200, max_retries=0)
            self.assertIsInstance(person, Person, mode)
            self.assertTrue(completion.usage.total_tokens)

    def test_streams(self):
        for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
            parts = list(self.client(mode).chat.completions.create_partial(
                model=MODEL, messages=ASK, response_model=Weather, temperature=0, max_tokens=200, max_retries=0))
            self.assertIn(parts[-1].city, ("Paris", "Rome", "Oslo"))
        alone = self.client(instructor.Mode.JSON_SCHEMA).chat.completions.create(
            model=ADAPTER, messages=ASK, response_model=Weather, temperature=0, max_tokens=200, max_retries=0)
        self.assertIsInstance(alone, Weather)

    def test_errors(self):
        from instructor.core import InstructorRetryException
        for fields, status in (({"model": "none"}, 404), ({"temperature": -1}, 400)):
            with self.assertRaises((openai.APIStatusError, InstructorRetryException)) as caught:
                self.client(instructor.Mode.TOOLS).chat.completions.create(
                    **{"model": MODEL, "messages": HELLO, "response_model": Weather, "max_tokens": 8, "max_retries": 0, **fields})
            self.assertIn(str(status), str(caught.exception))


class LiteLlm(ClientCase):
    def complete(self, **fields):
        return litellm.completion(**{"model": "hosted_vllm/" + MODEL, "api_base": f"{self.url}/v1", "api_key": "none", "messages": ASK, "temperature": 0,
                                     "max_tokens": 200, "num_retries": 0, "max_retries": 0, **fields})

    def test_text(self):
        for provider in ("hosted_vllm", "openai"):
            more = {"model": f"{provider}/{MODEL}", "messages": HELLO, "max_tokens": 8}
            whole = self.complete(**more)
            self.assertTrue(whole.choices[0].message.content)
            self.assertEqual("".join(p.choices[0].delta.content or "" for p in self.complete(stream=True, **more)), whole.choices[0].message.content)

    def test_structured_output(self):
        for form in (FORMAT, Weather):
            Weather.model_validate_json(self.complete(response_format=form).choices[0].message.content)

    def test_tools(self):
        for choice in ("required", NAMED):
            call, = self.complete(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False).choices[0].message.tool_calls
            arguments = Weather.model_validate_json(call.function.arguments)
            chunks = list(self.complete(tools=[WEATHER], tool_choice=choice, parallel_tool_calls=False, stream=True))
            built = litellm.stream_chunk_builder(chunks, messages=ASK)
            self.assertEqual(Weather.model_validate_json(built.choices[0].message.tool_calls[0].function.arguments), arguments)

    def test_messages_and_responses(self):
        """Its other two APIs, which it speaks to the server as they are."""
        answer = litellm.responses(model="openai/" + MODEL, api_base=f"{self.url}/v1", api_key="none", input="Say hello.", max_output_tokens=16, temperature=0)
        self.assertTrue(answer.output[0].content[0].text)
        message = litellm.completion(model="anthropic/" + MODEL, api_base=self.url, api_key="none", messages=HELLO, max_tokens=8, temperature=0)
        self.assertTrue(message.choices[0].message.content)

    def test_errors(self):
        with self.assertRaises(litellm.NotFoundError):
            self.complete(model="hosted_vllm/none")
        with self.assertRaises(litellm.BadRequestError):
            self.complete(response_format=BAD_FORMAT)
        with self.assertRaises(litellm.BadRequestError):
            list(self.complete(temperature=-1, stream=True))


if __name__ == "__main__":
    main()
