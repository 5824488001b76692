#include "heddle/core/check.h"
#include "heddle/core/validate.h"
#include "heddle/ops/speculation.h"

#include "core/scoped_operation.h"
#include "cpu/validate_indices.h"
#include "ops/speculation/propose_ngram_drafts/propose_ngram_drafts_kernels.h"
#include "ops/speculation/shared/check_speculation.h"

namespace heddle {
namespace {

/// What is to be validated, in host memory.
struct Lengths {
  Count num_active;
  ConstTensorView lengths;
};

void validate(const Lengths& host, int64_t num_rows, int64_t max_tokens) {
  const cpu::CountReader num_active(host.num_active, num_rows);
  cpu::validate_count("num_active", num_active, "num_rows");
  const cpu::IndexArray lengths(host.lengths);
  for (int64_t i = 0; i < num_active.read(); ++i) {
    HEDDLE_CHECK(lengths[i] >= 0 && lengths[i] <= max_tokens, "lengths[", i, "] is ", lengths[i],
                 ", expected 0 to tokens.size(1) = ", max_tokens);
  }
}

}  // namespace

void propose_ngram_drafts(const ExecContext& ctx, TensorView draft_tokens, TensorView num_drafts,
                          ConstTensorView tokens, ConstTensorView lengths,
                          int64_t num_speculative_tokens, const Count& num_active,
                          const NgramOptions& options) {
  check_has_kernels(ctx, "propose_ngram_drafts");
  HEDDLE_CHECK(num_speculative_tokens >= 0, "num_speculative_tokens is ", num_speculative_tokens,
               ", expected at least 0");
  HEDDLE_CHECK(options.min_ngram >= 1, "min_ngram is ", options.min_ngram, ", expected at least 1");
  HEDDLE_CHECK(options.max_ngram >= options.min_ngram, "max_ngram is ", options.max_ngram,
               ", expected at least min_ngram = ", options.min_ngram);
  HEDDLE_CHECK(options.max_length >= 0, "max_length is ", options.max_length,
               ", expected at least 0");
  check_index_rows(ctx, "lengths", lengths, Dim("num_rows", 0));
  const Dim rows("num_rows", lengths.size(0));
  check_index_table(ctx, "tokens", tokens, rows, Dim("max_tokens", 0));
  check_index_table(ctx, "draft_tokens", draft_tokens, rows,
                    Dim("num_speculative_tokens", num_speculative_tokens));
  check_index_rows(ctx, "num_drafts", num_drafts, rows);
  check_count("num_active", ctx, num_active, rows.value());
  if (rows.value() == 0) return;

  if (validating()) {
    check_on_host(
        ctx,
        [&](auto& host) {
          return Lengths{host(num_active), host(lengths)};
        },
        [&](const Lengths& host) { validate(host, rows.value(), tokens.size(1)); });
  }
  const NgramParams params{.draft_tokens = cpu::MutableIndexMatrix(draft_tokens),
                           .num_drafts = cpu::MutableIndexArray(num_drafts),
                           .tokens = cpu::IndexMatrix(tokens),
                           .lengths = cpu::IndexArray(lengths),
                           .num_active = cpu::CountReader(num_active, rows.value()),
                           .num_rows = rows.value(),
                           .max_tokens = tokens.size(1),
                           .max_drafts = num_speculative_tokens,
                           .min_ngram = options.min_ngram,
                           .max_ngram = options.max_ngram,
                           .max_length = options.max_length,
                           .match = options.match};
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::speculation::propose_ngram_drafts(ctx, params);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("propose_ngram_drafts");
    cuda::speculation::propose_ngram_drafts(params, ctx);
  }
}

}  // namespace heddle
