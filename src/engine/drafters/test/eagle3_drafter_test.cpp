// What an EAGLE-3 drafter drafts, step by step, against its definition in double.
#include "engine/drafters/eagle3_drafter.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/rows/row_queue.h"
#include "engine/rows/scheduler.h"
#include "engine/test/tiny_model.h"
#include "model/eagle3/test/eagle3_files.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using model::Eagle3Ref;
using testing::random_int;

constexpr int kPageSize = 4;
constexpr int64_t kChunk = 5, kMaxBatch = 4, kContext = 64;

model::DecoderConfig config() {
  model::DecoderConfig config = testing::tiny_config(200);
  config.num_layers = 4;
  return config;
}

/// Runs rows with a drafter as the engine does, and compares what it drafts.
class Runs {
 public:
  Runs(const model::ref::Llama& target, const Eagle3Ref& drafter, bool steps_as_on_gpu = false)
      : target_(target),
        drafter_ref_(drafter),
        path_(folder_.write("tiny.gguf", model::llama_file(target_, {}))),
        files_(model::open_model(path_)),
        runner_(Device{}, *files_,
                {.max_batch = kMaxBatch,
                 .num_threads = 2,
                 .page_size = kPageSize,
                 .prefill_chunk = kChunk,
                 .max_context = kContext,
                 .kv_memory = int64_t{1} << 24,
                 .max_drafts = kMaxStepDrafts,
                 .steps_as_on_gpu = steps_as_on_gpu}),
        drafter_((drafter_ref_.write(folder_), runner_), folder_.path().string(),
                 {.max_batch = kMaxBatch, .max_context = kContext, .page_size = kPageSize}) {}

  /// A row whose hidden states up to `begin` the drafter does not get.
  Sequence& add(std::vector<int32_t> prompt, int64_t begin = 0) {
    rows_.splice(rows_.end(), RowQueue::make_row(std::ssize(rows_)));
    Sequence& row = rows_.back();
    row.tokens = std::move(prompt);
    row.request.prompt_tokens = row.cache.prefill_length = std::ssize(row.tokens);
    row.request.max_tokens = kContext;
    row.cache.pages = *runner_.pages().reserve(pages_for(kContext, kPageSize));
    begins_.push_back(begin);
    return row;
  }

  /// One step of all rows, after which each is drafted for and compared. verified: makes of a row's
  /// drafts those that the next step verifies.
  template <class Verified>
  void step(int64_t num_drafts, const Verified& verified) {
    give_drafts();
    StepSchedule step;
    step.rows.reserve(kMaxBatch);
    schedule_step(step, rows_, {.prefill_chunk = kChunk});
    const StepHandle handle = runner_.launch(step);
    runner_.draw(handle);
    const StepTokens drawn = runner_.collect(handle);
    for (const RowStep& row : step.rows) {
      if (row.num_logits == 0) continue;
      const int64_t taken = row.num_taken(drawn.of(row));
      num_rejected += row.num_drafts - (taken - 1);
      num_accepted += taken - 1;
      if (row.num_drafts > 0) row.sequence->cache.num_cached = row.first + taken;
      for (const int32_t token : drawn.of(row).first(static_cast<size_t>(taken))) {
        row.sequence->tokens.push_back(token);
      }
    }
    drafter_.computed(step);
    std::vector<ModelDrafter::Row> asked;
    for (Sequence& row : rows_) {
      if (row.drafts == nullptr) continue;
      row.drafts->tokens.clear();
      const bool is_at_end = row.cache.num_cached + 1 == std::ssize(row.tokens);
      if (is_at_end) asked.push_back({&row, num_drafts - row.id % 2});
    }
    drafter_.propose(asked);
    for (const auto& [row, count] : asked) {
      expect_drafts(*row, count);
      verified(*row);
    }
  }

  int64_t num_compared = 0, num_accepted = 0, num_rejected = 0;

 private:
  /// To rows that have come to the place from which on the drafter sees them.
  void give_drafts() {
    auto begin = begins_.begin();
    for (Sequence& row : rows_) {
      if (row.cache.num_cached >= *begin++ && row.drafts == nullptr) {
        row.drafts = std::make_unique<RowDrafts>();
        row.drafts->method = DraftMethod::kEagle3;
      }
    }
  }

