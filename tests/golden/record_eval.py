"""Records eval.json: which rows of the adapters' eval.jsonl transformers answers rightly, with the adapter and without.

  python record_eval.py --gguf FILE --adapters DIR [--out eval.json]

DIR is examples/adapters. Rows of one adapter are answered in batches with padding on the left, as train.py does.
"""
import argparse
import json
import pathlib
import sys

import torch

import reference

MAX_TOKENS = 64
BATCH = 25


@torch.no_grad()
def answers(model, tokenizer, prompts):
    end = tokenizer.convert_tokens_to_ids(reference.END)
    texts = []
    for start in range(0, len(prompts), BATCH):
        heads = [reference.encode(tokenizer, reference.render(tokenizer, [{"role": "user", "content": p}]))
                 for p in prompts[start:start + BATCH]]
        width = max(map(len, heads))
        out = model.generate(input_ids=torch.tensor([[end] * (width - len(h)) + h for h in heads]),
                             attention_mask=torch.tensor([[0] * (width - len(h)) + [1] * len(h) for h in heads]),
                             max_new_tokens=MAX_TOKENS, do_sample=False, eos_token_id=end, pad_token_id=end)
        texts += tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)
    return texts


def judged(texts, rows):
    """How many texts equal their row's answer, and the texts that do not, by row number."""
    wrong = {str(i): text for i, (text, row) in enumerate(zip(texts, rows)) if text.strip() != row["answer"]}
    return len(rows) - len(wrong), wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--adapters", required=True, type=pathlib.Path)
    parser.add_argument("--out", default=pathlib.Path(__file__).with_name("eval.json"), type=pathlib.Path)
    args = parser.parse_args()
    names = sorted(path.parent.name for path in args.adapters.glob("*/eval.jsonl"))

    tokenizer = reference.load_tokenizer(args.gguf)
    model = reference.with_adapters(reference.load_model(args.gguf), args.adapters, names)
    result = {}
    for name in names:
        rows = [json.loads(line) for line in (args.adapters / name / "eval.jsonl").read_text().splitlines()]
        prompts = [row["prompt"] for row in rows]
        model.set_adapter(name)
        right, wrong = judged(answers(model, tokenizer, prompts), rows)
        with model.disable_adapter():
            base_right, base_wrong = judged(answers(model, tokenizer, prompts), rows)
        base_right_rows = [i for i in range(len(rows)) if str(i) not in base_wrong]
        result[name] = dict(rows=len(rows), adapter_right=right, adapter_wrong=wrong, base_right=base_right,
                            base_right_rows=base_right_rows)
        print(name, json.dumps(result[name]), file=sys.stderr, flush=True)
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
