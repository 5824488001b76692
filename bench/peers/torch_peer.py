"""transformers in f32 on the dequantised file, and PEFT with eight adapters in one batch (adapter_names)."""
import pathlib

import peft
import torch
import transformers

import workload

PEFT_DECODE_TOKENS = 16  # per row: its samples take long, and a shorter context is in its favour


def load_model(model_path):
    path = pathlib.Path(model_path)
    return transformers.AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


@torch.no_grad()
def measure_transformers(model_path, threads, num_samples):
    """{name: samples in tokens/s}"""
    torch.set_num_threads(threads)
    model = load_model(model_path)
    ids = torch.tensor([workload.prompt_ids(0, workload.PREFILL_TOKENS)])

    def prefill():
        watch = workload.Stopwatch()
        with watch:
            model(input_ids=ids, use_cache=True, logits_to_keep=1)
        return workload.PREFILL_TOKENS, watch.seconds

    return {"transformers/prefill_512": workload.samples_of(prefill, num_samples)}


@torch.no_grad()
def measure_peft(model_path, adapters, threads, num_samples):
    """{name: samples in tokens/s}: eight rows, each with another of the example adapters."""
    torch.set_num_threads(threads)
    names = sorted(path.parent.name for path in pathlib.Path(adapters).glob("*/adapter_config.json"))
    assert len(names) == workload.NUM_ROWS, f"{adapters} holds {len(names)} adapters, expected {workload.NUM_ROWS}"
    model = peft.PeftModel.from_pretrained(load_model(model_path), f"{adapters}/{names[0]}", adapter_name=names[0])
    for name in names[1:]:
        model.load_adapter(f"{adapters}/{name}", adapter_name=name)
    model.eval()
    prompts = torch.tensor([workload.prompt_ids(row, workload.PROMPT_TOKENS) for row in range(workload.NUM_ROWS)])

    def generate():
        out = model(input_ids=prompts, adapter_names=names, use_cache=True)
        watch = workload.Stopwatch()
        for _ in range(PEFT_DECODE_TOKENS):
            tokens = out.logits[:, -1].argmax(-1, keepdim=True)
            with watch:
                out = model(input_ids=tokens, past_key_values=out.past_key_values, adapter_names=names, use_cache=True)
        return workload.NUM_ROWS * PEFT_DECODE_TOKENS, watch.seconds

    return {"peft/decode_8_rows_8_adapters": workload.samples_of(generate, num_samples)}


def versions():
    return {"torch": torch.__version__, "transformers": transformers.__version__, "peft": peft.__version__}
