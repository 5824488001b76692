"""Trains Medusa heads for one example adapter on what that adapter answers.

  python train_medusa.py TASK --model DIR [--gguf FILE] --out DIR [--heads 4] [--pairs 800] [--epochs 12]

Needs torch, transformers, peft, gguf and safetensors; no GPU. Writes the adapter's own two files, config.json
and medusa_lm_head.safetensors: `heddle generate --adapter TASK=DIR --speculate heads` drafts with them. Head i,
of one layer, makes of x, what the model's head reads where it draws a token, lm_head(x + silu(W x + b)): the
token i + 2 places on.
"""
import argparse
import json
import pathlib
import random
import shutil
import time

import torch
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

import tasks

HERE = pathlib.Path(__file__).parent
NONE = -100  # the answer has ended before
OTHERS = 4096  # tokens, besides those of answers, of which a batch knows that they are wrong


def encode(tokenizer, prompt):
    text = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                         tokenize=False)
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def answers_of(model, tokenizer, prompts, size):
    """Pairs of a prompt and the adapter's greedy answer, in tokens."""
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    for start in range(0, len(prompts), size):
        heads = [encode(tokenizer, prompt) for prompt in prompts[start:start + size]]
        width = max(map(len, heads))
        ids = torch.tensor([[end] * (width - len(h)) + h for h in heads])
        mask = torch.tensor([[0] * (width - len(h)) + [1] * len(h) for h in heads])
        out = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=64, do_sample=False,
                             eos_token_id=end, pad_token_id=end)
        for head, row in zip(heads, out[:, width:].tolist()):
            yield head, row[:row.index(end) + 1] if end in row else row


@torch.no_grad()
def examples_of(model, pairs, num_heads):
    """Hidden states [n, hidden], and the tokens that the heads should draft there [n, heads]."""
    states, targets = [], []
    for head, tail in pairs:
        row = torch.tensor([head + tail])
        hidden = model(input_ids=row, output_hidden_states=True).hidden_states[-1][0]
        first = len(head) - 1  # its state draws the first token of the answer
        states.append(hidden[first:first + len(tail)].float())
        padded = tail + [NONE] * (num_heads + 1)
        targets += [padded[at + 1:at + 1 + num_heads] for at in range(len(tail))]
    return torch.cat(states), torch.tensor(targets)


class Heads(torch.nn.Module):
    def __init__(self, num_heads, hidden_size):
        super().__init__()
        self.linear = torch.nn.ModuleList(torch.nn.Linear(hidden_size, hidden_size) for _ in range(num_heads))
        for linear in self.linear:
            torch.nn.init.zeros_(linear.weight)
            torch.nn.init.zeros_(linear.bias)

    def forward(self, x):
        return torch.stack([x + torch.nn.functional.silu(linear(x)) for linear in self.linear], dim=1)


@torch.no_grad()
def accuracies(heads, output, states, targets):
    """Of each head, how often it is right."""
    right, known = torch.zeros(targets.shape[1]), torch.zeros(targets.shape[1])
    for begin in range(0, len(states), 64):
        part = targets[begin:begin + 64]
        drafts = (heads(states[begin:begin + 64]) @ output.T).argmax(-1)
        right += ((drafts == part) & (part != NONE)).sum(0)
        known += (part != NONE).sum(0)
    return [round(value, 3) for value in (right / known.clamp(min=1)).tolist()]


def train(heads, output, states, targets, epochs, batch, lr):
    """Cross entropy over the tokens of all answers and some others, other ones in each batch."""
    used = torch.unique(targets[targets != NONE])
    steps = epochs * -(-len(states) // batch)
    optimizer = torch.optim.AdamW(heads.parameters(), lr=lr, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, lr, total_steps=steps, pct_start=0.05)
    for epoch in range(epochs):
        for rows in torch.randperm(len(states)).split(batch):
            tokens = torch.unique(torch.cat([used, torch.randint(len(output), (OTHERS,))]))
            places = torch.full((len(output),), NONE)
            places[tokens] = torch.arange(len(tokens))
            wanted = targets[rows]
            wanted = torch.where(wanted == NONE, wanted, places[wanted.clamp(min=0)])
            logits = heads(states[rows]) @ output[tokens].T
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten(), ignore_index=NONE)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tasks.TASKS)
    parser.add_argument("--model", required=True)
    parser.add_argument("--gguf")
    parser.add_argument("--adapter", type=pathlib.Path, help="its folder; the example of the task")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--pairs", type=int, default=800)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=2e-3)
    args = parser.parse_args()
    torch.manual_seed(0)
    begin = time.time()
    adapter = args.adapter or HERE / args.task
    tokenizer = AutoTokenizer.from_pretrained(args.model, gguf_file=args.gguf)
    base = AutoModelForCausalLM.from_pretrained(args.model, gguf_file=args.gguf, dtype=torch.float32)
    model = PeftModel.from_pretrained(base, str(adapter)).eval()
    output = base.get_output_embeddings().weight.detach().float()

    unseen = {prompt for prompt, _ in tasks.pairs(args.task, 200, "test")}  # eval.jsonl is of these
    prompts = list(dict.fromkeys(prompt for prompt, _ in tasks.pairs(args.task, args.pairs, "medusa")))
    prompts = [prompt for prompt in prompts if prompt not in unseen]
    random.Random(0).shuffle(prompts)
    pairs = list(answers_of(model, tokenizer, prompts, size=32))
    states, targets = examples_of(model, pairs, args.heads)
    print(f"{len(pairs)} answers, {len(states)} places after {time.time() - begin:.0f} s", flush=True)

    kept = len(states) // 10  # of the first answers, to see how often the heads are right where they were not trained
    heads = Heads(args.heads, states.shape[1])
    train(heads, output, states[kept:], targets[kept:], args.epochs, args.batch, args.lr)
    report = dict(task=args.task, heads=args.heads, pairs=len(pairs), places=len(states) - kept,
                  right_on_unseen=accuracies(heads, output, states[:kept], targets[:kept]),
                  seconds=round(time.time() - begin))

    args.out.mkdir(parents=True, exist_ok=True)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if (adapter / name).resolve() != (args.out / name).resolve():
            shutil.copy(adapter / name, args.out / name)
    tensors = {f"{i}.0.linear.{name}": getattr(linear, name).detach().half().contiguous()
               for i, linear in enumerate(heads.linear) for name in ("weight", "bias")}
    save_file(tensors, args.out / "medusa_lm_head.safetensors")
    config = dict(base_model_name_or_path="HuggingFaceTB/SmolLM2-135M-Instruct", medusa_num_heads=args.heads,
                  medusa_num_layers=1, version=2)
    (args.out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    print(json.dumps(report), flush=True)


if __name__ == "__main__":
    main()
