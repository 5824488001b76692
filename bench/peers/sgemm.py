#!/usr/bin/env python3
"""The f32 matrix product of numpy's BLAS in the shapes of SmolLM2-135M, as a peer of the benches linear/*.

  sgemm.py [--threads 2] [--rows 1 8 32 512]

Weights are f32 matrices, so one row reads 6.4 times the bytes of the packed layers. As in linear/step the weights of all
layers pass by in turn; the head is applied to one row of a prefill.
"""
import argparse
import os
import time

LAYERS, HIDDEN, KEY_VALUE, INTERMEDIATE, VOCAB = 30, 576, 192, 1536, 49152


def layer_shapes():
    hidden = [HIDDEN, KEY_VALUE, KEY_VALUE, HIDDEN, INTERMEDIATE, INTERMEDIATE]
    return [(out, HIDDEN) for out in hidden] + [(HIDDEN, INTERMEDIATE)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8, 32, 512])
    parser.add_argument("--samples", type=int, default=7)
    args = parser.parse_args()
    for library in ("OPENBLAS", "MKL", "OMP"):  # read when numpy loads its BLAS
        os.environ[f"{library}_NUM_THREADS"] = str(args.threads)
    import numpy as np

    weights = [np.full((inputs, out), 0.01, np.float32) for _ in range(LAYERS) for out, inputs in layer_shapes()]
    head = np.full((HIDDEN, VOCAB), 0.01, np.float32)
    for rows in args.rows:
        x = {inputs: np.full((rows, inputs), 0.1, np.float32) for inputs in (HIDDEN, INTERMEDIATE)}
        calls = [(x[w.shape[0]], w, np.empty((rows, w.shape[1]), np.float32)) for w in weights]
        head_rows = 1 if rows > 32 else rows
        calls.append((x[HIDDEN][:head_rows], head, np.empty((head_rows, VOCAB), np.float32)))
        macs = sum(a.shape[0] * b.size for a, b, _ in calls)
        times = []
        for _ in range(args.samples):
            start = time.perf_counter()
            for a, b, out in calls:
                np.matmul(a, b, out=out)
            times.append(time.perf_counter() - start)
        best = min(times)
        print(f"rows {rows:4}: {1e3 * best:9.2f} ms  {macs / best / 1e9:7.2f} GMAC/s")


if __name__ == "__main__":
    main()
