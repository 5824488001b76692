#!/usr/bin/env python3
"""Holds heddle's tokenizers against those of other implementations, for the tokenizers that real models ship.

  tests/conformance/run.py DRIVER [--short] [--only NAME] [--record FILE]

DRIVER is the program heddle_tokenizer_ids. Each tokenizer of the pinned archives becomes a GGUF file, where it is none, and a
tokenizer.json; both are held against the tokenizers package, and against what the file was made for: tiktoken, sentencepiece, or the ids
that lie next to it. Every name of a pre-tokenizer is held against the package on the vocabulary of GPT-2. Texts: those of
tests/fixtures/tokenizer, and random strings. Ends with 1 where anything differs. HEDDLE_OFFLINE=1 leaves out what is not in the cache.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import oracles  # noqa: E402
import shipped as archives  # noqa: E402
import structures  # noqa: E402

ALSO_PLAIN = ["ids", "ids_plain", "text"]


def random_texts(count, seed):
    """Of characters that tell pre-tokenizers apart, and of all that Unicode 14 has."""
    source = random.Random(seed)
    close = list(" \n\r\t'!?.,;:=$`~()/_-09azAZ") + [
        "  ", "\n\n", "'s", "'Re", "the", " The", "\u00e9", "e\u0301", "\u01bb", "\u0130", "\u4e2d", "\u3042", "\u30a2", "\ud55c", "\u0e01",
        "\u0905\u0902", "\u0661", "\u00b2", "\u2167", "\u3000", "\u00a0", "\u2581", "\u0964", "\uff0c", "\U0001f600", "\u200d", "\ufe0f",
        "\U0001d400", "<|im_end|>", "</s>", "<s>", "<0x0A>"]
    known = [chr(c) for c in range(1, 0x30000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    return ["".join(source.choices(close if i % 4 else known, k=source.randint(1, 40))) for i in range(count)]


def run_driver(driver, model, texts):
    """{"ids", "ids_plain", "text"} of heddle, or its message."""
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    got = subprocess.run([driver, str(model)], input=lines, capture_output=True, encoding="utf-8")
    if got.returncode != 0:
        return got.stderr.strip().splitlines()[-1] if got.stderr.strip() else f"ended with {got.returncode}"
    results = [json.loads(line) for line in got.stdout.split("\n") if line]
    assert len(results) == len(texts), f"{model}: {len(results)} answers to {len(texts)} texts"
    return {key: [result[key] for result in results] for key in ALSO_PLAIN}


def write_gguf(shipped, path):
    import gguf
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(shipped.model)
    writer.add_tokenizer_pre(shipped.pre)
    writer.add_token_list([token.encode("utf-8") for token in shipped.tokens])
    writer.add_token_types(shipped.types)
    if shipped.scores:
        writer.add_token_scores(shipped.scores)
    if shipped.merges:
        writer.add_token_merges([merge.encode("utf-8") for merge in shipped.merges])
    if unknown := shipped.ids(archives.UNKNOWN):
        writer.add_unk_token_id(unknown[0])
    if shipped.model == "llama":  # prompts begin with bos there
        writer.add_bos_token_id(shipped.tokens.index("<s>"))
        writer.add_eos_token_id(shipped.tokens.index("</s>"))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def differences(got, want, texts, shown):
    """{what: number of texts that differ} and, on stderr, the first of them."""
    counts = {}
    for key in sorted(want):
        differing = [i for i in range(len(texts)) if want[key][i] is not None and got[key][i] != want[key][i]]
        counts[key] = len(differing)
        for i in differing[:2]:
            print(f"{shown}, {key} of {texts[i]!r}:\n  heddle {got[key][i]!r}\n  wanted {want[key][i]!r}"[:2000], file=sys.stderr)
    return counts


def compare(driver, shipped, model, form, oracle, texts, want):
    """A line of the table."""
    line = {"tokenizer": shipped.name, "shipped as": shipped.form, "read as": form, "held against": oracle, "texts": len(texts)}
    got = run_driver(driver, model, texts)
    if isinstance(got, str):
        return line | {"refused": got.replace(str(model), "FILE")}
    return line | {"differ": differences(got, want, texts, f"{shipped.name} as {form}, against {oracle}")}


def compare_shipped(driver, shipped, texts, folder):
    lines = []
    model = shipped.path if shipped.form == "GGUF" else write_gguf(shipped, folder / "model.gguf")
    for oracle, its_texts, want in oracles.of_shipped(shipped, texts):
        lines.append(compare(driver, shipped, model, "GGUF", oracle, its_texts, want))
    if shipped.form == "tokenizer.json":
        its_file = shipped.path
    else:
        its_file = folder / "tokenizer.json"
        oracles.package_tokenizer(shipped).save(str(its_file))
    lines.append(compare(driver, shipped, its_file, "tokenizer.json", "tokenizers", texts, oracles.by_tokenizer_json(its_file, texts)))
    return lines


def compare_refused(driver, shipped):
    """A kind that heddle does not have is refused by its name."""
    got = run_driver(driver, shipped.path, ["a"])
    right = isinstance(got, str) and shipped.model in got and "tokenizer.ggml.model" in got
    message = got.replace(str(shipped.path), "FILE") if isinstance(got, str) else "accepted"
    return {"tokenizer": shipped.name, "shipped as": "GGUF", "read as": "GGUF", "held against": "refusal", "texts": 1,
            "differ": {"refusal": 0 if right else 1}, "refused": message}


def compare_names(driver, gpt2, texts, folder):
    """Every name that heddle knows, on one vocabulary."""
    message = run_driver(driver, write_gguf(dataclasses.replace(gpt2, pre="none"), folder / "none.gguf"), ["a"])
    known = message.partition("supported: ")[2].split(", ") if isinstance(message, str) else []
    one_side = set(known) ^ set(structures.all_names())
    lines = [{"tokenizer": "pre-tokenizer " + name, "refused": "known to one side only", "texts": 0} for name in sorted(one_side)]
    for _, _, names in structures.STRUCTURES:
        want = oracles.by_package(dataclasses.replace(gpt2, pre=names[0]), texts)
        for name in sorted(set(names) - one_side):
            named = dataclasses.replace(gpt2, name="pre-tokenizer " + name, pre=name)
            lines.append(compare(driver, named, write_gguf(named, folder / "named.gguf"), "GGUF", "tokenizers", texts, want))
    return lines


def passed(line):
    return sum(line.get("differ", {"refused": 1}).values()) == 0


def show(line):
    differ = line.get("differ")
    result = "equal" if passed(line) else "REFUSED: " + line["refused"] if differ is None else "DIFFER: " + str(differ)
    print(f"{line['tokenizer']:28} {line.get('read as', ''):15} {line.get('held against', ''):22} {line['texts']:6}  {result}", flush=True)


def run(options, folder):
    texts = json.loads((ROOT / "tests/fixtures/tokenizer/texts.json").read_text(encoding="utf-8"))
    seed = options.seed if options.seed is not None else random.randrange(1 << 32)
    print(f"random strings with --seed {seed}")
    texts += random_texts(200 if options.short else 3000, seed)
    lines, missing = [], []
    for package, readers in archives.readers().items():
        if readers is None:
            missing.append(package)
            continue
        for name, read in readers:
            if options.only and options.only != name:
                continue
            shipped = read(name)
            made = [compare_refused(options.driver, shipped)] if shipped.model not in ("gpt2", "llama") else \
                compare_shipped(options.driver, shipped, texts, folder)
            if name == "gpt-2":
                made += compare_names(options.driver, shipped, texts, folder)
            lines += made
            for line in made:
                show(line)
    return {"seed": seed, "lines": lines, "not covered": missing}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("driver")
    parser.add_argument("--short", action="store_true", help="fewer random strings")
    parser.add_argument("--only", metavar="NAME", help="one tokenizer")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--record", type=pathlib.Path, metavar="FILE", help="writes the results as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heddle-conformance-") as folder:
        result = run(options, pathlib.Path(folder))
    if options.record:
        options.record.write_text(json.dumps(result, ensure_ascii=False), encoding="utf-8")
    lines = result["lines"]
    failed = [line for line in lines if not passed(line)]
    for package in result["not covered"]:
        print(f"HEDDLE_OFFLINE: {package} is not in the cache, its tokenizers are not covered")
    print(f"{len(lines) - len(failed)} comparisons equal, {len(failed)} not, {sum(line['texts'] for line in lines)} texts")
    sys.exit(1 if failed or not lines and not result["not covered"] else 0)


if __name__ == "__main__":
    main()
