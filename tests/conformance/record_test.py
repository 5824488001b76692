#!/usr/bin/env python3
"""tests/conformance/record_test.py: what `make conformance` found becomes records, and the lists of packages agree."""

import pathlib
import re
import sys
import tempfile
import unittest

import conform
import families

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "python"

XML = """<testsuites><testsuite>
<testcase name="test_folder[olmo2]"><properties>
  <property name="model" value="Olmo2ForCausalLM"/><property name="folder F32" value="equal 1.5e-06"/></properties></testcase>
<testcase name="test_folder[olmo2-biases]"><properties>
  <property name="model" value="Olmo2ForCausalLM"/><property name="folder F32" value="differs 0.25"/></properties>
  <failure message="x"/></testcase>
<testcase name="test_gguf_types[gemma3]"><properties>
  <property name="model" value="Gemma3ForCausalLM"/><property name="GGUF Q8_0" value="equal 2e-06"/>
  <property name="GGUF Q4_0" value="equal 0"/></properties></testcase>
<testcase name="test_every_trait_of_a_family_has_a_case">%s</testcase>
</testsuite></testsuites>"""


class Families(unittest.TestCase):
    def read(self, text, reader):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as file:
            file.write(text)
            file.flush()
            return reader(file.name)

    def test_cases_of_a_family_and_form_are_one_record(self):
        got = [(r["name"], r["read as"], r["compared"], r["differ"], r["largest error"]) for r in self.read(XML % "", families.records_of)]
        self.assertEqual(got, [("olmo2", "folder F32", 2, 1, 0.25), ("gemma3", "GGUF Q8_0", 1, 0, 2e-6), ("gemma3", "GGUF Q4_0", 1, 0, 0)])

    def test_what_fails_otherwise_is_a_fault(self):
        self.assertEqual(self.read(XML % "", families.other_faults), [])
        for tag in ("failure", "error"):
            self.assertEqual(self.read(XML % f"<{tag}/>", families.other_faults), ["test_every_trait_of_a_family_has_a_case"])


class Records(unittest.TestCase):
    def test_of_tokenizers(self):
        line = {"tokenizer": "falcon", "shipped as": "GGUF", "read as": "GGUF", "held against": "tokenizers", "texts": 9}
        lines = [line | {"differ": {"ids": 0, "text": 2}}, line | {"refused": "no"}, line | {"refused": "by name", "differ": {"refusal": 0}}]
        got = list(conform.records_of_tokenizers({"lines": lines}))
        self.assertEqual([(r["compared"], r["differ"]) for r in got], [(9, 2), (9, 9), (9, 0)])
        self.assertEqual([r["kind"] for r in got], ["tokenizer"] * 3)

    def test_of_templates(self):
        result = {"conversations": ["a", "b", "c"], "templates": [
            {"template": "trl/x.jinja", "verdict": "equal", "equal": 3, "raised": 1, "details": []},
            {"template": "trl/y.jinja", "verdict": "differs", "equal": 1, "raised": 0, "details": ["z"]}]}
        self.assertEqual([(r["name"], r["compared"], r["differ"]) for r in conform.records_of_templates(result)],
                         [("trl/x.jinja", 3, 0), ("trl/y.jinja", 3, 2)])


class Packages(unittest.TestCase):
    def test_the_lists_name_the_same_versions(self):
        versions = {}
        own = "requirements-server.txt"  # goes into an environment of its own
        for path in sorted(p for p in PYTHON.glob("requirements-*.txt") if p.name != own):
            for name, version in re.findall(r"^([\w-]+)==(\S+)$", path.read_text(), re.MULTILINE):
                self.assertEqual(versions.setdefault(name, version), version, f"{path.name}: {name}")
        self.assertIn("transformers", versions)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
