"""What the tests with clients of others share: a server on the demo's model with the demo's adapters, and what they ask it for.

  python3 tests/server/clients/X_test.py HEDDLE [TEST...]      (HEDDLE_MODEL names the model)

The model has 135M weights: it calls no tool and writes no JSON of its own accord, so grammars force both. The answers mean little;
what counts is that each client takes them for what they are. All bounds are small, so that every answer ends by itself.
"""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
from typing import Literal, Optional

from pydantic import BaseModel, Field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import Server, main  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
BASE, ADAPTER = "demo", "person-json"
MODEL = "caller"  # an adapter whose template has calls of tools, which the model's own has not
TEMPLATE = """{%- if tools -%}
<|im_start|>system
Tools:
{%- for tool in tools %}
{{ tool.function | tojson }}
{%- endfor %}
Call them by <tool_call>{"name": ..., "arguments": ...}</tool_call>.<|im_end|>
{% endif -%}
{%- for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""
HELLO = [{"role": "user", "content": "Say hello."}]
ASK = [{"role": "user", "content": "Ada is 36 years old. How is the weather in Paris?"}]


class Pet(BaseModel):
    kind: Literal["cat", "dog"]
    age: int = Field(ge=0, le=30)


class Person(BaseModel):
    """A person of the text."""
    name: str = Field(max_length=12, description="The first name")
    age: int = Field(ge=0, le=120)
    moods: list[Literal["glad", "sad", "calm"]] = Field(max_length=2)
    pet: Optional[Pet]


class Weather(BaseModel):
    """How the weather is."""
    city: Literal["Paris", "Rome", "Oslo"]
    days: int = Field(ge=1, le=7)


WEATHER_SCHEMA = {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Paris", "Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"], "additionalProperties": False}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "How the weather is.", "parameters": WEATHER_SCHEMA}}
CLOCK = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}
NAMED = {"type": "function", "function": {"name": "weather"}}
BAD_SCHEMA = {"type": "object", "properties": {"a": {"type": "strin"}}}  # "strin" is no type
BAD_FORMAT = {"type": "json_schema", "json_schema": {"name": "bad", "schema": BAD_SCHEMA}}


class ModelServer(Server):
    """The demo's model and adapters in place of tiny ones."""

    def __init__(self, folder, *options, num_adapters=0):
        folder = pathlib.Path(folder)
        (folder / "model").symlink_to(os.environ["HEDDLE_MODEL"])
        for name in (ADAPTER, MODEL):
            (folder / "adapters" / name).mkdir(parents=True)
            for file in ("adapter_config.json", "adapter_model.safetensors"):
                shutil.copy(ROOT / "examples/adapters" / ADAPTER / file, folder / "adapters" / name / file)
        (folder / "adapters" / MODEL / "chat_template.jinja").write_text(TEMPLATE)
        super().__init__(folder, "--served-model-name", BASE, "--max-context", "2048", *options, num_adapters=num_adapters)


class ClientCase(unittest.TestCase):
    """Tests of one server that all of them share."""

    options = ()

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.server = ModelServer(temporary.name, *cls.options)
        cls.addClassCleanup(cls.server.stop)
        cls.url = f"http://127.0.0.1:{cls.server.port}"

    def tearDown(self):
        self.assertIsNone(self.server.process.poll(), self.server.log.read_text()[-2000:])

