#!/usr/bin/env python3
"""Decode steps and prompts of vLLM on a model of Llama 3.1 8B's shape with random weights in bf16 and random adapters of rank 16 on all
seven projections.

  vllm_engine.py [--cells 32/0 32/8 1x8192/0 8x1024/8] [--max-rows 64] [--max-loras 64] [--tuned FOLDER] [--json FILE]

Without --cells they are read from standard input, one a line; run.py does so. Each line of standard output is JSON: first what runs, then
a record of each cell; vLLM's own lines are on standard error. --tuned is a folder of tuned_configs.py; without it vLLM's LoRA kernels take
the settings that the package has.

A decode step: all rows draw 24 tokens, then with new prompts 152; the difference of the two times is that of 128 steps, around 1,024 tokens
of context, without prompts in them. A prompt: from the first request to the last first token. Adapters are loaded before.

vLLM's settings: 8,192 tokens a step, no prefix caching, CUDA graphs of the cells' batches, and of these for 1, 2, 4, ... adapters in use
(specialize_active_lora), without which each step pays for all --max-loras. All else is vLLM's default.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import sys
import tempfile
import time

from cells import CHUNK, CONTEXT, DECODE, PROMPTS, RANK, Cell

SHAPE = dict(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8, head_dim=128,
             vocab_size=128256, max_position_embeddings=131072, tie_word_embeddings=False, rope_theta=500000.0,
             rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
                               original_max_position_embeddings=8192))
CONFIG = dict(SHAPE, architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5, torch_dtype="bfloat16",
              bos_token_id=1, eos_token_id=2, attention_bias=False, mlp_bias=False)
NAME = "llama-3.1-8b"
FEW, MANY = 24, 152  # tokens that rows draw; the steps between are measured
KV_BYTES = 10 << 30  # for 64 rows of 1,250 tokens
OF_MEMORY = 0.4  # of the card's, so much has to be free at the start: two engines start at once
ENVIRONMENT = {"VLLM_HOST_IP": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "VLLM_NO_USAGE_STATS": "1",
               "DO_NOT_TRACK": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "VLLM_USE_FLASHINFER_SAMPLER": "0"}


def write_adapter(folder):
    """An adapter as PEFT saves it. Without torch: vLLM forks, and a fork of a process in which torch has computed may hang."""
    import numpy
    hidden, inner = SHAPE["hidden_size"], SHAPE["intermediate_size"]
    kv = SHAPE["num_key_value_heads"] * SHAPE["head_dim"]
    sites = {"self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (hidden, kv), "self_attn.v_proj": (hidden, kv),
             "self_attn.o_proj": (hidden, hidden), "mlp.gate_proj": (hidden, inner), "mlp.up_proj": (hidden, inner),
             "mlp.down_proj": (inner, hidden)}
    shapes = {}
    for layer in range(SHAPE["num_hidden_layers"]):
        for site, (into, out) in sites.items():
            name = f"base_model.model.model.layers.{layer}.{site}"
            shapes |= {f"{name}.lora_A.weight": (RANK, into), f"{name}.lora_B.weight": (out, RANK)}
    header, at = {}, 0
    for name, (rows, columns) in shapes.items():
        header[name] = dict(dtype="BF16", shape=[rows, columns], data_offsets=[at, at := at + 2 * rows * columns])
    values = numpy.random.default_rng(0).standard_normal(at // 2, dtype=numpy.float32) * numpy.float32(0.02)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(folder / "adapter_model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.write((values.view(numpy.uint32) >> 16).astype(numpy.uint16).tobytes())  # bf16: the upper half of f32
    (folder / "adapter_config.json").write_text(json.dumps(dict(
        peft_type="LORA", task_type="CAUSAL_LM", r=RANK, lora_alpha=2 * RANK, lora_dropout=0.0, bias="none", fan_in_fan_out=False,
        use_rslora=False, use_dora=False, modules_to_save=None, base_model_name_or_path="made",
        target_modules=[site.partition(".")[2] for site in sites])))


class VllmBench:
    """vLLM's engine, and what is asked of it."""

    def __init__(self, folder, max_rows, max_loras):
        from vllm import LLM
        self.adapter, self.num_requests, self.random = folder / "adapter", 0, random.Random(1)
        model = folder / "model"
        for made in (model, self.adapter):
            made.mkdir()
        (model / "config.json").write_text(json.dumps(CONFIG))
        write_adapter(self.adapter)
        sizes = sorted({1, 8, 32, max_rows} & set(range(1, max_rows + 1)))
        self.engine = LLM(
            model=str(model), skip_tokenizer_init=True, load_format="dummy", dtype="bfloat16", seed=0, enable_prefix_caching=False,
            max_model_len=CHUNK + 256, max_num_seqs=max_rows, max_num_batched_tokens=CHUNK, kv_cache_memory_bytes=KV_BYTES,
            gpu_memory_utilization=OF_MEMORY, compilation_config={"cudagraph_capture_sizes": sizes}, enable_lora=True, max_loras=max_loras,
            max_cpu_loras=max_loras, max_lora_rank=RANK, specialize_active_lora=True).llm_engine

    def facts(self):
        import vllm
        from vllm.platforms import current_platform
        config = self.engine.vllm_config
        return dict(device=current_platform.get_device_name(), version=vllm.__version__, max_loras=config.lora_config.max_loras,
                    specialize_active_lora=config.lora_config.specialize_active_lora,
                    async_scheduling=config.scheduler_config.async_scheduling,
                    cudagraph_mode=str(config.compilation_config.cudagraph_mode), max_num_batched_tokens=CHUNK)

    def run(self, prompts, adapters, num_tokens):
        """(seconds until all have drawn so many tokens, their tokens)."""
        from vllm import SamplingParams
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import RequestOutputKind
        params = SamplingParams(temperature=0.0, max_tokens=num_tokens, ignore_eos=True, detokenize=False,
                                output_kind=RequestOutputKind.FINAL_ONLY)
        found, begin = {}, time.perf_counter()
        for row, ids in enumerate(prompts):
            self.num_requests += 1
            number = row % adapters if adapters else 0
            lora = LoRARequest(f"a{number}", number + 1, str(self.adapter)) if adapters else None
            self.engine.add_request(str(self.num_requests), {"prompt_token_ids": ids}, params, lora_request=lora)
        while self.engine.has_unfinished_requests():
            for output in self.engine.step():
                if output.finished:
                    found[output.request_id] = list(output.outputs[0].token_ids)
        seconds = time.perf_counter() - begin
        if len(found) != len(prompts) or any(len(tokens) != num_tokens for tokens in found.values()):
            raise RuntimeError(f"{len(found)} of {len(prompts)} requests have ended, with {sorted(map(len, found.values()))} tokens")
        return seconds, list(found.values())

    def seconds(self, rows, length, adapters, num_tokens):
        prompts = [[self.random.randrange(3, SHAPE["vocab_size"]) for _ in range(length)] for _ in range(rows)]
        return self.run(prompts, adapters, num_tokens)[0]

    def measure(self, cell, num_samples):
        """Milliseconds of a step, or of the prompts."""
        self.seconds(cell.rows, 32, cell.adapters, 2)  # loads the adapters
        if cell.tokens:
            self.seconds(cell.rows, cell.tokens, cell.adapters, 1)
            return [1e3 * self.seconds(cell.rows, cell.tokens, cell.adapters, 1) for _ in range(num_samples + 2)]
        length = CONTEXT - (FEW + MANY) // 2
        self.seconds(cell.rows, length, cell.adapters, 4)
        pairs = [[self.seconds(cell.rows, length, cell.adapters, count) for count in (FEW, MANY)] for _ in range(num_samples)]
        return [1e3 * (many - few) / (MANY - FEW) for few, many in pairs]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", nargs="+", metavar="CELL", help=f"such as {' '.join(DECODE + PROMPTS)}")
    parser.add_argument("--max-rows", type=int, default=64)
    parser.add_argument("--max-loras", type=int, default=64)
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--tuned", type=pathlib.Path, help="a folder of tuned_configs.py")
    parser.add_argument("--cache", type=pathlib.Path, help="folder of what is compiled, for the next start; no two engines may share it")
    parser.add_argument("--json", type=pathlib.Path, help="file that is written anew after each cell")
    arguments = parser.parse_args()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # vLLM writes its log to standard output
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vllm-engine-", dir="/dev/shm") as scratch:
        os.environ.update(ENVIRONMENT)
        for name in ("VLLM_CACHE_ROOT", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ[name] = str((arguments.cache or pathlib.Path(scratch)).resolve() / name.lower())
        if arguments.tuned:
            os.environ["VLLM_TUNED_CONFIG_FOLDER"] = str(arguments.tuned.resolve())
        bench = VllmBench(pathlib.Path(scratch), arguments.max_rows, arguments.max_loras)
        head = dict(bench.facts(), tuned=bool(arguments.tuned), start_s=round(time.monotonic() - begin, 1))
        print(json.dumps(head), file=answers)
        records = []
        for text in arguments.cells or map(str.strip, sys.stdin):
            try:
                cell = Cell.read(text)
                records.append(cell.record(bench.measure(cell, arguments.samples)))
            except Exception as error:  # noqa: BLE001 a cell that fails is reported, the next may not
                records.append(dict(cell=text, error=f"{type(error).__name__}: {error}"[:300]))
            print(json.dumps(records[-1]), file=answers)
            if arguments.json:
                arguments.json.write_text(json.dumps(dict(head, records=records), indent=1))
        bench.engine.engine_core.shutdown()
    answers.flush()
    os._exit(0)  # without what vLLM and torch do at the end of a process, which takes seconds


if __name__ == "__main__":
    main()
