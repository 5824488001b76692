#include "heddle/ops/linear.h"

#include <string>
#include <vector>

#include "heddle/core/check.h"
#include "heddle/ops/embedding.h"

#include "capi/guard.h"
#include "capi/weight_arguments.h"

using heddle::capi::bytes_of;
using heddle::capi::guard;
using heddle::capi::in;
using heddle::capi::out;
using heddle::capi::required;
using heddle::capi::span_of;
using heddle::capi::type_of;
using heddle::capi::weight_of;

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
    heddle::linear(ctx, out("y", y), in("x", x), weight_of(ctx, "weight", weight));
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
      const std::string index = std::to_string(i);
      outputs.push_back({out(("ys[" + index + "]").c_str(), ys[i]),
                         weight_of(ctx, ("weights[" + index + "]").c_str(), &weights[i])});
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
                      weight_of(ctx, "weight", weight));
  });
}
