#!/usr/bin/env python3
"""All of `make conformance`: tokenizers, chat templates and families of models, each held against other implementations.

  tests/conformance/conform.py BUILD [--record FILE] [--short]

BUILD is the build folder with heddle_tokenizer_ids, render_template and heddle_model_logits. FILE gets the commit, the day, the packages
and one record for each comparison; tools/conformance_tables.py makes the tables of the docs of it. Ends with 1 where anything differs.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import families

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
from figure_files import write_results  # noqa: E402

HERE = ROOT / "tests/conformance"


def has_llama_cpp():
    """Whether files can be compared that llama.cpp quantised; its package is compiled when it is installed, and is in no list."""
    return importlib.util.find_spec("llama_cpp") is not None


def packages():
    """The versions of what python/requirements-conformance.txt lists, as they are installed, and of llama.cpp where that is."""
    names = re.findall(r"^([\w-]+)==", (ROOT / "python/requirements-conformance.txt").read_text(), re.MULTILINE)
    if has_llama_cpp():
        names.append("llama-cpp-python")
    return {name: importlib.metadata.version(name) for name in names}


def git(*words):
    return subprocess.run(["git", "-C", ROOT, *words], capture_output=True, text=True).stdout.strip()


def head():
    return {"what": "heddle and other implementations, by make conformance", "commit": git("rev-parse", "--short=12", "HEAD"),
            "changed files": len(git("status", "--porcelain").splitlines()), "date": datetime.date.today().isoformat(),
            "packages": packages()}


def records_of_tokenizers(result):
    for line in result["lines"]:
        kept = {key: line[key] for key in ("shipped as", "read as", "held against", "refused") if key in line}
        differ = sum(line["differ"].values()) if "differ" in line else max(line["texts"], 1)
        yield {"kind": "tokenizer", "name": line["tokenizer"], **kept, "compared": max(line["texts"], 1), "differ": differ}


def records_of_templates(result):
    for line in result["templates"]:
        differ = len(result["conversations"]) - line["equal"]
        yield {"kind": "template", "name": line["template"], "held against": "transformers", "compared": len(result["conversations"]),
               "differ": differ, "verdict": line["verdict"], "raised by both": line["raised"]}


def run(folder, build, options):
    """(records, seed, what is not covered, whether all parts ended well)"""
    tokenizers, templates, tests = (folder / name for name in ("tokenizers.json", "templates.json", "families.xml"))
    short = ["--short"] if options.short else []
    commands = [[HERE / "run.py", build / "tests/heddle_tokenizer_ids", "--record", tokenizers, *short],
                [HERE / "templates.py", "--render", build / "render_template", "--record", templates],
                ["-m", "pytest", "-q", "python/tests/test_families.py", "python/tests/adapters", "--junitxml", tests]]
    env = {**os.environ, "HEDDLE_BUILD_DIR": str(build), "HEDDLE_CONFORMANCE": "1"}
    if not has_llama_cpp():
        print("llama_cpp is not installed: no file that llama.cpp itself quantised is compared (pip install llama-cpp-python)")
    codes = []
    for command in commands:
        print(f"--- {command[0]}" if command[0] != "-m" else "--- families of models, adapters", flush=True)
        codes.append(subprocess.run([sys.executable, *command], cwd=ROOT, env=env).returncode)
    missing = [path.name for path in (tokenizers, templates, tests) if not path.exists()]
    if missing:
        sys.exit(f"no record: {', '.join(missing)} was not written")
    of_tokenizers, of_templates = json.loads(tokenizers.read_text()), json.loads(templates.read_text())
    records = [*records_of_tokenizers(of_tokenizers), *records_of_templates(of_templates), *families.records_of(tests)]
    faults = families.other_faults(tests)
    for fault in faults:
        print(f"python/tests: {fault} failed")
    not_covered = sorted({*of_tokenizers["not covered"], *of_templates["not covered"]})
    return records, of_tokenizers["seed"], not_covered, not any(codes) and not faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--short", action="store_true", help="fewer random strings")
    options = parser.parse_args()
    about = head()  # of the tree that is compared, whatever happens to it meanwhile
    with tempfile.TemporaryDirectory(prefix="heddle-conformance-") as folder:
        records, seed, not_covered, all_well = run(pathlib.Path(folder), options.build.resolve(), options)
    if options.record:
        write_results(options.record, {**about, "seed": seed, "short": options.short, "not covered": not_covered, "records": records})
    for kind in ("tokenizer", "template", "family"):
        of_kind = [record for record in records if record["kind"] == kind]
        differ = sum(record["differ"] > 0 for record in of_kind)
        print(f"{kind}: {len(of_kind) - differ} comparisons equal, {differ} not")
    sys.exit(0 if all_well and not any(record["differ"] for record in records) else 1)


if __name__ == "__main__":
    main()
