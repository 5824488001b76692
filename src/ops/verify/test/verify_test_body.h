#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/verify.h"

#include "core/math.h"
#include "expect_error.h"
#include "mirror.h"
#include "ops/verify/test/verify_cases.h"
#include "ops/verify/test/verify_ref.h"
#include "poison.h"
#include "random.h"
#include "scoped_validation.h"

namespace heddle {

/// How a test calls a verification.
struct VerifyRun {
  bool is_tree = false;
  bool stochastic = false, use_q = true;
  int64_t max_accepted = 0;
  int64_t gap = 0;  // between rows of the outputs and of the inputs
  ThreadPool* threads = nullptr;
  // Another device: its context, and a mirror that brings the tensors there.
  ExecContext ctx{};
  testing::Mirror* mirror = nullptr;
  const std::vector<int64_t>* starts = nullptr;  // in place of the batch's
};

/// A matrix with `gap` elements between its rows that are never read.
template <class T>
class GappedRows {
 public:
  GappedRows(const std::vector<T>& values, int64_t width, int64_t gap)
      : width_(width),
        stride_(width + gap),
        num_rows_(width > 0 ? static_cast<int64_t>(values.size()) / width : 0) {
    constexpr bool kFloat = std::numeric_limits<T>::has_quiet_NaN;
    elements_.assign(size_t(num_rows_ * stride_),
                     kFloat ? std::numeric_limits<T>::quiet_NaN() : static_cast<T>(-1));
    for (int64_t r = 0; r < num_rows_; ++r) {
      for (int64_t c = 0; c < width; ++c) {
        elements_[size_t(r * stride_ + c)] = values[size_t(r * width + c)];
      }
    }
  }
  [[nodiscard]] ConstTensorView view() const {
    const std::array<int64_t, 2> shape{num_rows_, width_}, strides{stride_, 1};
    return {reinterpret_cast<const std::byte*>(elements_.data()), kDType<T>, Device{}, shape,
            strides};
  }
  /// Of the elements of a vector (width 1).
  [[nodiscard]] ConstTensorView vector_view() const {
    const std::array<int64_t, 1> shape{num_rows_}, strides{stride_};
    return {reinterpret_cast<const std::byte*>(elements_.data()), kDType<T>, Device{}, shape,
            strides};
  }

 private:
  int64_t width_, stride_, num_rows_;
  std::vector<T> elements_;
};

template <class In>
GappedRows<In> indices(const std::vector<int64_t>& values, int64_t gap) {
  return GappedRows<In>(std::vector<In>(values.begin(), values.end()), 1, gap);
}

/// An output matrix; its gaps and what surrounds it are poisoned. The poison is -1 in integers,
/// which is what an op writes after its results, so the elements begin with something else.
template <class T>
class OutputRows {
 public:
  OutputRows(int64_t rows, int64_t width, int64_t gap)
      : rows_(rows), width_(width), stride_(width + gap), buffer_(size_t(rows * stride_)) {
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < width; ++c) buffer_[size_t(r * stride_ + c)] = T{7};
    }
  }
  [[nodiscard]] TensorView view() {
    const std::array<int64_t, 2> shape{rows_, width_}, strides{stride_, 1};
    return {reinterpret_cast<std::byte*>(buffer_.data()), kDType<T>, Device{}, shape, strides};
  }
  [[nodiscard]] TensorView vector_view() {
    const std::array<int64_t, 1> shape{rows_}, strides{stride_};
    return {reinterpret_cast<std::byte*>(buffer_.data()), kDType<T>, Device{}, shape, strides};
  }
  [[nodiscard]] int64_t at(int64_t row, int64_t column) const {
    return int64_t{buffer_[size_t(row * stride_ + column)]};
  }
  void expect_gaps_untouched() const {
    EXPECT_TRUE(buffer_.guards_intact());
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = width_; c < stride_; ++c) {
        ASSERT_TRUE(buffer_.untouched(size_t(r * stride_ + c)));
      }
    }
  }

 private:
  int64_t rows_, width_, stride_;
  testing::PoisonedBuffer<T> buffer_;
};

