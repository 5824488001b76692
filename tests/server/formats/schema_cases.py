"""JSON schemas of every keyword that docs/structured_output.md promises, written and by chance, and those that it refuses.

All that may be long has a bound, so that the answer of any model ends by itself.
"""
import random

STRING = {"type": "string", "maxLength": 3}
INTEGER = {"type": "integer", "minimum": 0, "maximum": 9}


def closed(properties, *required, **more):
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False, **more}


# name: schema
PROMISED = {
    "boolean": {"type": "boolean"}, "null": {"type": "null"}, "integer": {"type": "integer"}, "number": {"type": "number"},
    "union": {"type": ["string", "null", "integer"], "maxLength": 2, "minimum": 3, "maximum": 12},
    "enum": {"enum": ["a", 1, -2.5, None, True, {"title": [1, {"é\"": "\\"}]}, "\U0001f600\n"]},
    "enum with type": {"type": "string", "enum": ["red", "green"]}, "const": {"const": {"default": 1, "b": [None]}}, "const with type": {"type": "integer", "const": 7},
    "text": {"type": "string", "minLength": 2, "maxLength": 4}, "empty text": {"type": "string", "maxLength": 0},
    "long text": {"type": "string", "minLength": 130, "maxLength": 140},
    "pattern": {"type": "string", "pattern": "^[a-c]{2,3}-\\d+$"}, "pattern with alternatives": {"type": "string", "pattern": "^(ab|c?d|\\w)x{1,3}$"},
    "pattern of a dot": {"type": "string", "pattern": "^.{1,3}$"}, "pattern without ASCII": {"type": "string", "pattern": "^é[^a]{1,2}$"},
    "pattern of many": {"type": "string", "pattern": "^[^a]{0,200}$"}, "pattern with quotes": {"type": "string", "pattern": "^a[\"\\\\]{1,2}b$"},
    "pattern with a length": {"type": "string", "pattern": "^a*$", "maxLength": 2},
    "date": {"type": "string", "format": "date"}, "time": {"type": "string", "format": "time"}, "date-time": {"type": "string", "format": "date-time"},
    "uuid": {"type": "string", "format": "uuid"}, "ipv4": {"type": "string", "format": "ipv4"},
    "integer from": {"type": "integer", "minimum": -3}, "integer to": {"type": "integer", "maximum": 13}, "integer between": {"type": "integer", "minimum": -13, "maximum": 205},
    "integer within": {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, "integer of 64 bits": {"type": "integer", "minimum": -2**63, "maximum": 2**63 - 1},
    "multiple": {"type": "integer", "multipleOf": 7}, "multiple from": {"type": "integer", "multipleOf": 5, "minimum": 3}, "multiple between": {"type": "integer", "multipleOf": 5, "minimum": 3, "maximum": 21},
    "number from": {"type": "number", "minimum": 1.5}, "number between": {"type": "number", "minimum": -2.5, "maximum": 1.25},
    "number within": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, "number of tenths": {"type": "number", "minimum": 0.1, "maximum": 0.3},
    "array": {"type": "array", "items": INTEGER, "minItems": 1, "maxItems": 3}, "array of none": {"type": "array", "items": STRING, "maxItems": 0},
    "array of arrays": {"type": "array", "items": {"type": "array", "items": INTEGER, "maxItems": 2}, "minItems": 2, "maxItems": 2},
    "tuple": {"type": "array", "prefixItems": [INTEGER, STRING], "items": False}, "tuple of two": {"type": "array", "prefixItems": [INTEGER, STRING], "items": False, "minItems": 2},
    "tuple and more": {"type": "array", "prefixItems": [STRING], "items": INTEGER, "minItems": 2, "maxItems": 3},
    "object": closed({"a": INTEGER, "b": STRING, "c": {"type": "null"}}, "b"), "object of none": closed({}),
    "optional properties": closed({"a": INTEGER, "b": INTEGER, "c": INTEGER}), "odd names": closed({"": INTEGER, "a\"b": INTEGER, "c\\d": INTEGER, "é\n": INTEGER}, "a\"b", ""),
    "names of keywords": closed({"x": closed({"title": INTEGER}, "title"), "y": closed({"title": STRING}, "title"), "default": INTEGER, "$ref": STRING}, "x", "y", "default"),
    "number of properties": closed({"a": INTEGER, "b": INTEGER, "c": INTEGER}, "b", minProperties=2, maxProperties=2),
    "dictionary": {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2, "propertyNames": {"pattern": "^[a-c]{1,2}$"}},
    "names by enum": {"type": "object", "additionalProperties": INTEGER, "maxProperties": 2, "propertyNames": {"enum": ["a", "b"]}},
    "names by pattern": {"type": "object", "patternProperties": {"^x[0-9]$": INTEGER}, "additionalProperties": False, "maxProperties": 2},
    "anyOf": {"anyOf": [INTEGER, STRING, closed({"a": INTEGER}, "a")]}, "optional": {"anyOf": [STRING, {"type": "null"}], "default": None, "title": "T"},
    "oneOf of types": {"oneOf": [INTEGER, STRING, {"type": "null"}]},
    "oneOf by a property": {"oneOf": [closed({"k": {"const": "a"}, "v": INTEGER}, "k"), closed({"k": {"enum": ["b", "c"]}, "v": STRING}, "k", "v")]},
    "allOf of one": {"allOf": [INTEGER], "description": "d"},
    "ref": {"$ref": "#/$defs/x", "$defs": {"x": closed({"a": {"$ref": "#/$defs/y", "description": "d"}}, "a"), "y": STRING}},
    "definitions": {"$ref": "#/definitions/x", "definitions": {"x": INTEGER}},
    "tree": {"$ref": "#/$defs/n", "$defs": {"n": closed({"v": INTEGER, "c": {"type": "array", "items": {"$ref": "#/$defs/n"}, "maxItems": 1}}, "v")}},
    "list": {"$defs": {"l": {"anyOf": [{"type": "null"}, closed({"next": {"$ref": "#/$defs/l"}}, "next")]}}, "$ref": "#/$defs/l"},
    "annotations": {"type": "integer", "minimum": 0, "maximum": 5, "title": "T", "description": "D", "default": 1, "examples": [1], "deprecated": False, "readOnly": True,
                    "$comment": "c", "$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://a/b"},
    "keywords of other types": {"type": "boolean", "minimum": 5, "maxLength": 1, "required": ["a"], "items": False},
}

# (keyword that the answer names, schema): what a grammar would not hold an answer to
REFUSED = [
    ("uniqueItems", {"type": "array", "items": INTEGER, "uniqueItems": True}), ("contains", {"type": "array", "items": INTEGER, "contains": {"const": 1}}),
    ("minContains", {"type": "array", "items": INTEGER, "minContains": 1}), ("additionalItems", {"type": "array", "additionalItems": False}),
    ("not", {"not": {"type": "integer"}}), ("not", {"type": "integer", "not": {"const": 1}}), ("if", {"type": "object", "if": {"required": ["a"]}, "then": {"required": ["b"]}}),
    ("dependentRequired", {"type": "object", "dependentRequired": {"a": ["b"]}}), ("dependentSchemas", {"type": "object", "dependentSchemas": {"a": {}}}),
    ("allOf", {"allOf": [INTEGER, {"minimum": 3}]}), ("oneOf", {"oneOf": [{"type": "integer"}, {"type": "number"}]}), ("anyOf", {"anyOf": []}),
    ("anyOf", {"type": "object", "properties": {"a": INTEGER}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]}),
    ("$ref", {"$ref": "http://127.0.0.1/x"}), ("$ref", {"$ref": "#/$defs/none"}), ("$ref", {"$ref": "#"}),
    ("$ref", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}), ("$ref", {"$ref": "#here", "$defs": {"x": {"$anchor": "here"}}}),
    ("minimum", {"$ref": "#/$defs/x", "minimum": 5, "$defs": {"x": {"type": "integer"}}}), ("$dynamicRef", {"$dynamicRef": "#x"}),
    ("required", closed({"a": INTEGER}, "z")), ("pattern", {"type": "string", "pattern": "^(?!a).*$"}), ("pattern", {"type": "string", "pattern": "a^b"}),
    ("pattern", {"type": "string", "pattern": "(a"}), ("pattern", {"type": "string", "pattern": "(a)\\1"}), ("pattern", {"type": "string", "pattern": "^\\bа$"}),
    ("format", {"type": "string", "format": "date", "maxLength": 2}),
    ("format", {"type": "string", "format": "nothing"}), ("multipleOf", {"type": "number", "multipleOf": 0.5}), 
    ("multipleOf", {"type": "integer", "multipleOf": 1.5}), ("minimum", {"type": "number", "minimum": 1e-9, "maximum": 2e-9}), ("minimum", {"type": "integer", "minimum": 5, "maximum": 4}),
    ("minLength", {"type": "string", "minLength": -1}), ("minLength", {"type": "string", "minLength": 3, "maxLength": 2}), ("maxItems", {"type": "array", "maxItems": -1}),
    ("patternProperties", {"type": "object", "patternProperties": {"a": INTEGER, "b": STRING}, "additionalProperties": False}),
    ("minProperties", {"type": "object", "additionalProperties": INTEGER, "minProperties": 2}), ("enum", {"enum": []}), ("enum", {"type": "integer", "enum": ["a"]}),
    ("const", {"type": "integer", "const": "a"}), ("type", {"type": "strin"}), ("type", {"type": []}), ("minLength", {"minLength": 2}), ("foo", {"type": "string", "foo": 1}),
    ("properties", {"type": "object", "properties": []}), ("required", {"type": "object", "required": [1]}), ("items", {"type": "array", "items": [INTEGER]}),
]


