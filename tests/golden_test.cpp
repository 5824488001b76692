// The recorded answers of Hugging Face transformers; golden/README.md tells the fields.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model_fixture.h"
#include "random.h"

namespace heddle {
namespace {

using nlohmann::json;

/// What logits may be off, and how near the first two may be for either to win; absolute. On a GPU
/// it is what rounding to bf16 does: 0.44 was seen there, of logits up to 50, and ties up to 0.02.
double logit_tolerance() { return testing::is_on_cpu() ? 0.01 : 1.0; }
double near_tie() { return testing::is_on_cpu() ? 0.01 : 0.05; }
/// Of the 1014 steps 3 are that near on the CPU and 14 on a GPU, where 2 went the other way;
/// golden/README.md lists them.
int most_ties() { return testing::is_on_cpu() ? 3 : 6; }

json read_golden() {
  std::ifstream file(std::string(HEDDLE_SOURCE_DIR) + "/tests/golden/prompts.json");
  return json::parse(file);
}

Request request_of(const json& row) {
  Request request;
  if (row.contains("messages")) {
    for (const json& message : row["messages"]) {
      request.messages.push_back({message["role"], message["content"]});
    }
  } else if (row["raw"]) {
    request.text = row["prompt"].get<std::string>();
  } else {
    request.messages = {{"user", row["prompt"]}};
  }
  if (!row["adapter"].is_null()) request.adapter = row["adapter"];
  request.max_tokens = 48;
  return request;
}

class Golden : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    engine_ = new Engine(testing::load_engine());
    rows_ = new json(read_golden());
  }
  static void TearDownTestSuite() {
    delete engine_;
    delete rows_;
  }
  static Engine* engine_;
  static json* rows_;
};
Engine* Golden::engine_ = nullptr;
json* Golden::rows_ = nullptr;

TEST_F(Golden, PromptsGiveTheRecordedTokens) {
  ASSERT_EQ(rows_->size(), 40u);
  for (const json& row : *rows_) {
    EXPECT_EQ(engine_->tokenize(request_of(row)), row["prompt_ids"].get<std::vector<int32_t>>())
        << row["name"];
  }
}

/// What a row's answer is compared from: after so many recorded tokens.
struct Open {
  size_t row, num_given;
};

/// The row's request with the first `num_given` recorded tokens after its prompt.
Request request_behind(const json& row, size_t num_given) {
  Request request = request_of(row);
  request.messages.clear();
  request.text.reset();
  request.token_ids = row["prompt_ids"].get<std::vector<int32_t>>();
  const auto answer = row["token_ids"].get<std::vector<int32_t>>();
  request.token_ids->insert(request.token_ids->end(), answer.begin(),
                            answer.begin() + static_cast<std::ptrdiff_t>(num_given));
  request.max_tokens -= static_cast<int64_t>(num_given);
  return request;
}

/// Compares an answer with the recorded one after `open.num_given` tokens of it. Where a near tie
/// went the other way, to the second token, it is reported, and the number of recorded tokens to go
/// on from is returned.
std::optional<size_t> compare_answer(const json& row, const Open& open, const Completion& got) {
  const auto all = row["token_ids"].get<std::vector<int32_t>>();
  const std::vector<int32_t> want(all.begin() + static_cast<std::ptrdiff_t>(open.num_given),
                                  all.end());
  const auto [differs, _] =
      std::mismatch(want.begin(), want.end(), got.token_ids.begin(), got.token_ids.end());
  const size_t step = open.num_given + static_cast<size_t>(differs - want.begin());
  if (got.token_ids != want && step < row["steps"].size()) {
    const double margin = row["steps"][step]["margin"];
    const size_t at = step - open.num_given;
    const bool is_second = at >= got.token_ids.size() ||  // it ended
                           got.token_ids[at] == row["steps"][step]["ids"][1];
    if (margin < near_tie() && is_second) {
      std::cout << "near tie: " << row["name"] << ", step " << step << ", margin " << margin
                << "\n";
      return step + 1;
    }
  }
  EXPECT_EQ(got.token_ids, want) << row["name"] << " after " << open.num_given << " tokens";
  EXPECT_EQ(name(got.finish_reason), row["finish_reason"].get<std::string>()) << row["name"];
  if (open.num_given == 0) {
    EXPECT_EQ(got.text, row["text"].get<std::string>()) << row["name"];
  }
  return std::nullopt;
}

TEST_F(Golden, GreedyTokensAreTheRecordedOnesUpToANearTie) {
  std::vector<Open> open;
  for (size_t i = 0; i < rows_->size(); ++i) open.push_back({i, 0});
  int num_ties = 0;
  while (!open.empty()) {
    std::vector<Request> requests;
    for (const auto& [i, num_given] : open) {
      const json& row = (*rows_)[i];
      requests.push_back(num_given == 0 ? request_of(row) : request_behind(row, num_given));
    }
    const std::vector<Completion> completions = testing::run_all(*engine_, requests);
    std::vector<Open> rest;
    for (size_t i = 0; i < open.size(); ++i) {
      const json& row = (*rows_)[open[i].row];
      const std::optional<size_t> next = compare_answer(row, open[i], completions[i]);
      if (!next) continue;
      ++num_ties;
      if (*next < row["steps"].size()) rest.push_back({open[i].row, *next});
    }
    open = std::move(rest);
  }
  std::cout << num_ties << " near ties went the other way\n";
  EXPECT_LE(num_ties, most_ties());
}

/// The logits that follow the prompt and the first `step` recorded tokens.
std::vector<float> logits_at(Engine& engine, const json& row, size_t step) {
  return engine.prompt_logits(request_behind(row, step));
}

TEST_F(Golden, LogitsAreTheRecordedOnes) {
  double worst = 0;
  for (const json& row : *rows_) {
    const bool is_long = row["prompt_ids"].size() > 200;  // each step means the prompt again
    const size_t last = is_long ? 0 : row["steps"].size() - 1;
    const auto random = static_cast<size_t>(testing::random_int(0, static_cast<int64_t>(last)));
    for (const size_t step : std::set{size_t{0}, random}) {
      const std::vector<float> logits = logits_at(*engine_, row, step);
      const json& want = row["steps"][step];
      for (size_t i = 0; i < want["ids"].size(); ++i) {
        const double error = std::abs(double{logits[want["ids"][i].get<size_t>()]} -
                                      want["logits"][i].get<double>());
        ASSERT_LE(error, logit_tolerance()) << row["name"] << ", step " << step;
        worst = std::max(worst, error);
      }
    }
  }
  RecordProperty("worst_logit_error", std::to_string(worst));
  std::cout << "largest difference of a logit: " << worst << "\n";
}

TEST_F(Golden, AllLogitsOfAStepAreTheRecordedOnes) {
  int num_rows = 0;
  for (const json& row : *rows_) {
    if (!row.contains("first_logits")) continue;
    const std::vector<float> logits = logits_at(*engine_, row, 0);
    const json& want = row["first_logits"];
    const auto stride = want["stride"].get<size_t>();
    for (size_t i = 0; i < want["values"].size(); ++i) {
      ASSERT_NEAR(logits[i * stride], want["values"][i].get<double>(), logit_tolerance());
    }
    ++num_rows;
  }
  EXPECT_EQ(num_rows, 3);
}

}  // namespace
}  // namespace heddle
