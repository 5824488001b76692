"""Compiles pieces of C++ without output: shared by check_headers.py and check_snippets.py."""

import argparse
import concurrent.futures
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]


def parse_arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="build folder, for heddle/config.h")
    return parser.parse_args()


def run(arguments, pieces, include_folders, flags=()):
    """Compiles every piece, a pair of name and source text; prints what fails and returns the exit status."""
    folders = [arguments.build / "include", *(ROOT / f for f in include_folders)]
    command = [arguments.compiler, *FLAGS, *flags, *(f"-I{f}" for f in folders), "-x", "c++", "-"]

    def error_of(piece):
        name, source = piece
        result = subprocess.run(command, input=source, capture_output=True, text=True)
        return f"{name} does not compile:\n{result.stderr}" if result.returncode else None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = [e for e in pool.map(error_of, pieces) if e]
    print("\n".join(errors) or f"{len(pieces)} pieces compile")
    return 1 if errors or not pieces else 0
