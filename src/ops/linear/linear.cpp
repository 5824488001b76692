#include "heddle/ops/linear.h"

#include <algorithm>

#include "heddle/core/check.h"

#include "ops/linear/cpu/linear_kernels.h"
#include "ops/linear/linear_units.h"

namespace heddle {
namespace {

/// Rows are processed in blocks whose part of x stays in a core's L2 cache while all weights pass
/// by.
constexpr int64_t kRowBlockBytes = 512 * 1024;
/// But no fewer than these, over which decoding a panel of weights is spread: rows of x come faster
/// from a cache of all cores than a panel is decoded again. With 48 of them bf16 of 4864 inputs
/// takes 1.06 times as long.
constexpr int64_t kLeastRows = 192;

void check_output(const ExecContext& ctx, const LinearOutput& output, const ConstTensorView& x,
                  Dim& tokens) {
  const PackedWeight& weight = output.weight;
  const size_t bytes = packed_bytes(weight.type, weight.out_features, weight.in_features);
  Dim in("in_features of the weight", weight.in_features),
      out("out_features of the weight", weight.out_features);
  check_shape("x", x, {&tokens, &in});
  check_shape("y", output.y, {&tokens, &out});
  check_dtype("y", output.y, {DType::kFloat32});
  check_unit_stride("y", output.y);
  check_device(ctx, {{"y", output.y}});
  HEDDLE_CHECK(weight.data != nullptr || bytes == 0, "linear: the weight [", weight.out_features,
               ", ", weight.in_features, "] has no data");
  if (!output.bias) return;
  check_shape("bias", output.bias, {&out});
  check_dtype("bias", output.bias, {DType::kFloat32});
  check_unit_stride("bias", output.bias);
  check_device(ctx, {{"bias", output.bias}});
}

/// Adds bias [task.num_outputs] to the rows of a finished task, which are still in the cache.
void add_bias(const cpu::linear::LinearTask& task, const float* bias) {
  for (int64_t row = 0; row < task.num_rows; ++row) {
    float* y = task.y + row * task.y_stride;
    for (int64_t o = 0; o < task.num_outputs; ++o) y[o] += bias[o];
  }
}

/// Features that a thread rounds at once, at least.
constexpr int64_t kRoundedFeatures = 8192;

template <class T>
T* take(Workspace& workspace, int64_t rows, int64_t n) {
  return workspace.take<T>(size_t(rows) * size_t(n)).data();
}

}  // namespace

size_t linear_workspace_bytes(int64_t num_tokens, int64_t in_features,
                              LinearActivations activations) {
  if (activations == LinearActivations::kFloat32) return 0;
  const auto bytes = [&]<class T>(T, int64_t n) {
    return Workspace::bytes_for<T>(size_t(num_tokens) * size_t(n));
  };
  return bytes(int8_t{}, in_features) + bytes(float{}, in_features / cpu::kInt8Block) +
         bytes(int32_t{}, in_features / cpu::kInt8Half);
}

LinearInput::LinearInput(const ExecContext& ctx, std::span<const LinearOutput> outputs,
                         const ConstTensorView& x, LinearActivations activations)
    : x_(x) {
  const auto takes_int8 = [](const LinearOutput& o) { return !is_dense(o.weight.type); };
  const int64_t rows = x.size(0), in = x.size(1);
  if (activations != LinearActivations::kInt8 || rows == 0 || in == 0 ||
      std::ranges::none_of(outputs, takes_int8)) {
    return;
  }
  Workspace& workspace = require_workspace(ctx, "linear");
  scope_.emplace(workspace);
  rounded_ = {take<int8_t>(workspace, rows, in), take<float>(workspace, rows, in / cpu::kInt8Block),
              take<int32_t>(workspace, rows, in / cpu::kInt8Half), in};
  const int64_t at_once = std::max<int64_t>(1, kRoundedFeatures / in);
  parallel_for(ctx, rows, at_once, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      cpu::linear::round_row(x.data<float>() + row * x.stride(0), rounded_.from(row));
    }
  });
}

