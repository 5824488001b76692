// Every filter, test, method, function, operator and statement: its cost grows as its input does,
// the budget is spent before the work is done, and memory is a small multiple of what was spent.
#include "chat_template/test/cost.h"

#include <map>

#include <gtest/gtest.h>

namespace heddle::chat_template {
namespace {

constexpr size_t kSize = 4000;
// What memory may be taken for: what is spent as bytes, some of it over again while text and lists
// grow, and what a step needs until it ends.
constexpr int64_t kHeapPerByte = 8, kHeapPerStep = 256, kHeapAtLeast = 20'000;

/// Templates by the name of what they use. Some use it twice, on inputs that cost in other ways.
using Sources = std::multimap<std::string_view, std::string>;

Sources with_one(std::initializer_list<std::string_view> names, const std::string& before,
                 const std::string& after) {
  Sources sources;
  for (const std::string_view name : names) {
    sources.emplace(name, before + std::string(name) + after);
  }
  return sources;
}
Sources joined(std::initializer_list<Sources> parts) {
  Sources all;
  for (const Sources& part : parts) all.insert(part.begin(), part.end());
  return all;
}

const Sources kFilters = {
    {"trim", "{{ blanks | trim }}"},
    {"trim", "{{ letters | trim(others) }}"},
    {"trim", "{{ scattered | trim(scattered) }}"},
    {"upper", "{{ text | upper }}"},
    {"lower", "{{ sigmas | upper | lower }}"},
    {"capitalize", "{{ text | capitalize }}"},
    {"title", "{{ text | title }}"},
    {"title", "{{ letters | title }}"},
    {"replace", "{{ text | replace('a', 'bbb') }}"},
    {"replace", "{{ letters | replace('', '--') }}"},
    {"replace", "{{ letters | replace('a' * 100 ~ 'b' ~ 'a' * 100, '') }}"},
    {"replace", "{{ few | replace('7', letters) }}"},
    {"indent", "{{ newlines | indent(2, true, true) }}"},
    {"indent", "{{ 'a\nb' | indent(n) }}"},
    {"indent", "{{ 'a\nb' | indent(letters) }}"},
    {"truncate", "{{ text | truncate(n // 2) }}{{ letters | truncate(9, true, 'a') }}"},
    {"wordcount", "{{ text | wordcount }}{{ words | wordcount }}"},
    {"center", "{{ 'a' | center(n) }}{{ letters | center }}"},
    {"string", "{{ letters | string }}{{ [control] | string }}"},
    {"safe", "{{ words | safe }}"},
    {"escape", "{{ marks | escape }}"},
    {"e", "{{ marks | e }}"},
    {"tojson", "{{ control | tojson }}"},
    {"tojson", "{{ scattered | tojson(ensure_ascii=true) }}"},
    {"tojson", "{{ rows | tojson(indent=2) }}{{ entries | tojson(sort_keys=true) }}"},
    {"tojson", "{{ few | tojson(separators=[letters, letters]) }}"},
    {"tojson", "{{ few | tojson(indent=letters) }}"},
    {"int", "{{ (blanks ~ '7') | int }}{{ letters | int }}"},
    {"float", "{{ digits | float }}{{ (blanks ~ '7') | float }}"},
    {"round", "{% for x in numbers %}{% set y = 1.5 | round(2) %}{% endfor %}"},
    {"abs", "{% for x in numbers %}{% set y = x | abs %}{% endfor %}"},
    {"default", "{{ missing | default(letters) }}"},
    {"d", "{{ missing | d(letters) }}"},
    {"length", "{{ wide | length }}"},
    {"count", "{{ wide | count }}"},
    {"first", "{{ words | first }}"},
    {"first", "{{ letters | first }}"},
    {"last", "{{ words | last }}"},
    {"reverse", "{{ wide | reverse }}"},
    {"reverse", "{{ words | reverse | list }}"},
    {"list", "{{ letters | list }}"},
    {"join", "{{ words | join(', ') }}"},
    {"join", "{{ few | join(letters) }}"},
    {"items", "{{ entries | items | list }}"},
    {"dictsort", "{{ entries | dictsort }}{{ entries | dictsort(by='value') }}"},
    {"sort", "{{ words | sort }}"},
    {"sort", "{{ rows | sort(attribute='a.b,a.b') }}"},
    {"sort", "{% set x = [1] | sort(attribute='0,' * n) %}"},
    {"unique", "{{ words | unique | list }}"},
    {"unique", "{{ numbers | unique | list }}"},
    {"unique", "{{ entries.items() | unique | list }}"},
    {"min", "{{ words | min }}"},
    {"max", "{{ rows | map(attribute='a.b') | max }}"},
    {"sum", "{{ numbers | sum }}"},
    {"slice", "{{ numbers | slice(3) | list }}{{ [1] | slice(n // 4, 0) | list }}"},
    {"batch", "{{ numbers | batch(1) | list }}"},
    {"batch", "{{ [1] | batch(n, 0) | list }}"},
    {"map", "{{ words | map('upper') | list }}"},
    {"map", "{{ rows | map(attribute='a.b') | list }}"},
    {"map", "{{ numbers | map(attribute='nope') | list | length }}"},
    {"map", "{{ [1] | map(attribute='x.' * n ~ 'x', default=2) | list }}"},
    {"select", "{{ numbers | select('odd') | list }}"},
    {"reject", "{{ numbers | reject | list }}"},
    {"selectattr", "{{ rows | selectattr('a.b', 'eq', 1) | list }}"},
    {"rejectattr", "{{ rows | rejectattr('a.b', 'in', [1]) | list }}"},
};

const Sources kFormatFilters = {
    {"format", "{{ '%s %r %a' | format(letters, control, scattered) }}"},
    {"format", "{{ ('%(x)s' * (n // 5)) | format(x=1) }}"},
    {"format", "{{ '%*d%.*f' | format(n, 1, n, 0.5) }}"},
};

const Sources kTests = joined({
    with_one({"defined", "undefined", "none", "boolean", "true", "false", "integer", "float",
              "number", "string", "mapping", "sequence", "iterable", "callable", "escaped"},
             "{{ letters is ", " }}{{ words is mapping }}"),
    with_one({"odd", "even"}, "{{ numbers | select('", "') | list }}"),
    with_one({"lower", "upper"}, "{{ letters is ", " }}"),
    with_one({"==", "eq", "equalto", "!=", "ne", "<", "lt", "lessthan", ">", "gt", "greaterthan",
              "<=", "le", ">=", "ge", "sameas"},
             "{{ [words] | select('", "', words_again) | list }}"),
    {{"divisibleby", "{{ numbers | select('divisibleby', 3) | list }}"},
     {"in", "{{ 'zz' is in words }}{{ last_differs is in letters }}"},
     {"in", "{{ 'zz' is in entries }}"}},
});

const Sources kFunctions = {
    {"range", "{{ range(n) | list }}"},
    {"namespace", "{% set x = namespace(entries, k0=1) %}"},
    {"dict", "{{ dict(entries, k0=1, other=2) }}"},
    {"raise_exception", "{{ raise_exception(letters) }}"},
    {"strftime_now", "{{ strftime_now(letters) }}"},
    {"strftime_now", "{{ strftime_now('%A' * n) }}"},
};

const Sources kStringMethods = {
    {"strip", "{{ letters.strip(others) }}{{ blanks.strip() }}"},
    {"lstrip", "{{ letters.lstrip(others) }}"},
    {"rstrip", "{{ scattered.rstrip(scattered) }}"},
    {"split", "{{ text.split() }}"},
    {"split", "{{ letters.split('a') }}"},
    {"rsplit", "{{ text.rsplit() }}"},
    {"rsplit", "{{ letters.rsplit('a') }}"},
    {"rsplit", "{{ letters.rsplit(last_differs[n // 2:]) | length }}"},
    {"splitlines", "{{ newlines.splitlines() }}"},
    {"startswith", "{{ letters.startswith((last_differs,) * 20) }}"},
    {"startswith", "{{ letters.startswith(('b',) * n, 1) }}"},
    {"endswith", "{{ letters.endswith((last_differs,) * 20) }}"},
    {"upper", "{{ text.upper() }}"},
    {"lower", "{{ sigmas.lower() }}"},
    {"title", "{{ text.title() }}"},
    {"capitalize", "{{ text.capitalize() }}"},
    {"isupper", "{{ letters.isupper() }}"},
    {"islower", "{{ letters.islower() }}"},
    {"replace", "{{ text.replace('a', 'bbb') }}{{ letters.replace('', '--') }}"},
    {"find", "{{ wide.find('x') }}{{ letters.find(last_differs[n // 2:]) }}"},
    {"count", "{{ letters.count('a', 1, n - 1) }}"},
    {"join", "{{ ', '.join(words) }}"},
    {"join", "{{ letters.join(['a', 'b', 'c']) }}"},
    {"rfind", "{{ wide.rfind('x') }}{{ letters.rfind(last_differs[n // 2:]) }}"},
    {"index", "{{ last_differs.index('b', 1) }}"},
    {"rindex", "{{ ('b' ~ letters).rindex('b') }}"},
    {"partition", "{{ last_differs.partition('b') }}{{ letters.partition(last_differs) }}"},
    {"rpartition", "{{ letters.rpartition('a') }}{{ letters.rpartition(last_differs) }}"},
    {"removeprefix", "{{ letters.removeprefix(last_differs) }}"},
    {"removesuffix", "{{ letters.removesuffix('a') }}"},
};
const Sources kCharacterMethods = joined({
    with_one({"isdecimal", "isdigit", "isnumeric"}, "{{ digits.", "() }}"),
    with_one({"isalpha", "isalnum", "isascii"}, "{{ letters.", "() }}"),
    with_one({"isspace"}, "{{ blanks.", "() }}"),
    with_one({"ljust", "rjust", "center"}, "{{ 'a'.", "(n, 'b') }}{{ letters.ljust(3) }}"),
    {{"zfill", "{{ '-1'.zfill(n) }}{{ letters.zfill(3) }}"}},
});
const Sources kFormatMethods = {
    {"format", "{{ '{} {!r} {!a:>9}'.format(letters, control, scattered) }}"},
    {"format", "{{ ('{x}' * (n // 4)).format(a=1, b=2, x=3) }}"},
    {"format", "{{ '{:>{}}{:.{}f}'.format(1, n, 0.5, n) }}{{ '{0[2:' ~ letters ~ '].a}' }}"},
    {"format", "{{ ('{0[a][b]}' * (n // 9)).format({'a': {'b': 1}}) }}"},
    {"format_map", "{{ '{k0}{k0:>9}'.format_map(entries) }}"},
};
const Sources kDictMethods = {
    {"get", "{{ entries.get('nope', letters) }}"},
    {"items", "{{ entries.items() }}"},
    {"keys", "{{ entries.keys() }}"},
    {"values", "{{ entries.values() }}"},
    {"copy", "{{ entries.copy() }}"},
};
const Sources kListMethods = {{"copy", "{{ words.copy() }}"}};
const Sources kSequenceMethods = {
    {"index", "{{ words.index(words | last) }}"},
    {"count", "{{ same.count('x') }}{{ ((1,) * n).count(1) }}"},
};
const Sources kLoopMethods = {
    {"cycle", "{% for x in numbers %}{{ loop.cycle(1, 2) }}{% endfor %}"},
    {"changed", "{% for x in words %}{{ loop.changed(x, 1) }}{% endfor %}"},
};

const Sources kOperators = {
    {"~", "{{ letters ~ words ~ letters }}"},
    {"+ of text", "{{ letters + letters }}"},
    {"+ of safe text", "{{ (marks | safe) + marks }}"},
    {"+ of lists", "{{ (words + words) | length }}"},
    {"* of text", "{{ letters * 20 }}"},
    {"* of lists", "{{ (20 * words) | length }}"},
    {"* of one item", "{{ ([1] * n) | length }}"},
    {"== of lists", "{{ words == words }}{{ words == words_again }}"},
    {"== of dicts", "{{ entries == entries_again }}"},
    {"< of text", "{{ letters < last_differs }}"},
    {"<= of lists", "{{ words <= words_again }}"},
    {"% of text", "{{ ('%s' * 20) % ((letters,) * 20) }}{{ ('%%' * n) % () }}"},
    {"in text", "{{ last_differs[n // 2:] in letters }}"},
    {"in a list", "{{ 'zz' not in words }}"},
    {"in a dict", "{{ 'zz' in entries }}"},
    {"item of text", "{{ wide[5] }}{{ wide[-5] }}{{ wide[n] }}"},
    {"item of a dict", "{{ entries['zz'] }}{{ entries.zz }}{{ entries[letters] }}"},
    {"slice of text", "{{ wide[1:] }}{{ wide[::-1] }}{{ wide[::3] }}{{ letters[5:n:7] }}"},
    {"slice of a list", "{{ words[1:] | length }}{{ words[::-2] | length }}"},
    {"printing text", "{{ letters }}"},
    {"printing lists", "{{ [words, [control], entries, (marks | safe,)] }}"},
    {"for", "{% for x in words %}{{ loop.index }}{{ x }}{% endfor %}"},
    {"for of text", "{% for x in wide %}{{ x }}{% endfor %}"},
    {"for with if", "{% for x in numbers if x is odd %}{{ x }}{% endfor %}"},
    {"for of pairs", "{% for k, v in entries.items() %}{{ k }}{% endfor %}"},
    {"filter block", "{% filter upper | replace('A', 'bb') %}{{ letters }}{% endfilter %}"},
    {"with", "{% for x in words %}{% with a = x, b = letters %}{{ a }}{% endwith %}{% endfor %}"},
    {"print", "{% print letters, words %}"},
    {"call block",
     "{% macro f(a) %}{{ caller(a) }}{% endmacro %}{% for x in words %}{% call(y) f(x) %}{{ y }}"
     "{% endcall %}{% endfor %}"},
    {"macro in a loop",
     "{% for x in words %}{% macro f(a) %}{{ a }}{{ x }}{% endmacro %}{{ f(1) }}{% endfor %}"},
    {"recursive loop",
     "{% for x in words recursive %}{{ loop([]) }}{{ x }}{% endfor %}"
     "{% for x in [words, words_again] recursive %}{{ loop(x) if x is not string else x }}"
     "{% endfor %}"},
    {"arguments after *",
     "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{% for x in words %}"
     "{{ f(*[x, 1], **{'a': x}) }}{% endfor %}"},
    {"set block", "{% set x %}{{ letters }}{% endset %}{{ x }}"},
    {"a tuple of names", "{% for x in words %}{% set a, b = 1, 2 %}{% endfor %}"},
    {"namespace", "{% set s = namespace(a=1) %}{% for x in words %}{% set s.a = x %}{% endfor %}"},
    {"macro",
     "{% macro f(a, b=2, c=3) %}{{ a }}{% endmacro %}{% for x in words %}{{ f(x, c=1) }}{% endfor "
     "%}"},
};

Cost best_of_three(const std::string& source, const nlohmann::ordered_json& variables) {
  Cost best = cost_of(source, variables);
  for (int i = 0; i < 2; ++i) {
    best.seconds = std::min(best.seconds, cost_of(source, variables).seconds);
  }
  return best;
}

void expect_memory_was_spent(const Cost& cost) {
  EXPECT_LE(cost.heap_bytes, kHeapPerByte * cost.bytes + kHeapPerStep * cost.steps + kHeapAtLeast)
      << cost.bytes << " bytes and " << cost.steps << " steps were spent";
}

/// With a part of what the template needs, the render ends in the budget's error, and has taken no
/// memory that it had not spent.
void expect_ends_at_the_budget(const std::string& source, const nlohmann::ordered_json& variables,
                               const Cost& whole) {
  for (const int64_t part : {2, 32}) {
    const Cost cost = cost_of(source, variables, Budget(whole.steps, whole.bytes / part));
    EXPECT_TRUE(cost.is_past_budget()) << "a part of " << part << ": '" << cost.error << "'";
    expect_memory_was_spent(cost);
  }
  const Cost cost = cost_of(source, variables, Budget(whole.steps / 2, whole.bytes));
  EXPECT_TRUE(cost.is_past_budget()) << cost.error;
  expect_memory_was_spent(cost);
}

void expect_bounded(const std::string& name, const std::string& source) {
  SCOPED_TRACE(name + ": " + source);
  static const auto small = variables_of_size(kSize), middle = variables_of_size(2 * kSize),
                    large = variables_of_size(4 * kSize);
  const Cost once = best_of_three(source, small), twice = cost_of(source, middle),
             four_times = best_of_three(source, large);
  if (name != "raise_exception") {
    EXPECT_EQ(once.error, "");
    EXPECT_EQ(four_times.error, "");
  }
  // Sorting takes n log n comparisons.
  EXPECT_LE(twice.bytes, 23 * once.bytes / 10 + 2000);
  EXPECT_LE(twice.steps, 23 * once.steps / 10 + 100);
  EXPECT_LE(four_times.bytes, 53 * once.bytes / 10 + 4000);
  EXPECT_LE(four_times.steps, 53 * once.steps / 10 + 200);
  // Four times the input in 16 times the time is what must not be.
  EXPECT_LE(four_times.seconds, 10 * once.seconds + 0.03);
  for (const Cost* cost : {&once, &twice, &four_times}) expect_memory_was_spent(*cost);
  expect_ends_at_the_budget(source, large, four_times);
}

void expect_all_bounded(Callables table, const Sources& sources) {
  for (const Callable& callable : table) {
    EXPECT_GT(sources.count(callable.name), 0u)
        << "'" << callable.name << "' has no template in this file: give it one";
  }
  for (const auto& [name, source] : sources) {
    EXPECT_NE(find_in(table, name), nullptr) << "'" << name << "' is no longer there";
    expect_bounded(std::string(name), source);
  }
}

TEST(Cost, OfEveryFilterIsSpentBeforeTheWork) {
  std::vector<Callable> all;
  for (const Callables table :
       {text_filters(), number_filters(), sequence_filters(), higher_filters()}) {
    all.insert(all.end(), table.begin(), table.end());
  }
  expect_all_bounded(all, kFilters);
  expect_all_bounded(format_filters(), kFormatFilters);
}
TEST(Cost, OfEveryTestIsSpentBeforeTheWork) { expect_all_bounded(tests(), kTests); }
TEST(Cost, OfEveryFunctionIsSpentBeforeTheWork) { expect_all_bounded(functions(), kFunctions); }
TEST(Cost, OfEveryMethodIsSpentBeforeTheWork) {
  expect_all_bounded(string_methods(), kStringMethods);
  expect_all_bounded(character_methods(), kCharacterMethods);
  expect_all_bounded(format_methods(), kFormatMethods);
  expect_all_bounded(dict_methods(), kDictMethods);
  expect_all_bounded(sequence_methods(), kSequenceMethods);
  expect_all_bounded(list_methods(), kListMethods);
  expect_all_bounded(loop_methods(), kLoopMethods);
}
TEST(Cost, OfEveryOperatorAndStatementIsSpentBeforeTheWork) {
  for (const auto& [name, source] : kOperators) expect_bounded(std::string(name), source);
}

TEST(Cost, OfLongLiteralsGrowsAsTheyDo) {
  const auto literal = [](size_t n) {
    std::string list = "{% set x = [", dict = "{% set y = {";
    for (size_t i = 0; i < n; ++i) {
      list += std::to_string(i) + ",";
      dict += std::to_string(i) + ":1,";
    }
    return list + "] %}" + dict + "} %}";
  };
  const Cost once = cost_of(literal(1000), nlohmann::ordered_json::object());
  const Cost twice = cost_of(literal(2000), nlohmann::ordered_json::object());
  EXPECT_EQ(once.error, "");
  EXPECT_LE(twice.steps, 2 * once.steps);
  EXPECT_LE(twice.bytes, 2 * once.bytes);
  expect_memory_was_spent(twice);
}

}  // namespace
}  // namespace heddle::chat_template
