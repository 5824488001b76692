"""Answers to schemas are what the schemas say: 2000 of a random model at temperature 1.5, held against the jsonschema package.

Needs python/requirements-server.txt; without those packages it says so and ends with 77.
"""
import concurrent.futures
import json
import os
import pathlib
import sys
import warnings

try:
    import jsonschema
except ImportError as error:
    print(f"left out: {error}")
    raise SystemExit(77)

from schema_cases import PROMISED, REFUSED, Patterns, Schemas, WildSchemas
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import Case, main  # noqa: E402

NUM_ANSWERS = int(os.environ.get("HEDDLE_TEST_ANSWERS", 2000))
LONGEST = 400  # tokens of an answer


def problem(schema, text, reason):
    """What is wrong with an answer that ended for this reason; None: nothing. One that was cut says more when its beginning is taken on."""
    if reason == "length":
        return None
    if reason != "stop":
        return f"it ended with {reason}"
    try:
        value = json.loads(text)
    except ValueError as error:
        return f"no JSON: {error}"
    errors = list(jsonschema.Draft202012Validator(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER).iter_errors(value))
    return errors[0].message if errors else None


class Problems(Case):
    """The harness itself finds what it is for."""

    num_adapters = 0

    @classmethod
    def setUpClass(cls):
        pass

    def test_answers_that_are_wrong(self):
        schema = {"type": "integer", "maximum": 5}
        self.assertIsNone(problem(schema, "5", "stop"))
        for text in ("6", '"5"', "5 5", "", "{"):
            self.assertTrue(problem(schema, text, "stop"))
        self.assertIsNone(problem(schema, "6", "length"))
        self.assertTrue(problem(schema, "5", "abort"))
        self.assertTrue(problem({"type": "string"}, '"a\tb"', "stop"))
        self.assertTrue(problem({"type": "string", "format": "date"}, '"2050-02-30"', "stop"))


class SchemaCase(Case):
    options = ("--max-batch", "32", "--max-n", "64")
    num_adapters = 2

    def body(self, schema, **more):
        return {"model": "a0", "messages": [{"role": "user", "content": "go"}], "temperature": 1.5, "max_tokens": LONGEST,
                "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}, **more}

    def answers(self, schema, may_refuse=False, **more):
        """[(text, reason)]; none: it was refused, which `may_refuse` allows"""
        status, answer = self.server.post("/v1/chat/completions", self.body(schema, **more))
        if may_refuse and status == 400:
            self.assertEqual(answer["error"]["param"], "response_format", answer)
            return []
        self.assertEqual(status, 200, (schema, answer))
        return [(choice["message"]["content"], choice["finish_reason"]) for choice in answer["choices"]]

    def check(self, schemas, num_each, may_refuse=False):
        """That answers are right; how many there were, and how many ended."""
        def of(case):
            seed, (name, schema) = case
            return name, schema, self.answers(schema, may_refuse, n=num_each, seed=100 * seed, model=f"a{seed % 2}")
        num, ended, wrong = 0, 0, []
        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            for name, schema, answers in threads.map(of, enumerate(schemas)):
                for text, reason in answers:
                    num += 1
                    ended += reason == "stop"
                    if found := problem(schema, text, reason):
                        wrong.append(f"{name}: {json.dumps(schema)}: {text!r}: {found}")
        self.assertEqual("\n".join(wrong[:10]), "", f"{len(wrong)} of {num} answers")
        return num, ended


class Schema(SchemaCase):
    def test_promised_keywords(self):
        num, ended = self.check(PROMISED.items(), 10)
        self.assertGreaterEqual(ended, 0.9 * num)

    def test_random_schemas(self):
        makers = [Schemas(seed) for seed in range(NUM_ANSWERS // 8)]
        num, ended = self.check([(f"schema {i}", maker.schema()) for i, maker in enumerate(makers)], 8)
        self.assertGreaterEqual(num, NUM_ANSWERS)
        self.assertGreaterEqual(ended, 0.75 * num)

    def test_any_keywords_together(self):
        """Whatever the keywords, also those that no grammar can hold: a schema is refused, or its answers are right."""
        schemas = [(f"wild schema {seed}", WildSchemas(seed).schema()) for seed in range(NUM_ANSWERS // 4)]
        num, _ = self.check(schemas, 4, may_refuse=True)
        self.assertGreaterEqual(num, NUM_ANSWERS // 4)

    def test_any_patterns(self):
        schemas = [(f"pattern {seed}", Patterns(seed).schema()) for seed in range(NUM_ANSWERS // 4)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # of what "[[" may mean one day
            num, _ = self.check(schemas, 4, may_refuse=True)
        self.assertGreaterEqual(num, NUM_ANSWERS // 8)

    def test_answers_that_are_cut(self):
        """The same answer with more room goes on from there, and is right: so what was cut is the beginning of one that the grammar takes."""
        num_cut = 0
        for seed, (name, schema) in enumerate(PROMISED.items()):
            whole = self.answers(schema, seed=seed)[0]
            short, reason = self.answers(schema, seed=seed, max_tokens=3)[0]
            self.assertTrue(whole[0].startswith(short.rstrip("\ufffd")), name)  # the cut may be within a character
            self.assertIsNone(problem(schema, *whole), name)
            num_cut += reason == "length"
            if reason == "stop":
                self.assertEqual(short, whole[0])
        self.assertGreaterEqual(num_cut, len(PROMISED) // 3)

    def test_refused_keywords(self):
        for word, schema in REFUSED:
            status, answer = self.server.post("/v1/chat/completions", self.body(schema))
            self.assertEqual(status, 400, (word, schema, answer))
            self.assertEqual(answer["error"]["param"], "response_format", schema)
            self.assertIn(word, answer["error"]["message"], schema)


if __name__ == "__main__":
    main()
