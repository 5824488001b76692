#!/usr/bin/env python3
"""Tests of the docs test itself: what it must refuse, it refuses."""

import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import doc_blocks
import docs_test


def page(*parts):
    return "\n".join(parts) + "\n"


def fenced(language, *lines, mark=None):
    return page(*([f"<!-- docs-test: {mark} -->"] if mark else []), f"```{language}", *lines, "```")


class Rules(unittest.TestCase):
    def errors(self, text):
        return doc_blocks.parse("page.md", text)[1]

    def test_a_good_page_has_its_blocks_with_their_lines(self):
        blocks, errors = doc_blocks.parse("page.md", page("# Title", fenced("sh", "true"), "1. item", "   ```cpp", "   int x;", "   ```"))
        self.assertEqual(errors, [])
        self.assertEqual([(b.language, b.line, b.code) for b in blocks], [("sh", 3, "true\n"), ("cpp", 8, "int x;\n")])

    def test_a_block_names_a_known_language(self):
        self.assertIn("names no language", self.errors(fenced("", "x"))[0])
        self.assertIn("'console'", self.errors(fenced("console", "x"))[0])
        self.assertIn("'cpp file'", self.errors(fenced("cpp file", "x"))[0])

    def test_an_indented_block_is_refused_but_not_in_a_list(self):
        self.assertIn("page.md:3: an indented block", self.errors(page("text", "", "    make test"))[0])
        self.assertEqual(self.errors(page("- item", "", "    more of it")), [])

    def test_a_block_without_end_is_refused(self):
        self.assertIn("no end", self.errors("```sh\ntrue\n")[0])

    def test_only_reasons_of_the_list_count(self):
        self.assertEqual(self.errors(fenced("sh", "true", mark="needs a GPU")), [])
        self.assertIn("'takes long'", self.errors(fenced("sh", "true", mark="takes long"))[0])
        self.assertIn("reason ''", self.errors(fenced("sh", "true", mark=" "))[0])

    def test_a_mark_belongs_to_the_next_line(self):
        self.assertIn("without a block", self.errors(page("<!-- docs-test: needs a GPU -->", "", fenced("sh", "true")))[0])
        self.assertIn("without a block", self.errors("<!-- docs-test: needs a GPU -->")[0])
        self.assertIn("would not run", self.errors(fenced("text", "x", mark="needs a GPU"))[0])

    def test_data_must_be_what_it_says(self):
        self.assertEqual(self.errors(fenced("jsonl", '{"a": 1}', '{"a": 2}')), [])
        self.assertIn("no json", self.errors(fenced("json", "{,}"))[0])

    def test_the_front_page_is_short(self):
        words = "| word, `code` |\n" * 350
        self.assertEqual(doc_blocks.page_errors("README.md", words, []), [])
        self.assertIn("701 words, at most 700", doc_blocks.page_errors("README.md", words + "more", [])[0])
        self.assertEqual(doc_blocks.page_errors("docs/page.md", words + "more", []), [])
        self.assertIn("2501 words, at most 2500", doc_blocks.page_errors("docs/page.md", "word " * 2501, [])[0])
        written = "<!-- table of bench/results/x.json -->\n" + "| 1 |" * 3000 + "\n<!-- end of table -->\n"
        self.assertEqual(doc_blocks.page_errors("docs/page.md", "word " * 2500 + written, []), [])

    def test_a_page_of_an_op_begins_with_an_example(self):
        for before, language, count in ((37, "cpp", 0), (39, "cpp", 1), (0, "text", 1)):
            with self.subTest(before=before, language=language):
                text = "prose\n" * before + "\n" + fenced(language, "int x;")
                blocks = doc_blocks.parse("docs/ops/op.md", text)[0]
                self.assertEqual(len(doc_blocks.page_errors("docs/ops/op.md", text, blocks)), count)
                self.assertEqual(doc_blocks.page_errors("docs/page.md", text, blocks), [])

    def test_nine_marks_are_one_too_many(self):
        for count in (8, 9):
            with self.subTest(count), tempfile.TemporaryDirectory() as folder:
                marks = [fenced("sh", "true", mark="needs a GPU") for _ in range(count)]
                (pathlib.Path(folder) / "README.md").write_text(page(*marks))
                errors = doc_blocks.read_pages(pathlib.Path(folder))[1]
                self.assertEqual(len(errors), count - 8)


