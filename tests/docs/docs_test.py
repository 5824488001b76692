#!/usr/bin/env python3
"""Every code block and command of the documentation works when pasted, in the order of its page.

  python3 tests/docs/docs_test.py --build build [--rules] [PAGE...]      (the program, the module and the model are there)

A page runs in one bash and a folder of its own, which shows what a checkout has after `make demo`: the files of the tree and
build/heddle. Shell blocks are that bash's input. Python blocks that follow one another are one file, run with the package of the
build folder. A C or C++ block is a file: compiled, and where it has a main also linked and run. The first command that fails
fails the page. Blocks with a mark are printed and left out (doc_blocks.py). --rules only looks at the marks and languages.
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time

import doc_blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
TORCH = re.compile(r"\b(torch|peft|transformers)\b")
# pip builds in the checkout's folder build. A page that does so gets a checkout that was never built.
INSTALLS = re.compile(r"^[^#\n]*pip install .*(?<=\s)\.$", re.MULTILINE)
FLAGS = {"cpp": ["-std=c++20"], "c": ["-std=c11", "-pedantic"]}
WARNINGS = ["-Wall", "-Wextra", "-Werror"]
TIMEOUT = 300  # seconds for a page


@dataclasses.dataclass
class Tools:
    """What the blocks are run with."""
    build: pathlib.Path
    python: str
    cxx: str = "c++"
    cc: str = "cc"

    def compile(self, block, source):
        """The commands for a C or C++ block, as lines of shell."""
        program = source.with_suffix("")
        compiler = self.cxx if block.language == "cpp" else self.cc
        command = [compiler, *FLAGS[block.language], *WARNINGS, "-I", ROOT / "include", "-I", self.build / "include"]
        if not re.search(r"^int main\(", block.code, re.MULTILINE):
            return shlex.join(map(str, [*command, "-c", source, "-o", program]))
        archives = ["libheddle_engine.a", "libheddle.a"]
        if block.language == "c":
            archives.insert(0, "libheddle_c.a")
        libraries = [*(self.build / a for a in archives), "-lhwy", "-lpcre2-8", "-lutf8proc", "-lstdc++", "-lm", "-ldl", "-lrt", "-pthread"]
        return shlex.join(map(str, [*command, source, "-o", program, *libraries])) + f"\n{shlex.quote(str(program))}"


def left_out(blocks, with_module):
    """The blocks that cannot run here: the first that needs what is not there, and what follows it on its page."""
    with_torch = os.environ.get("HEDDLE_TEST_TORCH", "1") != "0"
    for i, block in enumerate(blocks):
        if (not with_torch and TORCH.search(block.code)) or (not with_module and block.language == "python"):
            return blocks[i:]
    return []


def script_of(blocks, folder, tools):
    """The bash script that runs the blocks of one page; files that it needs go into `folder`."""
    lines = []
    for i, block in enumerate(blocks):
        follows = i > 0 and blocks[i - 1].language == block.language == "python"
        if follows:  # is already part of the file of the block before
            continue
        lines.append(f"echo {shlex.quote('--- ' + block.place)}")
        if block.language == "sh":
            lines += [block.code, "[ $? -eq 0 ]"]  # `a && b` does not end a bash -e by itself
            continue
        source = folder / f"block_{block.line}.{block.language}"
        if block.language == "python":
            source.write_text(python_file(blocks[i:]))
            lines.append(f"PYTHONPATH={shlex.quote(str(tools.build / 'python'))} {shlex.quote(tools.python)} {source}")
        else:
            source.write_text(f'#line {block.line} "{block.page}"\n{block.code}')
            lines.append(tools.compile(block, source))
    return "\n".join(lines) + "\n"


def python_file(blocks):
    """The Python blocks up to the first of another language, each on the lines that it has in the page."""
    lines = []
    for block in blocks:
        if block.language != "python":
            break
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"


def make_checkout(folder, build, built):
    """The tree as a reader has it, by links; with `built` also the build folder."""
    for entry in ROOT.iterdir():
        if not entry.name.startswith("build"):
            (folder / entry.name).symlink_to(entry)
    if built:
        (folder / "build").symlink_to(build)
    elif (build / "cuda").exists():  # the CUDA toolkit, that the same sources give the same objects
        (folder / "build").mkdir()
        (folder / "build" / "cuda").symlink_to(build / "cuda")


def environment(home, build, built):
    env = dict(os.environ)
    env.setdefault("XDG_CACHE_HOME", str(pathlib.Path.home() / ".cache"))
    env.update(HOME=str(home), PYTHONDONTWRITEBYTECODE="1", PIP_DISABLE_PIP_VERSION_CHECK="1")
    if not built:
        # Compiling takes minutes: objects that the build folder has are copied by what CMake puts before the compiler.
        launcher = str(pathlib.Path(__file__).with_name("copy_object.sh"))
        cache = (build / "CMakeCache.txt").read_text()
        settings = re.findall(r"^(HEDDLE_CUDA|HEDDLE_CUDA_ARCHITECTURES):\w+=(.+)$", cache, re.MULTILINE)
        constraints = str(ROOT / "python/requirements-test.txt")  # the build tools that the objects were made with
        env.update(PIP_CONSTRAINT=constraints, PIP_BUILD_CONSTRAINT=constraints)
        env.update(HEDDLE_BUILT=str(build), CMAKE_CXX_COMPILER_LAUNCHER=launcher, CMAKE_CUDA_COMPILER_LAUNCHER=launcher,
                   CMAKE_ARGS=" ".join(f"-D{name}={value}" for name, value in settings))
    return env


def run_script(script, folder, env):
    """(exit status, output); what is left of it when its time is over is ended with it."""
    bash = subprocess.Popen(["bash", "-e", script], cwd=folder, env=env, text=True, errors="replace", start_new_session=True,
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = bash.communicate(timeout=TIMEOUT)
        return bash.returncode, output
    except subprocess.TimeoutExpired:
        os.killpg(bash.pid, signal.SIGKILL)
        output, _ = bash.communicate()
        return 1, f"{output}\nstopped after {TIMEOUT} s"


def run_page(blocks, tools):
    """(exit status, output, seconds) of the page's blocks."""
    start = time.monotonic()
    built = not any(INSTALLS.search(b.code) for b in blocks if b.language == "sh")
    with tempfile.TemporaryDirectory(prefix="heddle-docs-") as work:
        folders = [pathlib.Path(work) / name for name in ("heddle", "home", "blocks")]
        for folder in folders:
            folder.mkdir()
        checkout, home, files = folders
        make_checkout(checkout, tools.build, built)
        script = files / "page.sh"
        script.write_text(script_of(blocks, files, tools))
        status, output = run_script(script, checkout, environment(home, tools.build, built))
    return status, output, time.monotonic() - start


