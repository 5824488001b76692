#!/usr/bin/env python3
"""Makes a folder for VLLM_TUNED_CONFIG_FOLDER of the best settings that the sweep of ../race found: tuned_configs.py FOLDER [--self-test]

vLLM looks for a file with the name of the card, and in it by adapters of the engine (max_loras), slices of the site, rows, inputs and
outputs, each time at the nearest number. So every combination of MAX_LORAS and ROWS is there, with the sweep's cell of the nearest rows,
and among these of the nearest adapters. Sites of one slice have the settings of down, and those of gate_up for rows of prompts, of which
the sweep has none of down. The sweep was of vLLM 0.33.0's kernels.
"""
import argparse
import json
import math
import pathlib
import re
import tempfile

SETTINGS = pathlib.Path(__file__).resolve().parents[1] / "race/settings_h200.json"
SLICES = {"qkv": 3, "gate_up": 2, "down": 1}
MAX_LORAS, ROWS = (1, 8, 32, 64), (1, 8, 32, 64, 512, 2048, 8192)
RANK, HIDDEN, PROMPT = 16, 4096, 512  # rows, from which on a cell of the sweep is of prompts
CELL = re.compile(rf"vllm, (\w+), rank {RANK}, (\d+) / (\d+)")


def winners(settings):
    """{slices: {(rows, adapters): (device, the best setting)}} of a sweep."""
    found = {}
    for name, entry in settings["settings"].items():
        if match := CELL.fullmatch(name):
            at = found.setdefault(SLICES[match[1]], {})
            at[int(match[2]), int(match[3])] = entry["versions"]["device"], entry["best"][0]["setting"]
    prompts = {cell: best for cell, best in found[2].items() if cell[0] >= PROMPT}
    return {**found, 1: prompts | found[1]}


def nearest(cells, rows, adapters):
    return min(cells, key=lambda cell: (abs(math.log(cell[0] / rows)), abs(math.log(cell[1] / adapters))))


def configs(settings):
    """{name of a file: its content}."""
    found, devices = {}, set()
    for slices, cells in winners(settings).items():
        for max_loras in MAX_LORAS:
            for rows in ROWS:
                device, setting = cells[nearest(cells, rows, max_loras)]
                devices.add(device)
                for half, (into, out) in {"shrink": (HIDDEN, RANK), "expand": (RANK, HIDDEN)}.items():
                    more = {"num_ctas": 1, "max_nreg": None} | ({"group_size_m": 8} if half == "shrink" else {})
                    at = found.setdefault(half, {}).setdefault(str(max_loras), {}).setdefault(str(slices), {})
                    at[str(rows)] = {str(into): {str(out): setting[half] | more}}
    if len(devices) != 1:
        raise ValueError(f"settings of {len(devices)} devices")
    card = re.sub("[ -]", "_", devices.pop())
    return {f"{card}_SHRINK.json": found["shrink"], **{f"{card}_EXPAND_{adds}.json": found["expand"] for adds in ("TRUE", "FALSE")}}


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in configs(json.loads(SETTINGS.read_text())).items():
        (folder / name).write_text(json.dumps(content))


def self_test():
    assert nearest([(32, 8), (32, 32), (512, 8)], 64, 64) == (32, 32) and nearest([(32, 8), (512, 8)], 8192, 1) == (512, 8)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch) / "tuned"
        write(folder)
        assert sorted(path.name for path in folder.iterdir()) == ["NVIDIA_H200_EXPAND_FALSE.json", "NVIDIA_H200_EXPAND_TRUE.json",
                                                                  "NVIDIA_H200_SHRINK.json"]
        shrink = json.loads((folder / "NVIDIA_H200_SHRINK.json").read_text())
        best = json.loads(SETTINGS.read_text())["settings"]["vllm, qkv, rank 16, 32 / 8"]["best"][0]["setting"]["shrink"]
        assert shrink["8"]["3"]["32"]["4096"]["16"] == {**best, "num_ctas": 1, "group_size_m": 8, "max_nreg": None}
        assert all(of_slices["1"]["8192"]["4096"]["16"]["block_m"] == 64 and of_slices["1"]["64"]["4096"]["16"]["block_m"] == 16
                   for of_slices in shrink.values())
        assert [len(of_slices) for of_loras in shrink.values() for of_slices in of_loras.values()] == [len(ROWS)] * len(MAX_LORAS) * 3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        print("tuned_configs.py: self-test passed")
    elif arguments.folder is None:
        parser.error("give a folder")
    else:
        write(arguments.folder)


if __name__ == "__main__":
    main()
