#!/usr/bin/env python3
"""Packs vLLM for a GPU machine without a network, on one that has it, and unpacks it there.

  pack_vllm.py FOLDER [--most-bytes 21000000]     downloads and prunes, and writes FOLDER/packs/vllm-1.tar.xz, vllm-2.tar.xz
  pack_vllm.py --unpack SITE PACK...              into the folder SITE, which is then a PYTHONPATH
  pack_vllm.py --self-test

vllm_packages.txt pins vLLM, and those of the packages that it imports which a machine with torch, transformers and PEFT lacks. Of the
wheels, 330 MB, stay 31 MB: code for CUDA chips other than 9.0 is zeroed (fatbins.py), and libraries and files that a dense decoder on one
GPU never loads are left out (LEFT_OUT). A package of which vLLM uses nothing here is one module of ABSENT. So the packs are for dense
decoders on an H100 or H200.
"""
import argparse
import concurrent.futures
import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

import fatbins

HERE = pathlib.Path(__file__).resolve().parent
CHIP = 90
LARGE = ("vllm/_C_stable_libtorch.abi3.so", "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so")
LIBRARIES = (*LARGE, "vllm/_moe_C_stable_libtorch.abi3.so")
LEFT_OUT = re.compile("|".join([
    r"^vllm/(?!_C_stable|_moe_C_stable|vllm_flash_attn/_vllm_fa3)(.*/)?[^/]*\.so$", r"^vllm/vllm-rs$", r"^vllm/third_party/.*/include/",
    r"^vllm/.*/configs/.*\.json$", r"^vllm/entrypoints/serve/instrumentator/static/", r"^vllm/benchmarks/", r"\.cyclonedx\.json$",
    r"\.dist-info/RECORD$", r"^jsonschema/benchmarks/", r"(^|/)tests?/", r"(^|/)__pycache__/"]))
ABSENT = {"xgrammar": '''"""In place of xgrammar, whose names vLLM has in its annotations: each is an empty class."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
'''}
PLATFORMS = [f"manylinux{name}_x86_64" for name in (1, 2010, 2014, *(f"_2_{minor}" for minor in range(5, 40)))]


def download(folder):
    """The wheels of vllm_packages.txt for Python 3.12, as pip is set up to find them."""
    folder.mkdir(parents=True, exist_ok=True)
    platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--implementation", "cp",
                    "--python-version", "3.12", *platforms, "-d", folder, "-r", HERE / "vllm_packages.txt"], check=True)


def unzip(wheels, site):
    """The files of all wheels but those of LEFT_OUT, libraries pruned."""
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            for name in wheel.namelist():
                if name.endswith("/") or LEFT_OUT.search(name):
                    continue
                data = wheel.read(name)
                if name in LIBRARIES:
                    data, kept, total = fatbins.pruned(data, CHIP)
                    print(f"{name}: {kept / 1e6:.1f} of {total / 1e6:.1f} MB of CUDA code kept", flush=True)
                target = site / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
    for name, text in ABSENT.items():
        (site / f"{name}.py").write_text(text)


def write_pack(path, site, names):
    with lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as packed, tarfile.open(fileobj=packed, mode="w") as pack:
        for name in names:
            pack.add(site / name, arcname=str(name), filter=without_owner)
    return path.stat().st_size


def without_owner(member):
    """Of a member of a pack, what does not depend on who packs it."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def pack(folder, most_bytes):
    """Two packs of about one size: vLLM's two large libraries, and all the rest."""
    wheels, site, packs = folder / "wheels", folder / "site", folder / "packs"
    download(wheels)
    shutil.rmtree(site, ignore_errors=True)
    unzip(sorted(wheels.glob("*.whl")), site)
    packs.mkdir(exist_ok=True)
    files = sorted(path.relative_to(site) for path in site.rglob("*") if path.is_file())
    parts = [[name for name in files if (str(name) in LARGE) == is_large] for is_large in (True, False)]
    paths = [packs / f"vllm-{number}.tar.xz" for number in (1, 2)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        sizes = list(pool.map(lambda part: write_pack(part[0], site, part[1]), zip(paths, parts)))
    for path, size, part in zip(paths, sizes, parts):
        print(f"{path}: {len(part)} files, {size / 1e6:.1f} MB")
    if max(sizes) > most_bytes:
        sys.exit(f"a pack is larger than {most_bytes} bytes")


def unpack(site, packs):
    def one(path):
        with tarfile.open(path, "r:xz") as pack:
            pack.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
            pack.extractall(site)

    site.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(one, packs))


def self_test():
    fatbins.self_test()
    for name in ("vllm/vllm_flash_attn/_vllm_fa2_C.abi3.so", "vllm/cumem_allocator.abi3.so", "zmq/tests/test_socket.py",
                 "vllm/model_executor/layers/fused_moe/configs/E=8.json", "vllm-0.26.0.dist-info/RECORD"):
        assert LEFT_OUT.search(name), name
    for name in (*LIBRARIES, "vllm/envs.py", "zmq/backend/cython/_zmq.abi3.so", "made/latest/a.py", "vllm-0.26.0.dist-info/METADATA"):
        assert not LEFT_OUT.search(name), name
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        with zipfile.ZipFile(folder / "a.whl", "w") as wheel:
            wheel.writestr("a/__init__.py", "x = 1\n")
            wheel.writestr("a/tests/test_a.py", "")
        unzip([folder / "a.whl"], folder / "site")
        size = write_pack(folder / "a.tar.xz", folder / "site", [pathlib.Path("a/__init__.py"), pathlib.Path("xgrammar.py")])
        unpack(folder / "there", [folder / "a.tar.xz"])
        assert size > 0 and (folder / "there/a/__init__.py").read_text() == "x = 1\n" and not (folder / "site/a/tests").exists()
        sys.path.insert(0, str(folder / "there"))
        import xgrammar
        assert isinstance(xgrammar.GrammarMatcher, type) and not hasattr(xgrammar, "__path__")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path)
    parser.add_argument("packs", nargs="*", type=pathlib.Path)
    parser.add_argument("--most-bytes", type=int, default=21_000_000)
    parser.add_argument("--unpack", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        self_test()
        print("pack_vllm.py: self-test passed")
    elif arguments.folder is None or bool(arguments.packs) != arguments.unpack:
        parser.error("give a folder, and packs with --unpack alone")
    elif arguments.unpack:
        unpack(arguments.folder, arguments.packs)
    else:
        pack(arguments.folder, arguments.most_bytes)


if __name__ == "__main__":
    main()
