#include "heddle/ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "cuda/copies/host_copies.h"

#include "heddle/core/check.h"
#include "heddle/core/product.h"
#include "heddle/core/validate.h"

#include "core/check_kernels.h"
#include "core/scoped_operation.h"
#include "cpu/index_array.h"
#include "cpu/philox.h"
#include "ops/sampling/draw/draw.h"
#include "ops/sampling/draw/draw_kernels.h"
#include "ops/sampling/draw/weight.h"
#include "ops/sampling/sample/sample_kernels.h"

namespace heddle {
namespace {

using sampling::kInfinity;
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

/// Binds both; the vocabulary must not be empty, and its ids must fit i32.
void check_logits(const ExecContext& ctx, const ConstTensorView& logits, Dim& rows, Dim& vocab) {
  check_device(ctx, {{"logits", logits}});
  check_shape("logits", logits, {&rows, &vocab});
  check_dtype("logits", logits, {DType::kFloat32});
  check_unit_stride("logits", logits);
  HEDDLE_CHECK(vocab.value() >= 1 && vocab.value() <= std::numeric_limits<int32_t>::max(),
               "logits.size(1) is ", vocab.value(), ", expected 1 to 2147483647");
}

/// Binds `rows`.
void check_arguments(const ExecContext& ctx, const char* op, const Outputs& outputs,
                     const ConstTensorView& logits, Dim& rows) {
  check_has_kernels(ctx, op);
  check_device(ctx, {{"token_ids", outputs.token_ids}, {"logprobs", outputs.logprobs}});
  Dim vocab("vocab_size");
  check_logits(ctx, logits, rows, vocab);
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

/// What HEDDLE_VALIDATE=1 checks of the table's values, in host memory: those that no softmax or
/// filter has a meaning for, NaN among them.
void validate_table(const SamplingTable& table) {
  for (int64_t r = 0; r < table.temperature.size(0); ++r) {
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

LogitRows rows_of(const ConstTensorView& logits) {
  return {logits.data<float>(), logits.stride(0), logits.size(0), logits.size(1)};
}

/// The arguments of a kernel, where all rows are greedy.
SampleParams greedy_params(const Outputs& outputs, const ConstTensorView& logits) {
  SampleParams params{.rows = rows_of(logits),
                      .token_ids = outputs.token_ids.raw(),
                      .token_stride = outputs.token_ids.stride(0),
                      .is_int64 = outputs.token_ids.dtype() == DType::kInt64,
                      .logprobs = nullptr,
                      .logprob_stride = 0};
  if (outputs.logprobs) {
    params.logprobs = outputs.logprobs.data<float>();
    params.logprob_stride = outputs.logprobs.stride(0);
  }
  return params;
}

SampleParams sample_params(const Outputs& outputs, const ConstTensorView& logits,
                           const SamplingTable& table) {
  const auto column = []<class T>(const ConstTensorView& t, T) {
    return ParamColumn<T>{t.data<T>(), t.stride(0)};
  };
  SampleParams params = greedy_params(outputs, logits);
  params.temperature = column(table.temperature, float{});
  params.top_k = column(table.top_k, int32_t{});
  params.top_p = column(table.top_p, float{});
  params.min_p = column(table.min_p, float{});
  params.seed = column(table.seed, int64_t{});
  params.step = column(table.step, int64_t{});
  return params;
}

LogitRow row_of(const ConstTensorView& logits, int64_t row) {
  return {logits.data<float>() + row * logits.stride(0), logits.size(1)};
}

/// Log-probabilities of tokens of one row; the sum over the row is computed once.
class RowLogprobs {
 public:
  /// `largest` is the largest logit of the row.
  RowLogprobs(const LogitRow& row, float largest) : row_(row), largest_(largest) {
    if (largest_ > -kInfinity) {
      const uint64_t units = cpu::sampling::sum_weights(row, largest_, 1.0f, nullptr);
      log_sum_ = sampling::log_sum_of(units, row.vocab_size);
    }
  }
  [[nodiscard]] float operator[](int64_t token) const {
    if (largest_ == -kInfinity) return -kInfinity;
    return sampling::logprob_of(row_.logits[token], largest_, log_sum_);
  }

 private:
  LogitRow row_;
  float largest_;
  double log_sum_ = 0.0;
};

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
  outputs.write(row_index, token, outputs.logprobs ? RowLogprobs(row, largest)[token] : 0.0f);
}

/// The tokens of the k = top_ids.size() largest logits, in the order of choice: a list that is kept
/// sorted, and few of the logits get into it.
void find_top(const LogitRow& row, std::span<int32_t> top_ids) {
  const auto logit = [&row](int64_t token) {
    const float x = row.logits[token];
    return x == x ? x : -kInfinity;
  };
  size_t found = 0;
  for (int64_t token = 0; token < row.vocab_size; ++token) {
    const float x = logit(token);
    if (found == top_ids.size() && !(x > logit(top_ids[found - 1]))) continue;
    size_t place = found < top_ids.size() ? found++ : found - 1;
    for (; place > 0 && x > logit(top_ids[place - 1]); --place) top_ids[place] = top_ids[place - 1];
    top_ids[place] = static_cast<int32_t>(token);
  }
}

/// The outputs of token_logprobs.
struct Scores {
  TensorView logprobs, top_ids, top_logprobs;
};

/// Binds `rows`.
void check_scores(const ExecContext& ctx, const Scores& scores, const ConstTensorView& logits,
                  const ConstTensorView& token_ids, Dim& rows) {
  const auto& [logprobs, top_ids, top_logprobs] = scores;
  check_has_kernels(ctx, "token_logprobs");
  Dim vocab("vocab_size"), k("k");
  check_logits(ctx, logits, rows, vocab);
  check_device(ctx, {{"logprobs", logprobs},
                     {"top_ids", top_ids},
                     {"top_logprobs", top_logprobs},
                     {"token_ids", token_ids}});
  check_shape("logprobs", logprobs, {&rows});
  check_dtype("logprobs", logprobs, {DType::kFloat32});
  check_shape("token_ids", token_ids, {&rows});
  check_dtype("token_ids", token_ids, {DType::kInt32, DType::kInt64});
  HEDDLE_CHECK(bool(top_ids) == bool(top_logprobs), top_ids ? "top_logprobs" : "top_ids",
               " is absent, expected both top_ids and top_logprobs or neither");
  if (!top_ids) return;
  check_shape("top_ids", top_ids, {&rows, &k});
  check_dtype("top_ids", top_ids, {DType::kInt32});
  check_unit_stride("top_ids", top_ids);
  check_shape("top_logprobs", top_logprobs, {&rows, &k});
  check_dtype("top_logprobs", top_logprobs, {DType::kFloat32});
  check_unit_stride("top_logprobs", top_logprobs);
  HEDDLE_CHECK(k.value() >= 1 && k.value() <= vocab.value(), "top_ids.size(1) is ", k.value(),
               ", expected 1 to vocab_size = ", vocab.value());
}

TokenLogprobsParams logprobs_params(const Scores& scores, const ConstTensorView& logits,
                                    const ConstTensorView& token_ids) {
  TokenLogprobsParams params{.rows = rows_of(logits),
                             .logprobs = scores.logprobs.data<float>(),
                             .logprob_stride = scores.logprobs.stride(0),
                             .token_ids = token_ids.raw(),
                             .token_stride = token_ids.stride(0),
                             .is_int64 = token_ids.dtype() == DType::kInt64};
  if (scores.top_ids) {
    params.k = scores.top_ids.size(1);
    params.top_ids = scores.top_ids.data<int32_t>();
    params.top_ids_stride = scores.top_ids.stride(0);
    params.top_logprobs = scores.top_logprobs.data<float>();
    params.top_logprobs_stride = scores.top_logprobs.stride(0);
  }
  return params;
}

/// token_logprobs of row r on the CPU.
void score_row(const Scores& scores, const ConstTensorView& logits,
               const ConstTensorView& token_ids, int64_t r) {
  const LogitRow row = row_of(logits, r);
  const RowLogprobs logprob(row, cpu::sampling::largest_logit(row));
  const int64_t token = cpu::IndexArray(token_ids)[r];
  const bool is_token = token >= 0 && token < row.vocab_size;
  scores.logprobs.data<float>()[r * scores.logprobs.stride(0)] =
      is_token ? logprob[token] : std::numeric_limits<float>::quiet_NaN();
  if (!scores.top_ids) return;
  const std::span ids(scores.top_ids.data<int32_t>() + r * scores.top_ids.stride(0),
                      size_t(scores.top_ids.size(1)));
  find_top(row, ids);
  float* const top = scores.top_logprobs.data<float>() + r * scores.top_logprobs.stride(0);
  for (size_t i = 0; i < ids.size(); ++i) top[i] = logprob[ids[i]];
}

}  // namespace

void token_logprobs(const ExecContext& ctx, TensorView logprobs, TensorView top_ids,
                    TensorView top_logprobs, ConstTensorView logits, ConstTensorView token_ids) {
  const Scores scores{logprobs, top_ids, top_logprobs};
  Dim rows("num_rows");
  check_scores(ctx, scores, logits, token_ids, rows);
  if (ctx.device.type == DeviceType::kCpu) {
    parallel_for(ctx, rows.value(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) score_row(scores, logits, token_ids, r);
    });
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("token_logprobs");
    cuda::sampling::token_logprobs(ctx, logprobs_params(scores, logits, token_ids));
  }
}

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
  if constexpr (kWithCuda) {
    if (ctx.device.type == DeviceType::kCuda) {
      const ScopedOperation operation("greedy");
      return cuda::sampling::sample(ctx, greedy_params(outputs, logits));
    }
  }
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
  if (validating()) {
    check_on_host(
        ctx,
        [&table](auto& host) {
          return SamplingTable{.temperature = host(table.temperature),
                               .top_k = host(table.top_k),
                               .top_p = host(table.top_p),
                               .min_p = host(table.min_p),
                               .seed = host(table.seed),
                               .step = host(table.step)};
        },
        [](const SamplingTable& on_host) { validate_table(on_host); });
  }
  if constexpr (kWithCuda) {
    if (ctx.device.type == DeviceType::kCuda) {
      const ScopedOperation operation("sample");
      return cuda::sampling::sample(ctx, sample_params(outputs, logits, table));
    }
  }
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
