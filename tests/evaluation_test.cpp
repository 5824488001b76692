// How many of the example adapters' pairs are right, with the adapter and without, next to what
// transformers reaches (golden/eval.json). On a GPU, where that takes seconds; run_eval.py does the
// same through the program on the CPU.
#include <algorithm>
#include <fstream>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model_fixture.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr int64_t kMaxTokens = 64;  // as in train.py, which made the adapters

struct Pair {
  std::string adapter, prompt, answer;
};

/// The pairs of eval.jsonl of every adapter, in turns, so that each step has all of them.
std::vector<Pair> read_pairs() {
  std::vector<std::vector<Pair>> by_adapter;
  size_t most = 0;
  for (const std::string& adapter : testing::kAdapters) {
    std::ifstream file(testing::adapter_folder() + adapter + "/eval.jsonl");
    std::vector<Pair>& pairs = by_adapter.emplace_back();
    for (std::string line; std::getline(file, line);) {
      const json pair = json::parse(line);
      pairs.push_back({adapter, pair["prompt"], pair["answer"]});
    }
    most = std::max(most, pairs.size());
  }
  std::vector<Pair> all;
  for (size_t i = 0; i < most; ++i) {
    for (const std::vector<Pair>& pairs : by_adapter) {
      if (i < pairs.size()) all.push_back(pairs[i]);
    }
  }
  return all;
}

std::string stripped(const std::string& text) {
  const char* const blanks = " \t\r\n";
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) + 1 - begin);
}

/// Right answers by adapter.
std::map<std::string, int> count_right(Engine& engine, bool with_adapter) {
  const std::vector<Pair> pairs = read_pairs();
  std::vector<Request> requests;
  for (const Pair& pair : pairs) {
    Request& request = requests.emplace_back();
    request.messages = {{"user", pair.prompt}};
    if (with_adapter) request.adapter = pair.adapter;
    request.max_tokens = kMaxTokens;
  }
  const std::vector<Completion> completions = testing::run_all(engine, requests);
  std::map<std::string, int> right;
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(completions[i].error, "");
    const bool is_right = stripped(completions[i].text) == pairs[i].answer;
    right[pairs[i].adapter] += is_right;
    if (with_adapter && !is_right) {
      std::cout << "wrong: " << pairs[i].prompt << ": " << completions[i].text << "\n";
    }
  }
  return right;
}

TEST(Evaluation, AdaptersAreAsOftenRightAsRecorded) {
  if (testing::is_on_cpu()) GTEST_SKIP() << "run_eval.py does this on the CPU";
  std::ifstream file(std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/eval.json");
  const json recorded = json::parse(file);
  Engine engine = testing::load_engine({.max_batch = 64});
  for (const bool with_adapter : {true, false}) {
    const auto right = count_right(engine, with_adapter);
    ASSERT_EQ(right.size(), testing::kAdapters.size());
    for (const auto& [adapter, count] : right) {
      const int wanted = recorded[adapter][with_adapter ? "adapter_right" : "base_right"];
      EXPECT_EQ(count, wanted) << adapter << (with_adapter ? "" : " without");
    }
  }
}

}  // namespace
}  // namespace heddle
