"""Records prompts.json: greedy tokens and logits of forty prompts, by transformers and PEFT in f32.

  python record.py --gguf FILE --adapters DIR [--out prompts.json]

DIR is examples/adapters. README.md says what the fields mean.
"""
import argparse
import json
import pathlib
import sys

import numpy
import torch

import prompts
import reference

MAX_TOKENS = 48
TOP = 5
STRIDE = 64
WITH_FIRST_LOGITS = {"capital", "long-600", "sql-1"}
MERGED = ["iso-date", "sql"]  # all seven projections; rank_pattern and alpha_pattern


def shortest(values):
    """f32 values with the fewest digits that read back bit for bit."""
    return [float(str(numpy.float32(v))) for v in values]


def step_of(logits):
    top = torch.topk(logits, TOP)
    values = top.values.numpy()
    return dict(ids=top.indices.tolist(), logits=shortest(values), margin=shortest([values[0] - values[1]])[0])


def record_row(model, tokenizer, end, row):
    messages = row.get("messages") or [{"role": "user", "content": row["prompt"]}]
    text = row["prompt"] if row["raw"] else reference.render(tokenizer, messages)
    prompt_ids = reference.encode(tokenizer, text)
    if row["adapter"]:
        model.set_adapter(row["adapter"])
        tokens, steps = reference.greedy(model, prompt_ids, end, MAX_TOKENS)
    else:
        with model.disable_adapter():
            tokens, steps = reference.greedy(model, prompt_ids, end, MAX_TOKENS)
    result = dict(row, prompt_ids=prompt_ids, token_ids=tokens, text=tokenizer.decode(tokens),
                  finish_reason="length" if len(tokens) == MAX_TOKENS else "stop", steps=[step_of(s) for s in steps])
    if row["name"] in WITH_FIRST_LOGITS:
        result["first_logits"] = dict(stride=STRIDE, values=shortest(steps[0][::STRIDE].numpy()))
    print(f"{row['name']:20} {len(prompt_ids):5} -> {len(tokens):2} tokens, least margin "
          f"{min(s['margin'] for s in result['steps']):.4f}: {result['text']!r}", file=sys.stderr, flush=True)
    return result


def record_merged(args, tokenizer, end, rows):
    """Adds merged_token_ids: the adapter's weights added into the base model's, then no adapter at all."""
    for name in MERGED:
        merged = reference.with_adapters(reference.load_model(args.gguf), args.adapters, [name]).merge_and_unload()
        for row in rows:
            if row["adapter"] == name:
                row["merged_token_ids"], _ = reference.greedy(merged, row["prompt_ids"], end, MAX_TOKENS)
                same = row["merged_token_ids"] == row["token_ids"]
                print(f"{row['name']:20} merged: {'same' if same else 'OTHER'} tokens", file=sys.stderr, flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--gguf", required=True)
    parser.add_argument("--adapters", required=True, type=pathlib.Path)
    parser.add_argument("--out", default=pathlib.Path(__file__).with_name("prompts.json"), type=pathlib.Path)
    args = parser.parse_args()
    sys.path.insert(0, str(args.adapters))
    import tasks

    tokenizer = reference.load_tokenizer(args.gguf)
    end = tokenizer.convert_tokens_to_ids(reference.END)
    model = reference.with_adapters(reference.load_model(args.gguf), args.adapters, tasks.TASKS)
    rows = [record_row(model, tokenizer, end, row) for row in prompts.recorded_prompts(tasks)]
    record_merged(args, tokenizer, end, rows)
    lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
    args.out.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