/// Calls the op with outputs of type Out and inputs of type In; checks what lies after the
/// results.
template <class Out, class In>
std::vector<ref::Verdict> run_verify(const VerifyBatch& batch, const VerifyRun& run) {
  const int64_t num_seqs = batch.num_seqs(), width = run.max_accepted + 1;
  OutputRows<Out> tokens(num_seqs, width, run.gap), counts(num_seqs, 1, run.gap);
  OutputRows<Out> nodes(num_seqs, run.max_accepted, run.gap);
  ExecContext ctx = run.ctx;
  ctx.threads = run.threads;
  testing::Mirror host;
  testing::Mirror& m = run.mirror != nullptr ? *run.mirror : host;

  constexpr int64_t kBits = 8 * sizeof(In);
  const int64_t words = ceil_div(batch.max_drafts(), kBits) + 1;
  const GappedRows<In> masks(batch.masks<In>(words), words, run.gap);
  const auto drafts = indices<In>(batch.tokens, run.gap),
             indptr = indices<In>(run.starts != nullptr ? *run.starts : batch.indptr, 0);
  const auto targets = indices<In>(batch.target_tokens, run.gap);
  const auto step = indices<int64_t>(batch.step, run.gap), seed = indices<int64_t>(batch.seed, 0);
  const GappedRows<float> p(batch.target_probs, batch.vocab_size, run.gap);
  const GappedRows<float> q_rows(batch.draft_probs, batch.vocab_size, run.gap);
  const ConstTensorView q = m(run.use_q ? q_rows.view() : ConstTensorView{});
  const TensorView to = m(tokens.view()), count = m(counts.vector_view()), path = m(nodes.view());
  const ConstTensorView drafted = m(drafts.vector_view()), starts = m(indptr.vector_view());
  const ConstTensorView chosen = m(targets.vector_view()), mask = m(masks.view());
  const ConstTensorView seeds = m(seed.vector_view()), steps = m(step.vector_view());
  if (run.is_tree && run.stochastic) {
    verify_tree_stochastic(ctx, to, count, path, drafted, q, m(p.view()), mask, starts, seeds,
                           steps);
  } else if (run.is_tree) {
    verify_tree_greedy(ctx, to, count, path, drafted, chosen, mask, starts);
  } else if (run.stochastic) {
    verify_stochastic(ctx, to, count, drafted, q, m(p.view()), starts, seeds, steps);
  } else {
    verify_greedy(ctx, to, count, drafted, chosen, starts);
  }
  m.back();

  tokens.expect_gaps_untouched();
  counts.expect_gaps_untouched();
  if (run.is_tree) nodes.expect_gaps_untouched();
  std::vector<ref::Verdict> verdicts(size_t(num_seqs), ref::Verdict{});
  for (int64_t seq = 0; seq < num_seqs; ++seq) {
    ref::Verdict& verdict = verdicts[size_t(seq)];
    const int64_t accepted = counts.at(seq, 0);
    if (!(accepted >= 0 && accepted <= run.max_accepted)) {
      ADD_FAILURE() << "num_accepted[" << seq << "] is " << accepted;
      continue;
    }
    for (int64_t k = 0; k < width; ++k) {
      if (k <= accepted) verdict.tokens.push_back(tokens.at(seq, k));
      if (k > accepted) {
        EXPECT_EQ(tokens.at(seq, k), -1);
      }
    }
    for (int64_t k = 0; k < run.max_accepted; ++k) {
      const int64_t node = run.is_tree ? nodes.at(seq, k) : k < accepted ? k : -1;
      if (k < accepted) verdict.nodes.push_back(node);
      if (k >= accepted) {
        EXPECT_EQ(node, -1);
      }
    }
  }
  return verdicts;
}

/// Where the verdicts are not those of the reference.
inline void expect_reference(const VerifyBatch& batch, const VerifyRun& run,
                             const std::vector<ref::Verdict>& verdicts) {
  ASSERT_EQ(static_cast<int64_t>(verdicts.size()), batch.num_seqs());
  for (int64_t seq = 0; seq < batch.num_seqs(); ++seq) {
    const ref::Verdict want = run.stochastic
                                  ? ref::verify_stochastic(batch, seq, run.max_accepted, run.use_q)
                                  : ref::verify_greedy(batch, seq, run.max_accepted);
    EXPECT_EQ(verdicts[size_t(seq)].nodes, want.nodes) << "request " << seq;
    EXPECT_EQ(verdicts[size_t(seq)].tokens, want.tokens) << "request " << seq;
  }
}

/// Calls with starts that are out of range: requests without them get what they get without; a call
/// that validates throws.
inline void expect_wrong_starts_change_no_others(const VerifyBatch& batch,
                                                 const VerifyRun& right_run, int num_calls) {
  VerifyRun run = right_run;
  const auto right = run_verify<int32_t, int64_t>(batch, run);
  for (int i = 0; i < num_calls && !::testing::Test::HasFailure(); ++i) {
    std::vector<int64_t> starts = batch.indptr;
    for (int64_t k = testing::random_int(0, 2); k > 0; --k) {
      starts[size_t(testing::random_int(0, batch.num_seqs()))] =
          testing::pick<int64_t>({-1, -7, batch.num_drafts() + 1, 1 << 20, -(int64_t{1} << 40)});
    }
    const auto is_wrong = [&](size_t seq) {
      return starts[seq] < 0 || starts[seq + 1] < starts[seq] ||
             starts[seq + 1] > batch.num_drafts();
    };
    bool has_wrong = false;
    for (size_t seq = 0; seq < right.size(); ++seq) has_wrong |= is_wrong(seq);
    run.starts = &starts;
    if (has_wrong && i % 2 == 0) {
      const testing::ScopedValidation on;
      EXPECT_NE(testing::message_of([&] { run_verify<int32_t, int64_t>(batch, run); }), "no error");
      continue;
    }
    const auto got = run_verify<int32_t, int64_t>(batch, run);
    for (size_t seq = 0; seq < right.size(); ++seq) {
      if (is_wrong(seq)) continue;
      EXPECT_EQ(got[seq].tokens, right[seq].tokens) << "request " << seq;
      EXPECT_EQ(got[seq].nodes, right[seq].nodes) << "request " << seq;
    }
  }
}

}  // namespace heddle
