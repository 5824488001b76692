#include "chat_template/chat_template.h"

#include <cstdlib>
#include <ctime>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat_template/values/limits.h"
#include "expect_error.h"
#include "readers/tree_of.h"

namespace heddle::chat_template {
namespace {

using nlohmann::ordered_json;
using testing::expect_invalid;
using testing::expect_unsupported;

std::string render(const std::string& source,
                   const ordered_json& variables = ordered_json::object()) {
  return ChatTemplate::parse(source).render(*testing::tree_of(variables));
}
void expect_failure(std::initializer_list<const char*> parts, const std::string& source,
                    const ordered_json& variables = ordered_json::object()) {
  expect_invalid(parts, [&] { (void)render(source, variables); });
}
void expect_refused(std::initializer_list<const char*> parts, const std::string& source) {
  expect_unsupported(parts, [&] { (void)ChatTemplate::parse(source); });
}
void expect_broken(std::initializer_list<const char*> parts, const std::string& source) {
  expect_invalid(parts, [&] { (void)ChatTemplate::parse(source); });
}

TEST(ChatTemplate, RendersByteForByteAsJinja2) {
  std::ifstream file(HEDDLE_SOURCE_DIR "/tests/fixtures/chat_template/cases.json");
  const ordered_json fixtures = ordered_json::parse(file);
  ASSERT_GT(fixtures["cases"].size(), 100u);
  setenv("TZ", "UTC", 1);
  tzset();
  for (const auto& test_case : fixtures["cases"]) {
    SCOPED_TRACE(test_case["name"].get<std::string>());
    ChatTemplate chat_template = ChatTemplate::parse(test_case["template"].get<std::string>());
    chat_template.set_clock([&] { return fixtures["clock"].get<std::time_t>(); });
    const ordered_json& variables = fixtures["variables"][test_case["variables"].get<size_t>()];
    EXPECT_EQ(chat_template.render(*testing::tree_of(variables)),
              test_case["text"].get<std::string>());
  }
}

TEST(ChatTemplate, IsTheSameForEveryRender) {
  const auto chat_template =
      ChatTemplate::parse("{% set n = namespace(x=0) %}{% set n.x = n.x + a %}{{ n.x }}");
  EXPECT_EQ(chat_template.render(*testing::tree_of({{"a", 1}})), "1");
  EXPECT_EQ(chat_template.render(*testing::tree_of({{"a", 2}})), "2");
  const ChatTemplate copy = chat_template;
  EXPECT_EQ(copy.render(*testing::tree_of({{"a", 1}})), "1");
}

TEST(ChatTemplate, TellsTheTimeOfTheSystem) {
  const auto minute = [] {
    const std::time_t time = std::time(nullptr);
    std::string text(16, '\0');
    std::strftime(text.data(), 17, "%Y-%m-%d %H:%M", std::localtime(&time));
    return text;
  };
  const std::string before = minute();
  const std::string told = render("{{ strftime_now('%Y-%m-%d %H:%M') }}");
  EXPECT_TRUE(told == before || told == minute()) << told;
}

TEST(ChatTemplate, RefusesUnknownConstructsWithTheirLine) {
  expect_refused({"chat template, line 3: unknown filter 'foo'"}, "a\n\n{{ x | foo }}");
  expect_refused({"line 2: unknown test 'foo'"}, "\n{{ x is foo }}");
  expect_refused({"line 2: unknown tag 'include'"}, "\n{% include 'x' %}");
  expect_refused({"line 1: \\N"}, R"({{ '\N{DASH}' }})");
  expect_unsupported({"mine, line 1: unknown filter 'foo'"},
                     [] { (void)ChatTemplate::parse("{{ x | foo }}", "mine"); });
}

TEST(ChatTemplate, RefusesUnknownFiltersAndTestsInAnIfWhenTheyAreReached) {
  for (const char* source :
       {"{% if not x %}{% elif x is nope %}{% endif %}a", "{% if x %}{{ x | nope }}{% endif %}a",
        "{{ (x | nope) if x else 'a' }}", "{{ 'a' if not x else x is nope }}",
        "{% if x and x | nope %}{% endif %}a",
        "{% if x %}{{ nope(x) }}{{ x.encode() }}{% endif %}a",
        "{% if x %}{{ [x] | map('nope') | list }}{{ [x] | select('nope') }}{% endif %}a"}) {
    EXPECT_EQ(render(source), "a");
    const std::string message = testing::message_of([&] { (void)render(source, {{"x", "b"}}); });
    EXPECT_NE(message.find("line 1: "), message.npos) << message;
    EXPECT_TRUE(message.ends_with("'nope'") || message.ends_with("'nope' is undefined")) << message;
  }
  expect_refused({"line 1: unknown filter 'nope'"},
                 "{% if x %}{% for y in x %}{{ y | nope }}{% endfor %}{% endif %}");
  expect_refused({"line 1: unknown test 'nope'"}, "{% set y = x is nope %}{{ 1 if x else 2 }}");
  expect_unsupported({"attribute 'encode' of a str"}, [] { (void)render("{{ 'a'.encode() }}"); });
}

TEST(ChatTemplate, RefusesBrokenTemplatesWithTheirLine) {
  expect_broken({"line 2: expected '{% endif %}', found the end of the template"},
                "{% if x %}\n\n");
  expect_broken({"line 1: unexpected tag 'endfor'"}, "{% endfor %}");
  expect_broken({"line 1: a tag has no end"}, "{{ x ");
  expect_broken({"line 2: a tag has no end"}, "{{\n x ");
  expect_broken({"line 2: a comment has no end"}, "\n{# x ");
  expect_broken({"line 1: a raw block has no end"}, "{% raw %}x");
  expect_broken({"line 1: a string has no end"}, "{{ 'x }}");
  expect_broken({"line 1: unexpected ')'"}, "{{ [1) }}");
  expect_broken({"line 1: unexpected character '\u00e9'"}, "{{ \u00e9 }}");
  expect_broken({"line 1: expected an expression, found the end of the tag"}, "{{ }}");
  expect_broken({"line 1: expected '}}', found 'b'"}, "{{ a b }}");
  expect_broken({"line 1: 'if' is not a name"}, "{% set if = 1 %}");
  expect_broken({"line 3: break outside of a for"}, "\n\n{% break %}");
  expect_broken({"line 1: the number 9223372036854775808 passes 64 bits"},
                "{{ 9223372036854775808 }}");
  expect_broken({"line 1: a truncated or too large escape"}, R"({{ '\x4' }})");
  expect_broken({"line 1: the template is not UTF-8"}, "\xff");
  expect_broken({"line 1: argument 'a' is given twice"}, "{{ f(a=1, a=2) }}");
  expect_broken({"line 1: an argument without a name follows"}, "{{ f(a=1, 2) }}");
  expect_broken({"line 1: parameter 'b' without a default"}, "{% macro f(a=1, b) %}{% endmacro %}");
}

TEST(ChatTemplate, TellsTheLineOfAFailure) {
  expect_failure({"chat template, line 3: 'x' is undefined"}, "a\nb\n{{ x.y }}");
  expect_failure({"line 2: 'dict object' has no attribute 'y'"}, "\n{{ x.y.z }}",
                 {{"x", {{"a", 1}}}});
  expect_failure({"line 4: Roles must alternate"},
                 "{% for m in [1] %}\n{% if m %}\n\n{{ raise_exception('Roles must alternate') "
                 "}}{% endif %}{% endfor %}");
  expect_failure({"line 1: two\\x0alines"}, R"({{ raise_exception('two\nlines') }})");
  expect_failure({"line 1: unsupported operands of +: str and int"}, "{{ 'a' + 1 }}");
  expect_failure({"line 1: cannot order int and str"}, "{{ 1 < 'a' }}");
  expect_failure({"line 1: division by zero"}, "{{ 1 // 0 }}");
  expect_failure({"line 1: an integer passes 64 bits"}, "{{ 9223372036854775807 + 1 }}");
  expect_failure({"line 1: access to attribute 'append' of 'list' object is unsafe."},
                 "{{ [].append(1) }}");
  expect_failure({"line 1: access to attribute 'pop' of 'dict' object is unsafe."},
                 "{{ {}.pop('a') }}");
  expect_failure({"line 1: 'str object' has no attribute 'items'"}, "{{ 'a'.items() }}");
  expect_failure({"line 1: trim takes no argument 'foo'"}, "{{ 'a' | trim(foo=1) }}");
  expect_failure({"line 1: replace needs the argument 'new'"}, "{{ 'a' | replace('a') }}");
  expect_failure({"line 1: macro 'f' takes 1 arguments, 2 are given"},
                 "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}");
  expect_failure({"line 1: macro 'f' takes no argument 'a'"},
                 "{% macro f(a) %}{% endmacro %}{{ f(1, a=2) }}");
  expect_failure({"line 1: macro '' takes no argument 'caller'"},
                 "{% macro f() %}{{ caller(caller=1) }}{% endmacro %}{% call f() %}{% endcall %}");
  expect_failure({"line 1: macro 'f' takes no argument 'caller'"},
                 "{% macro f() %}{% endmacro %}{% call f() %}{% endcall %}");
  expect_failure({"line 1: No caller defined"},
                 "{% macro f() %}{{ caller() }}{% endmacro %}{{ f() }}");
  expect_failure({"line 1: argument 'a' is given twice"},
                 "{% macro f(a) %}{% endmacro %}{{ f(a=1, **{'a': 2}) }}");
  expect_failure({"line 1: a loop that is not recursive is called"},
                 "{% for a in [1] %}{{ loop([]) }}{% endfor %}");
  expect_failure({"line 1: a call with more than 255 arguments"},
                 "{% macro f() %}{{ varargs }}{% endmacro %}{{ f(*range(256)) }}");
  expect_failure({"line 1: a namespace has no attribute '_a'"}, "{{ namespace(_a=1) }}");
  expect_failure({"line 1: a namespace has no attribute '_a'"},
                 "{% set n = namespace() %}{% set n._a = 1 %}");
  expect_failure({"line 1: the substring is not found"}, "{{ 'a'.index('b') }}");
  expect_failure({"line 1: 3 values are assigned to 2 names"}, "{% set a, b = [1, 2, 3] %}");
  expect_failure({"line 1: an attribute can be assigned only to a namespace"},
                 "{% set a = 1 %}{% set a.b = 1 %}");
  expect_failure({"line 1: tojson of a Undefined"}, "{{ x | tojson }}");
  expect_failure({"line 1: a generator has no length"}, "{{ [1] | map('string') | length }}");
  expect_failure({"line 1: too few arguments for the format with %"}, "{{ '%s%s' % 'a' }}");
  expect_failure({"line 1: not all arguments are used"}, "{{ 'a' | format(1) }}");
  expect_failure({"line 1: %d of a str"}, "{{ '%d' % 'a' }}");
  expect_failure({"line 1: a format asks for 'a', which is not given"}, "{{ '{a}'.format(b=1) }}");
  expect_failure({"line 1: a single '}' in a format"}, "{{ '}'.format() }}");
  expect_failure({"line 1: fields of a format with and without a number"},
                 "{{ '{}{0}'.format(1) }}");
  expect_failure({"line 1: the format 'd' of a float"}, "{{ '{:d}'.format(1.5) }}");
  expect_failure({"the variables are no object"}, "a", ordered_json::array());
  expect_failure({"passes 64 bits"}, "{{ x }}", {{"x", UINT64_MAX}});
  expect_failure({"text that is not UTF-8"}, "{{ x }}", {{"x", "\xff"}});
}

TEST(ChatTemplate, RefusesWhatItCannotRenderAsPythonDoes) {
  for (const char* source :
       {"{{ [1] | map('string') }}",
        "{{ range(3) }}",
        "{{ range }}",
        "{{ 'a'.upper }}",
        "{{ '%.3d' % 1 }}",
        "{{ '%s' | safe % 1 }}",
        "{{ '{:.3}'.format(1.5) }}",
        "{{ '{:09,}'.format(1) }}",
        "{{ ('{}' | safe).format(1) }}",
        "{{ 'a'.zfill }}",
        "{{ joiner() }}",
        "{% set n = namespace() %}{% for a in [1] %}{% macro f() %}{% endmacro %}"
        "{% set n.f = f %}{% endfor %}{{ n.f() }}",
        "{% macro f() %}{% set n = namespace(c=[caller]) %}{% endmacro %}"
        "{% for a in [1] %}{% call f() %}{% endcall %}{% endfor %}",
        "{% for a in [1] recursive %}{% set n = namespace(a=loop) %}{% endfor %}",
        "{% for a in [1] %}{{ loop.changed(loop) }}{% endfor %}",
        "{{ '\u0e01'.isalpha() }}",
        "{{ '\u1f08' | lower }}",
        "{% set a = namespace() %}{% set a.a = a %}",
        "{{ strftime_now('%f') }}",
        "{{ 1.5 | round(-1) }}",
        "{{ {}.keys() == {}.keys() }}"}) {
    SCOPED_TRACE(source);
    expect_unsupported({"line 1: "}, [&] { (void)render(source); });
  }
}

/// Not UTF-8: characters spelled with more bytes than they need, surrogates, what lies past
/// U+10FFFF, and pieces.
const std::string kNoUtf8[] = {
    {'\xC0', '\x80'},
    "\xC1\xBF",
    {'\xE0', '\x80', '\x80'},
    "\xE0\x9F\xBF",
    {'\xF0', '\x80', '\x80', '\x80'},
    "\xF0\x8F\xBF\xBF",
    "\xED\xA0\x80",
    "\xF4\x90\x80\x80",
    "\x80",
    "\xE2\x82",
};

TEST(ChatTemplate, RefusesTextThatIsNotUtf8) {
  for (const std::string& bytes : kNoUtf8) {
    expect_broken({"line 1: the template is not UTF-8"}, "a" + bytes + "b");
    expect_broken({"line 1: the template is not UTF-8"}, "{{ '" + bytes + "' }}");
    expect_failure({"text that is not UTF-8"}, "{{ x }}", {{"x", "a" + bytes}});
    expect_failure({"text that is not UTF-8"}, "{{ x }}", {{"x", {{"a" + bytes, 1}}}});
    expect_failure({"text that is not UTF-8"}, "{{ x }}", {{"x", {bytes + "b"}}});
  }
  for (const char* text : {"\x7F\u0080", "\u07FF\u0800", "\uFFFF\U00010000", "\U0010FFFF"}) {
    EXPECT_EQ(render(std::string(text) + "{{ x }}", {{"x", text}}), std::string(text) + text);
  }
}

std::string repeat(const std::string& text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i) result += text;
  return result;
}

TEST(ChatTemplate, BoundsWhatATemplateMayCost) {
  expect_failure({"a range of more than"}, "{{ range(10 ** 9) | list }}");
  expect_failure({"bytes"}, "{{ 'a' * 10 ** 9 }}");
  expect_failure({"bytes"}, "{{ [0] * 10 ** 9 }}");
  expect_failure({"evaluation steps"}, "{% for a in range(100000) %}" +
                                           repeat("{% if a %}{% endif %}", 100) + "{% endfor %}");
  expect_failure({"bytes"},
                 "{% set n = namespace(s='a') %}{% for i in range(100) %}{% set n.s = n.s + n.s "
                 "%}{% endfor %}");
  expect_failure(
      {"nest deeper than 200"},
      "{% set n = namespace(s=1) %}{% for i in range(1000) %}{% set n.s = [n.s] %}{% endfor %}");
  expect_failure(
      {"evaluation steps"},
      "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(100) %}{% set n.a = [n.a, n.a] %}"
      "{% set n.b = [n.b, n.b] %}{% endfor %}{{ n.a == n.b }}");
  expect_failure({"steps"},
                 "{% set n = namespace(a=[1]) %}{% for i in range(100) %}{% set n.a = [n.a, n.a] "
                 "%}{% endfor %}{{ n.a }}");
  expect_failure({"macros call one another too deep"},
                 "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}");
  expect_failure({"too deep"}, "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}");
  expect_failure({"too deep"},
                 "{% macro f() %}{% call f() %}{% endcall %}{{ caller }}{% endmacro %}{{ f() }}");
  expect_failure({"bytes"}, "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}");
  expect_broken({"deeper than 200"},
                "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}");
  expect_broken({"deeper than 200"}, "{{ 1" + repeat(" + 1", 10000) + " }}");
  expect_broken({"deeper than 200"}, "{{ " + repeat("not ", 10000) + "1 }}");
  expect_broken({"deeper than 200"}, "{{ " + repeat("-", 10000) + "1 }}");
  expect_broken({"deeper than 200"}, "{{ x" + repeat(".a", 10000) + " }}");
  expect_broken({"deeper than 200"}, "{{ x" + repeat("|list", 10000) + " }}");
  expect_broken({"deeper than 200"}, repeat("{% if x %}", 10000));
  expect_broken({"deeper than 200"},
                "{% for " + repeat("(", 10000) + "a" + repeat(")", 10000) + " in b %}{% endfor %}");
  expect_broken({"too many arguments"}, "{{ range(" + repeat("1,", 1000) + ") }}");
  expect_broken({"bytes, at most"}, std::string(kMaxTemplateBytes + 1, 'a'));
  ordered_json deep = 1;
  for (int i = 0; i < 300; ++i) deep = ordered_json::array({std::move(deep)});
  expect_failure({"nest deeper than 200"}, "{{ x }}", {{"x", deep}});
  EXPECT_EQ(render("{{ x }}", {{"y", deep}}), "");  // what no one reads costs nothing
}

}  // namespace
}  // namespace heddle::chat_template
