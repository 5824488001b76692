"""Agents against `heddle serve`: openai-agents over chat/completions and responses, pydantic-ai, and LangChain, in streams and without.

Needs python/requirements-server.txt; without those packages it says so and ends with 77.
"""
import asyncio

try:
    import agents
    import openai
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
    from langchain_openai import ChatOpenAI
    from pydantic_ai import Agent, ModelHTTPError, NativeOutput, ToolOutput, capture_run_messages
    from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
    from pydantic_ai.providers.openai import OpenAIProvider
    from client_case import ADAPTER, BAD_SCHEMA, BASE, MODEL, WEATHER, ClientCase, Person, Weather, main
except ImportError as error:
    print(f"left out: {error}")
    raise SystemExit(77)

EXTRACT, EXTRACTED = "Extract as JSON: Daniel Lindt, 58, lives in Osaka.", '{"name": "Daniel Lindt", "age": 58, "city": "Osaka"}'
QUESTION = "Ada is 36 years old. How is the weather in Paris?"


class OpenaiAgents(ClientCase):
    """One event loop for all tests, since the client's connections belong to it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        agents.set_tracing_disabled(True)
        cls.loop = asyncio.Runner()
        cls.addClassCleanup(cls.loop.close)
        cls.client = openai.AsyncOpenAI(base_url=f"{cls.url}/v1", api_key="none", max_retries=0)
        cls.addClassCleanup(lambda: cls.loop.run(cls.client.close()))
        cls.calls = []

    def models(self, name=MODEL):
        return (agents.OpenAIChatCompletionsModel(name, self.client), agents.OpenAIResponsesModel(name, self.client))

    def agent(self, model, **more):
        settings = agents.ModelSettings(temperature=0, max_tokens=200, **more.pop("settings", {}))
        return agents.Agent(name="helper", instructions=more.pop("instructions", "Help."), model=model, model_settings=settings, **more)

    def run_agent(self, agent, stream, question=QUESTION):
        """(the run's result, kinds of its events)"""
        async def streamed():
            result = agents.Runner.run_streamed(agent, question, max_turns=3)
            kinds = [event.type async for event in result.stream_events()]
            return result, kinds
        if stream:
            return self.loop.run(streamed())
        return self.loop.run(agents.Runner.run(agent, question, max_turns=3)), []

    def test_text(self):
        for model in self.models(ADAPTER):  # it has learnt to end
            agent = self.agent(model, instructions=None)
            for stream in (False, True):
                self.assertEqual(self.run_agent(agent, stream, EXTRACT)[0].final_output, EXTRACTED)

    def test_output_type(self):
        for model in self.models():
            people = [self.run_agent(self.agent(model, output_type=Person), stream)[0].final_output for stream in (False, True)]
            self.assertIsInstance(people[0], Person)
            self.assertEqual(people[0], people[1])

    def test_tool(self):
        called = []

        @agents.function_tool
        def weather(city: Weather) -> str:
            """How the weather is."""
            called.append(city)
            return "sunny"
        for model in self.models():
            for stream in (False, True):
                called.clear()
                agent = self.agent(model, tools=[weather], settings={"tool_choice": "required", "parallel_tool_calls": False},
                                   tool_use_behavior="stop_on_first_tool")
                result, kinds = self.run_agent(agent, stream)
                self.assertEqual((len(called), result.final_output), (1, "sunny"))
                self.assertIsInstance(called[0], Weather)
                self.assertEqual("run_item_stream_event" in kinds, stream)

    def test_tool_then_text(self):
        @agents.function_tool
        def clock() -> str:
            """What time it is."""
            return "noon"
        for model in self.models():
            # After the first call the agent's choice is "auto" again, so that the next answer is text.
            agent = self.agent(model, tools=[clock], settings={"tool_choice": "clock", "parallel_tool_calls": False})
            agent.model_settings.max_tokens = 48
            result, _ = self.run_agent(agent, False)
            self.assertEqual([type(item).__name__ for item in result.new_items][:2], ["ToolCallItem", "ToolCallOutputItem"])
            self.assertIsInstance(result.final_output, str)

    def test_errors(self):
        bad = agents.FunctionTool(name="bad", description="", params_json_schema=BAD_SCHEMA, on_invoke_tool=None, strict_json_schema=False)
        for chosen, unknown in zip(self.models(), self.models("none")):
            with self.assertRaises(openai.NotFoundError):
                self.run_agent(self.agent(unknown), False)
            with self.assertRaises(openai.NotFoundError):
                self.run_agent(self.agent(unknown), True)
            bad.strict_json_schema = True
            with self.assertRaises(openai.BadRequestError):
                self.run_agent(self.agent(chosen, tools=[bad], settings={"tool_choice": "required"}), False)


class PydanticAi(ClientCase):
    def agent(self, name=MODEL, kind=OpenAIChatModel, **more):
        client = openai.AsyncOpenAI(base_url=f"{self.url}/v1", api_key="none", max_retries=0)
        return Agent(kind(name, provider=OpenAIProvider(openai_client=client)), model_settings={"temperature": 0, "max_tokens": 200}, retries=0, **more)

    def test_text_in_streams_and_without(self):
        async def streamed(agent):
            async with agent.run_stream("Say hello.", model_settings={"max_tokens": 8}) as result:
                return "".join([part async for part in result.stream_text(delta=True, debounce_by=None)])
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            whole = self.agent(kind=kind).run_sync("Say hello.", model_settings={"max_tokens": 8})
            self.assertTrue(whole.output)
            self.assertEqual(asyncio.run(streamed(self.agent(kind=kind))), whole.output)
            self.assertEqual(whole.usage.output_tokens, 8)

    def test_output_types(self):
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            for output in (NativeOutput(Person), ToolOutput(Person)):
                self.assertIsInstance(self.agent(kind=kind, output_type=output).run_sync(QUESTION).output, Person)
        self.assertIsInstance(self.agent(ADAPTER, output_type=NativeOutput(Weather)).run_sync(QUESTION).output, Weather)

    def test_output_in_a_stream(self):
        async def last(agent):
            async with agent.run_stream(QUESTION) as result:
                return [part async for part in result.stream_output(debounce_by=None)][-1]
        for output in (NativeOutput(Weather), ToolOutput(Weather)):
            self.assertIsInstance(asyncio.run(last(self.agent(output_type=output))), Weather)

    def test_union_of_outputs(self):
        """Two tools, one of which the answer must call."""
        self.assertIsInstance(self.agent(output_type=[Weather, Person]).run_sync(QUESTION).output, (Weather, Person))

    def test_errors(self):
        for kind in (OpenAIChatModel, OpenAIResponsesModel):
            with self.assertRaises(ModelHTTPError) as caught:
                self.agent("none", kind).run_sync("Hi")
            self.assertEqual(caught.exception.status_code, 404)
            with self.assertRaises(ModelHTTPError) as caught, capture_run_messages():
                self.agent(kind=kind).run_sync("Hi", model_settings={"temperature": -1})
            self.assertEqual(caught.exception.status_code, 400)


class LangChain(ClientCase):
    def model(self, name=MODEL, **more):
        return ChatOpenAI(model=name, base_url=f"{self.url}/v1", api_key="none", temperature=0, max_retries=0, max_tokens=more.pop("max_tokens", 200), **more)

    def test_structured_output(self):
        for method, more in (("json_schema", {"strict": True}), ("function_calling", {})):
            chain = self.model().with_structured_output(Person, method=method, include_raw=True, **more)
            whole = chain.invoke(QUESTION)
            self.assertIsNone(whole["parsing_error"])
            self.assertIsInstance(whole["parsed"], Person)
            parts = [part["parsed"] for part in chain.stream(QUESTION) if "parsed" in part]
            self.assertEqual(parts[-1], whole["parsed"])

    def test_bind_tools(self):
        for choice in ("any", "required", "Weather", True):
            bound = self.model().bind_tools([Weather], tool_choice=choice, parallel_tool_calls=False)
            whole = bound.invoke(QUESTION)
            call, = whole.tool_calls
            self.assertEqual(call["name"], "Weather")
            Weather.model_validate(call["args"])
        total = None
        for part in bound.stream(QUESTION):
            total = part if total is None else total + part
        self.assertEqual([c["args"] for c in total.tool_calls], [call["args"]])
        after = self.model(max_tokens=8).bind_tools([Weather], tool_choice="none").invoke(
            [HumanMessage(QUESTION), whole, ToolMessage("sunny", tool_call_id=call["id"])])
        self.assertIsInstance(after, AIMessage)
        self.assertTrue(after.content)

    def test_batch_of_adapters(self):
        alone = [self.model(name).with_structured_output(Weather).invoke(QUESTION) for name in (BASE, MODEL)]
        both = asyncio.run(self.both())
        self.assertEqual(both, alone)

    async def both(self):
        return await asyncio.gather(*(self.model(name).with_structured_output(Weather).ainvoke(QUESTION) for name in (BASE, MODEL)))

    def test_responses(self):
        model = self.model(use_responses_api=True)
        self.assertIsInstance(model.with_structured_output(Weather).invoke(QUESTION), Weather)
        call, = model.bind_tools([Weather], tool_choice="Weather", parallel_tool_calls=False).invoke(QUESTION).tool_calls
        Weather.model_validate(call["args"])
        short = self.model(use_responses_api=True, max_tokens=16)
        self.assertEqual("".join(part.text for part in short.stream("Say hello.")), short.invoke("Say hello.").text)

    def test_errors(self):
        with self.assertRaises(openai.NotFoundError):
            self.model("none").with_structured_output(Weather).invoke("Hi")
        with self.assertRaises(openai.BadRequestError):
            self.model().bind(response_format={"type": "json_schema", "json_schema": {"name": "bad", "schema": BAD_SCHEMA}}).invoke("Hi")
        with self.assertRaises(openai.BadRequestError):
            list(self.model().bind_tools([WEATHER], tool_choice={"type": "function", "function": {"name": "other"}}).stream("Hi"))


if __name__ == "__main__":
    main()
