"""A GGUF file that says what another says, and more, with tensors of zeros: as long as the model, and next to nothing on the disk."""
import math
import struct

U32, STRING, ARRAY = 4, 8, 9
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # of numbers, by type
TYPES = {0: (1, 4), 1: (1, 2), 3: (32, 20), 8: (32, 34), 30: (1, 2)}  # F32, F16, Q4_1, Q8_0, BF16: weights and bytes of a block
BF16 = 30
ALIGNMENT = 32


class Reader:
    def __init__(self, file):
        self.file = file

    def number(self, code):
        return struct.unpack("<" + code, self.file.read(struct.calcsize(code)))[0]

    def text(self):
        return self.file.read(self.number("Q"))

    def skip_value(self, kind):
        if kind == STRING:
            self.text()
        elif kind != ARRAY:
            self.file.seek(SIZES[kind], 1)
        else:
            kind, count = self.number("I"), self.number("Q")
            if kind in SIZES:
                self.file.seek(SIZES[kind] * count, 1)
                return
            for _ in range(count):
                self.skip_value(kind)


def padded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def text_of(text):
    return struct.pack("<Q", len(text)) + text


def copy(source, target, extra=(), matrices=None):
    """`extra`: keys that get the value 7; `matrices`: the type of the tensors that are no vectors, else each keeps its own."""
    with source.open("rb") as file:
        reader = Reader(file)
        assert (file.read(4), reader.number("I")) == (b"GGUF", 3)
        num_tensors, num_values = reader.number("Q"), reader.number("Q")
        begin = file.tell()
        for _ in range(num_values):
            reader.text()
            reader.skip_value(reader.number("I"))
        length = file.tell() - begin
        file.seek(begin)
        values = file.read(length)
        tensors = []
        for _ in range(num_tensors):
            name = reader.text()
            dims = [reader.number("Q") for _ in range(reader.number("I"))]
            tensors.append((name, dims, reader.number("I")))
            reader.number("Q")  # where its data are
    head = b"GGUF" + struct.pack("<IQQ", 3, num_tensors, num_values + len(extra)) + values
    for key in extra:
        head += text_of(key.encode()) + struct.pack("<II", U32, 7)
    offset = 0
    for name, dims, kind in tensors:
        kind = kind if matrices is None or len(dims) == 1 else matrices
        head += text_of(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, offset)
        weights, size = TYPES[kind]
        offset += padded(math.prod(dims) // weights * size)
    with target.open("wb") as file:
        file.write(head)
        file.truncate(padded(len(head)) + offset)
    return target
