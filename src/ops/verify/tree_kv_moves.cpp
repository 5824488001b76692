#include <limits>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/verify.h"

#include "core/scoped_operation.h"
#include "cpu/index_array.h"
#include "cpu/validate_indices.h"
#include "ops/verify/verify_checks.h"
#include "ops/verify/verify_kernels.h"

namespace heddle {
namespace {

constexpr int64_t kSeqsPerTask = 256;

/// Paths ascend, so a node is never below its place on the path.
void validate_paths(const TreeMoveParams& p, const ConstTensorView& num_accepted) {
  cpu::check_counts("num_accepted", num_accepted, 0, p.max_depth, "max_depth");
  for (int64_t seq = 0; seq < p.num_seqs; ++seq) {
    for (int64_t k = 0; k < p.accepted[seq]; ++k) {
      const int64_t low = k == 0 ? 0 : p.nodes.row(seq)[k - 1] + 1;
      HEDDLE_CHECK(p.nodes.row(seq)[k] >= low, "accepted_nodes[", seq, ", ", k, "] is ",
                   p.nodes.row(seq)[k], ", expected at least ", low);
    }
  }
}

}  // namespace

void tree_kv_moves(const ExecContext& ctx, TensorView from_positions, TensorView to_positions,
                   ConstTensorView accepted_nodes, ConstTensorView num_accepted,
                   ConstTensorView root_positions) {
  check_has_kernels(ctx, "tree_kv_moves");
  Dim seqs("num_seqs"), max_depth("max_depth");
  check_index_matrix(ctx, "from_positions", from_positions, seqs, max_depth);
  check_index_matrix(ctx, "to_positions", to_positions, seqs, max_depth);
  check_index_matrix(ctx, "accepted_nodes", accepted_nodes, seqs, max_depth);
  check_index_vector(ctx, "num_accepted", num_accepted, seqs);
  check_index_vector(ctx, "root_positions", root_positions, seqs);
  const TreeMoveParams params{.from = cpu::MutableIndexMatrix(from_positions),
                              .to = cpu::MutableIndexMatrix(to_positions),
                              .nodes = cpu::IndexMatrix(accepted_nodes),
                              .accepted = cpu::IndexArray(num_accepted),
                              .roots = cpu::IndexArray(root_positions),
                              .num_seqs = seqs.value(),
                              .max_depth = max_depth.value()};
  if (validating()) {
    struct Tensors {
      ConstTensorView nodes, accepted, roots;
    };
    check_on_host(
        ctx,
        [&](auto& host) {
          return Tensors{host(accepted_nodes), host(num_accepted), host(root_positions)};
        },
        [&](const Tensors& t) {
          cpu::check_indices("root_positions", t.roots, 0, std::numeric_limits<int64_t>::max(),
                             "the largest i64");
          TreeMoveParams on_host = params;
          on_host.nodes = cpu::IndexMatrix(t.nodes);
          on_host.accepted = cpu::IndexArray(t.accepted);
          validate_paths(on_host, t.accepted);
        });
  }
  if (ctx.device.type == DeviceType::kCpu) {
    parallel_for(ctx, params.num_seqs, kSeqsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t seq = begin; seq < end; ++seq) {
        for (int64_t k = 0; k < params.max_depth; ++k) params.move(seq, k);
      }
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("tree_kv_moves");
    cuda::verify::tree_kv_moves(params, ctx.stream);
  }
}

}  // namespace heddle
