"""The model as Hugging Face transformers computes it: f32, one row at a time, greedy.

Needs torch, transformers, peft and gguf (versions in README.md). The other scripts of this
folder record with it what the tests of heddle compare against.
"""
import pathlib

import peft
import torch
import transformers
from tokenizers import pre_tokenizers

END = "<|im_end|>"


def load_tokenizer(gguf):
    """The tokenizer of the file, with the pre-tokenizer that its key `tokenizer.ggml.pre` names.

    transformers ignores that key and gives every byte-level BPE the pattern of gpt-2. "smollm"
    splits off every digit first, which differs where several spaces stand before a digit.
    """
    gguf = pathlib.Path(gguf)
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return tokenizer


def load_model(gguf):
    gguf = pathlib.Path(gguf)
    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    return model.eval()


def with_adapters(model, folder, names):
    """A PeftModel with all adapters loaded: their f16 values, computed in f32."""
    names = list(names)
    wrapped = peft.PeftModel.from_pretrained(model, folder / names[0], adapter_name=names[0])
    for name in names[1:]:
        wrapped.load_adapter(folder / name, adapter_name=name)
    assert all(p.dtype == torch.float32 for p in wrapped.parameters())
    return wrapped.eval()


def render(tokenizer, messages):
    return tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@torch.no_grad()
def greedy(model, prompt_ids, end, max_tokens):
    """The greedy tokens without the end token, and the logits [vocab] of every step, the end token's included."""
    ids, cache, tokens, steps = prompt_ids, None, [], []
    while len(tokens) < max_tokens:
        out = model(input_ids=torch.tensor([ids]), past_key_values=cache, use_cache=True)
        cache = out.past_key_values
        steps.append(out.logits[0, -1])
        token = int(steps[-1].argmax())
        if token == end:
            break
        tokens.append(token)
        ids = [token]
    return tokens, steps