def run_pages(pages, tools):
    """Runs all pages, two at a time, and prints what came of each. True if all of them work."""
    with_module = any((tools.build / "python" / "heddle").glob("_core.*.so"))
    marked = [b for blocks in pages.values() for b in blocks if b.reason is not None]
    todo, skipped = {}, []
    for page, blocks in pages.items():
        blocks = [b for b in blocks if b.language in doc_blocks.RUN and b.reason is None]
        out = left_out(blocks, with_module)
        skipped += out
        if blocks := blocks[:len(blocks) - len(out)]:
            todo[page] = blocks
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        # Shell blocks take longest: those pages first.
        order = sorted(todo, key=lambda page: -sum(b.language == "sh" for b in todo[page]))
        running = {pool.submit(run_page, todo[page], tools): page for page in order}
        for done in concurrent.futures.as_completed(running):
            page, (status, output, seconds) = running[done], done.result()
            print(f"{'ok  ' if status == 0 else 'FAIL'} {page}: {len(todo[page])} blocks, {seconds:.1f} s", flush=True)
            if status != 0:
                failed += 1
                print(output, flush=True)
    for block in skipped:
        print(f"left out, torch or the Python module is not there: {block.place}")
    for block in marked:
        print(f"marked: {block.place}: {block.reason}")
    count = sum(map(len, todo.values()))
    print(f"{count} blocks of {len(todo)} pages ran, {failed} pages failed, {len(skipped)} blocks left out, {len(marked)} marked")
    return failed == 0 and count > 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--rules", action="store_true", help="look at marks and languages, run nothing")
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="e.g. docs/models.md; default: all")
    arguments = parser.parse_args()
    pages, errors = doc_blocks.read_pages(ROOT)
    if unknown := set(arguments.pages) - pages.keys():
        errors.append(f"no such page: {', '.join(sorted(unknown))}")
    if errors:
        print("\n".join(errors))
        return 1
    if arguments.rules:
        print(f"{sum(map(len, pages.values()))} blocks of {len(pages)} pages keep the rules")
        return 0
    if arguments.pages:
        pages = {page: pages[page] for page in arguments.pages}
    build = arguments.build.resolve()
    venv = build / "venv" / "bin" / "python"
    tools = Tools(build, str(venv) if venv.exists() else sys.executable, arguments.cxx, arguments.cc)
    subprocess.run([ROOT / "tools" / "fetch_model"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return 0 if run_pages(pages, tools) else 1


if __name__ == "__main__":
    sys.exit(main())
