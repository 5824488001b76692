#!/usr/bin/env python3
"""No two files of include and src define a type of the same name, whatever its namespace: a reader who searches for one finds one. Nor do
they define a constant of the same qualified name. The linker would not notice: two types of one qualified name are one type to it, and what
the compiler did not inline of one may be called for the other.

What an anonymous namespace of a .cpp or .cu holds is that file's own. Tests and benches are programs of their own and are left out.

tools/check_names.py              checks the tree
tools/check_names.py --self-test  checks the checker on code that it must accept and refuse
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEFT_OUT = re.compile(r"/(test|bench)/|^src/testing/")

COMMENT_OR_TEXT = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
TOKEN = re.compile(r"[A-Za-z_]\w*|::|\d[\w.']*|[^\s\w]")


def tokens_of(text):
    text = re.sub(r"\\\n", "", text)
    text = re.sub(r"^[ \t]*#[^\n]*", "", text, flags=re.MULTILINE)
    return TOKEN.findall(COMMENT_OR_TEXT.sub(" ", text))


def skip_group(tokens, i, opening, closing):
    """The place after the group that opens at i."""
    depth = 0
    while i < len(tokens):
        depth += (tokens[i] == opening) - (tokens[i] == closing)
        i += 1
        if depth == 0:
            return i
    return i


def type_name(statement):
    """The name of the type that the words before a "{" define, None where they define none. A specialisation has its arguments in its
    name."""
    i = 0
    while i < len(statement):
        word = statement[i]
        if word == "template":
            i = skip_angles(statement, i + 1)
        elif word == "requires":  # of a template: up to the class
            while i < len(statement) and statement[i] not in ("struct", "class", "union", "enum"):
                i += 1
        elif word in ("struct", "class", "union", "enum"):
            i += 1
            if statement[i:i + 1] in (["class"], ["struct"]):
                i += 1
            while statement[i:i + 1] in (["["], ["alignas"], ["__align__"]):
                i = (skip_group(statement, i, "[", "]") if statement[i] == "["
                     else skip_group(statement, i + 1, "(", ")"))
            if i >= len(statement) or not re.match(r"[A-Za-z_]", statement[i]):
                return None
            name, i = statement[i], i + 1
            while statement[i:i + 1] == ["::"]:
                name, i = name + "::" + statement[i + 1], i + 2
            if statement[i:i + 1] == ["<"]:
                end = skip_angles(statement, i)
                name, i = name + "".join(statement[i:end]), end
            return None if "(" in statement[i:] and ":" not in statement[i:] else name
        else:
            return None
    return None


def skip_angles(tokens, i):
    depth = 0
    while i < len(tokens):
        if tokens[i] == "(":
            i = skip_group(tokens, i, "(", ")")
            continue
        depth += (tokens[i] == "<") - (tokens[i] == ">")
        i += 1
        if depth == 0:
            return i
    return i


def constant_names(statement):
    """Names kLikeThis of the constants that a statement of a namespace defines."""
    words = list(statement)
    if words[:1] == ["template"]:
        words = words[skip_angles(words, 1):]
    if "extern" in words or not {"constexpr", "const"} & set(words):
        return []
    names, i, is_declarator = [], 0, True  # else in an initializer
    while i < len(words):
        word, following = words[i], words[i + 1:i + 2]
        if is_declarator and re.fullmatch(r"k[A-Z]\w*", word) and following and following[0] in "={[,;":
            names.append(word)
            is_declarator = False
        elif word in "([{":
            i = skip_group(words, i, word, {"(": ")", "[": "]", "{": "}"}[word])
            continue
        elif word == ",":
            is_declarator = True
        elif word == "=":
            is_declarator = False
        i += 1
    return names


def definitions(text):
    """(qualified name, is_anonymous) of the types and constants that a file defines in namespaces."""
    tokens, scope, found, i, begin = tokens_of(text), (), [], 0, 0
    while i < len(tokens):
        token = tokens[i]
        if token == "}":
            scope = scope[:-1]
            i = begin = i + 1
        elif token == "(":
            i = skip_group(tokens, i, "(", ")")
        elif token == "[":
            i = skip_group(tokens, i, "[", "]")
        elif token == ";":
            found += [(scope, name) for name in constant_names(tokens[begin:i + 1])]
            i = begin = i + 1
        elif token == "{":
            statement = tokens[begin:i]
            if "namespace" in statement and "using" not in statement:
                at = statement.index("namespace")
                name = "".join(w for w in statement[at + 1:] if w == "::" or re.match(r"[A-Za-z_]", w))
                scope = (*scope, name or None)
                i = begin = i + 1
            elif statement and statement[0] == "extern" and len(statement) == 1:
                scope = (*scope, "")
                i = begin = i + 1
            else:
                name = type_name(statement)
                if name:
                    found.append((scope, name))
                i = skip_group(tokens, i, "{", "}")
                # After a type, a function or a macro's block a new statement begins; after an initializer the same goes on.
                if name or ")" in statement and "=" not in statement:
                    begin = i
        else:
            i += 1
    return [("::".join([part or "(anonymous)" for part in path if part != ""] + [name]), None in path)
            for path, name in found]


def violations(files):
    places, types = {}, {}
    for path, text in sorted(files.items()):
        for name, is_anonymous in definitions(text):
            if is_anonymous and not path.endswith(".h"):
                continue
            places.setdefault(name, set()).add(path)
            last = re.fullmatch(r".*?(?:\b|::)([A-Z]\w*)", name)
            namespaces = name.rpartition("::")[0]
            if last and not re.search(r"[A-Z]\w*$", namespaces.replace("HWY_NAMESPACE", "")):  # a namespace's own, no specialisation
                types.setdefault(last[1], {}).setdefault(name, path)
    for name, paths in sorted(places.items()):
        if len(paths) > 1:
            yield f"{name} is defined in {', '.join(sorted(paths))}"
    for name, qualified in sorted(types.items()):
        if len(qualified) > 1:
            yield f"{name} is {len(qualified)} types: {', '.join(sorted(f'{n} ({path})' for n, path in qualified.items()))}"


def read_tree():
    paths = [p for folder in ("include", "src") for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cpp", ".cu")]
    files = {str(p.relative_to(ROOT)): p.read_text() for p in paths}
    return {path: text for path, text in files.items() if not LEFT_OUT.search(path)}


def in_namespace(name, code):
    return f"namespace {name} {{\n{code}\n}}  // namespace {name}\n"


def self_test():
    shared = in_namespace("heddle::cuda", """
