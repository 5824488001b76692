"""Shared libraries with CUDA code for many chips, made small for one.

A library's section .nv_fatbin is a row of containers, one for each source file: a header of magic 0xBA55ED50, then the same kernels for
one chip after the other, as machine code or as PTX. `pruned` keeps the machine code for one chip and overwrites the rest with zeros, so
that nothing moves and the file packs well. The driver never reads the code for another chip.
"""
import struct

MAGIC, CONTAINER, ENTRY = 0xBA55ED50, struct.Struct("<IHHQ"), struct.Struct("<HHIQ")
ARCH_AT = 28  # in the header of an entry: the chip, 90 for 9.0 and 9.0a
PTX, MACHINE_CODE = 1, 2


def sections(data, name=b".nv_fatbin"):
    """(offset, size) of the sections of this name of a 64-bit ELF file."""
    (headers,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    fields = [struct.unpack_from("<IIQQQQ", data, headers + i * size) for i in range(count)]
    texts = fields[names][4]
    return [(offset, length) for at, _, _, _, offset, length in fields if data[texts + at:texts + at + len(name) + 1] == name + b"\0"]


def containers(data):
    """The entries of each container, as (kind, chip, offset of the code, its size)."""
    for at, length in sections(data):
        end = at + length
        while at + CONTAINER.size <= end:
            magic, _, header, size = CONTAINER.unpack_from(data, at)
            if magic != MAGIC:  # between two containers lie zeros
                at += 8
                continue
            entry, at, found = at + header, at + header + size, []
            while entry < at:
                kind, _, header, size = ENTRY.unpack_from(data, entry)
                found.append((kind, struct.unpack_from("<I", data, entry + ARCH_AT)[0], entry + header, size))
                entry += header + size
            yield found


def pruned(data, chip):
    """(the library with code for `chip` alone, bytes of code kept, bytes of code in all). PTX for it stays where there is nothing else."""
    data, kept, total = bytearray(data), 0, 0
    for entries in containers(data):
        has_machine_code = any(kind == MACHINE_CODE and arch == chip for kind, arch, *_ in entries)
        for kind, arch, at, size in entries:
            total += size
            if arch == chip and (kind == MACHINE_CODE or not has_machine_code):
                kept += size
            else:
                data[at:at + size] = bytes(size)
    return bytes(data), kept, total


def made_library(found):
    """A library of one section .nv_fatbin, with a container for each list of (kind, chip, code)."""
    fatbin = b""
    for entries in found:
        body = b"".join(struct.pack("<HHIQ12xI32x", kind, 0, 64, len(code), arch) + code for kind, arch, code in entries)
        fatbin += CONTAINER.pack(MAGIC, 1, CONTAINER.size, len(body)) + body + bytes(8)
    names = b"\0.nv_fatbin\0.shstrtab\0"
    headers = 64 + len(fatbin) + len(names)
    head = bytearray(64)
    struct.pack_into("<Q", head, 0x28, headers)
    struct.pack_into("<HHH", head, 0x3A, 64, 3, 2)
    section = struct.Struct("<IIQQQQ24x")
    return (bytes(head) + fatbin + names + bytes(64) + section.pack(1, 1, 0, 0, 64, len(fatbin))
            + section.pack(12, 3, 0, 0, 64 + len(fatbin), len(names)))


def self_test():
    library = made_library([[(MACHINE_CODE, 80, b"eighties"), (MACHINE_CODE, 90, b"nineties"), (PTX, 90, b"assembly")],
                            [(PTX, 80, b"compiled"), (PTX, 90, b"sources!")]])
    small, kept, total = pruned(library, 90)
    assert len(small) == len(library) and (kept, total) == (16, 40), (kept, total)
    for code, is_kept in ((b"eighties", False), (b"nineties", True), (b"assembly", False), (b"compiled", False), (b"sources!", True)):
        assert code in library and (code in small) == is_kept, code
    assert [[arch for _, arch, *_ in entries] for entries in containers(small)] == [[80, 90, 90], [80, 90]]
    assert pruned(library, 75)[1] == 0
