"""Decode steps of transformers with PEFT's mixed batch next to those of heddle's engine, one after the other on one GPU.

  engine_peft.py --heddle-bench PROGRAM --json FILE [--shapes llama-3.1-8b smollm2-135m] [--rows 32/0 32/8]
                 [--ways eager linears graph] [--samples 4] [--steps 8]

heddle: `heddle-bench engine`, which ends before torch makes its model. PEFT: the same shape and adapters of
rank 16 on all seven projections, all in bf16 with random weights, made on the GPU; row i uses adapter i % adapters (`adapter_names`). Without
adapters PEFT is not there. Each row has a prompt of its own, and the samples lie around 1,024 tokens of context. A step is the model's call
for one token a row and the choice of the next; the host does not wait for the GPU between the steps of a sample. The ways:

  eager    a cache that grows, as `generate` takes by default
  static   transformers' StaticCache
  linears  eager, with PEFT's linear layers compiled by torch.compile; only with adapters
  graph    StaticCache, the step recorded as one CUDA graph

A way that does not run is reported with its error; so is graph with adapters, as PEFT copies from host memory in each
layer. What is compiled is compiled once and kept by torch on the disk: a first run may take a minute more. Needs torch, transformers and, for adapters, peft.
"""
import argparse
import datetime
import gc
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

CONTEXT, WARM_UP, RANK = 1024, 4, 16
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPES = {
    "smollm2-135m": dict(num_hidden_layers=30, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3,
                         vocab_size=49152, max_position_embeddings=16384, rope_theta=100000.0, tie_word_embeddings=True),
    "llama-3.1-8b": dict(num_hidden_layers=32, hidden_size=4096, intermediate_size=14336, num_attention_heads=32, num_key_value_heads=8,
                         vocab_size=128256, max_position_embeddings=131072, rope_theta=500000.0),
}
CELL = ("model", "rows", "adapters")
WAYS = ("eager", "static", "linears", "graph")


def make_model(shape):
    """A random Llama in bf16."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SHAPES[shape], attn_implementation="sdpa"))
    return model.eval()


def with_adapters(model, count):
    """PEFT's model with `count` adapters in bf16, which is faster than the f32 that PEFT takes by default."""
    import peft
    config = peft.LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=LINEARS, inference_mode=True, init_lora_weights=False)
    model = peft.get_peft_model(model, config, adapter_name="a0", autocast_adapter_dtype=False)
    for number in range(1, count):
        model.add_adapter(f"a{number}", config, autocast_adapter_dtype=False)
    assert all(weight.dtype == torch.bfloat16 and weight.is_cuda for weight in model.parameters())
    return model.eval()


class Decoding:
    """Rows after their prompts, and their decode steps."""

    def __init__(self, model, rows, adapters, way, num_steps):
        self.model = model
        self.names = {"adapter_names": [f"a{row % adapters}" for row in range(rows)]} if adapters else {}
        prompt, longest = CONTEXT - num_steps // 2, CONTEXT + num_steps
        config = model.config
        is_growing = way in ("eager", "linears")
        self.cache = (transformers.DynamicCache(config=config) if is_growing
                      else transformers.StaticCache(config=config, max_cache_len=longest))
        ids = torch.randint(0, config.vocab_size, (rows, prompt), device="cuda")
        self.tokens = self.call(ids, torch.arange(prompt, device="cuda"))
        self.position = torch.full((1,), prompt, device="cuda")
        self.graph = None
        if way == "graph":
            self.record()

    def call(self, ids, position):
        logits = self.model(input_ids=ids, past_key_values=self.cache, cache_position=position, position_ids=position[None],
                            use_cache=True, logits_to_keep=1, **self.names).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    def step(self):
        if self.graph:
            self.graph.replay()
        else:
            self.tokens = self.call(self.tokens, self.position)
            self.position = self.position + 1

    def record(self):
        """The step as a graph that feeds its tokens to its next replay."""
        for _ in range(2):
            self.step()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.tokens.copy_(self.call(self.tokens, self.position))
            self.position += 1
        self.graph = graph

    def sample(self, num_steps):
        """Milliseconds of a step, of some one after the other."""
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(num_steps):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3 / num_steps


