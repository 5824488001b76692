#!/usr/bin/env python3
"""No kernel asks for more shared memory than its chips give a block, 99 KB on most: shown from object files, without a GPU.

A kernel's own shared memory is read from the machine code of each architecture in the objects. Dynamic shared memory above what
every launch may have needs allow_shared_memory of cuda/shared_memory.h, whose instances carry kernel and bytes in their names; no
other file may ask the runtime for it. A kernel without an instance has at most 48 KB of both, or its launch is refused. Where an
instance has a second number of bytes, that is for chips of 9.x and 10.x alone, which give 227 KB.

tools/check_shared_memory.py ARCHITECTURES OBJECT...  e.g. 80,90 x_cuda.cu.o: each object must hold code for all of these
tools/check_shared_memory.py --self-test NVCC         checks the checker on kernels within the limit and above it

The toolkit's wheels have no cuobjdump; the formats read here are its "fat binary" and ELF.
"""

import pathlib
import re
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
HELPER = "src/cuda/shared_memory.h"
ATTRIBUTE = "cudaFuncAttributeMaxDynamicSharedMemorySize"
LIMIT, LARGE_LIMIT, LARGE = 99 * 1024, 227 * 1024, (9, 10)
UNASKED = 48 * 1024
# From 9.0 on sections begin with what the chip takes for itself, which is not part of the limit.
RESERVED, RESERVED_SECTION = 1024, ".nv.shared.reserved.0"
ASKS = re.compile(r" U cudaFuncSetAttribute$| [a-zA-Z] void heddle::cuda::allow_shared_memory<")
# The kernel is "&(void f<int>(int))", or "&f" where it is no template.
INSTANCE = re.compile(r"allow_shared_memory<&(\()?(.*?)(?(1)\)), (\d+), (\d+)>\(int, int\)$")


def output_of(*command, text=""):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True, input=text).stdout


