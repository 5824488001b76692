#include "heddle/ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "heddle/core/check.h"
#include "heddle/core/product.h"
#include "heddle/core/validate.h"

#include "cpu/philox.h"
#include "ops/sampling/draw.h"
#include "ops/sampling/sampling_kernels.h"

namespace heddle {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kMaxRowsAtOnce =
    16;  // bounds the workspace; more threads have rarely rows to draw

/// Element i of a vector of any stride.
template <class T>
T read(const ConstTensorView& vector, int64_t i) {
  return reinterpret_cast<const T*>(vector.raw())[i * vector.stride(0)];
}

struct Outputs {
  TensorView token_ids, logprobs;

  void write(int64_t row, int64_t token, float logprob) const {
    const int64_t at = row * token_ids.stride(0);
    if (token_ids.dtype() == DType::kInt32) {
      token_ids.data<int32_t>()[at] = static_cast<int32_t>(token);
    } else {
      token_ids.data<int64_t>()[at] = token;
    }
    if (logprobs) logprobs.data<float>()[row * logprobs.stride(0)] = logprob;
  }
};

/// Binds `rows`; the vocabulary must not be empty, and its ids must fit i32.
void check_arguments(const ExecContext& ctx, const char* op, const Outputs& outputs,
                     const ConstTensorView& logits, Dim& rows) {
  check_cpu(ctx, op);
  check_device(
      ctx, {{"token_ids", outputs.token_ids}, {"logprobs", outputs.logprobs}, {"logits", logits}});
  Dim vocab("vocab_size");
  check_shape("logits", logits, {&rows, &vocab});
  check_dtype("logits", logits, {DType::kFloat32});
  check_unit_stride("logits", logits);
  HEDDLE_CHECK(vocab.value() >= 1 && vocab.value() <= std::numeric_limits<int32_t>::max(),
               "logits.size(1) is ", vocab.value(), ", expected 1 to 2147483647");
  check_shape("token_ids", outputs.token_ids, {&rows});
  check_dtype("token_ids", outputs.token_ids, {DType::kInt32, DType::kInt64});
  if (outputs.logprobs) {
    check_shape("logprobs", outputs.logprobs, {&rows});
    check_dtype("logprobs", outputs.logprobs, {DType::kFloat32});
  }
}

void check_table(const ExecContext& ctx, const SamplingTable& table, Dim& rows) {
  struct Column {
    const char* name;
    ConstTensorView tensor;
    DType dtype;
  };
  for (const auto& [name, tensor, dtype] :
       {Column{"temperature", table.temperature, DType::kFloat32},
        Column{"top_k", table.top_k, DType::kInt32}, Column{"top_p", table.top_p, DType::kFloat32},
        Column{"min_p", table.min_p, DType::kFloat32}, Column{"seed", table.seed, DType::kInt64},
        Column{"step", table.step, DType::kInt64}}) {
    check_device(ctx, {{name, tensor}});
    check_shape(name, tensor, {&rows});
    check_dtype(name, tensor, {dtype});
  }
}

/// What HEDDLE_VALIDATE=1 checks of the table's values: those that no softmax or filter has a
/// meaning for, NaN among them.
void validate_table(const SamplingTable& table, int64_t num_rows) {
  for (int64_t r = 0; r < num_rows; ++r) {
    const float temperature = read<float>(table.temperature, r);
    const float top_p = read<float>(table.top_p, r), min_p = read<float>(table.min_p, r);
    const int64_t step = read<int64_t>(table.step, r);
    HEDDLE_CHECK(temperature >= 0.0f && temperature < kInfinity, "temperature[", r, "] is ",
                 temperature, ", expected a finite number of at least 0");
    HEDDLE_CHECK(top_p > 0.0f, "top_p[", r, "] is ", top_p, ", expected above 0");
    HEDDLE_CHECK(min_p <= 1.0f, "min_p[", r, "] is ", min_p, ", expected at most 1");
    HEDDLE_CHECK(step >= 0, "step[", r, "] is ", step, ", expected at least 0");
  }
}

LogitRow row_of(const ConstTensorView& logits, int64_t row) {
  return {logits.data<float>() + row * logits.stride(0), logits.size(1)};
}

/// log softmax(logits)[token]: logit - largest is exact in f64, and the sum of the weights is at
/// least 1.
float logprob_of(const LogitRow& row, float largest, int64_t token) {
  const float logit = row.logits[token];
  const double below = logit == largest ? 0.0 : double{logit} - double{largest};
  return static_cast<float>(below -
                            std::log(cpu::sampling::sum_weights(row, largest, 1.0f, nullptr)));
}

/// Writes the outputs of one row; draws with `scratch` unless that is nullptr or the row is greedy.
void pick_token(const Outputs& outputs, const ConstTensorView& logits, const SamplingTable& table,
                int64_t row_index, const DrawScratch* scratch) {
  const LogitRow row = row_of(logits, row_index);
  const float largest = cpu::sampling::largest_logit(row);
  if (largest == -kInfinity) return outputs.write(row_index, 0, -kInfinity);
  int64_t token = 0;
  const float temperature = scratch == nullptr ? 0.0f : read<float>(table.temperature, row_index);
  if (temperature > 0.0f) {
    const int64_t seed = read<int64_t>(table.seed, row_index);
    const DrawOptions options{.temperature = temperature,
                              .top_k = read<int32_t>(table.top_k, row_index),
                              .top_p = read<float>(table.top_p, row_index),
                              .min_p = read<float>(table.min_p, row_index),
                              .u = cpu::uniform_draw(seed, read<int64_t>(table.step, row_index))};
    token = draw_token(row, largest, options, *scratch);
  } else {
    token = cpu::sampling::first_token_with(row, largest);
  }
  outputs.write(row_index, token, outputs.logprobs ? logprob_of(row, largest, token) : 0.0f);
}

}  // namespace

