#include "heddle/ops/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "heddle/core/check.h"
#include "heddle/core/product.h"
#include "heddle/core/validate.h"

#include "cpu/index_array.h"
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
  check_cpu(ctx, op);
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

/// Log-probabilities of tokens of one row; the sum over the row is computed once.
class RowLogprobs {
 public:
  /// `largest` is the largest logit of the row.
  RowLogprobs(const LogitRow& row, float largest) : row_(row), largest_(largest) {
    if (largest_ > -kInfinity) {
      log_sum_ = std::log(cpu::sampling::sum_weights(row, largest_, 1.0f, nullptr));
    }
  }
  /// logit - largest is exact in f64, and the sum of the weights is at least 1.
  [[nodiscard]] float operator[](int64_t token) const {
    const float logit = row_.logits[token];
    if (largest_ == -kInfinity || logit != logit) return -kInfinity;
    const double below = logit == largest_ ? 0.0 : double{logit} - double{largest_};
    return static_cast<float>(below - log_sum_);
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

}  // namespace

void token_logprobs(const ExecContext& ctx, TensorView logprobs, TensorView top_ids,
                    TensorView top_logprobs, ConstTensorView logits, ConstTensorView token_ids) {
  check_cpu(ctx, "token_logprobs");
  Dim rows("num_rows"), vocab("vocab_size"), k("k");
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
  if (top_ids) {
    check_shape("top_ids", top_ids, {&rows, &k});
    check_dtype("top_ids", top_ids, {DType::kInt32});
    check_unit_stride("top_ids", top_ids);
    check_shape("top_logprobs", top_logprobs, {&rows, &k});
    check_dtype("top_logprobs", top_logprobs, {DType::kFloat32});
    check_unit_stride("top_logprobs", top_logprobs);
    HEDDLE_CHECK(k.value() >= 1 && k.value() <= vocab.value(), "top_ids.size(1) is ", k.value(),
                 ", expected 1 to vocab_size = ", vocab.value());
  }
  const cpu::IndexArray tokens(token_ids);
  parallel_for(ctx, rows.value(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const LogitRow row = row_of(logits, r);
      const RowLogprobs logprob(row, cpu::sampling::largest_logit(row));
      const bool is_token = tokens[r] >= 0 && tokens[r] < row.vocab_size;
      logprobs.data<float>()[r * logprobs.stride(0)] =
          is_token ? logprob[tokens[r]] : std::numeric_limits<float>::quiet_NaN();
      if (!top_ids) continue;
      const std::span ids(top_ids.data<int32_t>() + r * top_ids.stride(0), size_t(k.value()));
      find_top(row, ids);
      float* const top = top_logprobs.data<float>() + r * top_logprobs.stride(0);
      for (size_t i = 0; i < ids.size(); ++i) top[i] = logprob[ids[i]];
    }
  });
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
