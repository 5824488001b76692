"""heddle's server and llama.cpp's own, on one machine and driven by aiperf.

  server_cpu.py measure SERVER --adapters N --json PART   one server, 1, 8 and 32 clients
  server_cpu.py join PART... --out FILE                   all parts as one record, and a table of it

run_server.sh does both, server by server in turns. SERVER is heddle or llama.cpp. A client asks again as soon as its answer has ended;
request i asks for adapter i modulo N (for one adapter: always the same one), of a prompt of 64 tokens, and gets 64 tokens, greedy. Both
servers have the same number of threads and of rows at once, the same GGUF file and the same adapters, brought into GGUF for llama.cpp.
heddle computes every prompt whole (--no-prefix-cache), since the cells of one server ask the same prompts again. aiperf counts the tokens
that the server reports. CPU shares are those of all cores between the first request and the last answer; a cell in which other programs
took more than 8 % is measured again. With --apart the client has the last core for itself, and the server the others: then neither takes
the other's place.
"""
import argparse
import contextlib
import datetime
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

import summarize

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PORT = 8431
ROWS_AT_ONCE, CONTEXT = 32, 256     # of a server; tokens of a row, prompt and answer
OUTPUT_TOKENS = 64
REQUESTS = {1: 8, 8: 48, 32: 64}    # by number of clients
WARMUP = 8                          # requests before them, one for each adapter
ONE_ADAPTER = "sql"
LOOKS_PER_SECOND = 200              # of aiperf, for a client that is free; without a rate it looks all the time, and takes a core
QUIET = 0.08                        # share of all cores that other programs may take
CELL = ("apart", "threads", "adapters", "clients", "server")
FIGURES = ("requests_per_second", "first_token_ms_median", "first_token_ms_p99", "client_cpu_share", "server_cpu_share", "other_cpu_share",
           "first_token_ms")
HEDDLE, LLAMA = "heddle", "llama.cpp"
WANTED = {(False, 2, 8, 8): 2.0}    # of tokens per second over llama.cpp's, by CELL without the server


def heddle_command(args, names):
    adapters = [part for name in names for part in ("--adapter", f"{name}={ROOT / 'examples/adapters' / name}")]
    return [args.heddle, "serve", "--model", args.model, "--threads", str(args.threads), "--max-batch", str(ROWS_AT_ONCE),
            "--max-context", str(CONTEXT), "--port", str(PORT), "--no-prefix-cache", *adapters]


def llama_command(args, names):
    files = ",".join(str(args.peers / "inputs/adapters" / f"{name}.gguf") for name in names)
    return [args.peers / "bin/llama-server", "--model", args.model, "--threads", str(args.threads), "--parallel", str(ROWS_AT_ONCE),
            "--ctx-size", str(ROWS_AT_ONCE * CONTEXT), "--port", str(PORT), "--lora", files, "--lora-init-without-apply",
            "--offline"]


COMMANDS = {HEDDLE: heddle_command, LLAMA: llama_command}


def fields_of(server, names, name):
    """How a request asks for an adapter."""
    return dict(model=name) if server == HEDDLE else dict(lora=[dict(id=names.index(name), scale=1.0)])


@contextlib.contextmanager
def served(command, log):
    """The server while it runs, ready for requests."""
    if is_healthy():
        sys.exit(f"another program answers on port {PORT}")
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while not is_healthy():
            if process.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{shlex.join(map(str, command))} does not answer:\n{log.read_text()[-2000:]}")
            time.sleep(0.1)
        yield process
    finally:
        end(process)


