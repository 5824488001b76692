#!/usr/bin/env python3
"""vLLM and heddle on one GPU in one run, joined in one record of the form of bench/results.

  run.py --heddle-bench PROGRAM --commit COMMIT --out engine_vllm_h200.json --site SITE [--packs PACK...] [--small] [--seconds 420]
  run.py --self-test

1. The packs of pack_vllm.py are unpacked into the folder SITE, unless they were before, and a folder of tuned settings is made.
2. `heddle-bench engine` measures all cells, alone on the card.
3. Two engines of vLLM start at once, one with the settings that the package has ("as installed"), one with those of tuned_configs.py
   for its LoRA kernels ("tuned"): most of a start is compiling. Nothing is measured before both are up or have failed.
4. Cell by cell both measure, one after the other, the other one idle. Cells without adapters have no tuned settings.

The record is written anew after each cell; a cell that fails, or has no time left, is in did_not_run. --small measures 32/0, 32/8 and the
prompts with engines for 8 adapters; without it the cells end with 1/1, 8/8 and 64/64, and the engines are for 64.
"""
import argparse
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time

import join
import pack_vllm
import tuned_configs
from cells import CHUNK, DECODE, PROMPTS, Cell

HERE = pathlib.Path(__file__).resolve().parent
SMALL = DECODE[:2] + PROMPTS
WAYS = ("as installed", "tuned")
LOG_LINES = 60  # of an engine that fails
START_SECONDS, CELL_SECONDS, END_SECONDS = 220, 90, 10  # at most, of an engine's start, of a cell, and for its end


