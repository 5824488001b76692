#!/usr/bin/env python3
"""Ids that models' own tokenizers made of 46 texts and more, which lie next to their GGUF vocabularies in a pinned archive.

  python3 tests/conformance/recorded_test.py HEDDLE_TOKENIZER_IDS

A few seconds, by the standard library alone; run.py compares far more. Without the archive it fails; HEDDLE_OFFLINE=1 skips what is not
in the cache, and says so.
"""

import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import fetch_archives  # noqa: E402

DRIVER = None
FOLDER = "llama_cpp_python-0.3.36/vendor/llama.cpp/models"
READ = ["command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact",
        "starcoder"]
READ_WITHOUT_TEXTS = ["aquila", "baichuan", "gpt-neox"]
REFUSED = {"bert-bge": "bert", "gemma-4": "gemma4", "nomic-bert-moe": "t5"}


def vocabulary(name):
    folder = fetch_archives.members_folder("llama-cpp-python")
    if folder is None:
        raise unittest.SkipTest("HEDDLE_OFFLINE: llama-cpp-python is not in the cache, the ids of its vocabularies are not covered")
    return folder / FOLDER / f"ggml-vocab-{name}.gguf"


def run(name, texts):
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    return subprocess.run([DRIVER, vocabulary(name)], input=lines, capture_output=True, encoding="utf-8")


class Recorded(unittest.TestCase):
    maxDiff = None

    def test_all_vocabularies_have_a_test(self):
        there = {path.stem.removeprefix("ggml-vocab-") for path in vocabulary("gpt-2").parent.glob("*.gguf")}
        self.assertEqual(there, {*READ, *READ_WITHOUT_TEXTS, *REFUSED})

    def test_ids_are_those_of_the_models_own_tokenizers(self):
        for name in READ:
            with self.subTest(name):
                path = str(vocabulary(name))
                texts = pathlib.Path(path + ".inp").read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
                lines = pathlib.Path(path + ".out").read_text(encoding="utf-8").split("\n")
                self.assertGreaterEqual(len(texts), 46)
                got = run(name, texts)
                self.assertEqual(got.returncode, 0, got.stderr)
                answers = [json.loads(line)["ids_plain"] for line in got.stdout.split("\n") if line]
                self.assertEqual(len(answers), len(texts))
                for text, ids, line in zip(texts, answers, lines):
                    self.assertEqual(ids, [int(word) for word in line.split()], repr(text))

    def test_reads_the_vocabularies_that_have_no_texts(self):
        for name in READ_WITHOUT_TEXTS:
            with self.subTest(name):
                got = run(name, ["Hello world"])
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertEqual(json.loads(got.stdout)["text"], "Hello world")

    def test_refuses_other_kinds_by_name(self):
        for name, kind in REFUSED.items():
            with self.subTest(name):
                got = run(name, [])
                self.assertEqual((got.returncode, got.stdout), (1, ""))
                self.assertIn(f"tokenizer.ggml.model is {kind}", got.stderr)


if __name__ == "__main__":
    DRIVER = sys.argv.pop(1)
    unittest.main()
