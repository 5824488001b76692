// Templates that once took minutes or gigabytes: each ends soon, in bounded memory.
#include <chrono>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "chat_template/chat_template.h"
#include "expect_error.h"
#include "heap_count.h"
#include "readers/tree_of.h"

namespace heddle::chat_template {
namespace {

using nlohmann::ordered_json;

std::string render(const std::string& source) {
  return ChatTemplate::parse(source).render(*testing::tree_of(ordered_json::object()));
}

/// A template that passes the budget, having asked for at most `most` bytes of memory.
void expect_refused_within(int64_t most, const std::string& source) {
  SCOPED_TRACE(source.substr(0, 120));
  const int64_t before = testing::num_heap_bytes();
  testing::expect_invalid({"line 1: more than"}, [&] { (void)render(source); });
  EXPECT_LE(testing::num_heap_bytes() - before, most);
}

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(HostileTemplate, StripsManyCharactersInLinearTime) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(render("[{{ ('a' * 50000).strip('b' * 50000 ~ 'a') }}]"), "[]");
  EXPECT_EQ(render("[{{ ('a' * 50000) | trim('b' * 50000 ~ 'a') }}]"), "[]");
  EXPECT_EQ(render("[{{ ('a' * 50000 ~ 'c').lstrip('b' * 50000 ~ 'a') }}]"), "[c]");
  EXPECT_EQ(render("[{{ ('c' ~ 'a' * 50000).rstrip('b' * 50000 ~ 'a') }}]"), "[c]");
  // Thousands of times what it takes, a tenth of what the product of both lengths would.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

TEST(HostileTemplate, SpendsWhatAffixesAreComparedWith) {
  for (const char* method : {"startswith", "endswith"}) {
    const std::string affix = method[0] == 's' ? "s[1:] ~ 'b'" : "'b' ~ s[1:]";
    expect_refused_within(200 * kMiB, std::string("{% set s = 'a' * 100000 %}{{ s.") + method +
                                          "((" + affix + ",) * 100000) }}");
  }
}

TEST(HostileTemplate, CannotTakeMemoryThroughStrftime) {
  const int64_t before = testing::num_heap_bytes();
  EXPECT_EQ(render("{{ strftime_now('a' * 1000 * 20000) | length }}"), "20000000");
  EXPECT_LE(testing::num_heap_bytes() - before, 200 * kMiB);
  expect_refused_within(50 * kMiB, "{{ strftime_now('%A' * 10000000) }}");
}

// Each spends most of its budget at once, so that little work is left to do.
TEST(HostileTemplate, CannotTakeMemoryThroughText) {
  expect_refused_within(400 * kMiB, "{{ ('\"' * 1000 * 260000) | tojson }}");
  expect_refused_within(400 * kMiB, "{{ [('\\'' * 999 ~ '\"') * 260000] }}");
  const std::string spent = "{% set spent = ' ' * 1000 * 190000 %}";
  expect_refused_within(600 * kMiB,
                        spent + "{% set s = '<' * 1000 * 60000 %}{{ s + ('' | safe) }}");
  expect_refused_within(300 * kMiB, "{{ 'a' | indent(260000000) | indent(260000000) }}");
}

TEST(HostileTemplate, CannotTakeMemoryThroughSlices) {
  const int64_t before = testing::num_heap_bytes();
  EXPECT_EQ(render("{{ ('ab' * 1000 * 15000)[::2] | length }}"), "15000000");
  EXPECT_LE(testing::num_heap_bytes() - before, 200 * kMiB);
}

TEST(HostileTemplate, CannotTakeMemoryThroughFormats) {
  for (const char* source :
       {"{{ '%999999999d' % 1 }}", "{{ '%.999999999f' % 1.0 }}", "{{ '{:999999999}'.format('a') }}",
        "{{ '%*d' % (999999999, 1) }}", "{{ '{:.{}e}'.format(1.5, 999999999) }}",
        "{{ 'a'.ljust(999999999) }}", "{{ 'a'.zfill(999999999) }}", "{{ 'a' | center(999999999) }}",
        "{{ [1] | slice(99999999) | list }}"}) {
    expect_refused_within(kMiB, source);
  }
  // The digits that a double does not have cost no more than others.
  const int64_t before = testing::num_heap_bytes();
  EXPECT_EQ(render("{{ ('%.20000000f' % 1.5) | length }}"), "20000002");
  EXPECT_EQ(render("{{ ('%.50000000g' % 1.5) }}"), "1.5");
  EXPECT_LE(testing::num_heap_bytes() - before, 300 * kMiB);
}

TEST(HostileTemplate, EndsRecursion) {
  testing::expect_invalid({"too deep"}, [] {
    (void)render("{% macro f() %}{{ f(*varargs, **kwargs) }}{% endmacro %}{{ f() }}");
  });
}

TEST(HostileTemplate, SpendsSeparatorsOfJson) {
  expect_refused_within(600 * kMiB,
                        "{{ ([0] * 1000000) | tojson(separators=['x' * 1000000, '']) | length }}");
}

TEST(HostileTemplate, SpendsEqualItems) {
  expect_refused_within(200 * kMiB,
                        "{% set s = [0] * 1000000 %}{% for i in range(1000) %}{% set x = s == s "
                        "%}{% set x = s.count(0) %}{% endfor %}");
}

TEST(HostileTemplate, SpendsWhatMacrosAreCalledWithout) {
  std::string parameters;
  for (int i = 0; i < 200; ++i) parameters += (i > 0 ? ", p" : "p") + std::to_string(i);
  expect_refused_within(2000 * kMiB, "{% macro f(" + parameters +
                                         ") %}{% endmacro %}{% for i in range(100000) %}{{ f() }}"
                                         "{% endfor %}");
}

TEST(HostileTemplate, SpendsLongNames) {
  const std::string name(400'000, 'a');
  expect_refused_within(200 * kMiB, "{% set s = namespace(" + name + "=1) %}" +
                                        "{% for i in range(100000) %}{{ s." + name +
                                        " }}{% endfor %}");
  expect_refused_within(200 * kMiB, "{% macro f(" + name + ") %}{% endmacro %}" +
                                        "{% for i in range(100000) %}{{ f(" + name +
                                        "=1) }}{% endfor %}");
}

TEST(HostileTemplate, SpendsManyVariables) {
  std::string sets;
  for (int i = 0; i < 60'000; ++i) sets += "{%set a" + std::to_string(i) + "=1%}";
  expect_refused_within(200 * kMiB, sets);
}

}  // namespace
}  // namespace heddle::chat_template
