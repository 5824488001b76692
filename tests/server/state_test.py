"""What the page at / reads besides answers: the rows of /state, and /examples of adapters' folders."""
import json
import threading
import time

from serve_case import CANARY, Case, main

CHAT = "/v1/chat/completions"


class Rows(Case):
    """What /state has of the batch."""

    def state(self):
        return json.loads(self.server.request("GET", "/state")[2])

    def test_each_row_has_its_phase(self):
        body = {"messages": [{"role": "user", "content": "warp " * 300}], "each_adapter": ["a0", "a1", None], "max_tokens": 400, "temperature": 0,
                "ignore_eos": True}
        asked = threading.Thread(target=self.server.post, args=(CHAT, body))
        asked.start()
        seen, deadline = {}, time.monotonic() + 60
        while asked.is_alive() and time.monotonic() < deadline:
            for row in self.state()["rows"]:
                seen.setdefault(row["adapter"], []).append(row)
            if all(any(row["phase"] == "decode" for row in seen.get(name, [])) for name in ("a0", "a1", "")):
                break
        asked.join()
        self.assertEqual(set(seen), {"a0", "a1", ""})
        order = ("waiting", "prefill", "decode")
        for rows in seen.values():
            phases = [order.index(row["phase"]) for row in rows]
            self.assertEqual(phases, sorted(phases))
            self.assertEqual(len({row["id"] for row in rows}), 1)
            for row in rows:
                self.assertGreater(row["prompt_tokens"], 1500)
                self.assertLessEqual(row["cached_tokens"], row["computed_tokens"])
                self.assertEqual(row["phase"] == "decode", row["computed_tokens"] == row["prompt_tokens"])
        self.assertEqual(self.state()["rows"], [])


class Examples(Case):
    """What /examples reads of the folders of adapters, and what it does not."""

    def examples(self, name, status=200):
        got, _, text = self.server.request("GET", f"/examples/{name}")
        self.assertEqual(got, status, text)
        return json.loads(text)

    def write(self, name, text, file="eval.jsonl"):
        path = self.server.folder / "adapters" / name / file
        path.write_text(text)
        self.addCleanup(path.unlink)
        return path

    def test_none(self):
        self.assertEqual(self.examples("a0"), {"adapter": "a0", "about": "", "prompts": []})
        self.assertIn("none-such", self.examples("none-such", 404)["error"]["message"])
        self.examples("..%2Fmodel", 404)

    def test_rows_of_evaluations(self):
        rows = [{"prompt": "one", "answer": "1"}, {"prompt": "one"}, {"prompt": "x" * 1001}, {"prompt": 7}, {"other": 1}, ["list"],
                {"messages": [{"role": "user", "content": "two"}, {"role": "assistant", "content": "no"}]}, {"prompt": " "},
                *({"prompt": f"more {i}"} for i in range(9))]
        self.write("a0", "no row\n" + "\n".join(map(json.dumps, rows)))
        self.assertEqual(self.examples("a0")["prompts"], ["one", "two", *(f"more {i}" for i in range(4))])

    def test_a_card(self):
        self.write("a1", "---\nlicense: mit\nwidget:\n- text: \"Is it <b>so</b>?\"\n- messages:\n  - role: user\n    content: And so\ntags:\n"
                         "- text: none\n---\n# Title\n\n| a | b |\n\n```\ncode\n```\n\nTurns warp\ninto weft.\n\nSecond.\n", "README.md")
        self.assertEqual(self.examples("a1"), {"adapter": "a1", "about": "Turns warp into weft.", "prompts": ["Is it <b>so</b>?", "And so"]})
        self.write("a2", "\u00e9" * 400, "README.md")
        self.assertEqual(self.examples("a2")["about"], "\u00e9" * 150 + "\u2026")

    def test_bounds_and_links(self):
        self.write("a0", json.dumps({"prompt": "first"}) + "\n" + "\n".join([json.dumps({"prompt": "x" * 2000})] * 100)
                   + "\n" + json.dumps({"prompt": "past the first 64 KiB"}))
        self.assertEqual(self.examples("a0")["prompts"], ["first"])
        self.write("a1", "z" * (70 << 10))
        self.assertEqual(self.examples("a1")["prompts"], [], "a line that is longer than what is read")
        secret = self.server.folder / "secret.jsonl"
        secret.write_text(json.dumps({"prompt": CANARY}))
        for place, target in (("eval.jsonl", secret), ("README.md", self.server.folder / "secret.txt")):
            link = self.server.folder / "adapters/a3" / place
            link.symlink_to(target)
            self.addCleanup(link.unlink)
        self.assertEqual(self.examples("a3"), {"adapter": "a3", "about": "", "prompts": []})
        (self.server.folder / "adapters/a2/eval.jsonl").mkdir()
        self.addCleanup((self.server.folder / "adapters/a2/eval.jsonl").rmdir)
        self.assertEqual(self.examples("a2")["prompts"], [])


if __name__ == "__main__":
    main()