  void expect_drafts(const Sequence& row, int64_t count) {
    const auto begin = static_cast<size_t>(begins_[static_cast<size_t>(row.id)]);
    std::vector<model::ref::Values> states(row.tokens.size());
    for (const int64_t layer : drafter_ref_.shape.layers) {
      model::ref::Llama entering = target_;
      entering.layers.resize(static_cast<size_t>(layer));
      const auto inputs = model::ref::hidden_states(entering, row.tokens);
      for (size_t p = 0; p < states.size(); ++p) {
        states[p].insert(states[p].end(), inputs[p].begin(), inputs[p].end());
      }
    }
    double margin = std::numeric_limits<double>::infinity();
    const std::vector<int32_t> want =
        drafter_ref_.drafts(states, row.tokens, begin, static_cast<size_t>(count), margin);
    if (margin < 1e-3) return;  // two tokens are as likely
    EXPECT_EQ(row.drafts->tokens, want)
        << "row " << row.id << ", " << row.tokens.size() << " tokens";
    ++num_compared;
  }

  testing::TempFolder folder_;
  const model::ref::Llama& target_;
  const Eagle3Ref& drafter_ref_;
  std::string path_;
  std::unique_ptr<const model::ModelFiles> files_;
  ModelRunner runner_;
  Eagle3Drafter drafter_;
  Sequences rows_;
  std::vector<int64_t> begins_;
};

/// Shapes in which no two extents are equal.
std::vector<Eagle3Ref::Shape> shapes() {
  return {{.layers = {1, 2, 3}},
          {.hidden_size = 24, .has_embedding = false, .layers = {0, 1, 3}},
          {.draft_vocab_size = 200, .norm_before_residual = true, .layers = {0, 2, 3}}};
}

TEST(Eagle3Drafter, DraftsAreThoseOfTheDefinition) {
  const model::ref::Llama target = model::random_llama(config(), true);
  for (const Eagle3Ref::Shape& shape : shapes()) {
    const Eagle3Ref drafter(target, shape);
    for (const bool steps_as_on_gpu : {false, true}) {
      Runs runs(target, drafter, steps_as_on_gpu);
      runs.add(testing::random_tokens(13, 200));
      runs.add(testing::random_tokens(2, 200));
      runs.add(testing::random_tokens(9, 200));
      for (int step = 0; step < testing::small_or(6, 10); ++step) {
        runs.step(5, [](Sequence& row) {
          row.drafts->tokens.resize(static_cast<size_t>(random_int(0, 4)));
        });
      }
      EXPECT_GE(runs.num_compared, testing::small_or(8, 15));
      EXPECT_GT(runs.num_rejected, testing::small_or(4, 10));
    }
  }
}

/// The answer is known: what is verified is right up to some draft.
TEST(Eagle3Drafter, ThePositionsOfAcceptedDraftsAreTheirOwn) {
  const model::ref::Llama target = model::random_llama(config(), true);
  const Eagle3Ref drafter(target, {.layers = {1, 2, 3}});
  const std::vector<int32_t> prompt = testing::random_tokens(6, 200);
  Runs plain(target, drafter);
  Sequence& answer = plain.add(prompt);
  while (answer.tokens.size() < 60) {  // 10 steps of up to 5 tokens, and more
    plain.step(2, [](Sequence& row) { row.drafts->tokens.clear(); });
  }
  Runs runs(target, drafter);
  runs.add(prompt);
  for (int step = 0; step < 10; ++step) {
    runs.step(4, [&](Sequence& row) {
      std::vector<int32_t>& drafts = row.drafts->tokens;
      std::copy_n(answer.tokens.begin() + std::ssize(row.tokens), drafts.size(), drafts.begin());
      if (step % 3 == 0) drafts.back() = 0;
    });
  }
  EXPECT_GE(runs.num_accepted, 15);
  EXPECT_GE(runs.num_rejected, 2);
  EXPECT_GE(runs.num_compared, 6);
}

/// As after a hit in the prefix cache.
TEST(Eagle3Drafter, TheContextBeginsWhereHiddenStatesDo) {
  const model::ref::Llama target = model::random_llama(config(), true);
  const Eagle3Ref drafter(target, {.layers = {1, 2, 3}});
  Runs runs(target, drafter);
  runs.add(testing::random_tokens(14, 200), 5);
  for (int step = 0; step < 8; ++step) {
    runs.step(3, [](Sequence& /*row*/) {});
  }
  EXPECT_GE(runs.num_compared, 4);
}

}  // namespace
}  // namespace heddle