class Schemas:
    """Schemas by chance, of all that is promised, one in another."""

    NAMES = ["a", "b", "title", "default", "type", "é", "x y", "q\"", "$ref", "description"]

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs, self.unfinished = {}, set()

    def schema(self):
        self.defs, self.unfinished = {}, set()
        schema = self.one(0)
        return {**schema, "$defs": self.defs} if self.defs else schema

    def one(self, depth):
        simple = [self.text, self.integer, self.number, self.value, self.values, lambda: {"type": self.random.choice(["boolean", "null"])}]
        deep = [self.object, self.object, self.array, self.tuple, self.any, self.reference]
        if depth >= 3 or self.random.random() < 0.3:
            return self.annotated(self.random.choice(simple)())
        return self.annotated(self.random.choice(deep)(depth + 1))

    def annotated(self, schema):
        if self.random.random() < 0.2 and "$ref" not in schema:
            schema[self.random.choice(["title", "description", "$comment"])] = "text"
        return schema

    def text(self):
        low = self.random.randint(0, 2)
        return self.random.choice([
            {"type": "string", "maxLength": low + self.random.randint(0, 3), **({"minLength": low} if low else {})},
            {"type": "string", "pattern": self.random.choice(["^[a-f]{1,3}$", "^(x|yy)?z$", "^\\d{2}:\\d{2}$", "^[^a-z]{0,4}$", "^\\w \\w$"])},
            {"type": "string", "format": self.random.choice(["date", "uuid", "ipv4"])}])

    def integer(self):
        low = self.random.randint(-300, 300)
        high = low + self.random.choice([0, 1, 9, 100, 12345])
        return {"type": "integer", self.random.choice(["minimum", "exclusiveMinimum"]): low - 1, self.random.choice(["maximum", "exclusiveMaximum"]): high + 1}

    def number(self):
        low = round(self.random.uniform(-20, 20), self.random.randint(0, 3))
        return {"type": "number", "minimum": low, self.random.choice(["maximum", "exclusiveMaximum"]): round(low + self.random.choice([0.5, 1, 20]), 3)}

    def some_value(self):
        return self.random.choice(["a", "é\"\\", "", 0, -7, 2.5, True, None, [1, "b"], {"title": self.random.randint(0, 9)}, {}])

    def value(self):
        return {"const": self.some_value()}

    def values(self):
        return {"enum": [self.some_value() for _ in range(self.random.randint(1, 4))]}

    def object(self, depth):
        names = self.random.sample(self.NAMES, self.random.randint(0, 4))
        schema = closed({name: self.one(depth) for name in names}, *(name for name in names if self.random.random() < 0.6))
        if names and self.random.random() < 0.2:
            schema["maxProperties"] = self.random.randint(max(1, len(schema["required"])), len(names))
        return schema

    def array(self, depth):
        low = self.random.randint(0, 2)
        return {"type": "array", "items": self.one(depth), "maxItems": low + self.random.randint(0, 1), **({"minItems": low} if low else {})}

    def tuple(self, depth):
        items = [self.one(depth) for _ in range(self.random.randint(1, 3))]
        return {"type": "array", "prefixItems": items, "items": False, "minItems": self.random.randint(0, len(items))}

    def any(self, depth):
        return {"anyOf": [self.one(depth) for _ in range(self.random.randint(1, 3))]}

    def reference(self, depth):
        name = self.random.choice("pqr")
        if name in self.unfinished:  # so that no schema holds itself; those of PROMISED do
            return {"type": "null"}
        if name not in self.defs:
            self.unfinished.add(name)
            self.defs[name] = self.one(depth)
            self.unfinished.discard(name)
        return {"$ref": f"#/$defs/{name}"}


