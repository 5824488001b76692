#include "ops/verify/verify_checks.h"

#include <cmath>
#include <ios>
#include <limits>

#include "cpu/validate_indices.h"

namespace heddle {

void check_index_vector(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                        Dim& extent) {
  check_shape(tensor, t, {&extent});
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
  check_device(ctx, {{tensor, t}});
}

void check_index_matrix(const ExecContext& ctx, const char* tensor, const ConstTensorView& t,
                        Dim& rows, Dim& columns) {
  check_shape(tensor, t, {&rows, &columns});
  check_dtype(tensor, t, {DType::kInt32, DType::kInt64});
  check_unit_stride(tensor, t);
  check_device(ctx, {{tensor, t}});
}

void check_drafts(const ExecContext& ctx, const DraftTensors& drafts) {
  Dim seqs("num_seqs"), width("width"), num_drafts("num_drafts");
  check_index_matrix(ctx, "output_tokens", drafts.output_tokens, seqs, width);
  HEDDLE_CHECK(width.value() >= 1, "output_tokens.size(1) is 0, expected at least 1");
  check_index_vector(ctx, "num_accepted", drafts.num_accepted, seqs);
  Dim starts("num_seqs + 1", seqs.value() + 1);
  check_index_vector(ctx, "draft_tokens", drafts.tokens, num_drafts);
  check_index_vector(ctx, drafts.indptr_name, drafts.indptr, starts);
  if (drafts.accepted_nodes) {
    Dim max_depth("max_depth = output_tokens.size(1) - 1", width.value() - 1);
    check_index_matrix(ctx, "accepted_nodes", drafts.accepted_nodes, seqs, max_depth);
  }
  if (drafts.tree_mask) {
    Dim words("words");
    check_index_matrix(ctx, "tree_mask", drafts.tree_mask, num_drafts, words);
  }
}

namespace {

constexpr double kSumSlack = 0.01;

/// Node i's row holds its parent's bits and its own, nothing else.
void validate_mask_row(const TreeMask& mask, const DraftSpan& span, int64_t i) {
  const int64_t bits = mask.word_bits(), row = span.begin + i;
  HEDDLE_CHECK(i < mask.num_words() * bits, "tree_mask.size(1) is ", mask.num_words(),
               ", too few words for node ", i, " in row ", row);
  const int64_t parent = mask.parent(span, i);
  for (int64_t w = 0; w < mask.num_words(); ++w) {
    const uint64_t inherited = parent < 0 ? 0 : mask.word(span.begin + parent, w);
    const uint64_t expected = inherited | (w == i / bits ? uint64_t{1} << (i % bits) : 0);
    HEDDLE_CHECK(mask.word(row, w) == expected, "tree_mask[", row, ", ", w, "] is 0x", std::hex,
                 mask.word(row, w), ", expected 0x", expected, std::dec, ", the bits of node ", i,
                 " and of its parent, node ", parent);
  }
}

int64_t depth_of(const TreeMask& tree, const DraftSpan& span, int64_t i) {
  int64_t depth = 0;
  for (; i >= 0; i = tree.parent(span, i)) ++depth;
  return depth;
}

/// Whether node i and its ancestors are tokens, so that what the target said after it may be read.
bool is_reachable(const DraftBatch& batch, const TreeMask& tree, const DraftSpan& span, int64_t i) {
  while (i >= 0 && batch.tokens[span.begin + i] >= 0) i = tree.parent(span, i);
  return i < 0;
}

/// Calls check(row of the target, row of the draft before it or -1) for each row that may be read.
template <class Check>
void for_each_read_row(const DraftTensors& drafts, const Check& check) {
  const DraftBatch batch = drafts.batch();
  const TreeMask tree = drafts.tree();
  for (int64_t seq = 0; seq < batch.num_seqs; ++seq) {
    const DraftSpan span = batch.span(seq);
    check(span.target_row, int64_t{-1});
    for (int64_t i = 0; i < span.num_drafts; ++i) {
      if (is_reachable(batch, tree, span, i)) check(span.target_row + 1 + i, span.begin + i);
    }
  }
}

void validate_row(const char* tensor, const ConstTensorView& probs, int64_t row) {
  const float* p = probs.data<float>() + row * probs.stride(0);
  double sum = 0.0;
  for (int64_t i = 0; i < probs.size(1); ++i) {
    HEDDLE_CHECK(p[i] >= 0.0f && p[i] <= std::numeric_limits<float>::max(), tensor, "[", row, ", ",
                 i, "] is ", p[i], ", expected a probability");
    sum += double{p[i]};
  }
  HEDDLE_CHECK(std::abs(sum - 1.0) <= kSumSlack, tensor, "[", row, "] sums to ", sum,
               ", expected 1");
}

}  // namespace

void validate_drafts(const DraftTensors& drafts, int64_t vocab_size) {
  const DraftBatch batch = drafts.batch();
  const TreeMask tree = drafts.tree();
  const int64_t max_accepted = drafts.outputs().max_accepted;
  cpu::check_indptr(drafts.indptr_name, drafts.indptr, batch.num_drafts, "num_drafts");
  cpu::check_indices("draft_tokens", drafts.tokens, cpu::kAnyNegative, vocab_size, "vocab_size");
  for (int64_t seq = 0; seq < batch.num_seqs; ++seq) {
    const DraftSpan span = batch.span(seq);
    HEDDLE_CHECK(drafts.tree_mask || span.num_drafts <= max_accepted, "row ", seq, " has ",
                 span.num_drafts, " drafts, output_tokens.size(1) is ", max_accepted + 1);
    if (!drafts.tree_mask) continue;
    for (int64_t i = 0; i < span.num_drafts; ++i) {
      validate_mask_row(tree, span, i);
      const int64_t depth = depth_of(tree, span, i);
      HEDDLE_CHECK(depth <= max_accepted, "tree_mask[", span.begin + i, "] puts node ", i,
                   " at depth ", depth, ", expected at most max_depth = ", max_accepted);
    }
  }
}

void validate_target_tokens(const DraftTensors& drafts, const ConstTensorView& target_tokens) {
  const cpu::IndexArray targets(target_tokens);
  for_each_read_row(drafts, [&](int64_t row, int64_t) {
    HEDDLE_CHECK(targets[row] >= 0, "target_tokens[", row, "] is ", targets[row],
                 ", expected at least 0");
  });
}

void validate_probabilities(const DraftTensors& drafts, const ConstTensorView& draft_probs,
                            const ConstTensorView& target_probs) {
  for_each_read_row(drafts, [&](int64_t target_row, int64_t draft) {
    validate_row("target_probs", target_probs, target_row);
    if (draft_probs && draft >= 0) validate_row("draft_probs", draft_probs, draft);
  });
}

}  // namespace heddle