struct Share { int begin; };
template <class T> struct Box { T held; };
enum class Way { kOne };
inline constexpr int kRows = 8, kColumns = 16;
constexpr int of(int n) { return n; }
int twice(int n) { constexpr int kLocal = 2; struct Local { int x; }; return kLocal * n; }
""")
    accepted = [
        in_namespace("heddle::cuda::lora", "struct Share2 { int begin; };"),
        in_namespace("heddle::cuda::lora", "struct Outer::Share { int begin; };"),
        in_namespace("heddle::cuda", "struct Share;\nclass Box2 {};\nusing Other = Share;"),
        in_namespace("heddle::cuda", "namespace {\nstruct Share {};\nconstexpr int kRows = 9;\n}"),
        in_namespace("heddle::cuda", "template <> struct Box<int> { int held; };"),
        in_namespace("heddle::cuda", "void f() { constexpr int kLocal = 3; struct Local { int x; }; }"),
        in_namespace("heddle::cuda", "struct Share f(int kRows = 3);\nint g(const int kColumns);"),
        in_namespace("heddle::cuda", "// struct Share {};\nconst char* const kText = \"struct Share {};\";"),
        in_namespace("heddle::cuda", "struct Outer { struct Share { int x; }; static constexpr int kRows = 1; };"),
        in_namespace("heddle::cuda", "inline int rows() { return kRows == 8 ? 1 : 0; }"),
        in_namespace("heddle::cuda", "constexpr int kFirst = kRows, kSecond = 2 * kRows, kThird{kColumns};"),
        in_namespace("heddle::cuda", "struct Share::Inner { int x; };"),
    ]
    refused = [
        in_namespace("heddle::cuda", "enum class Share { kNone };"),
        in_namespace("heddle::cuda::lora", "struct Share { int begin; };"),
        in_namespace("heddle::cuda", "class alignas(16) Share final : public Base<int> {};"),
        in_namespace("heddle", "namespace cuda {\ntemplate <class T>\n  requires (sizeof(T) > 4)\nclass Box { T held; };\n}"),
        in_namespace("heddle::cuda", "constexpr int kRows = 9;"),
        in_namespace("heddle::cuda", "inline constexpr int kOther{1}, kColumns = 9;"),
        in_namespace("heddle::cuda", "inline constexpr int kColumns{1};"),
        in_namespace("heddle::cuda", "void f() {}\nnamespace {\nint g() { return 1; }\n}\nstruct Way {};"),
        in_namespace("heddle::cuda", "constexpr int a[] = {1, 2};\nunion Way { int a; float b; };"),
    ]
    wrong = []
    for cases, expected in ((accepted, False), (refused, True)):
        for text in cases:
            if any(violations({"src/a.h": shared, "src/b.cu": text})) != expected:
                wrong.append(f"should be {'refused' if expected else 'accepted'}:\n{text}")
    in_header = in_namespace("heddle::cuda", "namespace {\nstruct Own {};\n}")
    if not any(violations({"src/a.h": in_header, "src/b.h": in_header})):
        wrong.append("an anonymous namespace of two headers should be refused")
    return wrong, f"self-test: {len(accepted)} files accepted, {len(refused) + 1} refused"


def main():
    if sys.argv[1:] == ["--self-test"]:
        problems, summary = self_test()
    else:
        files = read_tree()
        problems = list(violations(files))
        names = sum(len(definitions(text)) for text in files.values())
        summary = f"{names} types and constants of {len(files)} files have names of their own"
    print("\n".join(problems) or summary)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
