#!/usr/bin/env python3
"""Runs other projects' own test files against the drop-ins of heddle.compat, and prints one table.

bench/peers/tests/peer_tests.py --megatron FOLDER --lorax FOLDER --punica FOLDER --vllm FOLDER

Each FOLDER is a checkout of the project, or the files of it that docs/compat/peer_tests.md lists; any of them may be left out. Nothing is
written to it, and the project need not be installed. It takes heddle, torch, NumPy and pytest. bench/peers/stubs/drop_in_stubs.py says what takes the
place of what.

--device cpu,cuda  where to run; without it, on the CPU, and on the GPU where torch finds one. On the CPU a tensor for "cuda" is one of it
--every N          of files with more than 1,000 cases, run each Nth one alone
--timeout SECONDS  for one file (default 1800)
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

STUBS = pathlib.Path(__file__).resolve().parents[1] / "stubs"
sys.path.insert(0, str(STUBS))
from drop_in_stubs import SUITES  # noqa: E402

HEAD = ("project", "test file", "in place of", "device", "passed", "failed", "skipped", "left out", "s")


def run(suite, folder, file, device, every, timeout):
    """What became of the cases of one file, which a process of its own runs."""
    with tempfile.TemporaryDirectory() as scratch:
        paths = [str(STUBS), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        report, settings = pathlib.Path(scratch, "report.json"), pathlib.Path(scratch, "pytest.ini")
        settings.write_text("[pytest]\n")
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "HEDDLE_PEER_REPORT": str(report),
                       "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))}
        environment["HEDDLE_PEER"] = json.dumps({"suite": suite, "folder": str(folder), "device": device, "every": every})
        command = [sys.executable, "-m", "pytest", "-q", "--noconftest", "-c", settings, f"--rootdir={folder}", "-p", "no:cacheprovider",
                   "-p", "drop_in_stubs", "--tb=short", "-W", "ignore", folder / file]
        start = time.monotonic()
        try:
            done = subprocess.run(command, cwd=scratch, env=environment, timeout=timeout, check=False, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, errors="replace")
            output = done.stdout
        except subprocess.TimeoutExpired:
            output = f"stopped after {timeout:.0f} s"
        result = json.loads(report.read_text()) if report.exists() else {}
    result["seconds"] = time.monotonic() - start
    result["output"] = output
    result["ok"] = bool(result.get("passed")) and not result["failed"]
    return result


def line(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def about(devices):
    """What ran, in a line."""
    import heddle
    import torch

    parts = [f"heddle {heddle.__version__}", f"torch {torch.__version__}", "Python " + ".".join(map(str, sys.version_info[:3]))]
    return ", ".join(parts + ([torch.cuda.get_device_name()] if "cuda" in devices else []))


def devices_of(text):
    if text:
        return text.split(",")
    import torch

    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in dict.fromkeys(suite.option for suite in SUITES.values()):
        parser.add_argument(f"--{option}", type=pathlib.Path, metavar="FOLDER", help="a checkout")
    parser.add_argument("--device", help="cpu, cuda or cpu,cuda")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth case of files with more than 1,000")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for one file (default %(default)s)")
    arguments = parser.parse_args()
    devices = devices_of(arguments.device)
    if unknown := set(devices) - {"cpu", "cuda"}:
        parser.error(f"unknown devices: {', '.join(sorted(unknown))}")
    folders = {name: getattr(arguments, suite.option) for name, suite in SUITES.items() if getattr(arguments, suite.option)}
    if not folders:
        parser.error("no folder is given")
    missing = [folder / file for name, folder in folders.items() for file in SUITES[name].files if not (folder / file).is_file()]
    if missing:
        parser.error(f"not there: {', '.join(map(str, missing))}")

    print(about(devices), line(HEAD), line(["---"] * len(HEAD)), sep="\n", flush=True)
    wrong = []
    for name, folder in folders.items():
        suite = SUITES[name]
        for file in suite.files:
            for device in (d for d in devices if d in suite.devices):
                result = run(name, folder.resolve(), file, device, arguments.every, arguments.timeout)
                counts = [result.get("passed", 0), len(result.get("failed", [])), result.get("skipped", 0), result.get("left_out", 0)]
                print(line([suite.title, file, suite.ours, device, *counts, f"{result['seconds']:.0f}"]), flush=True)
                if not result["ok"]:
                    wrong.append((file, device, result))
    for file, device, result in wrong:
        print(f"\n{file} on {device}: failed {', '.join(result.get('failed', [])) or 'before its first case'}")
        print("\n".join("  " + text for text in result["output"].splitlines()[-40:]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
