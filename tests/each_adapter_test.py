#!/usr/bin/env python3
"""Rows of `heddle generate` with each_adapter, on a small random model: whatever the order, each answer is its adapter's own, to its own
template."""
import itertools
import pathlib
import shutil
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "server"))

import tiny_model
from program_case import Case, main, run

NAMES = ("a0", "a1", None)


class EachAdapter(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.home = pathlib.Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.home)
        tiny_model.write_all(cls.home, 2)
        (cls.home / "adapters/a1/chat_template.jinja").write_text("{% for m in messages %}[{{ m['content'] }}]{% endfor %}")

    def generate(self, rows, *options):
        return self.answers("--model", self.home / "model", "--adapters", self.home / "adapters", "--device", "cpu",
                            "--threads", 2, "--prompts", self.rows(*rows), *options)

    def test_answers_are_those_of_each_alone_in_any_order(self):
        for prompt in ({"prompt": "the loom " * 8}, {"messages": [{"role": "user", "content": "the loom " * 8}]}):
            usual = {**prompt, "max_tokens": 8}
            alone = dict(zip(NAMES, self.generate([{**usual, "adapter": name or "base"} for name in NAMES], *self.raw(prompt)), strict=True))
            texts = {name: answer["token_ids"] for name, answer in alone.items()}
            self.assertEqual(len({tuple(ids) for ids in texts.values()}), 3, "the answers differ")
            orders = [*itertools.permutations(NAMES), ("a0", None, "a0", None), (None, "a1", None, "a1"), ("a1", "a1", "base", "a0")]
            for order, row in zip(orders, self.generate([{**usual, "each_adapter": order} for order in orders], *self.raw(prompt)), strict=True):
                answers = row["each_adapter"]
                wanted = [None if name == "base" else name for name in order]
                self.assertEqual([answer["adapter"] for answer in answers], wanted)
                self.assertEqual([answer["token_ids"] for answer in answers], [texts[name] for name in wanted], order)
                self.assertEqual([answer["prompt_tokens"] for answer in answers], [alone[name]["prompt_tokens"] for name in wanted], order)
            if "messages" in prompt:
                self.assertNotEqual(alone["a1"]["prompt_tokens"], alone["a0"]["prompt_tokens"], "templates differ")

    def test_merges_have_the_template_of_their_first(self):
        """Also where two lists have one content, and so are one merge."""
        adapters = self.home / "adapters"
        shutil.copytree(adapters / "a1", adapters / "a2")
        (adapters / "a2/chat_template.jinja").unlink()
        row = {"messages": [{"role": "user", "content": "the loom " * 8}], "max_tokens": 8}
        merge = {"method": "ties", "density": 0.5, "majority_sign_method": "frequency"}
        lists = [[{"name": first, "scale": 1.0}, {"name": "a0", "scale": 0.5}] for first in ("a1", "a2")]
        alone = self.generate([{**row, "adapters": each, "merge": merge} for each in lists])
        plain = self.generate([{**row, "adapter": "a1"}, {**row, "adapter": "a0"}, {**row, "adapters": lists[0]}])
        self.assertEqual([a["prompt_tokens"] for a in alone], [a["prompt_tokens"] for a in plain[:2]])
        self.assertEqual([(a["adapters"], a["merge"]) for a in alone], [(each, merge) for each in lists])
        self.assertNotIn("merge", plain[2])
        self.assertEqual(len({tuple(a["token_ids"]) for a in (*alone, *plain)}), 5)
        together = self.generate([{**row, "each_adapter": [lists[0], "a0", lists[1], None], "merge": merge}])[0]["each_adapter"]
        self.assertEqual([together[i]["token_ids"] for i in (0, 1, 2)], [a["token_ids"] for a in (alone[0], plain[1], alone[1])])
        code, shown, err = run("generate", "--model", self.home / "model", "--adapters", adapters, "--device", "cpu", "--prompts",
                               self.rows({**row, "adapters": lists[0], "merge": merge}, row))
        self.assertEqual(code, 0, err)
        self.assertIn("ties(a1+0.5*a0)", shown)

    @staticmethod
    def raw(prompt):
        return ["--raw"] if "prompt" in prompt else []


if __name__ == "__main__":
    main()
