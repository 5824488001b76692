"""The conversations that templates.py renders every template for: each a name and arguments of apply_chat_template."""

HARD_TEXT = "  <b>\"it's\"</b> & \\n {{ x }} {% if %} \u00c9t\u00e9 \u4e16\u754c \U0001f600 a\u0301\u200b\u2028\tend \n"
USER = {"role": "user", "content": "What is the weather in K\u00f6ln?"}
SYSTEM = {"role": "system", "content": "You are a terse assistant."}
ANSWER = {"role": "assistant", "content": "It rains."}

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a city, in \u00b0C.\nAsk \"once\".",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Its name, as in <K\u00f6ln>"},
                    "days": {"type": "integer", "enum": [1, 2, 3], "default": 1},
                    "scale": {"type": ["string", "null"], "description": "c or f"},
                    "hours": {"type": "array", "items": {"type": "number"}, "minItems": 0},
                    "place": {
                        "type": "object",
                        "properties": {"lat": {"type": "number", "minimum": -90.0}, "name": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                        "required": ["lat"],
                    },
                },
                "required": ["city", "days"],
                "additionalProperties": False,
            },
            "return": {"type": "string", "description": "A sentence"},
            "strict": True,
        },
    },
    {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}},
]
ARGUMENTS = {"city": "K\u00f6ln \"west\"", "days": 2, "scale": None, "hours": [1, 2.5, 1e-07], "place": {"lat": -0.5, "ok": True}}
DOCUMENTS = [
    {"title": "Looms", "text": "A loom weaves \"cloth\".", "doc_id": 1},
    {"title": "K\u00f6ln", "text": "A city.", "doc_id": 2},
]


def call(name, arguments, id):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def text(*parts):
    return [{"type": "text", "text": part} for part in parts]


def tool_use(arguments, **more):
    """A question, a call, its result and the answer, then another question."""
    return [
        USER,
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call("get_weather", arguments, "call12345")], **more},
        {"role": "tool", "name": "get_weather", "tool_call_id": "call12345", "content": "{\"temp\": 21.5, \"sky\": \"rain\"}"},
        ANSWER,
        {"role": "user", "content": "And tomorrow?"},
    ]


def parallel(arguments):
    """Two calls at once and no text, with results in parts and without a name."""
    calls = [call("get_weather", arguments, "aaaaaaaa1"), call("now", {} if isinstance(arguments, dict) else "{}", "bbbbbbbb2")]
    return [
        SYSTEM,
        USER,
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "aaaaaaaa1", "content": "rain"},
        {"role": "tool", "tool_call_id": "bbbbbbbb2", "content": text("12:00")},
    ]


CONVERSATIONS = {
    "one question": dict(messages=[USER], add_generation_prompt=True),
    "several turns": dict(
        messages=[SYSTEM, USER, ANSWER, {"role": "user", "content": HARD_TEXT}, {"role": "assistant", "content": HARD_TEXT}, USER],
        add_generation_prompt=True,
    ),
    "no prompt": dict(messages=[USER, ANSWER, USER, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nIt  rains. "}], add_generation_prompt=False),
    "parts": dict(
        messages=[{"role": "system", "content": text("Be ", "brief.")}, {"role": "user", "content": text(" Look: ", "at\n")},
                  {"role": "assistant", "content": text("Yes.")}, {"role": "user", "content": text("Why?")}],
        add_generation_prompt=True,
    ),
    "tools": dict(messages=[SYSTEM, USER], tools=TOOLS, add_generation_prompt=True),
    "calls": dict(messages=[SYSTEM] + tool_use(ARGUMENTS), tools=TOOLS, add_generation_prompt=True),
    "calls as text": dict(messages=tool_use("{\"city\": \"K\u00f6ln\", \"days\": 2}"), tools=TOOLS, add_generation_prompt=False),
    "parallel calls": dict(messages=parallel(ARGUMENTS), tools=TOOLS, add_generation_prompt=True),
    "thinking off": dict(
        messages=[USER, {"role": "assistant", "content": "No.", "reasoning_content": "\nlet me see\n"}, USER],
        add_generation_prompt=True,
        kwargs=dict(enable_thinking=False, thinking=False, reasoning_effort="low"),
    ),
    "thinking on": dict(
        messages=[SYSTEM] + tool_use(ARGUMENTS, reasoning="I must look.") [:3],
        tools=TOOLS,
        add_generation_prompt=True,
        kwargs=dict(enable_thinking=True, thinking=True, preserve_thinking=True, clear_thinking=False, builtin_tools=["browser", "python"],
                    reasoning_effort="high", date_string="01 Jan 2030", model_identity="You are Loom."),
    ),
    "roles out of order": dict(messages=[ANSWER, USER, USER, {"role": "critic", "content": "Hm."}, SYSTEM], add_generation_prompt=True),
    "documents": dict(
        messages=[{"role": "developer", "content": "Cite."}, {"role": "user", "content": ""}, {"role": "assistant", "content": ""},
                  {"role": "user", "content": "1 < 2?", "name": "Ann"}],
        tools=[],
        documents=DOCUMENTS,
        add_generation_prompt=False,
        kwargs=dict(available_tools=["a"], citation_mode="fast", custom=3),
    ),
}