def end(process):
    """Ends the process and all of its session, if need be without asking."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def is_healthy():
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/health", timeout=5) as response:
            return response.status == 200
    except (urllib.error.URLError, OSError):
        return False


def busy_seconds():
    """What all cores have done since the machine was started."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, pathlib.Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def cpu_seconds(session):
    """User and system time of the processes of a session that are alive."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            values = stat.read_text().rpartition(")")[2].split()
            if int(values[3]) == session:
                ticks += int(values[11]) + int(values[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class CpuWatch:
    """Looks every fifth of a second at what the sessions have used, and at what all programs have."""

    def __init__(self, sessions):
        self.sessions, self.samples, self.done = sessions, [], threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.done.wait(0.2):
            self.samples.append((time.time(), [*map(cpu_seconds, self.sessions), busy_seconds()]))

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.thread.join()

    def shares(self, begin, end):
        """Of all cores, between two times of the wall clock; nearest samples within them."""
        inside = [sample for sample in self.samples if begin <= sample[0] <= end]
        (first, used_before), (last, used) = inside[0], inside[-1]
        return [round((b - a) / (last - first) / os.cpu_count(), 3) for a, b in zip(used_before, used)]


def on_cores(args, first, last):
    return ["taskset", "-c", f"{first}-{last}"] if args.apart else []


def aiperf_command(args, clients, folder):
    return [*on_cores(args, os.cpu_count() - 1, os.cpu_count() - 1), args.peers / "bin/aiperf", "profile", "--model", "base",
            "--endpoint-type", "completions", "--streaming", "--url", f"http://127.0.0.1:{PORT}", "--custom-dataset-type", "single-turn",
            "--input-file", folder / "requests.jsonl", "--dataset-sampling-strategy", "sequential", "--concurrency", str(clients),
            "--request-rate", str(LOOKS_PER_SECOND), "--arrival-pattern", "constant", "--request-count", str(REQUESTS[clients]),
            "--warmup-request-count", str(WARMUP), "--tokenizer", args.peers / "inputs/tokenizer", "--use-server-token-count",
            "--extra-inputs", json.dumps(dict(temperature=0, ignore_eos=True)), "--workers-max", "1", "--record-processors", "1",
            "--connection-reuse-strategy", "never",  # llama.cpp closes connections that wait, and a request that meets that fails
            "--no-gpu-telemetry", "--no-server-metrics", "--ui", "none", "--artifact-dir", folder / "aiperf"]


def measure_cell(args, names, clients, server_session, folder):
    prompts = json.loads((args.peers / "inputs/prompts.json").read_text())
    lines = [dict(text=prompt, output_length=OUTPUT_TOKENS, extra=fields_of(args.server, names, names[i % len(names)]))
             for i, prompt in enumerate(prompts)]
    (folder / "requests.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = aiperf_command(args, clients, folder)
    with (folder / "log").open("wb") as log:
        client = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        with CpuWatch([client.pid, server_session]) as watch:
            client.wait()
    finally:
        end(client)
    if client.returncode != 0:
        sys.exit(f"{shlex.join(map(str, command))} failed:\n{(folder / 'log').read_text()[-3000:]}")
    lines = (folder / "aiperf/profile_export.jsonl").read_text().splitlines()
    summary = json.loads((folder / "aiperf/profile_export_aiperf.json").read_text())
    return cell_of(args, clients, [json.loads(line) for line in lines], summary, watch)


def quiet_cell(args, names, clients, server_session, folder):
    for attempt in range(args.attempts):
        place = folder / f"{clients}-{attempt}"
        place.mkdir()
        cell = measure_cell(args, names, clients, server_session, place)
        print({key: value for key, value in cell.items() if key != "first_token_ms"}, file=sys.stderr, flush=True)
        if cell["other_cpu_share"] <= QUIET:
            return cell
    sys.exit(f"other programs took {cell['other_cpu_share']:.0%} of the machine, at most {QUIET:.0%} may; {args.attempts} attempts")


def cell_of(args, clients, requests, summary, watch):
    requests = [request for request in requests if request["metadata"]["benchmark_phase"] == "profiling"]
    failed = [request for request in requests if "output_sequence_length" not in request["metrics"]]
    if failed:
        sys.exit(f"{args.server}, {clients} clients: {len(failed)} of {len(requests)} requests failed, the first: {json.dumps(failed[0])}")
    tokens = [request["metrics"]["output_sequence_length"]["value"] for request in requests]
    if len(requests) != REQUESTS[clients] or set(tokens) != {OUTPUT_TOKENS}:
        sys.exit(f"{args.server}, {clients} clients: {len(requests)} answers of {sorted(set(tokens))} tokens, "
                 f"expected {REQUESTS[clients]} of {OUTPUT_TOKENS}")
    begin = min(request["metadata"]["request_start_ns"] for request in requests) / 1e9
    end = max(request["metadata"]["request_end_ns"] for request in requests) / 1e9
    client_share, server_share, busy_share = watch.shares(begin, end)
    first = summary["time_to_first_token"]
    return dict(server=args.server, clients=clients, adapters=args.adapters, threads=args.threads, apart=args.apart,
                tokens_per_second=round(summary["output_token_throughput"]["avg"], 1),
                requests_per_second=round(summary["request_throughput"]["avg"], 3),
                first_token_ms_median=round(first["p50"], 1), first_token_ms_p99=round(first["p99"], 1),
                client_cpu_share=client_share, server_cpu_share=server_share,
                other_cpu_share=round(busy_share - client_share - server_share, 3),
                first_token_ms=[round(request["metrics"]["time_to_first_token"]["value"], 1) for request in requests])


def measure(args):
    names = sorted(path.stem for path in (args.peers / "inputs/adapters").glob("*.gguf"))
    names = [ONE_ADAPTER] if args.adapters == 1 else names[:args.adapters]
    command, cells = [*on_cores(args, 0, os.cpu_count() - 2), *COMMANDS[args.server](args, names)], []
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        with served(command, folder / "server.log") as server:
            for clients in args.clients:
                cells.append(quiet_cell(args, names, clients, server.pid, folder))
        example = aiperf_command(args, args.clients[-1], folder)
    where = ", apart" if args.apart else ""
    commands = {args.server + where: shown(args, command), f"aiperf{where}, {args.clients[-1]} clients": shown(args, example, folder)}
    part = dict(cells=cells, threads=args.threads, commands=commands)
    args.json.write_text(json.dumps(part, indent=1) + "\n")


def shown(args, command, folder=None):
    """A command without what is true of one machine alone."""
    text = shlex.join(map(str, command))
    for path, name in ((folder, "FOLDER"), (args.peers.resolve(), "PEERS"), (ROOT, "."), (pathlib.Path(args.model).parent, "MODELS")):
        text = text.replace(str(path), name) if path else text
    return text


def versions(peers):
    said = subprocess.run([peers / "bin/pip", "list", "--format=json"], check=True, capture_output=True, text=True).stdout
    installed = {entry["name"]: entry["version"] for entry in json.loads(said)}
    return {"aiperf": installed["aiperf"], "gguf": installed["gguf"], "llama.cpp": (peers / "llama-version").read_text().strip()}


def join(args):
    parts = [json.loads(path.read_text()) for path in args.parts]
    rounds = {}
    for cell in (cell for part in parts for cell in part["cells"]):
        rounds.setdefault(tuple(cell[name] for name in CELL), []).append(cell)
    records = [dict(**dict(zip(CELL, key)), unit="output tokens/s", samples=[cell["tokens_per_second"] for cell in cells],
                    **{name: [cell[name] for cell in cells] for name in FIGURES})
               for key, cells in sorted(rounds.items())]
    head = dict(what="heddle's server and llama.cpp's, driven by aiperf. " + " ".join(__doc__.partition("or llama.cpp. ")[2].split()), commit=args.commit or summarize.commit_of_tree(),
                date=datetime.date.today().isoformat(), machine=summarize.machine_facts(max(part["threads"] for part in parts)),
                versions=versions(args.peers), commands={name: command for part in parts for name, command in part["commands"].items()},
                ratios=ratios_of(records))
    lines = ",\n".join("  " + json.dumps(record) for record in records)  # one a line, so that differences can be read
    args.out.write_text(f'{json.dumps(head, indent=1)[:-2]},\n "records": [\n{lines}\n ]\n}}\n')
    for ratio in head["ratios"]:
        print(ratio)


def ratios_of(records):
    """Of the medians of heddle's tokens per second to llama.cpp's, cell by cell."""
    median = {tuple(entry[name] for name in CELL): statistics.median(entry["samples"]) for entry in records}
    return [dict(**dict(zip(CELL[:-1], cell)), ratio=round(ours / median[*cell, LLAMA], 2), wanted=WANTED.get(cell))
            for (*cell, server), ours in median.items() if server == HEDDLE for cell in [tuple(cell)]]


def add_commands(commands, servers, measure, join):
    """The commands `measure`, of one server, and `join`, of its parts, with the options that both benches have."""
    one = commands.add_parser("measure")
    one.add_argument("server", choices=servers)
    one.add_argument("--model", required=True)
    one.add_argument("--heddle", default=ROOT / "build/heddle", help="the program")
    one.add_argument("--threads", type=int, default=2)
    one.add_argument("--json", type=pathlib.Path, required=True)
    one.set_defaults(run=measure)
    all_parts = commands.add_parser("join")
    all_parts.add_argument("parts", type=pathlib.Path, nargs="+")
    all_parts.add_argument("--out", type=pathlib.Path, required=True)
    all_parts.add_argument("--commit", help="of the heddle that was measured; default: the tree's")
    all_parts.set_defaults(run=join)
    for command in (one, all_parts):
        command.add_argument("--peers", type=pathlib.Path, default=ROOT / "build/peers-server", help="folder of install_server.sh")
    return one, all_parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one, _ = add_commands(commands, COMMANDS, measure, join)
    one.add_argument("--adapters", type=int, choices=(1, 8), required=True)
    one.add_argument("--clients", type=int, nargs="+", choices=REQUESTS, default=list(REQUESTS))
    one.add_argument("--apart", action="store_true", help="client on the last core, server on the others")
    one.add_argument("--attempts", type=int, default=3, help="to measure a cell while nothing else runs")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # so that server and client end too
    args.run(args)


if __name__ == "__main__":
    main()
