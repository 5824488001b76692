#include <algorithm>
#include <cstring>

#include "heddle/core/dispatch.h"
#include "heddle/ops/linear.h"

#include "core/math.h"
#include "ops/linear_site/call/site_kernels.h"
#include "ops/linear_site/call/site_slices.h"

namespace heddle::cpu::linear_site {
namespace {

/// Outputs whose weights are packed at once, for the kernels of `linear`.
constexpr int64_t kPackedOutputs = 256;

WeightType weight_type(DType dtype) {
  return dtype == DType::kFloat16 ? WeightType::kF16 : WeightType::kBF16;
}

/// f(row) for the rows [0, num_rows), on the threads of the context.
template <class F>
void for_rows(const ExecContext& ctx, int64_t num_rows, F&& f) {
  parallel_for(ctx, num_rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row);
  });
}

template <class T>
void widen_rows(const ExecContext& ctx, const TensorView& to, const ConstTensorView& from) {
  for_rows(ctx, from.size(0), [&](int64_t row) {
    const T* source = from.data<T>() + row * from.stride(0);
    float* out = to.data<float>() + row * to.stride(0);
    std::transform(source, source + from.size(1), out, [](T v) { return to_float(v); });
  });
}

template <class T>
void narrow_rows(const ExecContext& ctx, const TensorView& to, const ConstTensorView& from) {
  for_rows(ctx, from.size(0), [&](int64_t row) {
    const float* source = from.data<float>() + row * from.stride(0);
    T* out = to.data<T>() + row * to.stride(0);
    std::transform(source, source + from.size(1), out, [](float v) { return from_float<T>(v); });
  });
}

/// y = x W^T in f32, some outputs at a time: their weights are packed, then multiplied.
template <class T>
void multiply_dense(const ExecContext& ctx, const LinearSlice& slice, const TensorView& y,
                    const ConstTensorView& x, std::span<std::byte> stored,
                    std::span<std::byte> packed_memory) {
  const int64_t out = slice.weight.size(0), in = slice.weight.size(1);
  const WeightType type = weight_type(slice.weight.dtype());
  const auto row_bytes = size_t(in) * sizeof(T);
  for (int64_t first = 0; first < out; first += kPackedOutputs) {
    const int64_t num = std::min(kPackedOutputs, out - first);
    for (int64_t i = 0; i < num; ++i) {
      std::memcpy(stored.data() + size_t(i) * row_bytes,
                  slice.weight.raw() + (first + i) * slice.weight.stride(0) * int64_t(sizeof(T)),
                  row_bytes);
    }
    const auto packed = packed_memory.first(packed_bytes(type, num, in));
    pack_rows(ctx, packed, type, num, in, 0, num, stored.first(size_t(num) * row_bytes));
    linear(ctx, y.narrow(1, first, num), x, {type, num, in, packed.data()});
  }
}

template <class T>
void add_bias(const ExecContext& ctx, const TensorView& y, const T* bias) {
  for_rows(ctx, y.size(0), [&](int64_t row) {
    float* sums = y.data<float>() + row * y.stride(0);
    for (int64_t o = 0; o < y.size(1); ++o) sums[o] += to_float(bias[o]);
  });
}

}  // namespace

void run(const ExecContext& ctx, std::span<const LinearSlice> slices, const ConstTensorView& x,
         const LinearAdapters* adapters) {
  dispatch_dtype<half, bfloat16>(x.dtype(), "linear_site", [&]<class T>() {
    Workspace& workspace = require_workspace(ctx, "linear_site");
    const Workspace::Scope scope(workspace);
    const int64_t tokens = x.size(0), in = x.size(1), out = sum_out_features(slices);
    const auto take = [&](int64_t columns) {
      return host_view(workspace.take<float>(size_t(tokens * columns)).data(), {tokens, columns});
    };
    const TensorView x32 = take(in), y32 = take(out);
    const auto stored = workspace.take<std::byte>(size_t(kPackedOutputs * in) * sizeof(T));
    const auto packed =
        workspace.take<std::byte>(packed_bytes(weight_type(x.dtype()), kPackedOutputs, in));
    widen_rows<T>(ctx, x32, x);
    const LoraSlices sums(slices, y32);
    for (size_t s = 0; s < slices.size(); ++s) {
      if (is_packed(slices[s])) {
        linear(ctx, sums.y(s), x32, slices[s].packed);
      } else {
        multiply_dense<T>(ctx, slices[s], sums.y(s), x32, stored, packed);
      }
      if (slices[s].bias) add_bias(ctx, sums.y(s), slices[s].bias.data<T>());
    }
    if (adapters != nullptr) {
      lora_apply(ctx, sums.span(), x, adapters->a, adapters->b, adapters->batch);
    }
    for (size_t s = 0; s < slices.size(); ++s) {
      slices[s].y.dtype() == DType::kFloat32 ? widen_rows<float>(ctx, slices[s].y, sums.y(s))
                                             : narrow_rows<T>(ctx, slices[s].y, sums.y(s));
    }
  });
}

size_t workspace_bytes(int64_t num_tokens, int64_t in_features, int64_t out_features, int) {
  constexpr int64_t kElement = sizeof(bfloat16);
  return Workspace::bytes_for<float>(size_t(num_tokens * in_features)) +
         Workspace::bytes_for<float>(size_t(num_tokens * out_features)) +
         Workspace::bytes_for<std::byte>(size_t(kPackedOutputs * in_features * kElement)) +
         Workspace::bytes_for<std::byte>(
             packed_bytes(WeightType::kBF16, kPackedOutputs, in_features));
}

}  // namespace heddle::cpu::linear_site
