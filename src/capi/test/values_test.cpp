// Functions of the C interface without a context: sizes, defaults, stored weights.
#include <cstring>
#include <span>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_linear_site.h"
#include "heddle/ops/attention.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/linear_site.h"
#include "heddle/ops/lora.h"
#include "heddle/ops/metadata.h"
#include "heddle/ops/norm.h"
#include "heddle/ops/rope.h"
#include "heddle/ops/sampling.h"
#include "heddle/ops/speculation.h"

#include "capi/test/call_tensors.h"
#include "capi/test/capi_test_body.h"

namespace heddle::testing {
namespace {

TEST(CApiValues, SizesAreThoseOfCpp) {
  for (const DeviceType type : {DeviceType::kCpu, DeviceType::kCuda}) {
    const Device device{type, 0};
    const DLDevice c_device{type == DeviceType::kCpu ? kDLCPU : kDLCUDA, 0};
    EXPECT_EQ(heddle_lora_apply_workspace_bytes(c_device, 9, 40, 1, 8),
              lora_apply_workspace_bytes(device, 9, 40, 1, 8));
    EXPECT_EQ(heddle_lora_pairs_workspace_bytes(c_device, 9, 40, 33, 1, 8),
              lora_pairs_workspace_bytes(device, 9, 40, 33, 1, 8));
  }
  for (const int64_t max_pairs : {0, 3}) {
    EXPECT_EQ(heddle_linear_site_workspace_bytes({kDLCPU, 0}, 9, 40, 30, 2, 8, max_pairs),
              linear_site_workspace_bytes({}, 9, 40, 30, 2, 8, max_pairs));
  }
  EXPECT_EQ(heddle_linear_site_workspace_bytes({kDLCPU, 0}, -1, 40, 30, 2, 8, 0), SIZE_MAX);
  EXPECT_GT(heddle_lora_plan_bytes(300, 40), heddle_lora_plan_bytes(300, 16));
  EXPECT_EQ(heddle_lora_plan_bytes(300, 40), lora_plan_bytes(300, 40));
  EXPECT_EQ(heddle_sample_workspace_bytes(4, 50), sample_workspace_bytes(4, 50));
  EXPECT_EQ(heddle_batch_decode_workspace_bytes({kDLCPU, 0}, 3, 4, 64), 0);
  EXPECT_EQ(heddle_decode_bundle({kDLBfloat, 16, 1}, 8, 2, 128, -1, 1021, 8),
            size_t(decode_bundle(DType::kBFloat16, 8, 2, 128, -1, 1021, 8)));
  EXPECT_EQ(heddle_decode_bundle({kDLBfloat, 16, 1}, 8, 3, 128, -1, 1021, 8), SIZE_MAX);
  EXPECT_EQ(heddle_batch_decode_workspace_bytes({kDLCUDA, 1000}, 3, 4, 64), 0);
}

TEST(CApiValues, NullIsDestroyed) {
  heddle_context_destroy(nullptr);
  heddle_adapter_table_destroy(nullptr);
}

TEST(CApiValues, StoredWeights) {
  int32_t block = 0;
  size_t stored_size = 0, packed_size = 0;
  expect_ok(heddle_block_size(&block, HEDDLE_Q6_K));
  EXPECT_EQ(block, block_size(WeightType::kQ6K));
  expect_ok(heddle_stored_bytes(&stored_size, HEDDLE_Q4_1, 20 * 64));
  EXPECT_EQ(stored_size, stored_bytes(WeightType::kQ4_1, 20 * 64));
  expect_ok(heddle_packed_bytes(&packed_size, HEDDLE_Q4_1, 20, 64));
  EXPECT_EQ(packed_size, packed_bytes(WeightType::kQ4_1, 20, 64));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "bytes is NULL",
                 heddle_packed_bytes(nullptr, HEDDLE_Q4_1, 20, 64));
  std::vector<uint8_t> stored(stored_size, 37);
  std::vector<float> got(20 * 64), want(20 * 64);
  const TensorView from = host_view(stored.data(), {int64_t(stored_size)}),
                   to = host_view(got.data(), {20 * 64});
  const DLTensor c_from = c_tensor(from);
  DLTensor c_to = c_tensor(to);
  expect_ok(heddle_dequantize(&c_to, HEDDLE_Q4_1, &c_from));
  dequantize(want, WeightType::kQ4_1, std::as_bytes(std::span(stored)));
  EXPECT_EQ(got, want);
}

TEST(CApiValues, RopeFrequencies) {
  heddle_rope_params params;
  heddle_rope_params_init(&params);
  params.has_llama3 = true;
  params.theta = 5e5;
  const RopeParams same{.theta = 5e5, .llama3 = Llama3RopeScaling()};
  for (const int d : {0, 3, 5}) {
    EXPECT_EQ(heddle_rope_frequency(&params, 16, d), rope_frequency(same, 16, d));
    EXPECT_EQ(heddle_rope_frequency(nullptr, 16, d), rope_frequency({}, 16, d));
  }
}

/// A struct after its init function, whose bytes were others before.
template <class Options>
Options initialized(void (*init)(Options*)) {
  Options options;
  std::memset(&options, 0x55, sizeof(options));
  init(&options);
  return options;
}
auto fields_of(const heddle_rope_params& p) {
  return std::tuple(p.theta, p.scale, p.rotary_dim, p.llama3_factor, p.llama3_low_freq_factor,
                    p.llama3_high_freq_factor, p.llama3_original_max_position);
}
/// Whether a struct of pointers alone has none.
template <class Tensors>
bool is_all_null(const Tensors& tensors) {
  const Tensors none{};
  return std::memcmp(&tensors, &none, sizeof(none)) == 0;
}

TEST(CApiValues, DefaultsAreThoseOfCpp) {
  const auto rope = initialized(heddle_rope_params_init);
  const RopeParams r;
  const Llama3RopeScaling llama3;
  EXPECT_FALSE(rope.has_llama3);
  EXPECT_EQ(fields_of(rope),
            std::tuple(r.theta, r.scale, r.rotary_dim, llama3.factor, llama3.low_freq_factor,
                       llama3.high_freq_factor, llama3.original_max_position));
  const auto attention = initialized(heddle_attention_options_init);
  const AttentionOptions a;
  EXPECT_EQ(std::tuple(attention.causal, attention.window_left, attention.logits_soft_cap),
            std::tuple(a.causal, a.window_left, a.logits_soft_cap));
  EXPECT_FALSE(attention.has_sm_scale || attention.has_rope);
  EXPECT_TRUE(attention.tree_mask == nullptr && attention.tree_mask_indptr == nullptr);
  EXPECT_TRUE(attention.bundle_indptr == nullptr);
  EXPECT_EQ(attention.max_bundle, a.max_bundle);
  EXPECT_EQ(fields_of(attention.rope), fields_of(rope));

  const auto norm = initialized(heddle_rms_norm_options_init);
  EXPECT_EQ(std::tuple(norm.epsilon, norm.weight_offset, norm.output_scale, norm.row_scales),
            std::tuple(RmsNormOptions().epsilon, RmsNormOptions().weight_offset, nullptr, nullptr));
  const auto cache = initialized(heddle_paged_kv_init);
  EXPECT_EQ(std::tuple(cache.k, cache.v, cache.num_layers, cache.layer_idx),
            std::tuple(nullptr, nullptr, 1, 0));
  const auto table = initialized(heddle_lora_table_init);
  EXPECT_EQ(std::tuple(table.adapters, table.stack, table.pointers, table.layout, table.layer_idx),
            std::tuple(nullptr, nullptr, nullptr, HEDDLE_LORA_RANK_MAJOR, 0));

  EXPECT_TRUE(is_all_null(initialized(heddle_prepare_batch_outputs_init)));
  EXPECT_TRUE(is_all_null(initialized(heddle_speculative_step_outputs_init)));
  const auto batch = initialized(heddle_prepare_batch_inputs_init);
  const PrepareBatchInputs b;
  EXPECT_EQ(batch.cache_lengths, nullptr);
  EXPECT_EQ(std::tuple(batch.page_size, batch.tokens_per_seq, batch.accepted_extra, batch.pad_page,
                       batch.pad_token),
            std::tuple(b.page_size, b.tokens_per_seq, b.accepted_extra, b.pad_page, b.pad_token));
  const auto step = initialized(heddle_speculative_step_options_init);
  EXPECT_EQ(std::tuple(step.write_prefill_rows, step.num_next_tokens), std::tuple(false, 1));
  const auto ngram = initialized(heddle_ngram_options_init);
  const NgramOptions n;
  EXPECT_EQ(std::tuple(ngram.min_ngram, ngram.max_ngram, ngram.match, ngram.max_length),
            std::tuple(n.min_ngram, n.max_ngram, int(n.match), n.max_length));
}

}  // namespace
}  // namespace heddle::testing
