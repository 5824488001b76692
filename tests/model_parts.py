#!/usr/bin/env python3
"""The demo's model and the example adapters, packed into parts, for a machine without network that takes small files alone.

  tests/model_parts.py make FOLDER [--part-bytes N] [--without-adapters]  here: FOLDER/part.00, part.01, ...
  tests/model_parts.py join PARTS FOLDER                                  there: FOLDER/NAME.gguf and FOLDER/adapters

The parts are one archive in xz, cut. When they are joined the model must have the SHA-256 that tools/fetch_model knows, and each file of
the adapters that of the archive's list; a part that is missing or spoilt is an error. Standard library alone.
"""
import argparse
import hashlib
import importlib.machinery
import importlib.util
import io
import json
import lzma
import pathlib
import subprocess
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "eval.jsonl", "report.json")
SUMS = "sha256.json"
PART_BYTES = 11_500_000


def fetch_model_script():
    """tools/fetch_model as a module: it knows the model's name and SHA-256."""
    loader = importlib.machinery.SourceFileLoader("fetch_model", str(ROOT / "tools/fetch_model"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("fetch_model", loader))
    loader.exec_module(module)
    return module


def sha256_of(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def make_parts(folder, model, adapters, part_bytes=PART_BYTES):
    """The parts' paths; `folder` must be new or empty. `adapters` may be None: the machine has them."""
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        sys.exit(f"{folder} is not empty")
    files = {model.name: model}
    if adapters:
        files |= {f"adapters/{path.parent.name}/{path.name}": path
                  for path in sorted(adapters.glob("*/*")) if path.name in ADAPTER_FILES}
    sums = json.dumps({name: sha256_of(path) for name, path in files.items()}, indent=1).encode()
    with tempfile.TemporaryFile() as packed:
        with lzma.open(packed, "w", preset=9 | lzma.PRESET_EXTREME) as stream, tarfile.open(fileobj=stream, mode="w") as archive:
            for name, path in files.items():
                archive.add(path, arcname=name)
            entry = tarfile.TarInfo(SUMS)
            entry.size = len(sums)
            archive.addfile(entry, io.BytesIO(sums))
        packed.seek(0)
        paths = []
        while data := packed.read(part_bytes):
            paths.append(folder / f"part.{len(paths):02}")
            paths[-1].write_bytes(data)
    return paths


def join_parts(parts, folder, model_sha256):
    """The model's path in `folder`, which gets what the parts hold. Exits with a sentence where something is missing or spoilt."""
    paths = sorted(parts.glob("part.*"))
    if [path.name for path in paths] != [f"part.{i:02}" for i in range(len(paths))] or not paths:
        sys.exit(f"{parts}: expected part.00, part.01, ... and found {', '.join(path.name for path in paths) or 'none'}")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile() as packed:
        for path in paths:
            packed.write(path.read_bytes())
        packed.seek(0)
        try:
            with lzma.open(packed) as stream, tarfile.open(fileobj=stream, mode="r|") as archive:
                archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
                archive.extractall(folder)
            sums = json.loads((folder / SUMS).read_text())
        except (EOFError, OSError, ValueError, lzma.LZMAError, tarfile.TarError) as error:
            sys.exit(f"{parts}: {len(paths)} parts, one of which is missing or spoilt: {error}")
    spoilt = [name for name, wanted in sums.items() if not (folder / name).is_file() or sha256_of(folder / name) != wanted]
    if spoilt:
        sys.exit(f"{parts}: other SHA-256 than the archive's list has: {', '.join(spoilt)}")
    models = [folder / name for name in sums if name.endswith(".gguf")]
    if [sha256_of(path) for path in models] != [model_sha256]:
        sys.exit(f"{parts}: the model has not the SHA-256 {model_sha256}")
    return models[0]


def make(folder, part_bytes=PART_BYTES, without_adapters=False):
    """Fetches the model if need be, and tells what was made."""
    found = subprocess.run([ROOT / "tools/fetch_model"], stdout=subprocess.PIPE, text=True, check=True)
    paths = make_parts(folder, pathlib.Path(found.stdout.strip()), None if without_adapters else ROOT / "examples/adapters", part_bytes)
    print(f"{len(paths)} parts in {folder}, {sum(path.stat().st_size for path in paths) / 1e6:.1f} MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    maker = commands.add_parser("make")
    maker.add_argument("folder", type=pathlib.Path)
    maker.add_argument("--part-bytes", type=int, default=PART_BYTES)
    maker.add_argument("--without-adapters", action="store_true", help="for a machine that has the source tree")
    joiner = commands.add_parser("join")
    joiner.add_argument("parts", type=pathlib.Path)
    joiner.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    if args.command == "make":
        make(args.folder, args.part_bytes, args.without_adapters)
    else:
        print(join_parts(args.parts, args.folder, fetch_model_script().SHA256))


if __name__ == "__main__":
    main()
