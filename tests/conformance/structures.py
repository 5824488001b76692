"""How the tokenizers of models split text, in the words of the tokenizers package: what heddle's pre-tokenizers are held against.

Written after the tokenizer.json files of the models, not after heddle's patterns.
"""

from tokenizers import Regex
from tokenizers.pre_tokenizers import ByteLevel, Digits, Punctuation, Sequence, Split

from shipped import LLAMA3, LLAMA4, QWEN, QWEN35

# The letters with case of DeepSeek's first tokenizers, as they list them.
CASED = ("A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-\u0373\u0376\u0377"
         "\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-"
         "\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77\u1D79-\u1D9A\u1E00-\u1F15\u1F18-"
         "\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-"
         "\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115"
         "\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-"
         "\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-"
         "\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-"
         "\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943")
DEEPSEEK_V3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*"
               "|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
TEKKEN = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
          r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
          r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ASIAN = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
SIGNS = "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"
SEED_CODER = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\r\n]+|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+"


def split(pattern):
    return Split(Regex(pattern), "isolated")


def byte_level(use_regex=False):
    return ByteLevel(add_prefix_space=False, use_regex=use_regex)


def sequence(*parts):
    return Sequence([*parts, byte_level()])


# What a structure is, whether it prefers whole words, and the names of those who have it.
STRUCTURES = [
    (byte_level(True), False,
     ["gpt-2", "phi-2", "mpt", "olmo", "jais", "gigachat", "mellum", "a.x-4.0", "exaone4", "trillion", "granite-docling"]),
    (Sequence([Digits(individual_digits=True), byte_level(True)]), False,
     ["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"]),
    (sequence(split(LLAMA3)), True,
     ["llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "glm4", "glm5"]),
    (sequence(split(LLAMA3)), False, ["chatglm-bpe", "dbrx", "smaug-bpe"]),
    (sequence(split(r"\p{N}{1,3}"), split(LLAMA3.replace("{1,3}", "+"))), True, ["minicpm5"]),
    (sequence(split(QWEN)), False, ["qwen2", "deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"]),
    (sequence(split(BAILING)), False, ["bailingmoe", "bailingmoe2", "llada-moe"]),
    (sequence(split(QWEN35)), False, ["qwen35"]),
    (sequence(split(SEED_CODER)), False, ["seed-coder"]),
    (sequence(split(TEKKEN)), True, ["tekken"]),
    (sequence(split(LLAMA4)), False, ["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"]),
    (Sequence([Punctuation("contiguous"), byte_level(True), split("[0-9][0-9][0-9]")]), False, ["falcon"]),
    (sequence(split("[\r\n]"), split(f"\\s?[{CASED}]+"), split(SIGNS), split(r"\s+$"),
              split(ASIAN), Digits(individual_digits=True)), False, ["deepseek-llm"]),
    (sequence(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(ASIAN), Digits(individual_digits=True)),
     False, ["deepseek-coder"]),
    (sequence(split(r"\p{N}{1,3}"), split("[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"), split(DEEPSEEK_V3)), False,
     ["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"]),
    (sequence(split(BLOOM)), False, ["bloom", "gpt3-finnish", "poro-chat"]),
    (sequence(split(BLOOM), split(r"\p{N}")), False, ["viking"]),
    (sequence(split(r"[\p{P}$+<=>^~|]+"), split(GPT2), split(r"\p{N}+"), split("[0-9][0-9][0-9]")), False, ["default"]),
]


def of_name(name):
    """(structure, whether it prefers whole words)"""
    return next((structure, whole) for structure, whole, names in STRUCTURES if name in names)


def all_names():
    return [name for _, _, names in STRUCTURES for name in names]