size_t sample_workspace_bytes(int64_t num_rows, int64_t vocab_size) {
  check_extent("num_rows", num_rows);
  check_extent("vocab_size", vocab_size);
  const auto elements = static_cast<size_t>(std::min(num_rows, kMaxRowsAtOnce) * vocab_size);
  return Workspace::bytes_for<float>(elements) + Workspace::bytes_for<OrderKey>(elements);
}

void greedy(const ExecContext& ctx, TensorView token_ids, TensorView logprobs,
            ConstTensorView logits) {
  const Outputs outputs{token_ids, logprobs};
  Dim rows("num_rows");
  check_arguments(ctx, "greedy", outputs, logits, rows);
  parallel_for(ctx, rows.value(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) pick_token(outputs, logits, {}, row, nullptr);
  });
}

void sample(const ExecContext& ctx, TensorView token_ids, TensorView logprobs,
            ConstTensorView logits, const SamplingTable& table) {
  const Outputs outputs{token_ids, logprobs};
  Dim rows("num_rows");
  check_arguments(ctx, "sample", outputs, logits, rows);
  check_table(ctx, table, rows);
  if (validating()) validate_table(table, rows.value());
  const int64_t num_rows = rows.value(), vocab_size = logits.size(1);
  bool any_draw = false;
  for (int64_t r = 0; r < num_rows; ++r) any_draw |= read<float>(table.temperature, r) > 0.0f;
  if (!any_draw) return greedy(ctx, token_ids, logprobs, logits);

  Workspace& workspace = require_workspace(ctx, "sample");
  const Workspace::Scope scope(workspace);
  // Shares of rows: share s has rows s, s + num_shares and so on, and a scratch of its own.
  const int64_t num_shares = std::min(num_rows, kMaxRowsAtOnce);
  const auto weights = workspace.take<float>(static_cast<size_t>(num_shares * vocab_size));
  const auto keys = workspace.take<OrderKey>(static_cast<size_t>(num_shares * vocab_size));
  parallel_for(ctx, num_shares, 1, [&](int64_t begin, int64_t end) {
    for (int64_t share = begin; share < end; ++share) {
      const DrawScratch scratch{weights.data() + share * vocab_size,
                                keys.data() + share * vocab_size};
      for (int64_t row = share; row < num_rows; row += num_shares) {
        pick_token(outputs, logits, table, row, &scratch);
      }
    }
  });
}

}  // namespace heddle