@torch.no_grad()
def measure(model, rows, adapters, way, num_samples, num_steps):
    decoding = Decoding(model, rows, adapters, way, num_samples * num_steps + 2 * WARM_UP)
    linears = [module for module in model.modules() if hasattr(module, "lora_A")] if way == "linears" else []
    try:
        for module in linears:
            module.forward = torch.compile(module.forward, dynamic=False)
        for _ in range(WARM_UP):
            decoding.step()
        return [decoding.sample(num_steps) for _ in range(num_samples)]
    finally:
        for module in linears:
            del module.forward


def measure_peers(args, shape):
    """A record of every cell and way."""
    model, records = make_model(shape), []
    cells = [tuple(map(int, text.split("/"))) for text in args.rows]
    for rows, adapters in sorted(cells, key=lambda cell: cell[1]):  # PEFT, once there, stays
        if adapters:
            model = with_adapters(model, adapters)
        for way in args.ways:
            if way == "linears" and not adapters:
                continue
            record = dict(program="peft" if adapters else "transformers", way=way, model=shape, op="decode_step", rows=rows,
                          adapters=adapters, context=CONTEXT)
            try:
                samples = measure(model, rows, adapters, way, args.samples, args.steps)
                record |= dict(tokens_per_s=1e3 * rows / statistics.median(samples), ms=statistics.median(samples), samples=samples)
            except Exception as error:  # noqa: BLE001 what does not run is reported
                record["error"] = f"{type(error).__name__}: {error}"[:300]
            tell(record)
            records.append(record)
            torch.cuda.empty_cache()
    return records


def measure_heddle(args, shape):
    """(settings, records of decode steps) of heddle-bench in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "engine.json"
        subprocess.run([args.heddle_bench, "engine", "--shape", shape, "--rows", *args.rows, "--prompt", "0", "--prefill-chunk", "8192",
                        "--samples", str(args.samples), "--commit", args.commit, "--json", path], check=True, stdout=subprocess.DEVNULL)
        report = json.loads(path.read_text())
    records = [dict(program="heddle", model=shape, **record) for record in report.pop("records") if record["op"] == "decode_step"]
    for record in records:
        tell(record)
    return {name: report[name] for name in ("weights", "activations", "kv_type", "page_size", "prefill_chunk", "rank")}, records


def tell(record):
    result = record.get("error") or f"{record['ms']:.2f} ms a step, {record['tokens_per_s']:.0f} tokens/s"
    print(f"{record['model']} {record['program']} {record.get('way', '')} {record['rows']}/{record['adapters']}: {result}", flush=True)


def cell_of(record):
    return tuple(record[name] for name in CELL)


def ratios_of(records):
    """heddle's tokens per second over those of the peers' fastest way, cell by cell."""
    best = {}
    for record in records:
        if record["program"] != "heddle" and "samples" in record:
            cell = cell_of(record)
            best[cell] = max(best.get(cell, 0), record["tokens_per_s"])
    return [dict(zip(CELL, cell_of(record)), ratio=round(record["tokens_per_s"] / best[cell_of(record)], 2))
            for record in records if record["program"] == "heddle" and cell_of(record) in best]


def versions():
    found = {"torch": torch.__version__, "transformers": transformers.__version__}
    try:
        import peft
        found["peft"] = peft.__version__
    except ImportError:
        pass
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle-bench", help="the program; without it the peers alone are measured")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES)[::-1])
    parser.add_argument("--rows", nargs="+", default=["32/0", "32/8"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["eager", "linears", "graph"])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--steps", type=int, default=8, help="steps of a sample of the peers")
    parser.add_argument("--commit", default="", help="of heddle, for the file")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    settings, records = {}, []
    for shape in args.shapes:
        if args.heddle_bench:
            settings, ours = measure_heddle(args, shape)
            records += ours
        records += measure_peers(args, shape)
        gc.collect()
        torch.cuda.empty_cache()
    what = "bench/peers/race/engine_peft.py: " + " ".join(__doc__.partition("--steps 8]")[2].split())
    report = dict(what=what, device=torch.cuda.get_device_name(), commit=args.commit, date=datetime.date.today().isoformat(),
                  versions=versions(), heddle=settings, ratios=ratios_of(records),
                  did_not_run=[record for record in records if "error" in record])
    for ratio in report["ratios"]:
        print(ratio)
    if args.json:
        lines = ",\n".join("  " + json.dumps(record) for record in records if "error" not in record)
        args.json.write_text(f'{json.dumps(report, indent=1)[:-2]},\n "records": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
