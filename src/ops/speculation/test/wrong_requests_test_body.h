#pragma once

#include <set>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "ops/speculation/test/speculation_cases.h"
#include "ops/speculation/test/speculation_test_body.h"
#include "scoped_validation.h"

// Words about a request that are out of range, for every operation of this family: rows of other
// requests keep their values, guards and gaps stay whole. With HEDDLE_VALIDATE=1 the call throws.

namespace heddle::testing {

enum class SpeculationOp { kVerify, kPrepare, kRewind, kStep, kNgram };
inline constexpr SpeculationOp kSpeculationOps[] = {SpeculationOp::kVerify, SpeculationOp::kPrepare,
                                                    SpeculationOp::kRewind, SpeculationOp::kStep,
                                                    SpeculationOp::kNgram};
inline const char* name_of(SpeculationOp op) {
  constexpr const char* kNames[] = {"verify_speculative_tokens", "prepare_next_forward_pass",
                                    "rewind_kv_cache", "speculative_step", "propose_ngram_drafts"};
  return kNames[static_cast<int>(op)];
}

class WrongRequests {
 public:
  WrongRequests(SpeculationOp op, const SpeculationRun& run)
      : op_(op),
        run_(run),
        batch_(random_batch(random_int(1, 20), op == SpeculationOp::kRewind ? 0 : random_int(0, 3),
                            random_int(1, 4), random_int(0, 2) > 0, random_int(0, 3))),
        kv_(random_kv(batch_.num_requests(), kMaxBlocks, kBlockSize, batch_.max_drafts)) {
    for (int64_t p = 0; p < rows(); ++p) {
      const int64_t n = p < batch_.num_decode ? batch_.drafts[size_t(p)] : 0;
      accepted_.push_back(random_int(0, n));
      status_.push_back(random_int(0, 3) == 0);
      last_ones_.push_back(random_int(-1, batch_.num_tokens() - 1));
      lengths_.push_back(random_int(0, kMaxTokens));
      for (int64_t t = 0; t < kMaxTokens; ++t) tokens_.push_back(random_int(0, 4));
    }
    for (int64_t t = 0; t < batch_.num_tokens(); ++t) mask_.push_back(random_int(0, 1));
  }

  void check() {
    const std::vector<Ints> right = call();
    const Ints starts = batch_.draft_indptr;
    for (int64_t i = random_int(0, 3); i > 0; --i) spoil();
    std::set<int64_t> wrong;
    for (int64_t p = 0; p < rows(); ++p) {
      if (is_wrong(p)) wrong.insert(p);
    }
    if (!wrong.empty() && random_int(0, 1) == 0) {
      const ScopedValidation on;
      EXPECT_NE(message_of([&] { call(); }), "no error") << name_of(op_);
      return;
    }
    const std::vector<Ints> got = call();
    for (int64_t p = 0; p < rows(); ++p) {
      // A start may become another one that is in range, too.
      const size_t first = size_t(std::min(p, batch_.num_decode)),
                   end = first + (p < batch_.num_decode);
      const bool is_same =
          starts[first] == batch_.draft_indptr[first] && starts[end] == batch_.draft_indptr[end];
      if (wrong.contains(p) || !is_same) continue;
      EXPECT_EQ(got[size_t(p)], right[size_t(p)]) << name_of(op_) << ", request " << p;
    }
  }

 private:
  static constexpr int64_t kMaxBlocks = 6, kBlockSize = 4, kMaxTokens = 12;

  [[nodiscard]] int64_t rows() const { return batch_.num_requests(); }
  [[nodiscard]] bool has(SpeculationOp a, SpeculationOp b) const { return op_ == a || op_ == b; }

  void spoil() {
    const auto wild = [](int64_t size) {
      return pick<int64_t>({-2, -9, size, size + 5, 1 << 20, -(1 << 30)});
    };
    const auto row = size_t(random_int(0, rows() - 1));
    const bool with_cache = has(SpeculationOp::kRewind, SpeculationOp::kStep);
    if (op_ == SpeculationOp::kNgram) {
      lengths_[row] = wild(kMaxTokens + 1);
    } else if (with_cache && random_int(0, 2) == 0) {
      kv_[row].count = wild(kMaxBlocks + 1);
    } else if (with_cache && random_int(0, 2) == 0) {
      kv_[row].offset = wild(kBlockSize);
    } else if (op_ == SpeculationOp::kRewind && random_int(0, 1) == 0) {
      accepted_[row] = wild(batch_.max_drafts + 1);
    } else if (op_ == SpeculationOp::kPrepare && random_int(0, 1) == 0) {
      last_ones_[row] = wild(batch_.num_tokens());
    } else if (batch_.ragged) {
      batch_.draft_indptr[size_t(random_int(0, batch_.num_decode))] =
          wild(batch_.num_tokens() + batch_.max_drafts);
    }
  }