class Runs(unittest.TestCase):
    tools = docs_test.Tools(pathlib.Path(os.environ.get("HEDDLE_BUILD_DIR", docs_test.ROOT / "build")), sys.executable)

    def run_text(self, *parts):
        blocks, errors = doc_blocks.parse("page.md", page(*parts))
        self.assertEqual(errors, [])
        status, output, _ = docs_test.run_page([b for b in blocks if b.language != "text"], self.tools)
        return status, output

    def test_blocks_of_a_page_share_shell_and_folder(self):
        status, output = self.run_text(
            fenced("sh", "word=loom", "test -f CMakeLists.txt", "echo 1 > one.txt"), fenced("text", "exit 1"),
            fenced("python", "number = int(open('one.txt').read())"), fenced("text", "output"), fenced("python", "assert number == 1"),
            fenced("sh", 'test "$word" = loom'))
        self.assertEqual(status, 0, output)
        self.assertFalse((docs_test.ROOT / "one.txt").exists())

    def test_a_failing_block_fails_its_page_and_is_named(self):
        for language, code in [("sh", "false"), ("sh", "true\nfalse && true"), ("sh", "no_such_program"), ("python", "assert False"),
                               ("cpp", "int main() { return 3; }"), ("cpp", "int x = y;"), ("c", "int main(void) { return 1; }"),
                               ("c", "#include <vector>")]:
            with self.subTest(language=language, code=code):
                status, output = self.run_text("# Title", fenced("sh", "true"), fenced(language, *code.split("\n")), fenced("sh", "echo after"))
                self.assertNotEqual(status, 0, output)
                self.assertIn("page.md:7", output)
                self.assertNotIn("after", output)

    def test_no_line_is_added_to_a_block(self):
        self.assertNotEqual(self.run_text(fenced("cpp", '#include "heddle/core/dtype.h"', "DType type = DType::kFloat32;"))[0], 0)

    def test_a_block_that_hangs_is_ended(self):
        with mock.patch.object(docs_test, "TIMEOUT", 1):
            status, output = self.run_text(fenced("sh", "sleep 100 | cat"))
        self.assertEqual((status, "stopped after 1 s" in output), (1, True), output)

    def test_torch_is_left_out_with_what_follows_on_the_page(self):
        blocks = doc_blocks.parse("page.md", page(fenced("sh", "true"), fenced("python", "import torch"), fenced("sh", "true")))[0]
        for wanted, count in (("0", 2), ("1", 0)):
            with mock.patch.dict(os.environ, HEDDLE_TEST_TORCH=wanted):
                self.assertEqual(len(docs_test.left_out(blocks, with_module=True)), count)
        with mock.patch.dict(os.environ, HEDDLE_TEST_TORCH="1"):
            self.assertEqual(len(docs_test.left_out(blocks, with_module=False)), 2)

    def test_a_run_with_a_failing_page_fails(self):
        good, bad = (doc_blocks.parse(f"{name}.md", fenced("sh", code))[0] for name, code in (("good", "true"), ("bad", "false")))
        with mock.patch("builtins.print"):
            self.assertTrue(docs_test.run_pages({"good.md": good}, self.tools))
            self.assertFalse(docs_test.run_pages({"good.md": good, "bad.md": bad}, self.tools))
            self.assertFalse(docs_test.run_pages({}, self.tools))


if __name__ == "__main__":
    unittest.main()
