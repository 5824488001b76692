// What each method of speculation drafts, and that it drafts nothing where that does not pay.
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/face/made_engine.h"
#include "engine/test/tiny_model.h"

namespace heddle {
namespace {

using testing::run_whole;

constexpr int32_t kEnd = 256;

/// A step of 16 tokens costs little more than one of a single token.
const std::vector<StepCost> kCheapDrafts = {{1, 1e-3}, {16, 1.1e-3}, {64, 2e-3}};

/// A model that counts: token t follows t - 1, and 0 the last of them.
class CountingModel {
 public:
  explicit CountingModel(int32_t count) {
    std::vector<int32_t> next(257);
    for (int32_t t = 0; t < 257; ++t) next[static_cast<size_t>(t)] = (t + 1) % count;
    model_.emplace(testing::scripted_llama(next),
                   model::ByteTokenizer{.control_tokens = {"<|end|>"}, .eos = kEnd});
  }
  [[nodiscard]] Engine engine(const std::string& method,
                              std::vector<StepCost> costs = kCheapDrafts) const {
    EngineOptions options{.model_path = model_->path(), .device = testing::test_device()};
    options.num_threads = 2;
    options.speculation.method = method;
    return open_engine(options, {.step_costs = std::move(costs)});
  }

 private:
  std::optional<testing::TinyModel> model_;
};

TEST(SpeculationMethods, TextThatRepeatsItselfIsDrafted) {
  const CountingModel model(10);
  const Request request = testing::request_of({0, 1, 2}, 60);
  Engine plain = model.engine("off");
  const std::vector<Completion> want = run_whole(plain, {request});
  for (const std::string method : {"ngram", "suffix"}) {
    Engine drafting = model.engine(method);
    const std::vector<Completion> got = run_whole(drafting, {request});
    testing::expect_same(got[0], want[0], method);
    EXPECT_GE(drafting.stats().drafts.accepted, 35) << method;
    EXPECT_LE(drafting.stats().decode_steps, 24) << method;
    EXPECT_EQ(got[0].drafts.accepted, drafting.stats().drafts.accepted) << method;
    const auto source = static_cast<size_t>(DraftSource::kNgram);
    EXPECT_EQ(drafting.stats().draft_stats.by_source[source].drafted,
              drafting.stats().drafts.drafted);
  }
}

/// The last n-gram stood two tokens before, and these alone follow it.
TEST(SpeculationMethods, AShortPeriodIsDraftedAtLength) {
  const CountingModel model(2);
  const Request request = testing::request_of({0, 1, 0}, 60);
  Engine plain = model.engine("off");
  Engine drafting = model.engine("ngram");
  testing::expect_same(run_whole(drafting, {request})[0], run_whole(plain, {request})[0], "period");
  EXPECT_LE(drafting.stats().decode_steps, 12);
}

TEST(SpeculationMethods, AnswersAreRememberedForTheSameSalt) {
  const CountingModel model(200);
  Request request = testing::request_of({0, 1, 2}, 60);
  Engine engine = model.engine("suffix");
  const std::vector<Completion> first = run_whole(engine, {request});
  EXPECT_EQ(engine.stats().drafts.drafted, 0);
  request.cache_salt = "another";
  testing::expect_same(run_whole(engine, {request})[0], first[0], "salt");
  EXPECT_EQ(engine.stats().drafts.drafted, 0) << "of answers with another salt";
  request.cache_salt.clear();
  const Completion second = run_whole(engine, {request}).front();
  testing::expect_same(second, first[0], "again");
  EXPECT_GE(second.drafts.accepted, 45);
  const auto source = static_cast<size_t>(DraftSource::kSuffix);
  EXPECT_EQ(engine.stats().draft_stats.by_source[source].accepted, second.drafts.accepted);
}

TEST(SpeculationMethods, APredictionIsDraftedAndCounted) {
  const CountingModel model(120);
  Request request = testing::request_of({30}, 60);
  Engine engine = model.engine("ngram");
  const Completion want = run_whole(engine, {request}).front();
  request.prediction = want.text;
  request.prediction.replace(20, 3, "xyz");
  const Completion got = run_whole(engine, {request}).front();
  testing::expect_same(got, want, "prediction");
  EXPECT_GE(got.prediction.accepted, 40);
  EXPECT_GT(got.prediction.drafted, got.prediction.accepted);
  Engine plain = model.engine("off");
  EXPECT_EQ(testing::run_all(plain, {request}).front().error,
            "a request has a prediction, but the engine has no speculation; it takes one with any "
            "method (--speculate)");
}

TEST(SpeculationMethods, NothingIsDraftedWhereItDoesNotPay) {
  const CountingModel model(10);
  const Request request = testing::request_of({0, 1, 2}, 60);
  Engine dear = model.engine("ngram", {{1, 1e-3}, {2, 2.1e-3}, {16, 30e-3}});
  (void)run_whole(dear, {request});
  EXPECT_LE(dear.stats().drafts.drafted, 2) << "but for a probe";
  EXPECT_GE(dear.stats().decode_steps, 57);
}

}  // namespace
}  // namespace heddle
