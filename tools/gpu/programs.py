"""The programs that tools/gpu_check runs: built from this tree, or packed to run elsewhere."""

import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

from gpu.machine import ROOT, describe_host, output_of

BUILD = ROOT / "build-gpu"
# What the tests read of the source tree; it goes with the programs.
TEST_DATA = ("tests/fixtures/quant_blocks.txt", "tests/fixtures/tokenizer/texts.json", "tests/fixtures/tokenizer/smollm2_ids.json",
             "tests/golden/prompts.json", "tests/golden/eval.json")
# The Python tests and what they share.
PYTHON_TESTS = ("pyproject.toml", "conftest.py", "examples/python/*.py", "python/tests/*.py", "python/tests/adapters/*.py",
                "python/tests/compat/*.py", "python/tests/operations/*.py", "src/ops/*/test/*.py", "tests/server/tiny_model.py")
# What a model computes, which the tests of step families run.
MODEL_LOGITS = "tests/heddle_model_logits"
# What programs and module are linked with and bring along.
SHARED_LIBRARIES = "libheddle_c_engine|libhwy|libpcre2|libutf8proc"
# All programs hold the same kernels: the dictionary reaches back over some of them.
ARCHIVE = {"id": lzma.FILTER_LZMA2, "preset": 3, "dict_size": 1 << 29}


def commit_of_tree():
    commit = output_of("git", "rev-parse", "HEAD")
    if commit is None:
        return None
    return commit + ("-modified" if output_of("git", "status", "--porcelain") else "")


def build(python):
    """The folder with the programs, built from this tree, and with the module for the interpreter `python` where it can be built."""
    interpreter = output_of(python, "-c", "import sys; print(sys.executable)")
    module = [f"-DHEDDLE_BUILD_PYTHON={'ON' if interpreter else 'OFF'}", f"-DPython_EXECUTABLE={interpreter}"]
    forget = ["-U", "*Python*", "-U", "nanobind_DIR"]  # another one, that a build before was for
    subprocess.run(["cmake", "--preset", "gpu", *forget, *module], cwd=ROOT, check=True)
    for old in modules_in(BUILD):  # that of another Python would stay as it is
        old.unlink()
    subprocess.run(["cmake", "--build", BUILD], cwd=ROOT, check=True)
    subprocess.run(["ninja", "-C", BUILD, "-t", "cleandead"], check=True, stdout=subprocess.DEVNULL)  # tests that are no more
    return BUILD


def programs_in(folder, pattern):
    return sorted(p for p in folder.iterdir() if re.fullmatch(pattern, p.name) and os.access(p, os.X_OK) and p.is_file())


def modules_in(folder):
    """The module of the Python package, if it was built."""
    return sorted((folder / "python/heddle").glob("_core.*.so"))


def with_package(folder):
    """Environment in which Python finds the package in the folder of the programs."""
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": ":".join(filter(None, [str(folder / "python"), others])), "PYTHONDONTWRITEBYTECODE": "1"}


def why_no_python(folder, python):
    """What the Python tests lack, None where they can run."""
    if not modules_in(folder):
        return "the module was not built: it needs nanobind, Highway and the headers of Python and DLPack"
    return why_not_imported(python, "ml_dtypes, numpy, pytest, torch, heddle", with_package(folder))


def why_not_imported(python, modules, environment):
    done = subprocess.run([python, "-c", f"import {modules}"], capture_output=True, text=True, check=False, env={**os.environ, **environment})
    return None if done.returncode == 0 else f"{python}: {(done.stderr.splitlines() or ['does not run'])[-1]}"


def why_no_families(folder, python):
    """What the tests of families lack, None where they can run."""
    if not (folder / MODEL_LOGITS).exists():
        return "heddle_model_logits was not built: it needs Highway, Boost, nlohmann-json, PCRE2, utf8proc and xxHash"
    return why_not_imported(python, "ml_dtypes, numpy, peft, pytest, safetensors, torch, transformers", {})


def make_prebuilt(target, commit, python):
    """Fills the folder `target`, which must be new, empty or one made before, or the archive of that name."""
    if target.name.endswith(".tar.xz"):
        with tempfile.TemporaryDirectory() as folder:
            fill_prebuilt(pathlib.Path(folder), commit, python)
            with lzma.open(target, "w", filters=[ARCHIVE]) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
                archive.add(folder, arcname=".")
        print(f"{target}: {target.stat().st_size / 2**20:.1f} MiB")
    else:
        if target.exists() and any(target.iterdir()) and not (target / "build.json").exists():
            sys.exit(f"{target} holds something else; name a new folder")
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        fill_prebuilt(target, commit, python)


def unpacked(prebuilt):
    """The folder, and of an archive also what removes its copy when it is dropped."""
    if not prebuilt.is_file():
        return prebuilt, None
    copy = tempfile.TemporaryDirectory()
    with tarfile.open(prebuilt) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 has none
        archive.extractall(copy.name)
    return pathlib.Path(copy.name), copy


def copy_into(folder, paths):
    """Files of the tree, to the same places in the folder."""
    for path in paths:
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def fill_prebuilt(folder, commit, python):
    build(python)
    programs = programs_in(BUILD, r"(test|bench)_\w+") + [path for path in [BUILD / MODEL_LOGITS] if path.exists()]
    modules = modules_in(BUILD)
    if modules:
        without_module = shutil.ignore_patterns("__pycache__", "_core.*")
        shutil.copytree(ROOT / "python/heddle", folder / "python/heddle", ignore=without_module)
    for program in (*programs, *modules):
        copy = folder / program.relative_to(BUILD)
        copy.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["strip", "-o", copy, program], check=True)
        for match in re.finditer(rf"^\s*((?:{SHARED_LIBRARIES})\S*) => (\S+)", output_of("ldd", program) or "", re.MULTILINE):
            subprocess.run(["strip", "-o", copy.parent / match.group(1), match.group(2)], check=True)
    copy_into(folder, [path for pattern in PYTHON_TESTS for path in ROOT.glob(pattern)])
    copy_into(folder, [ROOT / name for name in TEST_DATA])
    facts = {"commit": commit, "nvcc": nvcc_version(), "built_on": describe_host()}
    (folder / "build.json").write_text(json.dumps(facts, indent=1) + "\n")
    print(f"{len(programs)} programs and {len(modules)} Python modules in {folder}")


def nvcc_version():
    cache = BUILD / "CMakeCache.txt"
    found = re.search(r"^HEDDLE_NVCC:\w+=(.*)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    text = output_of(found.group(1), "--version") if found else None
    version = re.search(r"V(\d+\.\d+\.\d+)", text or "")
    return version.group(1) if version else None
