#include "model/config/block_shape.h"

#include <set>
#include <string_view>

#include <gtest/gtest.h>

#include "model/config/decoder_config.h"
#include "model/test/llama_slices.h"

namespace heddle::model {
namespace {

using Names = std::vector<std::string_view>;

Names stored_names(const DecoderConfig& config) {
  Names names;
  for (const StoredLinear& stored : config.block().stored()) names.push_back(stored.module->name);
  return names;
}

TEST(BlockShape, HasNamesThatDifferForEveryModule) {
  std::set<std::string_view> names;
  for (const LinearModule& module : kLinearModules) {
    names.insert(module.name);
    EXPECT_EQ(find_linear_module(module.name), &module);
  }
  EXPECT_EQ(names.size(), std::size(kLinearModules));
  EXPECT_EQ(find_linear_module("mlp.router"), nullptr);
}

TEST(BlockShape, ListsWeightsAsTheCheckpointStoresThem) {
  EXPECT_EQ(stored_names({}),
            (Names{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                   "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}));
  EXPECT_EQ(stored_names({.fused_qkv = true, .fused_gate_up = true}),
            (Names{"self_attn.qkv_proj", "self_attn.o_proj", "mlp.gate_up_proj", "mlp.down_proj"}));
}

TEST(BlockShape, FindsSlicesByEitherName) {
  for (const bool fused : {false, true}) {
    const BlockShape block =
        DecoderConfig{.num_q_heads = 3, .num_kv_heads = 1, .head_dim = 8, .fused_qkv = fused}
            .block();
    const SliceRange all = block.find(*find_linear_module("self_attn.qkv_proj"));
    EXPECT_EQ(all.first, llama::kQ);
    EXPECT_EQ(all.count, 3);
    EXPECT_EQ(block.dims_of(all).out, 24 + 8 + 8);
    const SliceRange v = block.find(*find_linear_module("self_attn.v_proj"));
    EXPECT_EQ(v.first, llama::kV);
    EXPECT_EQ(block.dims_of(v).out, 8);
    EXPECT_EQ(block.site_of(llama::kUp), block.site_of(llama::kGate));
    EXPECT_EQ(block.site_of(llama::kDown), llama::kDownSite);
  }
}

}  // namespace
}  // namespace heddle::model