class Engine:
    """A process that answers each line with one of JSON, as vllm_engine.py does."""

    def __init__(self, command, environment, log):
        with open(log, "w") as file:
            self.process = subprocess.Popen(command, env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file,
                                            start_new_session=True)
        self.answers, self.log, self.has_ended = queue.Queue(), log, False
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.answers.put(json.loads(line))
        self.answers.put(None)

    def ask(self, text):
        try:
            print(text, file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # its last answer says so

    def answer(self, seconds):
        """What comes next; of an engine that has ended or is silent for so long, an error, and its end."""
        try:
            found = self.answers.get(timeout=max(seconds, 0.1))
        except queue.Empty:
            found = dict(error=f"no answer in {seconds:.0f} s")
        if found is None or "error" in found and "cell" not in found:
            self.end(2)
            lines = pathlib.Path(self.log).read_text(errors="replace").strip().split("\n")
            found = found or dict(error=f"it has ended with code {self.process.poll()}: {lines[-1][:200]}")
            print("\n".join(lines[-LOG_LINES:]), flush=True)
        return found

    def end(self, seconds=0):
        """With its children, all of which are of its session."""
        if self.has_ended:
            return
        self.has_ended = True
        try:
            self.process.stdin.close()
            self.process.wait(seconds)
        except (OSError, subprocess.TimeoutExpired):
            pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()


def measure_heddle(arguments, cells, folder, seconds):
    """The report of heddle-bench, or {"error": ...}."""
    path = folder / "heddle.json"
    path.unlink(missing_ok=True)
    rows = [str(cell) for cell in cells if not cell.tokens]
    command = [arguments.heddle_bench, "engine", "--shape", join.MODEL, "--rows", *rows, "--prefill-chunk", str(CHUNK),
               "--prompt", str(CHUNK if any(cell.tokens for cell in cells) else 0), "--samples", "5", "--commit", arguments.commit,
               "--json", path]
    try:
        subprocess.run(command, check=True, timeout=seconds)
    except (OSError, subprocess.SubprocessError) as error:
        if not path.exists():
            return dict(error=str(error)[:300])
    return json.loads(path.read_text())


def measure_vllm(engines, cells, report, until, tell, cell_seconds=CELL_SECONDS):
    """Adds the heads and records of the engines to the report, cell by cell, and calls `tell` after each."""
    last_start = max(until() - START_SECONDS, 0)
    for way, engine in engines.items():
        head = engine.answer(until() - last_start)
        report["vllm"][way] = head
        print(f"vLLM, {way}: {head}", flush=True)
    running = {way: engine for way, engine in engines.items() if "error" not in report["vllm"][way]}
    for cell in cells:
        for way, engine in list(running.items()):
            if way != WAYS[0] and not cell.adapters:
                continue
            if until() < END_SECONDS:
                answer = dict(cell=str(cell), error="no time was left")
            else:
                engine.ask(cell)
                answer = engine.answer(min(cell_seconds, until()))
                if "error" in answer and "cell" not in answer:
                    answer["cell"] = str(cell)
                    del running[way]
            report["records"].append(dict(program="vllm", way=way, **answer))
            result = answer.get("error") or f"{answer['ms']:.2f} ms"
            print(f"vLLM, {way}, {cell}: {result}", flush=True)
            tell()
    for engine in engines.values():
        engine.end(END_SECONDS if until() > 2 * END_SECONDS else 0)


def engine_command(arguments, way, cells):
    """(the command of an engine, its environment)."""
    folder = arguments.folder
    most = [max([8, *numbers]) for numbers in ([cell.rows for cell in cells], [cell.adapters for cell in cells])]
    command = [sys.executable, HERE / "vllm_engine.py", "--max-rows", str(most[0]), "--max-loras", str(most[1]),
               "--samples", str(arguments.samples), "--cache", folder / f"cache-{way.split()[-1]}"]
    if way == "tuned":
        command += ["--tuned", folder / "tuned"]
    paths = [str(arguments.site.resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    return command, {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def run(arguments):
    begin = time.monotonic()

    def until():
        return arguments.seconds - (time.monotonic() - begin)

    cells = [Cell.read(text) for text in arguments.cells or (SMALL if arguments.small else SMALL + DECODE[2:])]
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    pack_vllm.unpack(arguments.site, arguments.packs)
    tuned_configs.write(folder / "tuned")
    print(f"unpacked after {time.monotonic() - begin:.0f} s", flush=True)
    report = dict(commit=arguments.commit, vllm={}, heddle=measure_heddle(arguments, cells, folder, until()), records=[])
    print(f"heddle measured after {time.monotonic() - begin:.0f} s", flush=True)

    def tell():
        arguments.out.write_text(join.text(join.joined(report)))

    tell()
    engines = {way: Engine(*engine_command(arguments, way, cells), folder / f"{way.replace(' ', '_')}.log") for way in arguments.ways}
    try:
        measure_vllm(engines, cells, report, until, tell)
    finally:
        for engine in engines.values():
            engine.end()
    tell()
    print(join.table(join.joined(report)))
    print(f"{time.monotonic() - begin:.0f} s in all", flush=True)


FAKE = """
import json, sys, time
print(json.dumps({"device": "made", "version": "0", "start_s": 0}), flush=True)
for line in map(str.strip, sys.stdin):
    if line == "1/1":
        time.sleep(60)
    if line == "8/8":
        sys.exit("it has no memory")
    rows, adapters = map(int, line.split("/"))
    answer = {"op": "decode_step", "rows": rows, "adapters": adapters, "ms": 2.0, "samples": [2.0], "tokens_per_s": 1.0}
    if line == "2/2":
        answer = {"cell": line, "error": "bad"}
    print(json.dumps(answer), flush=True)
"""


def self_test():
    """What becomes of engines that answer, fail at a cell, end, are silent, and have no time."""
    join.self_test()
    with tempfile.TemporaryDirectory() as scratch:
        fake, told = pathlib.Path(scratch, "fake.py"), []
        fake.write_text(FAKE)

        def measured(cells, seconds, ways=("as installed",), cell_seconds=CELL_SECONDS):
            engines = {way: Engine([sys.executable, fake], dict(os.environ), pathlib.Path(scratch, f"{way}.log")) for way in ways}
            report, end = dict(vllm={}, records=[]), time.monotonic() + seconds
            measure_vllm(engines, [Cell.read(text) for text in cells], report, lambda: end - time.monotonic(), lambda: told.append(1),
                         cell_seconds)
            assert all(engine.process.poll() is not None for engine in engines.values())
            return [record.get("error") or f"{record['way']} {record['rows']}/{record['adapters']}" for record in report["records"]]

        both = measured(["4/0", "2/2", "4/1"], 60, WAYS)
        assert both == ["as installed 4/0", "bad", "bad", "as installed 4/1", "tuned 4/1"] and len(told) == 5, both
        ended = measured(["8/8", "4/1"], 60)
        assert ended == ["it has ended with code 1: it has no memory"], ended
        assert measured(["4/1"], END_SECONDS - 1) == ["no time was left"]
        assert measured(["1/1", "4/1"], 60, cell_seconds=1) == ["no answer in 1 s"]
        engine = Engine([sys.executable, "-c", "raise SystemExit('no GPU')"], dict(os.environ), pathlib.Path(scratch, "none.log"))
        assert engine.answer(30)["error"] == "it has ended with code 1: no GPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heddle-bench", help="the program")
    parser.add_argument("--commit", help="of heddle, for the record")
    parser.add_argument("--out", type=pathlib.Path, help="the record")
    parser.add_argument("--site", type=pathlib.Path, help="folder of vLLM and what it needs")
    parser.add_argument("--packs", nargs="+", type=pathlib.Path, default=[], help="which come into it first")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("/tmp/vllm-and-heddle"), help="of logs and caches")
    parser.add_argument("--small", action="store_true", help=" ".join(SMALL))
    parser.add_argument("--cells", nargs="+", help="others than these")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="which engines of vLLM start")
    parser.add_argument("--samples", type=int, default=3, help="of vLLM's steps; of prompts two more")
    parser.add_argument("--seconds", type=float, default=420, help="for all together")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        print("run.py: self-test passed")
    elif None in (arguments.heddle_bench, arguments.commit, arguments.out, arguments.site):
        parser.error("--heddle-bench, --commit, --out and --site are needed")
    else:
        run(arguments)


if __name__ == "__main__":
    main()
