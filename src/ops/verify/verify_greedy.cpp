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

/// Whether draft i, which follows node `parent`, is what the target chose there.
bool is_confirmed(const GreedyParams& p, const DraftSpan& span, int64_t i, int64_t parent) {
  const int64_t token = p.batch.tokens[span.begin + i];
  return token >= 0 && token == p.target_tokens[span.target_row + 1 + parent];
}

void verify_chain(const GreedyParams& p, int64_t seq) {
  const DraftSpan span = p.batch.span(seq);
  int64_t i = 0;
  for (; i < span.num_drafts && i < p.outputs.max_accepted; ++i) {
    if (!is_confirmed(p, span, i, i - 1)) break;
    p.outputs.accept(seq, i, i, p.batch.tokens[span.begin + i]);
  }
  p.outputs.finish(seq, i, p.target_tokens[span.target_row + i]);
}

/// Nodes from the root to `node` if the target confirms them all, else 0. Each node is judged
/// alone, so that many threads can share a tree.
int64_t confirmed_depth(const GreedyParams& p, const DraftSpan& span, int64_t node) {
  int64_t depth = 0;
  while (node >= 0) {
    const int64_t parent = p.tree.parent(span, node);
    if (!is_confirmed(p, span, node, parent)) return 0;
    ++depth;
    node = parent;
  }
  return depth;
}

void verify_tree(const GreedyParams& p, int64_t seq) {
  const DraftSpan span = p.batch.span(seq);
  int64_t best = -1, best_depth = 0;
  for (int64_t i = 0; i < span.num_drafts; ++i) {
    const int64_t depth = confirmed_depth(p, span, i);
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
  const DraftTensors drafts{.output_tokens = output_tokens,
                            .num_accepted = num_accepted,
                            .accepted_nodes = {},
                            .tokens = draft_tokens,
                            .tree_mask = {},
                            .indptr = draft_indptr,
                            .indptr_name = "draft_indptr"};
  const GreedyParams params = check_greedy(ctx, "verify_greedy", drafts, target_tokens);
  run(ctx, params, kChainsPerTask, verify_chain);
}

void verify_tree_greedy(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                        TensorView accepted_nodes, ConstTensorView draft_tokens,
                        ConstTensorView target_tokens, ConstTensorView tree_mask,
                        ConstTensorView node_indptr) {
  HEDDLE_CHECK(accepted_nodes && tree_mask,
               "verify_tree_greedy: ", accepted_nodes ? "tree_mask" : "accepted_nodes",
               " is absent");
  const DraftTensors drafts{.output_tokens = output_tokens,
                            .num_accepted = num_accepted,
                            .accepted_nodes = accepted_nodes,
                            .tokens = draft_tokens,
                            .tree_mask = tree_mask,
                            .indptr = node_indptr,
                            .indptr_name = "node_indptr"};
  const GreedyParams params = check_greedy(ctx, "verify_tree_greedy", drafts, target_tokens);
  run(ctx, params, kTreesPerTask, verify_tree);
}

}  // namespace heddle
