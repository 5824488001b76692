#include <limits>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/verify.h"

#include "core/scoped_operation.h"
#include "ops/verify/verify_checks.h"
#include "ops/verify/verify_kernels.h"

namespace heddle {
namespace {

constexpr int64_t kChainsPerTask = 256;  // chains: a few loads each
constexpr int64_t kTreesPerTask = 16;

void verify_chain(const GreedyParams& p, int64_t seq) {
  const DraftSpan span = p.batch.span(seq);
  int64_t i = 0;
  for (; i < span.num_drafts && i < p.outputs.max_accepted; ++i) {
    if (!p.is_confirmed(span, i, i - 1)) break;
    p.outputs.accept(seq, i, i, p.batch.tokens[span.begin + i]);
  }
  p.outputs.finish(seq, i, p.target_tokens[span.target_row + i]);
}

void verify_tree(const GreedyParams& p, int64_t seq) {
  const DraftSpan span = p.batch.span(seq);
  int64_t best = -1, best_depth = 0;
  for (int64_t i = 0; i < span.num_drafts; ++i) {
    const int64_t depth = p.confirmed_depth(span, i);
    if (depth > best_depth && depth <= p.outputs.max_accepted) best = i, best_depth = depth;
  }
  int64_t place = best_depth;
  for (int64_t i = best; i >= 0; i = p.tree.parent(span, i)) {
    p.outputs.accept(seq, --place, i, p.batch.tokens[span.begin + i]);
  }
  p.outputs.finish(seq, best_depth, p.target_tokens[span.target_row + 1 + best]);
}

GreedyParams check_greedy(const ExecContext& ctx, const char* op, const DraftTensors& drafts,
                          const ConstTensorView& target_tokens) {
  check_has_kernels(ctx, op);
  check_drafts(ctx, drafts);
  const GreedyParams params{.batch = drafts.batch(),
                            .tree = drafts.tree(),
                            .target_tokens = cpu::IndexArray(target_tokens),
                            .outputs = drafts.outputs()};
  Dim rows("num_drafts + num_seqs", params.batch.num_drafts + params.batch.num_seqs);
  check_index_vector(ctx, "target_tokens", target_tokens, rows);
  if (validating()) {
    struct Tensors {
      DraftTensors drafts;
      ConstTensorView target_tokens;
    };
    check_on_host(
        ctx,
        [&](auto& host) {
          return Tensors{drafts_on_host(host, drafts), host(target_tokens)};
        },
        [](const Tensors& t) {
          validate_drafts(t.drafts, std::numeric_limits<int64_t>::max());
          validate_target_tokens(t.drafts, t.target_tokens);
        });
  }
  return params;
}

/// verify(params, seq) for each request, so many to a task, or the kernel for all.
template <class Verify>
void run(const ExecContext& ctx, const GreedyParams& params, int64_t grain, const Verify& verify) {
  if (ctx.device.type == DeviceType::kCpu) {
    parallel_for(ctx, params.batch.num_seqs, grain, [&](int64_t begin, int64_t end) {
      for (int64_t seq = begin; seq < end; ++seq) verify(params, seq);
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("verify_greedy");
    cuda::verify::verify_greedy(params, ctx.stream);
  }
}

}  // namespace

void verify_greedy(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                   ConstTensorView draft_tokens, ConstTensorView target_tokens,
                   ConstTensorView draft_indptr) {
  const DraftTensors drafts =
      DraftTensors::chains(output_tokens, num_accepted, draft_tokens, draft_indptr);
  const GreedyParams params = check_greedy(ctx, "verify_greedy", drafts, target_tokens);
  run(ctx, params, kChainsPerTask, verify_chain);
}

void verify_tree_greedy(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                        TensorView accepted_nodes, ConstTensorView draft_tokens,
                        ConstTensorView target_tokens, ConstTensorView tree_mask,
                        ConstTensorView node_indptr) {
  const DraftTensors drafts =
      DraftTensors::trees("verify_tree_greedy", output_tokens, num_accepted, accepted_nodes,
                          draft_tokens, tree_mask, node_indptr);
  const GreedyParams params = check_greedy(ctx, "verify_tree_greedy", drafts, target_tokens);
  run(ctx, params, kTreesPerTask, verify_tree);
}

}  // namespace heddle
