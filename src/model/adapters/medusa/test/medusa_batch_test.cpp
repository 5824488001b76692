// Drafts of Medusa heads against the definition in double.
#include "model/adapters/medusa/medusa_batch.h"

#include <algorithm>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/thread_pool.h"

#include "model/adapters/medusa/test/medusa_cases.h"
#include "model/test/llama_file.h"
#include "model/test/random_decoder.h"

namespace heddle::model {
namespace {

using testing::MedusaCase;

DecoderConfig config() {
  return llama::rotating({.num_layers = 1,
                          .hidden_size = 24,
                          .intermediate_size = 40,
                          .num_q_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = 8,
                          .vocab_size = 61,
                          .context_length = 64});
}

class MedusaBatchTest : public ::testing::Test {
 protected:
  static constexpr int64_t kHidden = 24, kVocab = 61, kRows = 7, kMaxDrafts = 40;

  const MedusaHeads& load(const MedusaCase& of) {
    testing::TempFolder folder;
    of.write(folder);
    MedusaFiles files(folder.path().string(), decoder_.ref.config);
    files.load({});
    return *loaded_.emplace_back(std::make_unique<const MedusaHeads>(ctx_, files, DType::kFloat32));
  }

  /// The token is one of the largest logit of the definition.
  static void expect_largest(int32_t token, const ref::Values& logits) {
    ASSERT_GE(token, 0);
    ASSERT_LT(static_cast<size_t>(token), logits.size());
    EXPECT_NEAR(logits[static_cast<size_t>(token)], *std::ranges::max_element(logits), 1e-4);
  }

  ThreadPool threads_{2};
  RandomDecoder decoder_{config()};
  ExecContext ctx_{.threads = &threads_};
  std::vector<float> hidden_ = testing::random_normal<float>(kRows * kHidden);
  DeviceTensor logits_{Device{}, DType::kFloat32, {kMaxDrafts, kVocab + 3}};
  MedusaBatch batch_{Device{}, decoder_.ref.config, decoder_.weights, kMaxDrafts};
  std::list<std::unique_ptr<const MedusaHeads>> loaded_;
};

/// Heads of two layers and of one, with outputs of their own and without, rows that want fewer
/// tokens than there are heads, and an adapter with a head of its own, in one call.
TEST_F(MedusaBatchTest, RowsOfDifferentHeadsDraftWhatTheDefinitionSays) {
  const std::vector<MedusaCase> cases = {MedusaCase(kHidden, kVocab, 6).random(),
                                         MedusaCase(kHidden, kVocab, 2, 2).random(),
                                         MedusaCase(kHidden, kVocab, 3, 1, true).random()};
  std::vector<const MedusaHeads*> heads;
  for (const MedusaCase& each : cases) heads.push_back(&load(each));
  const auto own = testing::random_normal<float>((kVocab + 3) * kHidden);
  const VocabularyPart part{.pair = {},
                            .weight = {.rows = kVocab + 3,
                                       .columns = kHidden,
                                       .data = reinterpret_cast<const std::byte*>(own.data())},
                            .token_ids = {},
                            .token_rows = {}};
  const VocabularyTable wide(ctx_, part, decoder_.weights.output, VocabularyTable::Use::kHead,
                             DType::kFloat32);
  struct Wanted {
    size_t heads;
    const VocabularyTable* head;
    int32_t hidden;
    int64_t num_drafts;
  };
  const std::vector<Wanted> wanted = {{0, nullptr, 3, 2}, {1, nullptr, 0, 2}, {0, nullptr, 5, 6},
                                      {2, nullptr, 6, 3}, {0, &wide, 1, 5},   {2, nullptr, 2, 1},
                                      {0, nullptr, 4, 6}, {1, &wide, 6, 1},   {0, nullptr, 5, 1}};
  std::vector<std::vector<int32_t>> drafts(wanted.size());
  std::vector<MedusaRow> rows;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto& [which, head, hidden, num_drafts] = wanted[i];
    rows.push_back({heads[which], head, hidden, num_drafts, &drafts[i]});
  }
  const ConstTensorView hidden = host_view(std::as_const(hidden_).data(), {kRows, kHidden});
  batch_.draft(ctx_, rows, hidden, logits_.view());
  for (size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const auto& [which, head, row, num_drafts] = wanted[i];
    ASSERT_EQ(std::ssize(drafts[i]), num_drafts);
    const auto begin = hidden_.begin() + row * kHidden;
    const ref::Values x(begin, begin + kHidden);
    const ref::Values output = head == nullptr ? decoder_.ref.output : testing::to_double(own);
    for (int64_t h = 0; h < num_drafts; ++h) {
      expect_largest(drafts[i][static_cast<size_t>(h)], cases[which].logits(h, x, output));
    }
  }
  batch_.draft(ctx_, {}, hidden, logits_.view());
}

}  // namespace
}  // namespace heddle::model
