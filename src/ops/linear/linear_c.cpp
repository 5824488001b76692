#include "heddle/ops/linear.h"

#include <string>
#include <vector>

#include "heddle/core/check.h"
#include "heddle/ops/embedding.h"

#include "capi/convert.h"
#include "capi/guard.h"

using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::out;
using heddle::capi::required;

namespace {

static_assert(int{HEDDLE_F32} == int(heddle::WeightType::kF32));
static_assert(int{HEDDLE_F16} == int(heddle::WeightType::kF16));
static_assert(int{HEDDLE_BF16} == int(heddle::WeightType::kBF16));
static_assert(int{HEDDLE_Q8_0} == int(heddle::WeightType::kQ8_0));
static_assert(int{HEDDLE_Q4_0} == int(heddle::WeightType::kQ4_0));
static_assert(int{HEDDLE_Q4_1} == int(heddle::WeightType::kQ4_1));
static_assert(int{HEDDLE_Q5_0} == int(heddle::WeightType::kQ5_0));
static_assert(int{HEDDLE_Q5_1} == int(heddle::WeightType::kQ5_1));
static_assert(int{HEDDLE_Q4_K} == int(heddle::WeightType::kQ4K));
static_assert(int{HEDDLE_Q5_K} == int(heddle::WeightType::kQ5K));
static_assert(int{HEDDLE_Q6_K} == int(heddle::WeightType::kQ6K));

heddle::WeightType type_of(heddle_weight_type type) {
  HEDDLE_CHECK(type >= HEDDLE_F32 && type <= HEDDLE_Q6_K, "type is ", type,
               ", which is no heddle_weight_type");
  return static_cast<heddle::WeightType>(type);
}

/// A vector of T without gaps as a span.
template <class T, class Byte>
auto span_of(const char* name, const heddle::BasicTensorView<Byte>& t) {
  heddle::Dim extent("its extent");
  heddle::check_shape(name, t, {&extent});
  heddle::check_dtype(name, t, {heddle::kDType<T>});
  heddle::check_unit_stride(name, t);
  return std::span(t.template data<T>(), size_t(extent.value()));
}

std::span<const std::byte> bytes_of(const char* name, const heddle::ConstTensorView& t) {
  return std::as_bytes(span_of<uint8_t>(name, t));
}
std::span<std::byte> bytes_of(const char* name, const heddle::TensorView& t) {
  return std::as_writable_bytes(span_of<uint8_t>(name, t));
}

heddle::PackedWeight weight_of(const heddle::ExecContext& ctx, const heddle_packed_weight& w) {
  const heddle::ConstTensorView data = in("weight.data", w.data);
  heddle::check_device(ctx, {{"weight.data", data}});
  const heddle::WeightType type = type_of(w.type);
  const size_t bytes = bytes_of("weight.data", data).size();
  const size_t expected = heddle::packed_bytes(type, w.out_features, w.in_features);
  HEDDLE_CHECK(bytes == expected, "weight.data.size(0) is ", bytes,
               ", expected packed_bytes = ", expected);
  HEDDLE_CHECK(reinterpret_cast<uintptr_t>(data.raw()) % 64 == 0,
               "weight.data is not 64-byte aligned");
  return {.type = type,
          .out_features = w.out_features,
          .in_features = w.in_features,
          .data = data.raw()};
}

}  // namespace

heddle_status heddle_block_size(int32_t* size, heddle_weight_type type) {
  return guard([&] { required("size", size) = heddle::block_size(type_of(type)); });
}

heddle_status heddle_stored_bytes(size_t* bytes, heddle_weight_type type, int64_t num_weights) {
  return guard(
      [&] { required("bytes", bytes) = heddle::stored_bytes(type_of(type), num_weights); });
}

heddle_status heddle_packed_bytes(size_t* bytes, heddle_weight_type type, int64_t out_features,
                                  int64_t in_features) {
  return guard([&] {
    required("bytes", bytes) = heddle::packed_bytes(type_of(type), out_features, in_features);
  });
}

heddle_status heddle_dequantize(DLTensor* values, heddle_weight_type type, const DLTensor* stored) {
  return guard([&] {
    const heddle::TensorView to = out("values", values);
    const heddle::ConstTensorView from = in("stored", stored);
    heddle::check_device({}, {{"values", to}, {"stored", from}});
    heddle::dequantize(span_of<float>("values", to), type_of(type), bytes_of("stored", from));
  });
}

heddle_status heddle_pack_rows(heddle_context* context, DLTensor* packed, heddle_weight_type type,
                               int64_t out_features, int64_t in_features, int64_t first_row,
                               int64_t num_rows, const DLTensor* stored) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    const heddle::TensorView to = out("packed", packed);
    const heddle::ConstTensorView from = in("stored", stored);
    heddle::check_device(ctx, {{"packed", to}, {"stored", from}});
    heddle::pack_rows(ctx, bytes_of("packed", to), type_of(type), out_features, in_features,
                      first_row, num_rows, bytes_of("stored", from));
  });
}

heddle_status heddle_linear(heddle_context* context, DLTensor* y, const DLTensor* x,
                            const heddle_packed_weight* weight) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::linear(ctx, out("y", y), in("x", x), weight_of(ctx, required("weight", weight)));
  });
}

heddle_status heddle_linear_many(heddle_context* context, DLTensor* const* ys, int32_t num_outputs,
                                 const DLTensor* x, const heddle_packed_weight* weights) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    HEDDLE_CHECK(num_outputs >= 0, "num_outputs is ", num_outputs, ", expected at least 0");
    HEDDLE_CHECK(num_outputs == 0 || ys != nullptr, "ys is NULL");
    HEDDLE_CHECK(num_outputs == 0 || weights != nullptr, "weights is NULL");
    std::vector<heddle::LinearOutput> outputs;
    for (int32_t i = 0; i < num_outputs; ++i) {
      outputs.push_back(
          {out(("ys[" + std::to_string(i) + "]").c_str(), ys[i]), weight_of(ctx, weights[i])});
    }
    heddle::linear(ctx, outputs, in("x", x));
  });
}

heddle_status heddle_embedding(heddle_context* context, DLTensor* y, const DLTensor* token_ids,
                               const DLTensor* table) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::embedding(ctx, out("y", y), in("token_ids", token_ids), in("table", table));
  });
}

heddle_status heddle_packed_embedding(heddle_context* context, DLTensor* y,
                                      const DLTensor* token_ids,
                                      const heddle_packed_weight* weight) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    heddle::embedding(ctx, out("y", y), in("token_ids", token_ids),
                      weight_of(ctx, required("weight", weight)));
  });
}
