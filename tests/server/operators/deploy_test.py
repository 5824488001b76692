"""The dashboard and the rules in deploy/: what they ask of Prometheus are expressions, and each metric and label in them is one that /metrics of a
server has."""
import json
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from serve_case import Case, main  # noqa: E402

DEPLOY = pathlib.Path(__file__).resolve().parents[3] / "deploy"
OF_PROMETHEUS = {"up": set()}  # what it makes itself
OF_TARGETS = {"instance", "job"}  # labels that it adds
FUNCTIONS = {"rate", "increase", "changes", "histogram_quantile", "min_over_time"}
AGGREGATIONS = {"sum", "topk"}
TOKEN = re.compile(r'\s*(?:(?P<name>[A-Za-z_:][\w:]*)|(?P<range>\[(?:\d+[smhd]|\$__rate_interval)\])|(?P<number>\d+(?:\.\d+)?)|(?P<text>"[^"]*")'
                   r'|(?P<sign>=~|!~|!=|==|>=|<=|[-+*/(){},=<>]))')


def tokens_of(expression):
    tokens, place = [], 0
    while expression[place:].strip():
        found = TOKEN.match(expression, place)
        if found is None:
            raise SyntaxError(f"at {expression[place:place + 20]!r} of {expression!r}")
        tokens.append((found.lastgroup, found[found.lastgroup]))
        place = found.end()
    return tokens


class Expression:
    """The part of PromQL that the files use, by recursive descent; `used` is {metric: labels} in the end."""

    def __init__(self, text):
        self.tokens, self.place, self.used, self.grouped = tokens_of(text), 0, {}, set()
        self.compared()
        if self.place < len(self.tokens):
            raise SyntaxError(f"{self.tokens[self.place:]} is left of {text!r}")
        for labels in self.used.values():
            labels |= self.grouped

    def look(self):
        return self.tokens[self.place] if self.place < len(self.tokens) else (None, None)

    def take(self, kind=None, value=None):
        found = self.look()
        if (kind and found[0] != kind) or (value and found[1] != value):
            raise SyntaxError(f"{found} where {kind} {value} is expected, in {self.tokens}")
        self.place += 1
        return found[1]

    def chain(self, signs, part):
        part()
        while self.look()[1] in signs:
            self.take()
            part()

    def compared(self):
        self.chain((">", "<", ">=", "<=", "==", "!="), self.added)

    def added(self):
        self.chain(("+", "-"), lambda: self.chain(("*", "/"), self.one))

    def in_brackets(self, one):
        self.take("sign", "(")
        one()
        while self.look()[1] == ",":
            self.take()
            one()
        self.take("sign", ")")

    def one(self):
        kind, value = self.look()
        if kind == "number":
            self.take()
        elif value == "(":
            self.in_brackets(self.compared)
        else:
            name = self.take("name")
            if name in AGGREGATIONS and self.look()[1] == "by":
                self.take()
                self.in_brackets(lambda: self.grouped.add(self.take("name")))
            if name in AGGREGATIONS | FUNCTIONS:
                self.in_brackets(self.compared)
            else:
                self.metric(name)

    def metric(self, name):
        labels = self.used.setdefault(name, set())
        if self.look()[1] == "{":
            self.take()
            while self.look()[1] != "}":
                labels.add(self.take("name"))
                if self.take("sign") not in ("=", "=~", "!=", "!~"):
                    raise SyntaxError(f"no matcher of {name}")
                self.take("text")
                if self.look()[1] != "}":
                    self.take("sign", ",")
            self.take()
        if self.look()[0] == "range":
            self.take()


def of_rules():
    text = (DEPLOY / "alerts.yaml").read_text()
    found = re.findall(r"^ +expr: (\S.*)$", text, re.MULTILINE)
    assert len(found) == text.count("- alert: ") > 0
    return found


def of_dashboard():
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


class Deploy(Case):
    options = ("--fairness", "key")
    keys = "chat a-key-of-chat\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        key = {"Authorization": "Bearer a-key-of-chat"}
        cls.server.post("/v1/completions", {"prompt": "ab", "max_tokens": 3, "model": "a1", "ignore_eos": True}, headers=key)
        cls.metrics = {}
        for line in cls.server.request("GET", "/metrics")[2].splitlines():
            if not line.startswith("#"):
                name = re.match(r"[\w:]+", line)[0]
                cls.metrics.setdefault(name, set()).update(re.findall(r'(\w+)="', line))
        cls.metrics.update(OF_PROMETHEUS)

    def check(self, expressions):
        for text in expressions:
            with self.subTest(expression=text):
                used = Expression(text).used
                self.assertTrue(used)
                for name, labels in used.items():
                    self.assertIn(name, self.metrics)
                    self.assertLessEqual(labels, self.metrics[name] | OF_TARGETS)

    def test_the_dashboard(self):
        expressions = of_dashboard()
        self.assertGreater(len(expressions), 30)
        self.check(expressions)

    def test_the_rules(self):
        self.check(of_rules())

    def test_queries_of_variables(self):
        variables = json.loads((DEPLOY / "grafana.json").read_text())["templating"]["list"]
        names = [found[1] for variable in variables if (found := re.fullmatch(r"label_values\(([\w:]+), instance\)", variable["query"]))]
        self.assertEqual(names, ["heddle:build_info"])
        self.assertIn(names[0], self.metrics)

    def test_panels_do_not_overlap(self):
        panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
        cells = [(x, y) for panel in panels for place in [panel["gridPos"]]
                 for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
        self.assertEqual(len(cells), len(set(cells)))
        self.assertLess(max(x for x, _ in cells), 24)
        self.assertEqual(len({panel["id"] for panel in panels}), len(panels))

    def test_wrong_expressions_are_noticed(self):
        for wrong in ("sum(rate(x[5m])", "rate(x[5])", "x{a=}", "x >", "sum by (rate(x[5m]))", "x y", 'x{a="b" c="d"}', "rate(x[5m]]"):
            with self.subTest(expression=wrong), self.assertRaises(SyntaxError):
                Expression(wrong)


if __name__ == "__main__":
    main()
