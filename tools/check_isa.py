#!/usr/bin/env python3
"""Code that every machine may run holds no AVX: fails where a weak function of the given archives does.

Highway compiles the same source once per instruction set, in namespaces N_AVX2, N_AVX3 and so on. An inline function or a
template from outside such a namespace that is called inside it may get compiled there with AVX, too. It is a weak symbol,
the linker keeps one copy of all, and if that is the AVX one, a machine without AVX dies of it. Functions whose own name has
the namespace in it are safe: there is one per instruction set.

tools/check_isa.py ARCHIVE...             checks object archives
tools/check_isa.py --self-test COMPILER   checks the checker on a small program
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# VEX and EVEX instructions start with v, those on mask registers with k; the others came with AVX2 machines. No instruction of
# x86-64-v2 begins with v but verr and verw. tzcnt is left out: compilers write it for bsf, which older machines take it for.
TOO_NEW = re.compile(r"^(v(?!err|erw)\w+|k(add|and|mov|not|or|shift|test|unpck|xn?or)\w*|andn|bextr|bls(i|r|msk)|bzhi|mulx|"
                     r"p(dep|ext)|rorx|s(ar|hl|hr)x|lzcnt)[bwlqd]*$")
PER_TARGET = re.compile(r"N_AVX")


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def weak_symbols(archive):
    """(object file, symbol) of every weak function."""
    symbols, current = set(), str(archive)
    for line in output_of("nm", archive).splitlines():
        if line.endswith(":"):
            current = line[:-1]
        elif match := re.match(r"[0-9a-f]+ [WVu] (\S+)$", line):
            symbols.add((current, match.group(1)))
    return symbols


def functions(archive):
    """Yields (object file, symbol, mnemonics) of all code."""
    current, symbol, mnemonics = str(archive), None, set()
    for line in output_of("objdump", "--disassemble", "--no-show-raw-insn", archive).splitlines():
        if match := re.match(r"(\S+):\s+file format", line):
            following = (match.group(1), None)
        elif match := re.match(r"[0-9a-f]+ <(\S+)>:$", line):
            following = (current, match.group(1))
        else:
            if match := re.match(r"\s+[0-9a-f]+:\s+(?:(?:lock|rep|repz|repnz|notrack|bnd|data16|cs)\s+)*(\w+)", line):
                mnemonics.add(match.group(1))
            continue
        if symbol:
            yield current, symbol, mnemonics
        (current, symbol), mnemonics = following, set()
    if symbol:
        yield current, symbol, mnemonics


def violations(archive):
    weak = weak_symbols(archive)
    for name, symbol, mnemonics in functions(archive):
        if (name, symbol) not in weak or PER_TARGET.search(symbol):
            continue
        if found := sorted(m for m in mnemonics if TOO_NEW.match(m)):
            readable = output_of("c++filt", symbol).strip()
            yield f"{name}: weak function {readable} uses {', '.join(found[:4])}"


SAMPLE = """
template <class T> struct Shared { __attribute__((noinline)) static T twice(T x) { return x + x; } };
#pragma GCC push_options
#pragma GCC target("avx2")
inline __attribute__((noinline)) float leaked(float x) { return x * x; }
namespace N_AVX2 {
inline __attribute__((noinline)) float safe(float x) { return x * x * x; }
float strong(float x) { return leaked(x) + safe(x); }
}
#pragma GCC pop_options
float plain(float x) { return Shared<float>::twice(x); }
"""


def self_test(compiler):
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder, "sample.cpp"), pathlib.Path(folder, "sample.o")
        source.write_text(SAMPLE)
        subprocess.run([compiler, "-O2", "-march=x86-64-v2", "-c", source, "-o", binary], check=True)
        found = list(violations(binary))
    if len(found) == 1 and "leaked(float)" in found[0]:
        print("self-test: the leaked function is found, and nothing else")
        return 0
    print("self-test: expected leaked(float) alone, found", found)
    return 1


def main():
    if sys.argv[1:2] == ["--self-test"]:
        return self_test(sys.argv[2])
    if not sys.argv[1:]:
        sys.exit("usage: check_isa.py ARCHIVE...")
    found = [v for archive in sys.argv[1:] for v in violations(archive)]
    print("\n".join(found) or "no weak function uses AVX")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
