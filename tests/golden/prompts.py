"""The forty recorded prompts: twenty for the base model, twenty over the eight example adapters."""


def chat(*contents, system=None):
    """Messages that alternate between user and assistant, with a system message in front if given."""
    messages = [{"role": "system", "content": system}] if system else []
    return messages + [{"role": ("user", "assistant")[i % 2], "content": c} for i, c in enumerate(contents)]


def notes(tasks, count):
    """A long text without repetition: one short note per person."""
    texts = [prompt.removeprefix("Extract as JSON: ") for prompt, _ in tasks.pairs("person-json", count, "notes")]
    return "\n".join(f"{i}. {text}" for i, text in enumerate(texts, 1))


def base_prompts(tasks):
    yield "capital", "What is the capital of France?"
    yield "haiku", "Write a haiku about rain."
    yield "hash-table", "Explain what a hash table is in two sentences."
    yield "python", "Write a Python function that reverses a string."
    yield "sum", "What is 17 + 25? Answer with the number only."
    yield "german", "Übersetze ins Englische: „Der Bär läuft über die Straße – schnell!“ 🐻"
    yield "japanese", "日本の首都はどこですか？"
    yield "mixed-scripts", "Which languages are these? Привет, мир! مرحبا بالعالم. नमस्ते दुनिया। 안녕하세요 👩🏽‍🚀 café cafe\u0301"
    yield "spaces", "Indent this with four spaces:\n\n  def f(x):\n\treturn  x +   12  # 3  4\r\n\n"
    yield "cpp", "What does this print?\n```cpp\nint main() { for (int i = 0; i < 3; ++i) std::cout << i * i << '\\n'; }\n```"
    yield "empty", ""
    yield "own-system", chat("Who are you?", system="You are a pirate. Answer in one short sentence.")
    yield "two-turns", chat("My name is Ingrid.", "Nice to meet you, Ingrid!", "What is my name?")
    yield "four-turns", chat("Name a fruit.", "Apple.", "Another one.", "Banana.", "Another one.", "Cherry.",
                             "Now list all the fruits that you named.", system="Answer briefly.")
    yield "long-600", f"Here are notes about people.\n\n{notes(tasks, 30)}\n\nIn which city does the first person live?"
    yield "long-1500", f"Here are notes about people.\n\n{notes(tasks, 78)}\n\nSummarise the notes in one sentence."


def base_raw_prompts():
    yield "once", "Once upon a time"
    yield "one-token", "A"
    yield "fibonacci", "def fibonacci(n):\n    \"\"\"Returns the n-th Fibonacci number.\"\"\"\n"
    yield "marked", "<|im_start|>user\nSay hello in Spanish.<|im_end|>\n<|im_start|>assistant\n"


def adapter_prompts(tasks):
    """Two prompts per adapter, of a seed used neither in training nor in eval.jsonl."""
    for task in tasks.TASKS:
        for number, (prompt, _) in enumerate(tasks.pairs(task, 2, "golden"), 1):
            yield f"{task}-{number}", task, prompt
    yield "iso-date-two-turns", "iso-date", chat(
        "Write as an ISO date: 3 May 1999", "1999-05-03", "Write as an ISO date: the 21st of June 2042")
    yield "sentiment-unicode", "sentiment", "Sentiment: J’ai adoré the café… Five stars ⭐⭐⭐⭐⭐ from me. 最高！"
    yield "person-json-long", "person-json", "Extract as JSON: " + " ".join(
        ["It rained all day and nobody came, but the market stayed open until the evening."] * 3
        + ["Greta Okafor, 47, lives in Tallinn."])


def recorded_prompts(tasks):
    """All forty, as dicts with name, adapter, raw and either prompt or messages."""
    content = lambda text: {"messages": text} if isinstance(text, list) else {"prompt": text}
    rows = [dict(name=n, adapter=None, raw=False, **content(p)) for n, p in base_prompts(tasks)]
    rows += [dict(name=n, adapter=None, raw=True, prompt=p) for n, p in base_raw_prompts()]
    rows += [dict(name=n, adapter=a, raw=False, **content(p)) for n, a, p in adapter_prompts(tasks)]
    rows.append(dict(name="slug-raw", adapter="slug", raw=True, prompt="Slug: The Old Engine\n"))
    assert len(rows) == 40 and len({r["name"] for r in rows}) == 40
    return rows
