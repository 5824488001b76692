// What a render costs: time, memory and what of the budget it spends.
#pragma once

#include <algorithm>
#include <string>

#include <nlohmann/json.hpp>

#include "chat_template/interpreter/eval.h"
#include "chat_template/syntax/parser.h"
#include "heap_count.h"
#include "readers/linear_time.h"
#include "readers/tree_of.h"

namespace heddle::chat_template {

struct Cost {
  int64_t steps = 0, bytes = 0;  // of the budget
  int64_t heap_bytes = 0;        // what operator new was asked for
  double seconds = 0;            // of processor time
  std::string error;             // empty where the template was rendered

  [[nodiscard]] bool is_past_budget() const {
    return error.find(" evaluation steps") != error.npos ||
           error.find(" bytes of text and lists") != error.npos;
  }
};

/// Cost of the render alone: the variables become values before, at the caller's cost.
inline Cost cost_of(const std::string& source, const nlohmann::ordered_json& variables,
                    const Budget& budget = {}) {
  const auto program = parse_template(source);
  const files::JsonTree tree = testing::tree_of(variables);
  const std::function<std::time_t()> clock = [] { return std::time_t{0}; };
  Interpreter interpreter(*program, *tree, clock);
  interpreter.budget = budget;
  Cost cost;
  const int64_t heap_before = testing::num_heap_bytes();
  const double start = testing::thread_seconds();
  try {
    (void)interpreter.run();
  } catch (const Error& error) {
    cost.error = error.what();
  }
  cost.seconds = testing::thread_seconds() - start;
  cost.heap_bytes = testing::num_heap_bytes() - heap_before;
  cost.steps = interpreter.budget.spent_steps();
  cost.bytes = interpreter.budget.spent_bytes();
  return cost;
}

/// The variables of a template whose cost shall grow with n: each has n bytes, or n / 4 items.
inline nlohmann::ordered_json variables_of_size(size_t n) {
  using nlohmann::ordered_json;
  const auto repeated = [](std::string_view part, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += part;
    return text;
  };
  ordered_json words, same, numbers, rows, lines, entries = ordered_json::object();
  for (size_t i = 0; i < n / 4; ++i) {
    const std::string number = std::to_string((i * 7919) % n);  // in no order
    words.push_back("w" + number);
    same.push_back("x");
    numbers.push_back(i);
    rows.push_back({{"a", {{"b", (i * 7919) % n}}}});
    entries["k" + number] = i;
  }
  std::string scattered;  // many characters that are not the same
  for (size_t i = 0; i < n / 2; ++i) {
    const auto c = static_cast<int>(0x80 + (i * 31) % 0x600);
    scattered += {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
  }
  return {{"n", n},
          {"text", repeated("aB c\n", n / 5)},
          {"blanks", std::string(n, ' ')},
          {"letters", std::string(n, 'a')},
          {"others", std::string(n, 'b') + "a"},
          {"last_differs", std::string(n - 1, 'a') + "b"},
          {"digits", std::string(n, '1')},
          {"marks", std::string(n, '<')},
          {"control", std::string(n, '\1')},
          {"newlines", std::string(n, '\n')},
          {"wide", repeated("\u00e9", n / 2)},
          {"scattered", scattered},
          {"sigmas", repeated("a\u03a3'", n / 4)},
          {"few", std::vector<int>(20, 7)},
          {"words", words},
          {"words_again", words},
          {"same", same},
          {"numbers", numbers},
          {"rows", rows},
          {"entries", entries},
          {"entries_again", entries}};
}

}  // namespace heddle::chat_template
