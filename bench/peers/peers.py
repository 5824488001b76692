"""Measures the peers on this machine and writes the raw samples.

  peers.py PART... --model FILE [--adapters DIR] [--threads 2] [--samples 5] [--tokens 64] --json FILE

PART is llama, transformers, peft or bandwidth. Run it with the Python of the environment that install.sh makes.
"""
import argparse
import json
import pathlib
import subprocess
import sys

import workload

PARTS = ["llama", "transformers", "peft", "bandwidth"]


def measure(part, args):
    """({name: samples}, unit, versions) of one part. A part's packages are loaded only if it is asked for."""
    if part == "bandwidth":
        program = pathlib.Path(sys.prefix) / "bin" / "read_bandwidth"
        done = subprocess.run([program, str(args.threads), str(args.samples)], check=True, capture_output=True, text=True)
        return {"read_bandwidth": [float(line) for line in done.stdout.split()]}, "GB/s", {}
    if part == "llama":
        import llama_peer
        results = llama_peer.measure(args.model, args.threads, args.samples, args.tokens, args.adapters)
        return results, "tokens/s", llama_peer.versions()
    import torch_peer
    if part == "transformers":
        results = torch_peer.measure_transformers(args.model, args.threads, args.samples)
    else:
        results = torch_peer.measure_peft(args.model, args.adapters, args.threads, args.samples)
    return results, "tokens/s", torch_peer.versions()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="+", choices=PARTS)
    parser.add_argument("--model", required=True)
    parser.add_argument("--adapters", help="folder of eight adapters: PEFT's, for llama their adapter.gguf")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=workload.DECODE_TOKENS, help="of each row and sample, for llama")
    parser.add_argument("--json", required=True, type=pathlib.Path)
    args = parser.parse_args()

    results, versions = [], {}
    for part in args.parts:
        samples_by_name, unit, part_versions = measure(part, args)
        results += [dict(name=name, unit=unit, samples=[round(s, 3) for s in samples])
                    for name, samples in samples_by_name.items()]
        versions |= part_versions
    args.json.write_text(json.dumps(dict(threads=args.threads, versions=versions, results=results), indent=1) + "\n")


if __name__ == "__main__":
    main()
