"""What other implementations make of texts: {"ids", "ids_plain", "text"} of each, where an implementation has it, else None."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

import structures
from shipped import CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, byte_alphabet


def merges_by_score(shipped):
    """What joins pieces into each token of a vocabulary with scores, the highest score first."""
    ids = {token: i for i, token in enumerate(shipped.tokens)}
    found = []
    for i in shipped.ids(NORMAL, USER_DEFINED, UNUSED):
        token = shipped.tokens[i]
        parts = [(token[:k], token[k:]) for k in range(1, len(token))]
        found += [(-shipped.scores[i], ids[left], ids[right], left, right) for left, right in parts if left in ids and right in ids]
    return [(left, right) for *_, left, right in sorted(found)]


def package_tokenizer(shipped, with_control=True):
    """Of the tokenizers package, with the special tokens that encode shall find."""
    ids = {}
    for i, token in enumerate(shipped.tokens):
        ids.setdefault(token, i)
    if shipped.model == "llama":
        unknown = next(iter(shipped.ids(UNKNOWN)), None)
        tokenizer = Tokenizer(models.BPE(ids, merges_by_score(shipped), unk_token=None if unknown is None else shipped.tokens[unknown],
                                         fuse_unk=True, byte_fallback=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                               decoders.Strip(" ", 1, 0)])
    else:
        structure, prefers_whole_words = structures.of_name(shipped.pre)
        merges = [tuple(merge.split(" ")) for merge in shipped.merges]
        tokenizer = Tokenizer(models.BPE(ids, merges, ignore_merges=prefers_whole_words))
        tokenizer.pre_tokenizer = structure
        tokenizer.decoder = decoders.ByteLevel()
    kinds = [USER_DEFINED] + [CONTROL, UNKNOWN] * with_control
    tokenizer.add_special_tokens([AddedToken(shipped.tokens[i], normalized=False, special=True) for i in shipped.ids(*kinds)])
    return tokenizer


def is_misread(token):
    """The package's decoder takes an added token for bytes where its characters are of the byte alphabet, say "\u00f7" for the byte F7."""
    return not token.isascii() and set(token) <= set(byte_alphabet().values())


def by_package(shipped, texts):
    parsing, plain = package_tokenizer(shipped), package_tokenizer(shipped, with_control=False)
    misread = {i for i in shipped.ids(CONTROL, USER_DEFINED) if shipped.model == "gpt2" and is_misread(shipped.tokens[i])}
    ids = [encoding.ids for encoding in parsing.encode_batch(texts, add_special_tokens=False)]
    return {
        "ids": ids,
        "ids_plain": [encoding.ids for encoding in plain.encode_batch(texts, add_special_tokens=False)],
        "text": [None if misread.intersection(one) else parsing.decode(one, skip_special_tokens=False) for one in ids],
    }


def by_tokenizer_json(path, texts):
    tokenizer = Tokenizer.from_file(str(path))
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    return {"ids": ids, "text": [tokenizer.decode(one, skip_special_tokens=False) for one in ids]}


def by_tiktoken(shipped, texts):
    import tiktoken
    special = {shipped.tokens[i]: i for i in shipped.ids(CONTROL) if i >= shipped.first}
    ranks = {token: rank for token, rank in shipped.ranks.items()}
    encoding = tiktoken.Encoding(shipped.name, pat_str=shipped.pattern, mergeable_ranks=ranks,
                                 special_tokens={token: i - shipped.first for token, i in special.items()})
    shifted = lambda ids: [i + shipped.first for i in ids]
    return {
        "ids": [shifted(encoding.encode(text, allowed_special="all")) for text in texts],
        "ids_plain": [shifted(encoding.encode_ordinary(text)) for text in texts],
        "text": texts,
    }


def by_sentencepiece(shipped, texts):
    import sentencepiece
    processor = sentencepiece.SentencePieceProcessor(model_file=str(shipped.path))
    return {"ids_plain": processor.encode(texts)}


def by_llama_cpp(shipped):
    """(texts, {"ids_plain"}) that lie next to a GGUF vocabulary, or None."""
    beside = shipped.path.with_name(shipped.path.name + ".inp"), shipped.path.with_name(shipped.path.name + ".out")
    if not beside[0].exists():
        return None
    texts = beside[0].read_bytes().decode("utf-8").split("\n__ggml_vocab_test__\n")
    lines = beside[1].read_text(encoding="utf-8").split("\n")[:len(texts)]
    assert len(lines) == len(texts), shipped.path
    return texts, {"ids_plain": [[int(word) for word in line.split()] for line in lines]}


def of_shipped(shipped, texts):
    """[(implementation, texts, what it makes of them)]"""
    found = []
    if shipped.form == "GGUF" and (recorded := by_llama_cpp(shipped)):
        found.append(("recorded", *recorded))
    if shipped.form == "tiktoken":
        found.append(("tiktoken", texts, by_tiktoken(shipped, texts)))
    elif shipped.form == "SentencePiece":
        found.append(("sentencepiece", texts, by_sentencepiece(shipped, texts)))
    elif shipped.form == "tokenizer.json":
        found.append(("tokenizers, its file", texts, by_tokenizer_json(shipped.path, texts)))
    if shipped.form != "SentencePiece":  # whose equal scores the package's converters tell apart by the ids of the parts
        found.append(("tokenizers", texts, by_package(shipped, texts)))
    return found