def sections_of(elf):
    """(name, size) of every section of an ELF file of 64 bits."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    entry_size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, table + i * entry_size) for i in range(count)]
    names_at = headers[names_index][4]
    for name, _, _, _, _, size in headers:
        begin = names_at + name
        yield elf[begin:elf.index(b"\0", begin)].decode(), size


def machine_code_of(data):
    """(architecture, ELF file) of all machine code in an object file."""
    begin = data.find(struct.pack("<IH", 0xBA55ED50, 1))
    while begin >= 0:
        header, size = struct.unpack_from("<HQ", data, begin + 6)
        at, end = begin + header, begin + header + size
        while at < end:
            kind, _, entry_header, entry_size = struct.unpack_from("<HHIQ", data, at)
            elf = data[at + entry_header:at + entry_header + entry_size]
            if kind == 2:
                if not elf.startswith(b"\x7fELF"):
                    sys.exit("the machine code is compressed: it cannot be read")
                yield struct.unpack_from("<I", data, at + 28)[0], elf
            at += entry_header + entry_size
        begin = data.find(struct.pack("<IH", 0xBA55ED50, 1), end)


def kernels_of(path):
    """{architecture: {kernel: bytes of its own}} of an object file."""
    kernels = {}
    for architecture, elf in machine_code_of(path.read_bytes()):
        sections = dict(sections_of(elf))
        mangled = [name.removeprefix(".text.") for name in sections if name.startswith(".text.")]
        names = output_of("c++filt", text="\n".join(mangled)).splitlines()
        reserved = RESERVED if RESERVED_SECTION in sections else 0
        own = {name: max(0, sections.get(f".nv.shared.{symbol}", 0) - reserved)
               for name, symbol in zip(names, mangled, strict=True)}
        kernels.setdefault(architecture, {}).update(own)
    return kernels


def dynamic_of(path):
    """{kernel: bytes of dynamic shared memory that it is allowed, and those on chips with more}."""
    lines = [line for line in output_of("nm", "-C", path).splitlines() if ASKS.search(line)]
    instances = [match for line in lines if (match := INSTANCE.search(line))]
    if len(lines) != len(instances) + bool(instances):  # one line is the runtime's function
        sys.exit("\n".join([f"{path.name}: cannot tell who asks for how much", *lines]))
    return {match.group(2): (int(match.group(3)), int(match.group(4))) for match in instances}


def check(path, architectures):
    """(what is wrong, kernels seen, the largest sum of an architecture, and the largest where a kernel asks for more)"""
    kernels, allowed, wrong, largest = kernels_of(path), dynamic_of(path), [], [0, 0]
    for architecture in architectures:
        of_architecture = kernels.get(architecture, {})
        if not of_architecture:
            wrong.append(f"{path.name}: no kernel for {architecture}")
            continue
        names = {kernel[:kernel.rfind("(")]: kernel for kernel in of_architecture}  # of those that are no templates
        dynamic = {names.get(kernel, kernel): bytes_of for kernel, bytes_of in allowed.items()}
        wrong += [f"{path.name}: allowed {kernel}, which is no kernel" for kernel in dynamic if kernel not in of_architecture]
        for kernel, own in of_architecture.items():
            everywhere, large = dynamic.get(kernel, (0, 0))
            is_large = large > everywhere and architecture // 10 in LARGE
            limit = LARGE_LIMIT if is_large else LIMIT if kernel in dynamic else UNASKED
            total = own + (large if is_large else everywhere)
            largest[is_large] = max(largest[is_large], total)
            if total > limit:
                wrong.append(f"{path.name}: {kernel} needs {total} bytes of shared memory on {architecture}, above {limit}")
    return wrong, sum(len(of) for of in kernels.values()), *largest


def files_that_ask(root):
    """Sources that ask the runtime on their own; tests may."""
    return [str(path.relative_to(root)) for path in sorted(root.glob("src/**/*"))
            if path.suffix in (".cu", ".cpp", ".h") and "_test." not in path.name and path.parent.name != "test"
            and str(path.relative_to(root)) != HELPER and ATTRIBUTE in path.read_text()]


def main(architectures, paths):
    wrong = [f"{name}: asks for shared memory without {HELPER}" for name in files_that_ask(ROOT)]
    for path in paths:
        found, count, largest, large = check(path, architectures)
        wrong += found
        print(f"{path.name:32} {count:3} kernels for {len(architectures)} architectures, at most {largest:6} of {LIMIT} bytes"
              + (f", and {large} of {LARGE_LIMIT} on chips of 9.x and 10.x" if large else ""))
    print("\n".join(wrong))
    return 1 if wrong or not paths else 0


def self_test(nvcc):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)

        def compiled(own, dynamic, large):
            """An object whose kernel has `own` bytes and is allowed `dynamic` more, `large` on large chips; another has nothing."""
            source, target = folder / "x_cuda.cu", folder / "x_cuda.cu.o"
            source.write_text(f"""
                #include "cuda/shared_memory.h"
                namespace heddle::cuda {{
                void throw_cuda_error(cudaError_t, const char*) {{ throw 0; }}
                namespace {{
                template <class T> __global__ void kernel(T* p) {{
                  __shared__ T own[{own} / sizeof(T)];
                  extern __shared__ T more[];
                  own[threadIdx.x] = more[threadIdx.x] = p[threadIdx.x];
                  __syncthreads();
                  p[threadIdx.x] = own[threadIdx.x ^ 1] + more[threadIdx.x ^ 1];
                }}
                __global__ void plain(int* p) {{ *p = 1; }}
                }}
                void launch(int* p) {{
                  {f"allow_shared_memory<kernel<int>, {dynamic}, {large}>(0);" if dynamic else ""}
                  {"allow_shared_memory<plain, 64>(0);" if dynamic else ""}
                  kernel<<<1, 32, {dynamic}>>>(p);
                  plain<<<1, 1>>>(p);
                }}
                }}""")
            code = [f"--generate-code=arch=compute_{sm},code=sm_{sm}" for sm in ("80", "90a")]
            output_of(nvcc, "-std=c++20", "-O1", *code, f"-I{ROOT / 'src'}", "-c", source, "-o", target)
            return target

        def expect(what, want, got):
            if want != got:
                sys.exit(f"{what}: expected {want}, got {got}")

        within, asked = compiled(4096, LIMIT - 4096, LARGE_LIMIT - 4096), [80, 90]
        expect("within", ([], 4, LIMIT, LARGE_LIMIT), check(within, asked))
        expect("an architecture that is not there", 1, len(check(within, [80, 86])[0]))
        expect("above", 2, len(check(compiled(4112, LIMIT - 4096, LARGE_LIMIT - 4096), asked)[0]))
        expect("without dynamic memory", ([], 4, UNASKED, 0), check(compiled(UNASKED, 0, 0), asked))
        (folder / "src").mkdir()
        (folder / "src/x_cuda.cu").write_text(ATTRIBUTE)
        (folder / "src/x_cuda_test.cu").write_text(ATTRIBUTE)
        expect("a source that asks", ["src/x_cuda.cu"], files_that_ask(folder))
    print("self-test: 2 objects accepted, 2 and a source refused")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--self-test"]:
        sys.exit(self_test(sys.argv[2]))
    sys.exit(main([int(sm) for sm in sys.argv[1].split(",")], [pathlib.Path(path) for path in sys.argv[2:]]))