  /// By the definitions.
  [[nodiscard]] bool has_wrong_tokens(int64_t p) const {
    const int64_t num_decode = batch_.num_decode;
    if (!batch_.ragged) return false;
    const Ints& starts = batch_.draft_indptr;
    const int64_t first = std::min(p, num_decode), base = starts[size_t(first)] + p;
    const int64_t n = p < num_decode ? starts[size_t(p + 1)] - starts[size_t(p)] : 0;
    const int64_t drafts = std::clamp<int64_t>(n, 0, batch_.max_drafts);
    return n != drafts || base < p || base + 1 + drafts > batch_.num_tokens();
  }
  [[nodiscard]] bool has_wrong_cache(int64_t p) const {
    const ref::KvRequest& kv = kv_[size_t(p)];
    return kv.count < 0 || kv.count > kMaxBlocks ||
           (kv.count > 0 && (kv.offset < 0 || kv.offset >= kBlockSize));
  }
  [[nodiscard]] bool is_wrong(int64_t p) const {
    const int64_t last = last_ones_[size_t(p)], accepted = accepted_[size_t(p)];
    switch (op_) {
      case SpeculationOp::kVerify: return has_wrong_tokens(p);
      case SpeculationOp::kPrepare:
        if (last < -1 || last >= batch_.num_tokens()) return true;
        return last >= 0 && p < batch_.num_decode && has_wrong_tokens(p);
      case SpeculationOp::kRewind: {
        if (has_wrong_cache(p)) return true;
        if (status_[size_t(p)] == 1) return false;
        const Ints& starts = batch_.draft_indptr;
        const int64_t n =
            batch_.ragged ? starts[size_t(p + 1)] - starts[size_t(p)] : batch_.max_drafts;
        const bool has_start = !batch_.ragged || starts[size_t(p)] >= 0;
        return !has_start || n < 0 || n > batch_.max_drafts || accepted < 0 || accepted > n;
      }
      case SpeculationOp::kStep: return has_wrong_cache(p) || has_wrong_tokens(p);
      case SpeculationOp::kNgram: {
        const int64_t length = lengths_[size_t(p)];
        return length < 0 || length > kMaxTokens;
      }
    }
    return false;
  }

  /// What each request gets.
  std::vector<Ints> call() {
    IndexBuffer indptr(batch_.draft_indptr), input(batch_.input), output(batch_.output);
    IndexBuffer required(batch_.input), last_ones(last_ones_), accepted(accepted_);
    IndexBuffer status(status_), lengths(lengths_), tokens(rows(), kMaxTokens);
    const int64_t max_drafts = batch_.max_drafts;
    const Drafts drafts =
        batch_.ragged ? Drafts::ragged(indptr.view(), max_drafts) : Drafts::uniform(max_drafts);
    for (int64_t i = 0; i < rows(); ++i) {
      for (int64_t t = 0; t < kMaxTokens; ++t)
        tokens.set(i, t, tokens_[size_t(i * kMaxTokens + t)]);
    }
    IndexBuffer ones(rows()), sampled(rows()), last_seq(rows()), counts(rows());
    IndexBuffer drafted(rows(), max_drafts), ids(rows() * kMaxBlocks), num_ids(1);
    MaskBuffer mask(mask_), to_mask(batch_.num_tokens());
    KvBuffers kv(kv_, kMaxBlocks);
    const ReleasedBlocks released =
        is_listed_ ? ReleasedBlocks{.released_ids = ids.view(), .num_released = num_ids.view()}
                   : ReleasedBlocks{};
    switch (op_) {
      case SpeculationOp::kVerify:
        verify_speculative_tokens(run_, ones.view(), to_mask.view(), input.view(), output.view(),
                                  batch_.num_decode, batch_.num_prefill, drafts);
        break;
      case SpeculationOp::kPrepare:
        prepare_next_forward_pass(run_, sampled.view(), last_seq.view(), drafted.view(),
                                  counts.view(), output.view(), required.view(), last_ones.view(),
                                  mask.view(), input.view(), batch_.num_decode, drafts);
        break;
      case SpeculationOp::kRewind:
        rewind_kv_cache(run_, released, kv.state(), accepted.view(), status.view(), drafts,
                        kBlockSize);
        break;
      case SpeculationOp::kStep:
        speculative_step(run_,
                         {.last_one_indices = ones.view(),
                          .accepted_tokens_mask = to_mask.view(),
                          .sampled_tokens = sampled.view(),
                          .accepted_tokens = drafted.view(),
                          .accepted_counts = counts.view(),
                          .released = released},
                         kv.state(), input.view(), output.view(), {}, batch_.num_decode,
                         batch_.num_prefill, drafts, kBlockSize);
        break;
      case SpeculationOp::kNgram:
        propose_ngram_drafts(run_, drafted.view(), counts.view(), tokens.view(), lengths.view(),
                             max_drafts);
        break;
    }
    for (const IndexBuffer* b : {&ones, &sampled, &last_seq, &counts, &drafted, &ids, &num_ids}) {
      EXPECT_TRUE(b->gaps_intact());
    }
    EXPECT_TRUE(to_mask.gaps_intact() && kv.gaps_intact());
    std::vector<Ints> results;
    for (int64_t p = 0; p < rows(); ++p) {
      Ints result = drafted.row(p), of_table = kv.ids.row(p);
      result.insert(result.end(), of_table.begin(), of_table.end());
      for (const IndexBuffer* b :
           {&ones, &sampled, &last_seq, &counts, &kv.offset, &kv.length, &kv.count, &kv.last_id}) {
        result.push_back(b->get(p));
      }
      results.push_back(std::move(result));
    }
    return results;
  }

  SpeculationOp op_;
  const SpeculationRun& run_;
  DraftedBatch batch_;
  std::vector<ref::KvRequest> kv_;
  Ints accepted_, status_, last_ones_, lengths_, tokens_, mask_;
  bool is_listed_ = random_int(0, 1) == 1;
};

inline void expect_wrong_requests_change_no_others(const SpeculationRun& run, int num_batches) {
  for (int i = 0; i < num_batches && !::testing::Test::HasFailure(); ++i) {
    for (const SpeculationOp op : kSpeculationOps) WrongRequests(op, run).check();
  }
}

}  // namespace heddle::testing
