"""Formats of answers that want more than they say, or nonsense: those of tests/corpus/formats, and larger ones that are made here."""
import json
import pathlib

CORPUS = pathlib.Path(__file__).resolve().parents[2] / "corpus/formats"
INTEGER = {"type": "integer"}
FIELDS = {"s": "json", "r": "regex", "g": "grammar", "l": "grammar", "t": "structural_tag"}  # of structured_outputs, by the corpus' letter


def closed(properties, *required):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def tree(depth):
    return INTEGER if depth == 0 else {"type": "array", "prefixItems": [tree(depth - 1)] * 2, "minItems": 2, "items": False}


def ambiguous(depth):
    if depth == 0:
        return INTEGER
    inner = ambiguous(depth - 1)
    return {"anyOf": [inner, inner, {"type": "array", "items": inner}]}


def schemas():
    yield "deep items", '{"type":"array","items":' * 5000 + "{}" + "}" * 5000
    yield "deep anyOf", '{"anyOf":[' * 1000 + "{}" + "]}" * 1000
    yield "deep allOf", '{"allOf":[' * 500 + '{"type":"integer"}' + "]}" * 500
    yield "deep properties", '{"type":"object","required":["a"],"additionalProperties":false,"properties":{"a":' * 500 + '{"type":"null"}' + "}}" * 500
    yield "brackets", "[" * 100000
    yield "chain of $ref", {"$ref": "#/$defs/0", "$defs": {**{str(i): {"$ref": f"#/$defs/{i + 1}"} for i in range(5000)}, "5000": INTEGER}}
    names = [{"$ref": f"#/$defs/{i}"} for i in range(31)]
    yield "tree of $ref", {"$ref": "#/$defs/0", "$defs": {**{str(i): closed({"a": names[i + 1], "b": names[i + 1]}, "a", "b") for i in range(30)}, "30": INTEGER}}
    yield "all of all", {"$ref": "#/$defs/0", "$defs": {str(i): closed({f"p{j}": names[j] for j in range(20)}) for i in range(20)}}
    yield "tree", tree(12)
    yield "ambiguous", ambiguous(7)
    yield "many values", {"enum": [f"value {i}" for i in range(50000)]}
    yield "long values", {"enum": ["x" * 200000, "x" * 199999 + "y"]}
    yield "many properties", closed({f"p{i}": INTEGER for i in range(3000)})
    yield "number of many properties", {**closed({f"p{i}": INTEGER for i in range(200)}), "minProperties": 50, "maxProperties": 150}
    yield "many objects", {"anyOf": [closed({f"k{i}": INTEGER}, f"k{i}") for i in range(3000)]}
    yield "equal objects", {"anyOf": [closed({"a": {"type": "string"}})] * 200}
    yield "many required", {"type": "object", "required": [f"p{i}" for i in range(50000)]}
    yield "long name", closed({"n" * 100000: INTEGER}, "n" * 100000)
    yield "more than the limit", {"enum": ["x" * (1 << 20)]}


def large():
    """(name, field of structured_outputs, value)"""
    for name, schema in schemas():
        yield name, "json", schema if isinstance(schema, str) else json.dumps(schema)
    yield "class of many", "regex", "[" + "".join(chr(0x4e00 + 2 * i) for i in range(10000)) + "]+"
    yield "deep groups", "regex", "(" * 3000 + "a" + ")" * 3000
    yield "open groups", "regex", "(" * 50000
    yield "many words", "regex", "|".join(f"word{i}" for i in range(20000))
    yield "nothing often", "regex", "|" * 20000
    yield "long pattern", "regex", "a" * 200000
    yield "many rules", "grammar", "root ::= r0\n" + "\n".join(f'r{i} ::= "a{i}" r{i + 1} | "b"' for i in range(20000)) + '\nr20000 ::= "c"'
    yield "many alternatives", "grammar", "root ::= " + " | ".join(f'"word{i}"' for i in range(20000))
    yield "deep groups", "grammar", "root ::= " + "(" * 3000 + '"a"' + ")" * 3000
    yield "open groups", "grammar", "root ::= " + "(" * 100000
    yield "long comment", "grammar", "# " + "x" * 200000
    yield "long text", "grammar", 'root ::= "' + "a" * 200000 + '"'
    yield "rules that nothing uses", "grammar", 'root ::= "a"\n' + "\n".join(f'u{i} ::= u{i} "x"' for i in range(2000))
    yield "many choices", "choice", [f"choice {i}" for i in range(20000)]
    yield "long choices", "choice", ["x" * 100000 + str(i) for i in range(5)]
    yield "deep tag", "structural_tag", ('{"type":"structural_tag","format":' + '{"type":"sequence","elements":[' * 2000
                                         + '{"type":"const_string","value":"a"}' + "]}" * 2000 + "}")
    tags = [{"begin": f"<f{i}>", "content": {"type": "json_schema", "json_schema": INTEGER}, "end": f"</f{i}>"} for i in range(2000)]
    yield "many tags", "structural_tag", json.dumps({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f"], "tags": tags}})


def small():
    """Those of the corpus; the value is bytes."""
    for path in sorted(CORPUS.iterdir()):
        if path.name != "README.md":
            data = path.read_bytes()
            yield path.name, FIELDS[chr(data[0])], data[1:]
