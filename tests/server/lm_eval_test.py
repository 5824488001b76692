"""lm-eval through /v1/completions: the log-probabilities that it asks for with echo equal those that transformers computes.

  lm_eval_test.py HEDDLE TORCH_PYTHON      (an interpreter that has torch, transformers and PEFT; "": without the comparison)
"""
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import lm_eval  # noqa: F401
except ImportError as error:
    print(f"left out: {error}")
    sys.exit(77)

from serve_case import Case, main

TORCH_PYTHON = sys.argv.pop(2) if len(sys.argv) > 2 else ""  # what stands after it names tests
DOCS = [{"query": f"{a} and {b} make", "choices": [f" {a + b}", f" {a * b}", " nothing"], "gold": i % 3}
        for i, (a, b) in enumerate([(1, 2), (3, 4), (10, 5), (7, 7), (2, 9)])]
TASK = """task: tiny_sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{query}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""
REFERENCE = """
import json, sys, torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer
model_path, adapter, rows = sys.argv[1], sys.argv[2], json.load(sys.stdin)
tokenizer = AutoTokenizer.from_pretrained(model_path)
model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.float32), adapter).eval()
scores = []
for query, choice in rows:
    prompt, whole = tokenizer(query).input_ids, tokenizer(query + choice).input_ids
    with torch.no_grad():
        logprobs = torch.log_softmax(model(torch.tensor([whole])).logits[0].double(), -1)
    places = range(len(prompt), len(whole))
    scores.append([sum(logprobs[i - 1, whole[i]].item() for i in places), all(logprobs[i - 1].argmax() == whole[i] for i in places)])
print(json.dumps(scores))
"""


class LmEval(Case):
    def scores(self, adapter):
        """[(log-probability, whether greedy), ...] of each document's choices, as lm-eval got them."""
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            (folder / "data.jsonl").write_text("".join(json.dumps(d) + "\n" for d in DOCS))
            (folder / "task.yaml").write_text(TASK.format(data=folder / "data.jsonl"))
            arguments = (f"base_url=http://127.0.0.1:{self.server.port}/v1/completions,model={adapter},"
                         f"tokenizer={self.server.folder / 'model'},tokenizer_backend=huggingface,num_concurrent=4,max_retries=1")
            done = subprocess.run([pathlib.Path(sys.executable).parent / "lm_eval", "--model", "local-completions", "--model_args", arguments,
                                   "--tasks", "tiny_sums", "--include_path", folder, "--log_samples", "--output_path", folder / "out"],
                                  capture_output=True, text=True, env={"HF_HOME": str(folder), "HF_HUB_OFFLINE": "1", "PATH": "/usr/bin:/bin",
                                                                       "HOME": str(folder)})
            self.assertEqual(done.returncode, 0, done.stderr[-3000:])
            samples = [json.loads(line) for path in folder.rglob("samples_*.jsonl") for line in path.read_text().splitlines()]
        samples.sort(key=lambda sample: sample["doc_id"])
        return [(float(logprob), str(greedy) == "True") for sample in samples for ((logprob, greedy),) in sample["resps"]]

    def test_scores_equal_those_of_transformers(self):
        got = self.scores("a1")
        self.assertEqual(len(got), 3 * len(DOCS))
        self.assertNotEqual(got, self.scores("a2"))
        if not TORCH_PYTHON:
            return
        rows = [(d["query"], c) for d in DOCS for c in d["choices"]]
        done = subprocess.run([TORCH_PYTHON, "-c", REFERENCE, self.server.folder / "model", self.server.folder / "adapters/a1"],
                              input=json.dumps(rows), capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        for (logprob, greedy), (wanted, wanted_greedy) in zip(got, json.loads(done.stdout), strict=True):
            self.assertAlmostEqual(logprob, wanted, delta=1e-4 * max(1.0, abs(wanted)))
            self.assertEqual(greedy, wanted_greedy)


if __name__ == "__main__":
    main()
