#include <limits>

#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/verify.h"

#include "core/scoped_operation.h"
#include "cpu/philox.h"
#include "cpu/validate_indices.h"
#include "ops/verify/residual.h"
#include "ops/verify/verify_checks.h"
#include "ops/verify/verify_kernels.h"

namespace heddle {
namespace {

/// One request on its way down the tree (or along the chain).
class Walk {
 public:
  Walk(const StochasticParams& params, int64_t seq)
      : p_(params),
        seq_(seq),
        span_(params.batch.span(seq)),
        seed_(params.seed[seq]),
        step_(params.step[seq]) {}

  void run() {
    int64_t node = -1;  // the root
    for (;;) {
      start_residual(node);
      const int64_t child = depth_ < p_.outputs.max_accepted ? accepted_child(node) : -1;
      if (child < 0) break;
      p_.outputs.accept(seq_, depth_++, child, token_of(child));
      node = child;
    }
    p_.outputs.finish(seq_, depth_, draw_token());
  }

 private:
  [[nodiscard]] int64_t token_of(int64_t node) const { return p_.batch.tokens[span_.begin + node]; }

  [[nodiscard]] double uniform(cpu::Draw purpose, int rank) const {
    const auto step = static_cast<int64_t>(static_cast<uint64_t>(step_) + uint64_t(depth_));
    return cpu::uniform_draw(seed_, step, purpose, static_cast<uint32_t>(rank));
  }

  /// The target's distribution after `node`.
  void start_residual(int64_t node) {
    residual_.p = p_.target_probs.row(span_.target_row + 1 + node);
    residual_.vocab_size = p_.vocab_size;
    residual_.one_hot = p_.draft_probs.data == nullptr;
    residual_.num_rejected = 0;
  }

  /// Tries the children of `node` in turn; the residual is then what is left without the rejected
  /// ones. -1: none is accepted.
  int64_t accepted_child(int64_t node) {
    double mass = 1.0;
    int64_t child = p_.tree.next_child(span_, node, node);
    for (int rank = 0; child >= 0 && rank < kMaxTried; ++rank) {
      const int64_t token = token_of(child);
      if (token >= 0 && token < p_.vocab_size) {
        const float* q = residual_.one_hot ? nullptr : p_.draft_probs.row(span_.begin + child);
        const double expected = mass * (q == nullptr ? 1.0 : probability(q[token]));
        if (uniform(cpu::Draw::kAccept, rank) * expected < weight_of(residual_, token))
          return child;
        mass = reject(token, q, mass);
        if (!(mass > 0.0)) return -1;  // nothing is left that a sibling could be accepted from
      }
      child = p_.tree.next_child(span_, node, child);
    }
    return -1;
  }

  /// Returns the mass of what is left.
  double reject(int64_t token, const float* q, double mass) {
    const int k = residual_.num_rejected++;
    residual_.tokens[k] = token;
    residual_.q[k] = q;
    residual_.masses[k] = mass;
    if (residual_.one_hot && k > 0) {
      sum_weights_again(residual_, sums_);
    } else {
      sum_weights(residual_, sums_);
    }
    return sums_.total;
  }

  /// From the residual; from the target's row where nothing is left of it; 0 where that has no mass
  /// either.
  int64_t draw_token() {
    if (residual_.num_rejected == 0) {
      sum_weights(residual_, sums_);
    } else if (!(sums_.total > 0.0)) {
      residual_.num_rejected = 0;
      sum_weights(residual_, sums_);
    }
    if (!(sums_.total > 0.0)) return 0;
    return draw_from(residual_, sums_, uniform(cpu::Draw::kTarget, 0));
  }