std::optional<cpu::Int8Rows> LinearInput::rounded(WeightType type, int64_t row) const {
  if (rounded_.codes == nullptr || is_dense(type)) return std::nullopt;
  return rounded_.from(row);
}

int64_t num_steps(const LinearOutput& output, int64_t begin, int64_t end) {
  // Kernels for one row take all groups of a unit at once, those for more two or one of them.
  const int64_t passes = output.y.size(0) == 1 ? 1 : 2;
  return (end - begin) * passes * (output.weight.in_features / block_size(output.weight.type));
}

void run_units(const LinearOutput& output, const LinearInput& input, int64_t begin, int64_t end,
               cpu::FetchAhead* ahead) {
  const PackedWeight& weight = output.weight;
  const ConstTensorView& x = input.x();
  const int64_t first = begin * kUnitOutputs, stride = group_bytes(weight.type, weight.in_features);
  const bool is_rounded = input.rounded(weight.type, 0).has_value();
  cpu::linear::LinearTask task;
  task.type = weight.type;
  task.packed = reinterpret_cast<const uint8_t*>(weight.data) + begin * kUnitGroups * stride;
  task.group_stride = stride;
  task.in_features = weight.in_features;
  task.ahead = ahead;
  task.x_stride = x.stride(0);
  task.y_stride = output.y.stride(0);
  task.num_outputs = std::min(end * kUnitOutputs, weight.out_features) - first;
  const int64_t rows = x.size(0), element_bytes = is_rounded ? 1 : int64_t{sizeof(float)},
                row_bytes = std::max<int64_t>(weight.in_features, 1) * element_bytes;
  const int64_t row_block = std::max<int64_t>(kRowBlockBytes / row_bytes / 12 * 12, kLeastRows);
  for (int64_t row = 0; row < rows; row += row_block) {
    task.x = x.data<float>() + row * task.x_stride;
    task.y = output.y.data<float>() + row * task.y_stride + first;
    task.num_rows = std::min(row_block, rows - row);
    if (const auto rounded = input.rounded(weight.type, row)) {
      task.int8_x = *rounded;
      cpu::linear::run_int8_task(task);
    } else {
      const int code_bits = block_format(weight.type).code_bits;
      (code_bits == 5 || code_bits == 6 ? cpu::linear::run_high_bits_task
                                        : cpu::linear::run_linear_task)(task);
    }
    if (output.bias) add_bias(task, output.bias.data<float>() + first);
  }
}

int64_t check_linear(const ExecContext& ctx, std::span<const LinearOutput> outputs,
                     const ConstTensorView& x) {
  check_cpu(ctx, "linear");
  check_dtype("x", x, {DType::kFloat32});
  check_device(ctx, {{"x", x}});
  Dim tokens("num_tokens");
  int64_t units = 0;
  for (const LinearOutput& output : outputs) {
    check_output(ctx, output, x, tokens);
    units += num_units(output.weight);
  }
  check_unit_stride("x", x);
  return x.size(0) == 0 ? 0 : units;
}

int64_t units_per_item(const ExecContext& ctx, int64_t num_units) {
  const int64_t threads = num_threads(ctx);
  return threads == 1 ? num_units : std::max<int64_t>(1, num_units / (threads * 4));
}

void linear(const ExecContext& ctx, TensorView y, ConstTensorView x, const PackedWeight& weight,
            LinearActivations activations) {
  const LinearOutput output{y, weight};
  linear(ctx, {&output, 1}, x, activations);
}

void linear(const ExecContext& ctx, std::span<const LinearOutput> outputs, ConstTensorView x,
            LinearActivations activations) {
  const int64_t units = check_linear(ctx, outputs, x);
  const LinearInput input(ctx, outputs, x, activations);
  // The units of all outputs in a row, cut into chunks that the threads take as they come.
  parallel_for(ctx, units, units_per_item(ctx, units), [&](int64_t begin, int64_t end) {
    for_units(outputs, begin, end, [&](size_t i, int64_t first, int64_t last) {
      run_units(outputs[i], input, first, last);
    });
  });
}

}  // namespace heddle
