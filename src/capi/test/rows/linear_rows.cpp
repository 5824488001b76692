#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/linear.h"

#include "capi/test/rows/rows.h"
#include "capi/test/rows/weights.h"

namespace heddle::testing {

std::vector<Row> linear_rows() {
  constexpr int64_t kOut = 20, kIn = 64;
  constexpr WeightType kType = WeightType::kQ4_1;
  const std::vector<uint8_t> stored = stored_weights(kType, kOut * kIn);
  const auto packed_size = int64_t(packed_bytes(kType, kOut, kIn));
  const auto bytes = [](CallTensor tensor) {
    return made([](auto*, DLTensor* t) { return t; },
                [](auto&, TensorView t) { return std::span(t.raw(), size_t(t.num_elements())); },
                std::move(tensor));
  };
  const auto y = out<float>("y", {5, kOut}), x = in<float>("x", {5, kIn});
  return {
      row("pack_rows", heddle_pack_rows, pack_rows,
          bytes(out<uint8_t>("packed", {packed_size}).checked_by_c()), both(HEDDLE_Q4_1, kType),
          kOut, kIn, 0, kOut,
          bytes(in<uint8_t>("stored", {int64_t(stored.size())}, stored).checked_by_c()))
          .only_on(RunsOn::kCpu),
      row(
          "linear", heddle_linear, [](const auto&... args) { linear(args...); }, y, x,
          packed_weight("weight.data", kOut, kIn))
          .refuses<2>("type is 11, which is no heddle_weight_type",
                      [](heddle_packed_weight weight) {
                        weight.type = 11;
                        return weight;
                      })
          .refuses<2>("weight.data.size(0) is ",
                      [](heddle_packed_weight weight) {
                        weight.out_features = 36;
                        return weight;
                      })
          .refuses<2>("weight is NULL", nullptr)
          .refuses_call("weight.data is not 64-byte aligned",
                        [](auto* context, auto* to, auto* from, auto* weight) {
                          DLTensor odd = *weight->data;
                          odd.byte_offset = 1;
                          const heddle_packed_weight other{HEDDLE_Q4_1, kOut, kIn, &odd};
                          return heddle_linear(context, to, from, &other);
                        })
          .only_on(RunsOn::kCpu),
      row(
          "linear_many",
          [](auto* context, auto* y0, auto* y1, auto* from, auto* w0, auto* w1) {
            DLTensor* const ys[] = {y0, y1};
            const heddle_packed_weight weights[] = {*w0, *w1};
            return heddle_linear_many(context, ys, 2, from, weights);
          },
          [](auto& ctx, const auto& y0, const auto& y1, const auto& from, const auto& w0,
             const auto& w1) {
            const LinearOutput outputs[] = {{y0, w0}, {y1, w1}};
            linear(ctx, outputs, from);
          },
          out<float>("ys[0]", {5, kOut}), out<float>("ys[1]", {5, kOut}), x,
          packed_weight("weights[0].data", kOut, kIn), packed_weight("weights[1].data", kOut, kIn))
          .refuses_call("ys is NULL",
                        [](auto* context, auto*, auto*, auto* from, auto* weight, auto*) {
                          return heddle_linear_many(context, nullptr, 1, from, weight);
                        })
          .only_on(RunsOn::kCpu),
      row(
          "packed_embedding", heddle_packed_embedding,
          [](const auto&... args) { embedding(args...); }, out<float>("y", {3, kIn}),
          in<int64_t>("token_ids", {3}, {kOut - 1, 0, 7}),
          packed_weight("weight.data", kOut, kIn))};
}

}  // namespace heddle::testing
