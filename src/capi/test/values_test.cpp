// Functions of the C interface without a context: sizes, defaults, stored weights.
#include <span>
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
  EXPECT_EQ(heddle_batch_decode_workspace_bytes({kDLCUDA, 1000}, 3, 4, 64), 0);
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

TEST(CApiValues, RopeFrequenciesAndDefaults) {
  heddle_rope_params params;
  heddle_rope_params_init(&params);
  RopeParams same;
  EXPECT_EQ(params.theta, same.theta);
  EXPECT_EQ(params.scale, same.scale);
  EXPECT_EQ(params.rotary_dim, same.rotary_dim);
  EXPECT_FALSE(params.has_llama3);
  same.llama3.emplace();
  EXPECT_EQ(params.llama3_factor, same.llama3->factor);
  EXPECT_EQ(params.llama3_low_freq_factor, same.llama3->low_freq_factor);
  EXPECT_EQ(params.llama3_high_freq_factor, same.llama3->high_freq_factor);
  EXPECT_EQ(params.llama3_original_max_position, same.llama3->original_max_position);
  params.has_llama3 = true;
  params.theta = same.theta = 5e5;
  for (const int d : {0, 3, 5}) {
    EXPECT_EQ(heddle_rope_frequency(&params, 16, d), rope_frequency(same, 16, d));
    EXPECT_EQ(heddle_rope_frequency(nullptr, 16, d), rope_frequency({}, 16, d));
  }
}

TEST(CApiValues, DefaultsAreThoseOfCpp) {
  heddle_attention_options attention;
  heddle_attention_options_init(&attention);
  const AttentionOptions cpp_attention;
  EXPECT_TRUE(attention.tree_mask == nullptr && attention.tree_mask_indptr == nullptr);
  EXPECT_FALSE(attention.has_sm_scale || attention.has_rope);
  EXPECT_EQ(attention.causal, cpp_attention.causal);
  EXPECT_EQ(attention.window_left, cpp_attention.window_left);
  EXPECT_EQ(attention.logits_soft_cap, cpp_attention.logits_soft_cap);
  EXPECT_EQ(attention.rope.theta, RopeParams().theta);

  heddle_rms_norm_options norm;
  heddle_rms_norm_options_init(&norm);
  EXPECT_EQ(norm.epsilon, RmsNormOptions().epsilon);
  EXPECT_EQ(norm.weight_offset, RmsNormOptions().weight_offset);
  EXPECT_TRUE(norm.output_scale == nullptr && norm.row_scales == nullptr);

  heddle_paged_kv cache;
  heddle_paged_kv_init(&cache);
  EXPECT_EQ(cache.num_layers, 1);
  EXPECT_TRUE(cache.k == nullptr && cache.v == nullptr);

  heddle_lora_table table;
  heddle_lora_table_init(&table);
  EXPECT_TRUE(table.adapters == nullptr && table.stack == nullptr && table.pointers == nullptr);
  EXPECT_EQ(table.layer_idx, 0);

  heddle_prepare_batch_outputs outputs;
  heddle_prepare_batch_outputs_init(&outputs);
  EXPECT_TRUE(outputs.q_indptr == nullptr && outputs.overflow == nullptr);
  heddle_prepare_batch_inputs inputs;
  heddle_prepare_batch_inputs_init(&inputs);
  EXPECT_EQ(inputs.page_size, PrepareBatchInputs().page_size);
  EXPECT_EQ(inputs.tokens_per_seq, PrepareBatchInputs().tokens_per_seq);
  EXPECT_EQ(inputs.accepted_extra, PrepareBatchInputs().accepted_extra);
  EXPECT_EQ(inputs.pad_page, PrepareBatchInputs().pad_page);
  EXPECT_EQ(inputs.pad_token, PrepareBatchInputs().pad_token);

  heddle_speculative_step_outputs step;
  heddle_speculative_step_outputs_init(&step);
  EXPECT_TRUE(step.last_one_indices == nullptr && step.next_last_page_len == nullptr);
  heddle_speculative_step_options step_options;
  heddle_speculative_step_options_init(&step_options);
  EXPECT_EQ(step_options.write_prefill_rows, SpeculativeStepOptions().write_prefill_rows);
  EXPECT_EQ(step_options.num_next_tokens, SpeculativeStepOptions().num_next_tokens);

  heddle_ngram_options ngram;
  heddle_ngram_options_init(&ngram);
  EXPECT_EQ(ngram.min_ngram, NgramOptions().min_ngram);
  EXPECT_EQ(ngram.max_ngram, NgramOptions().max_ngram);
  EXPECT_EQ(ngram.match, int(NgramOptions().match));
  EXPECT_EQ(ngram.max_length, NgramOptions().max_length);
}

}  // namespace
}  // namespace heddle::testing
