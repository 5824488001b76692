"""`heddle serve` under clients that ask again as soon as their answer has ended.

  server_load.py HEDDLE [--device cuda] [--clients 8 32 128] [--adapters 8] [--requests 8] [--rounds 3] [--json FILE] [--commit NAME]

HEDDLE is the program heddle, with heddle-serve next to it. The model has SmolLM2-135M's shape and random weights in bf16, with random
adapters of rank 16 on all projections; both are written here. A request is a prompt of 64 tokens, no two of which begin alike, and a
stream of 64 tokens, greedy; requests use the adapters in turns. Each client has one connection and asks --requests times a round, after
one request that is not counted; a round's tokens per second are all tokens from the first request to the last answer. Clients run in
processes of 16. The first token's time is that from the request to the first event. Needs NumPy.
"""
import argparse
import concurrent.futures
import datetime
import json
import multiprocessing
import os
import pathlib
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOKENS, CLIENTS_PER_PROCESS = 64, 16


def request_bytes(model, seed):
    letters = "".join(random.Random(seed).choices("abcdefghijklmnopqrstuvwxyz", k=TOKENS))  # the tokenizer has one token for each
    body = json.dumps({"model": model, "prompt": letters, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n").encode() + body


def ask(connection, request):
    """(begin, first token, end) in seconds of an answer, which must be whole."""
    begin = time.monotonic()
    connection.sendall(request)
    pieces, first = [], None
    while not pieces or not pieces[-1].endswith(b"0\r\n\r\n"):
        pieces.append(connection.recv(65536))
        if not pieces[-1]:
            raise ConnectionError(b"".join(pieces)[-500:])
        if first is None and b"data:" in pieces[-1]:
            first = time.monotonic()
    end = time.monotonic()
    if f'"completion_tokens":{TOKENS}'.encode() not in b"".join(pieces).replace(b" ", b""):
        raise ValueError(b"".join(pieces)[-500:])
    return begin, first, end


def run_clients(port, numbers, num_adapters, num_requests, barrier):
    """Times of the answers of some clients, in a process of their own."""
    times, failed = [], []

    def client(number):
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                requests = [request_bytes(f"a{(number + i) % num_adapters}", f"{number} {i} {time.monotonic_ns()}")
                            for i in range(num_requests + 1)]
                ask(connection, requests[0])
                barrier.wait(60)
                times.extend([ask(connection, request) for request in requests[1:]])
        except Exception as error:  # noqa: BLE001 whatever it is, the round has failed
            failed.append(repr(error))
            barrier.abort()

    threads = [threading.Thread(target=client, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times, failed


def percentile(values, part):
    return sorted(values)[min(int(part * len(values)), len(values) - 1)]


def measure_round(pool, barriers, port, num_clients, num_adapters, num_requests):
    barrier = barriers.Barrier(num_clients)
    groups = [range(first, min(first + CLIENTS_PER_PROCESS, num_clients)) for first in range(0, num_clients, CLIENTS_PER_PROCESS)]
    parts = [pool.submit(run_clients, port, group, num_adapters, num_requests, barrier) for group in groups]
    results = [part.result() for part in parts]
    if failed := [error for _, errors in results for error in errors]:
        sys.exit(f"{num_clients} clients: {failed[0]}")
    times = [one for part, _ in results for one in part]
    assert len(times) == num_clients * num_requests
    first_tokens = [1e3 * (first - begin) for begin, first, _ in times]
    seconds = max(end for _, _, end in times) - min(begin for begin, _, _ in times)
    return dict(samples=TOKENS * len(times) / seconds, first_token_ms_median=statistics.median(first_tokens),
                first_token_ms_p99=percentile(first_tokens, 0.99),
                answer_ms_median=statistics.median(1e3 * (end - begin) for begin, _, end in times))


def commit_of_tree():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heddle", type=pathlib.Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--clients", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--adapters", type=int, default=8)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tiny", action="store_true", help="the tests' tiny model, to try the script")
    parser.add_argument("--commit", default=commit_of_tree())
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    sys.path.insert(0, str(ROOT / "tests/server"))
    sys.argv[1:] = [str(args.heddle)]  # as the tests' server wants it
    from serve_case import Server
    from tiny_model import TINY, Shape, write_all
    shape = TINY if args.tiny else Shape(hidden=576, heads=9, kv_heads=3, intermediate=1536, layers=30, rank=16, dtype="BF16",
                                         words=49152 - 259)
    records = []
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ProcessPoolExecutor(
            -(-max(args.clients) // CLIENTS_PER_PROCESS), mp_context=multiprocessing.get_context("forkserver")) as pool, \
            multiprocessing.Manager() as barriers:
        write_all(folder, args.adapters, shape)
        server = Server(folder, "--max-batch", max(args.clients), "--kv-memory", "4G", device=args.device)
        try:
            device = server.log.read_text().splitlines()[0].rpartition("running on ")[2]
            print(device, flush=True)
            for num_clients in args.clients:
                rounds = [measure_round(pool, barriers, server.port, num_clients, args.adapters, args.requests) for _ in range(args.rounds)]
                record = dict(op="serve", clients=num_clients, adapters=args.adapters, requests=num_clients * args.requests,
                              prompt_tokens=TOKENS, answer_tokens=TOKENS, unit="tokens per second",
                              **{name: [round(one[name], 2) for one in rounds] for name in rounds[0]})
                records.append(record)
                print(f"{num_clients} clients: {statistics.median(record['samples']):.0f} tokens/s, first token "
                      f"{statistics.median(record['first_token_ms_median']):.1f} ms, its p99 "
                      f"{statistics.median(record['first_token_ms_p99']):.1f} ms", flush=True)
        finally:
            status = server.stop()
        if status != 0:
            sys.exit(f"the server ended with {status} after SIGTERM")
    if args.json:
        what = "bench/server_load.py: " + " ".join(__doc__.partition("next to it. ")[2].split())
        head = dict(what=what, device=device, cores=len(os.sched_getaffinity(0)), commit=args.commit, date=datetime.date.today().isoformat())
        lines = ",\n".join("  " + json.dumps(record) for record in records)
        args.json.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "records": [\n{lines}\n ]\n}}\n')


if __name__ == "__main__":
    main()