  const StochasticParams& p_;
  const int64_t seq_;
  const DraftSpan span_;
  const int64_t seed_, step_;
  int64_t depth_ = 0;  // accepted drafts
  Residual residual_;
  ChunkSums sums_;  // of residual_, if it has rejected drafts
};

void check_probs(const ExecContext& ctx, const char* tensor, const ConstTensorView& t, Dim& rows,
                 Dim& vocab) {
  check_shape(tensor, t, {&rows, &vocab});
  check_dtype(tensor, t, {DType::kFloat32});
  check_unit_stride(tensor, t);
  check_device(ctx, {{tensor, t}});
}

ProbabilityRows rows_of(const ConstTensorView& t) {
  return t ? ProbabilityRows{t.data<float>(), t.stride(0)} : ProbabilityRows{nullptr, 0};
}

void verify(const ExecContext& ctx, const char* op, const DraftTensors& drafts,
            const ConstTensorView& draft_probs, const ConstTensorView& target_probs,
            const ConstTensorView& seed, const ConstTensorView& step) {
  check_has_kernels(ctx, op);
  check_drafts(ctx, drafts);
  const DraftBatch batch = drafts.batch();
  Dim num_drafts("num_drafts", batch.num_drafts), vocab("vocab_size");
  Dim rows("num_drafts + num_seqs", batch.num_drafts + batch.num_seqs);
  Dim seqs("num_seqs", batch.num_seqs);
  check_probs(ctx, "target_probs", target_probs, rows, vocab);
  HEDDLE_CHECK(vocab.value() >= 1 && vocab.value() <= std::numeric_limits<int32_t>::max(),
               "target_probs.size(1) is ", vocab.value(), ", expected 1 to 2147483647");
  if (draft_probs) check_probs(ctx, "draft_probs", draft_probs, num_drafts, vocab);
  check_index_vector(ctx, "seed", seed, seqs);
  check_index_vector(ctx, "step", step, seqs);
  if (validating()) {
    struct Tensors {
      DraftTensors drafts;
      ConstTensorView draft_probs, target_probs, step;
    };
    check_on_host(
        ctx,
        [&](auto& host) {
          return Tensors{drafts_on_host(host, drafts), host(draft_probs), host(target_probs),
                         host(step)};
        },
        [&](const Tensors& t) {
          validate_drafts(t.drafts, vocab.value());
          validate_probabilities(t.drafts, t.draft_probs, t.target_probs);
          cpu::check_indices("step", t.step, 0, std::numeric_limits<int64_t>::max(),
                             "the largest i64");
        });
  }
  const StochasticParams params{.batch = batch,
                                .tree = drafts.tree(),
                                .draft_probs = rows_of(draft_probs),
                                .target_probs = rows_of(target_probs),
                                .vocab_size = vocab.value(),
                                .seed = cpu::IndexArray(seed),
                                .step = cpu::IndexArray(step),
                                .outputs = drafts.outputs()};
  if (ctx.device.type == DeviceType::kCpu) {
    parallel_for(ctx, batch.num_seqs, 1, [&](int64_t begin, int64_t end) {
      for (int64_t seq = begin; seq < end; ++seq) Walk(params, seq).run();
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation(op);
    cuda::verify::verify_stochastic(params, ctx.stream);
  }
}

}  // namespace

void verify_stochastic(const ExecContext& ctx, TensorView output_tokens, TensorView num_accepted,
                       ConstTensorView draft_tokens, ConstTensorView draft_probs,
                       ConstTensorView target_probs, ConstTensorView draft_indptr,
                       ConstTensorView seed, ConstTensorView step) {
  const DraftTensors drafts =
      DraftTensors::chains(output_tokens, num_accepted, draft_tokens, draft_indptr);
  verify(ctx, "verify_stochastic", drafts, draft_probs, target_probs, seed, step);
}

void verify_tree_stochastic(const ExecContext& ctx, TensorView output_tokens,
                            TensorView num_accepted, TensorView accepted_nodes,
                            ConstTensorView draft_tokens, ConstTensorView draft_probs,
                            ConstTensorView target_probs, ConstTensorView tree_mask,
                            ConstTensorView node_indptr, ConstTensorView seed,
                            ConstTensorView step) {
  const DraftTensors drafts =
      DraftTensors::trees("verify_tree_stochastic", output_tokens, num_accepted, accepted_nodes,
                          draft_tokens, tree_mask, node_indptr);
  verify(ctx, "verify_tree_stochastic", drafts, draft_probs, target_probs, seed, step);
}

}  // namespace heddle
