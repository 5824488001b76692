#!/usr/bin/env python3
"""Renders the chat templates of folders with transformers and with heddle and compares every byte.

  python3 tests/conformance/templates.py --render build/render_template [FOLDER...] [--record FILE] [--show N]

A FOLDER is searched for *.jinja; without one the folders are those of the pinned archives (tools/fetch_archives.py). Each template is rendered for the conversations
of conversations.py, by transformers' own apply_chat_template and by the program render_template. Where transformers
raises, heddle must too, with the words of raise_exception where the template calls that; "refused" is what heddle has no
construct for.
Needs jinja2 and transformers 5. Exit code 1 where fewer than 90 % of the templates are equal on all conversations or
more than five are refused.
"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import subprocess
import sys
import unittest.mock

import jinja2
from conversations import CONVERSATIONS

ROOT = pathlib.Path(__file__).resolve().parents[2]
PACKAGES = ["llama-cpp-python", "trl", "vllm"]
CLOCK = 1700000000  # 14 November 2023, 22:13:20 UTC: what strftime_now tells
TOKENS = {"bos_token": "<|begin|>", "eos_token": "<|end|>", "unk_token": "<|unk|>", "pad_token": "<|pad|>"}
LEAST_EQUAL = 0.9
MOST_REFUSED = 5


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(CLOCK, datetime.timezone.utc).replace(tzinfo=None)


class Reference:
    """apply_chat_template of a tokenizer that has nothing but special tokens."""

    def __init__(self):
        import tokenizers
        import transformers
        from transformers.utils import chat_template_utils

        unittest.mock.patch.object(chat_template_utils, "datetime", FixedTime).start()
        self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.BPE()), **TOKENS)
        self.version = transformers.__version__

    def render(self, source, conversation):
        arguments = dict(conversation)
        messages, kwargs = arguments.pop("messages"), arguments.pop("kwargs", {})
        try:
            return {"text": self.tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **arguments, **kwargs)}
        except Exception as error:  # whatever a template may raise
            called = type(error) is jinja2.exceptions.TemplateError  # by raise_exception
            return {"error": f"{type(error).__name__}: {error}", "raised": str(error) if called and str(error).isprintable() else None}


def render_with_heddle(program, sources):
    """{(template, conversation): answer}"""
    pairs, lines = [], []
    for path, source in sources.items():
        for name, given in CONVERSATIONS.items():
            pairs.append((path, name))
            lines.append(json.dumps({
                "templates": {"default": source}, "tools": None, "documents": None, "kwargs": None, **given,
                "special_tokens": TOKENS, "clock": CLOCK}))
    done = subprocess.run([program], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, env={**os.environ, "TZ": "UTC"})
    answers = done.stdout.split("\n")[:-1]
    if len(answers) != len(pairs):
        raise SystemExit(f"{program}: {len(answers)} answers to {len(pairs)} lines")
    return {pair: json.loads(answer) for pair, answer in zip(pairs, answers)}


def verdict(expected, got):
    if "error" in expected:
        same_words = expected["raised"] is None or expected["raised"] in got.get("error", "")
        return "equal" if "error" in got and same_words else "differs"
    if "error" in got:
        return "refused" if got["is_refusal"] else "differs"
    return "equal" if expected["text"] == got["text"] else "differs"


def first_difference(expected, got):
    """What either says, from shortly before the first character in which they differ."""
    if "text" not in expected or "text" not in got:
        return f"transformers {expected}\nheddle       {got}"
    a, b = expected["text"], got["text"]
    place = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    start = max(place - 40, 0)
    return f"character {place}\ntransformers {a[start:place + 60]!r}\nheddle       {b[start:place + 60]!r}"


def archive_folders():
    """{package: folder} of the archives that have templates, None where that is not there offline, which is reported."""
    sys.path.insert(0, str(ROOT / "tools"))
    import fetch_archives

    folders = {}
    for package in PACKAGES:
        folder = fetch_archives.members_folder(package)
        if folder is None:
            print(f"HEDDLE_OFFLINE: {package} is not in the cache; its templates are not covered", file=sys.stderr)
        folders[package] = folder
    return folders


def collect(folders):
    """{shown path: text} of all templates."""
    sources = {}
    for name, folder in folders.items():
        for path in sorted(folder.rglob("*.jinja")):
            sources[f"{name}/{path.relative_to(folder)}"] = path.read_text()
    return sources


def compare(sources, reference, program):
    """One result per template: its verdict, why, and on how many conversations it is equal."""
    answers = render_with_heddle(program, sources)
    results = []
    for path, source in sources.items():
        verdicts, details = {}, []
        num_raised = 0
        for name, given in CONVERSATIONS.items():
            expected, got = reference.render(source, given), answers[path, name]
            num_raised += "error" in expected
            verdicts[name] = verdict(expected, got)
            if verdicts[name] != "equal":
                details.append(f"{path}, {name}: {got['error'] if verdicts[name] == 'refused' else first_difference(expected, got)}")
        whole = next((v for v in ("refused", "differs") if v in verdicts.values()), "equal")
        results.append({"template": path, "verdict": whole, "equal": list(verdicts.values()).count("equal"), "raised": num_raised,
                        "details": details})
    return results


def print_table(results, num_distinct):
    print(f"{'template':92} equal  raised")
    for result in results:
        shown = "" if result["verdict"] == "equal" else "  " + result["verdict"]
        print(f"{result['template']:92} {result['equal']:2}/{len(CONVERSATIONS)}  {result['raised']:6}{shown}")
    counts = collections.Counter(result["verdict"] for result in results)
    print(f"{len(results)} templates, {num_distinct} distinct: {counts['equal']} equal, {counts['differs']} differ, {counts['refused']} refused")
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--render", required=True, help="the program render_template")
    parser.add_argument("--record", type=pathlib.Path, help="writes the results as JSON")
    parser.add_argument("--show", type=int, default=5, help="differences that are shown")
    options = parser.parse_args()
    reference = Reference()
    folders = {folder.name: folder for folder in options.folders} or archive_folders()
    sources = collect({name: folder for name, folder in folders.items() if folder is not None})
    missing = [name for name, folder in folders.items() if folder is None]
    if not sources and not missing:
        raise SystemExit("no *.jinja in the folders")
    results = compare(sources, reference, options.render) if sources else []
    counts = print_table(results, len(set(sources.values())))
    for detail in [d for result in results for d in result["details"]][: options.show]:
        print("\n" + detail)
    if options.record:
        record = {"transformers": reference.version, "conversations": list(CONVERSATIONS), "not covered": missing, "templates": results}
        options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    return 0 if counts["equal"] >= LEAST_EQUAL * len(results) and counts["refused"] <= MOST_REFUSED else 1


if __name__ == "__main__":
    sys.exit(main())