class WildSchemas(Schemas):
    """Schemas of any keywords next to one another, whether or not a grammar can hold answers to them."""

    TYPES = ["string", "integer", "number", "boolean", "null", "array", "object"]

    def one(self, depth):
        if depth >= 3:
            return super().one(depth)
        choose, chance = self.random.choice, lambda part: self.random.random() < part
        types = self.random.sample(self.TYPES, self.random.choice([1, 1, 1, 2, 3]))
        schema = {"type": types[0] if len(types) == 1 else types} if chance(0.9) else {}
        if "string" in types:
            schema |= choose([self.text(), {"maxLength": 4}, {**self.text(), "maxLength": 5}, {"pattern": "b", "maxLength": 4}, {"pattern": "^x|y$", "maxLength": 3}])
        if "integer" in types or "number" in types:
            schema |= choose([self.integer(), self.number(), {"minimum": 3, "exclusiveMinimum": 2.5, "maximum": 7.5}, {**self.integer(), "multipleOf": choose([2, 7, 0.5])}])
        if "array" in types:
            schema |= choose([self.array(depth + 1), self.tuple(depth + 1), {"items": self.one(depth + 1), "maxItems": 2, "uniqueItems": chance(0.5)},
                              {"prefixItems": [self.one(depth + 1)], "maxItems": 2}, {"contains": {"const": 1}, "maxItems": 2}])
        if "object" in types:
            schema |= self.wild_object(depth + 1)
        schema["type"] = types[0] if len(types) == 1 else types
        if chance(0.1):
            del schema["type"]
        if chance(0.15):
            schema |= choose([self.values(), self.value(), self.any(depth + 1), {"oneOf": [self.one(depth + 1), self.one(depth + 1)]},
                              {"allOf": [self.one(depth + 1), self.one(depth + 1)]}, {"not": self.value()}, {"allOf": [self.one(depth + 1)]}])
        if chance(0.1):
            schema = {choose(["oneOf", "anyOf", "allOf"]): [self.one(depth + 1) for _ in range(self.random.randint(1, 3))], **({} if chance(0.7) else schema)}
        return schema

    def wild_object(self, depth):
        choose, chance = self.random.choice, lambda part: self.random.random() < part
        names = self.random.sample(self.NAMES, self.random.randint(0, 3))
        schema = {"properties": {name: self.one(depth) for name in names}, "required": [name for name in [*names, "a"] if chance(0.4)], "maxProperties": 3}
        schema |= choose([{}, {}, {"additionalProperties": False}, {"additionalProperties": self.one(depth)}, {"additionalProperties": True},
                          {"unevaluatedProperties": False}])
        if chance(0.3):
            schema |= choose([{"minProperties": 1}, {"minProperties": 2}, {"maxProperties": 1}, {"propertyNames": {"maxLength": 2}}, {"propertyNames": {"enum": ["a", "b"]}},
                              {"patternProperties": {"^[a-b]$": self.one(depth)}}, {"patternProperties": {"a": self.one(depth), "^.?$": self.one(depth)}},
                              {"dependentRequired": {"a": ["b"]}}, {"if": {"required": ["a"]}, "else": {"required": ["b"]}}])
        return schema


