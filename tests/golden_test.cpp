// The recorded answers of Hugging Face transformers; golden/README.md tells the fields.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "model_fixture.h"
#include "random.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr double kNearTie = 0.01;         // of the first two logits: either may win
constexpr double kLogitTolerance = 0.01;  // absolute

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

TEST_F(Golden, GreedyTokensAreTheRecordedOnesUpToANearTie) {
  std::vector<Request> requests;
  for (const json& row : *rows_) requests.push_back(request_of(row));
  const std::vector<Completion> completions = testing::run_all(*engine_, requests);
  int num_compared = 0;
  for (size_t i = 0; i < completions.size(); ++i) {
    const json& row = (*rows_)[i];
    const auto want = row["token_ids"].get<std::vector<int32_t>>();
    const std::vector<int32_t>& got = completions[i].token_ids;
    size_t step = 0;
    while (step < want.size() && step < got.size() && want[step] == got[step]) ++step;
    if (step < row["steps"].size() && row["steps"][step]["margin"].get<double>() < kNearTie)
      continue;
    EXPECT_EQ(got, want) << row["name"];
    EXPECT_EQ(completions[i].text, row["text"].get<std::string>()) << row["name"];
    EXPECT_EQ(name(completions[i].finish_reason), row["finish_reason"].get<std::string>());
    ++num_compared;
  }
  EXPECT_GE(num_compared, 37);  // three prompts pass a near tie
}

/// The logits that follow the prompt and the first `step` recorded tokens.
std::vector<float> logits_at(Engine& engine, const json& row, size_t step) {
  Request request = request_of(row);
  request.messages.clear();
  request.text.reset();
  request.token_ids = row["prompt_ids"].get<std::vector<int32_t>>();
  const auto answer = row["token_ids"].get<std::vector<int32_t>>();
  request.token_ids->insert(request.token_ids->end(), answer.begin(),
                            answer.begin() + static_cast<std::ptrdiff_t>(step));
  return engine.prompt_logits(request);
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
        ASSERT_LE(error, kLogitTolerance) << row["name"] << ", step " << step;
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
      ASSERT_NEAR(logits[i * stride], want["values"][i].get<double>(), kLogitTolerance);
    }
    ++num_rows;
  }
  EXPECT_EQ(num_rows, 3);
}

}  // namespace
}  // namespace heddle
