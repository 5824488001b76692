"""Answers that are numbers: embeddings, classes, scores, documents in order, decisions.

  python3 tests/server/values_test.py HEDDLE
"""
import base64
import json
import math
import struct
import subprocess

import numpy as np
from serve_case import DEVICE, HEDDLE, Case, main
from tiny_model import TINY, projections, write_safetensors

LABELS = 3


def write_judge(folder, num_labels, seed):
    """An adapter with a score head, as PEFT writes it for sequence classification."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(seed)
    tensors = {"base_model.model.score.weight": random.normal(0, 0.3, (num_labels, TINY.hidden))}
    for name, out, features in projections(TINY):
        tensors[f"base_model.model.{name}.lora_A.weight"] = random.normal(0, features ** -0.5, (TINY.rank, features))
        tensors[f"base_model.model.{name}.lora_B.weight"] = random.normal(0, TINY.rank ** -0.5, (out, TINY.rank))
    targets = sorted({name.rsplit(".", 1)[1] for name, _, _ in projections(TINY)})
    (folder / "adapter_config.json").write_text(json.dumps({
        "peft_type": "LORA", "task_type": "SEQ_CLS", "r": TINY.rank, "lora_alpha": 8, "target_modules": targets,
        "modules_to_save": ["classifier", "score"]}))
    write_safetensors(folder / "adapter_model.safetensors", tensors, "F32")


def cosine(a, b):
    return float(np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b))


class ValuesTest(Case):
    options = ("--max-batch", "4")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        write_judge(cls.server.folder / "adapters" / "topics", LABELS, 5)
        write_judge(cls.server.folder / "adapters" / "ranker", 1, 6)

    def good(self, path, body):
        status, answer = self.server.post(path, body)
        self.assertEqual(status, 200, answer)
        return answer

    def error(self, path, body):
        status, answer = self.server.post(path, body)
        return status, answer["error"]["message"] if isinstance(answer["error"], dict) else answer["error"]

    def vectors(self, texts, **more):
        return [np.array(d["embedding"]) for d in self.good("/v1/embeddings", {"input": texts, **more})["data"]]

    def test_embeddings(self):
        answer = self.good("/v1/embeddings", {"model": "a1", "input": ["ab", "a longer text"]})
        self.assertEqual((answer["object"], answer["model"], len(answer["data"])), ("list", "a1", 2))
        self.assertEqual([(d["object"], d["index"], len(d["embedding"])) for d in answer["data"]],
                         [("embedding", 0, TINY.hidden), ("embedding", 1, TINY.hidden)])
        self.assertEqual(answer["usage"], {"prompt_tokens": 15, "total_tokens": 15})
        for each in answer["data"]:
            self.assertAlmostEqual(np.linalg.norm(each["embedding"]), 1, places=5)
        alone = self.vectors("ab", model="a1")[0]
        self.assertEqual(list(alone), answer["data"][0]["embedding"])  # in another batch: the same bits
        self.assertEqual(list(self.vectors([97, 98], model="a1")[0]), list(self.vectors([[97, 98]], model="a1")[0]))
        self.assertLess(cosine(alone, self.vectors("ab")[0]), 0.999)  # the base model's is another one

    def test_shapes_of_embeddings(self):
        whole = self.vectors("some text")[0]
        short = self.vectors("some text", dimensions=8)[0]
        np.testing.assert_allclose(short, whole[:8] / np.linalg.norm(whole[:8]), rtol=1e-5)
        coded = self.good("/v1/embeddings", {"input": "some text", "encoding_format": "base64"})["data"][0]["embedding"]
        numbers = struct.unpack(f"<{TINY.hidden}f", base64.b64decode(coded, validate=True))
        self.assertEqual([np.float32(x) for x in whole], [np.float32(x) for x in numbers])
        mean, raw = self.vectors("some text", pooling="mean")[0], self.vectors("some text", pooling="mean", normalize=False)[0]
        np.testing.assert_allclose(mean, raw / np.linalg.norm(raw), rtol=1e-5)
        self.assertLess(cosine(mean, whole), 0.999)
        lorax = self.good("/embed", {"inputs": "some text", "parameters": {"adapter_id": "a2"}})
        self.assertEqual(lorax, {"embeddings": list(self.vectors("some text", model="a2")[0])})
        merged = self.good("/embed", {"inputs": "some text", "parameters": {"merged_adapters": {"ids": ["a1", "a2"], "weights": [0.5, 2]}}})
        lora = [{"name": "a1", "scale": 0.5}, {"name": "a2", "scale": 2}]
        self.assertEqual(merged, {"embeddings": list(self.vectors("some text", lora=lora)[0])})
        self.assertEqual(self.good("/embed", {"inputs": "some text", "stream": False}), {"embeddings": list(self.vectors("some text")[0])})

    def test_the_program_embeds_alike(self):
        lines = '{"prompt": "some text", "id": 7}\n{"prompt": "more", "adapter": "a1"}\n'
        model = ["--model", self.server.folder / "model", "--adapters", self.server.folder / "adapters", "--device", DEVICE]
        done = subprocess.run([HEDDLE, "embed", *map(str, model), "-q", "-"], input=lines, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([(r["index"], r["id"], r["adapter"], r["error"]) for r in rows], [(0, 7, None, None), (1, None, "a1", None)])
        self.assertEqual(rows[0]["embedding"], list(self.vectors("some text")[0]))
        self.assertEqual(rows[1]["embedding"], list(self.vectors("more", model="a1")[0]))
        wrong = subprocess.run([HEDDLE, "embed", *map(str, model), "-q", "-"], input='{"prompt": "x", "max_tokens": 3}\n',
                               capture_output=True, text=True, timeout=60)
        self.assertEqual(wrong.returncode, 1)
        self.assertIn('unknown field "max_tokens"', json.loads(wrong.stdout)["error"])

    def test_classes(self):
        answer = self.good("/v1/classify", {"model": "topics", "input": ["ab", "xyz"]})
        for each in answer["data"]:
            self.assertEqual((each["num_classes"], len(each["probs"])), (LABELS, LABELS))
            self.assertAlmostEqual(sum(each["probs"]), 1, places=5)
            self.assertEqual(each["label"], f"LABEL_{each['probs'].index(max(each['probs']))}")
        logits = self.good("/classify", {"model": "topics", "input": "ab", "use_activation": False})["data"][0]["probs"]
        shares = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(shares, answer["data"][0]["probs"], rtol=1e-4)
        entity, = self.good("/classify", {"inputs": "ab", "parameters": {"adapter_id": "topics"}})
        self.assertEqual((entity["entity"], entity["word"], entity["start"], entity["end"]), (answer["data"][0]["label"], "ab", 0, 2))
        self.assertEqual(entity["score"], max(answer["data"][0]["probs"]))
        status, message = self.error("/v1/classify", {"model": "a1", "input": "ab"})
        self.assertEqual(status, 400)
        self.assertIn("score head", message)

    def test_scores(self):
        query, texts = "query", ["one", "another", "query"]
        vectors = self.vectors([query, *texts], model="a1")
        want = [cosine(vectors[0], v) for v in vectors[1:]]
        answer = self.good("/v1/score", {"model": "a1", "text_1": query, "text_2": texts})
        np.testing.assert_allclose([d["score"] for d in answer["data"]], want, atol=1e-5)
        self.assertAlmostEqual(answer["data"][2]["score"], 1, places=5)
        # A head of one label scores each pair.
        pairs = self.good("/score", {"model": "ranker", "text_1": query, "text_2": texts})["data"]
        alone = self.good("/classify", {"model": "ranker", "input": [query + text for text in texts]})["data"]
        self.assertEqual([p["score"] for p in pairs], [a["probs"][0] for a in alone])
        status, message = self.error("/v1/score", {"text_1": ["a", "b"], "text_2": ["c", "d", "e"]})
        self.assertEqual((status, "2 texts" in message), (400, True))

    def test_documents_in_order(self):
        texts = ["one", "another", "query", "last"]
        scores = [d["score"] for d in self.good("/score", {"text_1": "query", "text_2": texts})["data"]]
        order = sorted(range(len(texts)), key=lambda i: -scores[i])
        body = {"query": "query", "documents": [texts[0], {"text": texts[1]}, *texts[2:]], "top_n": 3}
        answer = self.good("/v1/rerank", body)
        self.assertEqual([(r["index"], r["document"]["text"], r["relevance_score"]) for r in answer["results"]],
                         [(i, texts[i], scores[i]) for i in order[:3]])
        self.assertEqual(answer["results"][0]["index"], 2)
        self.assertGreater(answer["usage"]["total_tokens"], 0)
        self.assertEqual(self.good("/rerank", body)["results"], answer["results"])
        cohere = self.good("/v2/rerank", body)
        self.assertEqual(cohere["meta"]["api_version"]["version"], "2")
        self.assertEqual([sorted(r) for r in cohere["results"]], [["index", "relevance_score"]] * 3)

    def test_decisions(self):
        questions = [
            {"type": "predicate", "name": "is it", "instructions": "Is it so?"},
            {"type": "choice", "instructions": "Which?", "choices": [{"value": "red", "description": "a colour"}, {"value": True}, {"value": "no"}]},
            {"type": "score", "instructions": "How much?", "levels": [{"label": "little"}, {"label": "much"}]}]
        answer = self.good("/v1/decisions", {"model": "a1", "input": "A text. " * 20, "questions": questions})
        is_it, which, much = answer["answers"]
        self.assertEqual((is_it["type"], is_it["name"]), ("predicate", "is it"))
        self.assertTrue(0 < is_it["probability"] < 1)
        self.assertEqual((which["type"], which["name"], [p["value"] for p in which["probabilities"]]), ("choice", None, ["red", True, "no"]))
        self.assertAlmostEqual(sum(p["probability"] for p in which["probabilities"]), 1, places=6)
        likeliest = max(which["probabilities"], key=lambda p: p["probability"])
        self.assertEqual(which["choice"], likeliest["value"])
        self.assertTrue(0 < which["confidence"] <= likeliest["probability"])
        self.assertAlmostEqual(much["score"], much["probabilities"][1]["probability"])
        usage = answer["usage"]
        self.assertEqual((usage["output_tokens"], usage["total_tokens"]), (0, usage["input_tokens"]))
        self.assertGreater(usage["input_tokens_details"]["cached_tokens"], 160)  # the questions share the input
        # The probability of a letter is the one that a reply has for it.
        turn = "x\n\nIs it so?\n(A) false\n(B) true\nReply with a single letter."
        logprobs = []
        for letter in "AB":
            reply = self.good("/v1/chat/completions", {
                "model": "a1", "messages": [{"role": "user", "content": turn}], "max_tokens": 1, "logprobs": True,
                "allowed_token_ids": [ord(letter) - ord("!")]})
            logprobs.append(reply["choices"][0]["logprobs"]["content"][0]["logprob"])
        want = math.exp(logprobs[1]) / (math.exp(logprobs[0]) + math.exp(logprobs[1]))
        asked = {"model": "a1", "input": [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}], "questions": questions[:1]}
        self.assertAlmostEqual(self.good("/v1/decisions", asked)["answers"][0]["probability"], want, places=5)

    def test_what_is_wrong_is_named(self):
        for path, body, status, part in (
                ("/v1/embeddings", {}, 400, "input is missing"),
                ("/v1/embeddings", {"input": "x", "dimensions": 65}, 400, "expected 1 to 64"),
                ("/v1/embeddings", {"input": "x", "encoding_format": "int8"}, 400, "encoding_format"),
                ("/v1/embeddings", {"input": "x", "max_tokens": 3}, 400, 'unknown field "max_tokens"'),
                ("/v1/embeddings", {"input": "x", "model": "none"}, 404, "does not exist"),
                ("/v1/embeddings", {"input": "x" * 2049}, 400, "the context holds 2048"),
                *((path, {"inputs": "x", "parameters": {field: "hub"}}, status, word) for path, status in (("/embed", 422), ("/classify", 400))
                  for field, word in (("adapter_source", "--adapter-source"), ("api_token", "--adapter-source"), ("watermark", "watermark"))),
                ("/embed", {"inputs": "x", "stream": True}, 422, "stream"),
                ("/rerank", {"query": "x"}, 400, "documents"),
                ("/v1/decisions", {"input": "x", "questions": []}, 400, "questions"),
                ("/v1/decisions", {"input": "x", "questions": [{"type": "essay", "instructions": "y"}]}, 400, "questions[0]"),
                ("/v1/decisions", {"input": "x", "questions": [{"type": "choice", "instructions": "y", "choices": [{"value": 1}, {"value": "a"}]}]},
                 400, "questions[0].choices[0]"),
                ("/v1/decisions", {"input": "x", "questions": [{"type": "predicate", "instructions": "y"}], "joint": True}, 400, "joint")):
            got, message = self.error(path, body)
            self.assertEqual(got, status, (path, body, message))
            self.assertIn(part, message)


if __name__ == "__main__":
    main()