class Patterns:
    """Patterns by chance, with what some dialects have and others have not."""

    ATOMS = ["a", "b", "é", "\\d", "\\w", "\\s", "\\S", "\\W", "\\D", ".", "[a-c]", "[^a]", "[\\w-]", "[^\\s\"]", "\"", "\\\\", "\\.", "\\n", "\\u0041", "\\x41", "[^\\W_]",
             "[α-ω]", "(?:ab|c)", "(a|)", "(x)", "^", "$", "\\b", "(?=a)", "\\p{L}", "[]a]", "-", "]", "{", "\\0", "\\1", "[\\]]", "[a\\]b]", "\\Z", "[\\b]", "[^\\x00-\\x7f]"]
    TIMES = ["", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "{2,}", "*?", "{,2}", "{130}", "++"]

    def __init__(self, seed):
        self.random = random.Random(seed)

    def schema(self):
        pattern = self.pattern(0)
        return {"type": "string", "pattern": f"^{pattern}$" if self.random.random() < 0.6 else pattern}

    def pattern(self, depth):
        parts = []
        for _ in range(self.random.randint(1, 4)):
            simple = depth > 1 or self.random.random() < 0.8
            atom = self.random.choice(self.ATOMS) if simple else f"({self.random.choice(['', '?:'])}{self.pattern(depth + 1)})"
            parts.append(atom + (self.random.choice(self.TIMES) if atom not in "^$" else ""))
        return "".join(parts) + (f"|{self.pattern(depth + 1)}" if self.random.random() < 0.2 else "")
