#include <vector>

#include "heddle/c_api.h"
#include "heddle/ops/activation.h"
#include "heddle/ops/embedding.h"
#include "heddle/ops/norm.h"
#include "heddle/ops/rope.h"

#include "capi/test/rows/rows.h"

namespace heddle::testing {
namespace {

std::vector<Row> norm_rows() {
  const auto x = in<half>("input", {3, 40}), weight = in<half>("weight", {40}),
             y = out<half>("output", {3, 40}), y8 = out<float8_e4m3>("output", {3, 40}),
             residual = in_place<half>("residual", {3, 40});
  const auto defaults = both(nullptr, RmsNormOptions());
  const auto options = [](auto epsilon, int weight_offset, CallTensor scale, CallTensor scales) {
    return fields<heddle_rms_norm_options, RmsNormOptions>(epsilon, weight_offset, scale, scales);
  };
  const auto per_row = options(1e-6f, 0, absent(), out<float>("row_scales", {3}).optional());
  return {row("rms_norm", heddle_rms_norm, rms_norm, y, x, weight, defaults)
              .refuses<2>("weight.size(0) is 5, expected width = 40", shaped({5})),
          row("rms_norm, one scale", heddle_rms_norm, rms_norm, y8, x, weight,
              options(0.5f, 1, in<float>("output_scale", {1}, {0.25f}).optional(), absent())),
          row("rms_norm, scales", heddle_rms_norm, rms_norm, y8, x, weight, per_row),
          row("fused_add_rms_norm", heddle_fused_add_rms_norm, fused_add_rms_norm, y, residual, x,
              weight, options(0.5f, 1, absent(), absent())),
          row("fused_add_rms_norm, scales", heddle_fused_add_rms_norm, fused_add_rms_norm, y8,
              residual, x, weight, per_row)};
}

std::vector<Row> rope_rows() {
  heddle_rope_params params;
  heddle_rope_params_init(&params);
  params.theta = 5e5;
  params.has_llama3 = true;
  params.llama3_factor = 32.0;
  const auto with_llama3 =
      both(params, RopeParams{.theta = 5e5, .llama3 = Llama3RopeScaling{.factor = 32.0}});
  const auto turn = [](const auto&... args) { rope(args...); };
  const auto x = in_place<half>("x", {3, 2, 16});
  const auto positions = in<int32_t>("positions", {3}, {0, 7, 100000});
  return {row("rope_table", heddle_rope_table, rope_table, out<float>("cos", {3, 8}),
              out<float>("sin", {3, 8}), positions, with_llama3,
              in<float>("frequency_factors", {8}).optional()),
          row("rope", heddle_rope, turn, x, in<float>("cos", {3, 8}), in<float>("sin", {3, 8})),
          row("rope_positions", heddle_rope_positions, turn, x, positions, with_llama3),
          row("rope_positions, defaults", heddle_rope_positions, turn, x, positions,
              both(nullptr, RopeParams()))};
}

}  // namespace

std::vector<Row> layer_rows() {
  const auto y = out<bfloat16>("y", {3, 17}), gate = in<bfloat16>("gate", {3, 17}),
             up = in<bfloat16>("up", {3, 17});
  std::vector<Row> rows{
      row("silu_and_mul", heddle_silu_and_mul, silu_and_mul, y, gate, up),
      row("gelu_and_mul, erf", heddle_gelu_and_mul, gelu_and_mul, y, gate, up,
          both(HEDDLE_GELU_ERF, GeluForm::kErf))
          .refuses<3>("form is 2, expected HEDDLE_GELU_ERF", 2),
      row("gelu_and_mul, tanh", heddle_gelu_and_mul, gelu_and_mul, y, gate, up,
          both(HEDDLE_GELU_TANH, GeluForm::kTanh)),
      row(
          "embedding", heddle_embedding, [](const auto&... args) { embedding(args...); },
          out<float>("y", {3, 7}), in<int32_t>("token_ids", {3}, {4, 0, 3}),
          in<bfloat16>("table", {5, 7}))};
  for (const auto& more : {norm_rows(), rope_rows()}) {
    rows.insert(rows.end(), more.begin(), more.end());
  }
  return rows;
}

}  // namespace heddle::testing
