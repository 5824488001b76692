#include <cmath>

#include <gtest/gtest.h>

#include "model/adapters/adapter_config.h"

namespace heddle::model {
namespace {

/// use_rslora, rank_pattern and alpha_pattern at once: alpha of the module over the root of the
/// module's rank.
TEST(AdapterScale, RootOfTheRanksOfPatterns) {
  const AdapterConfig config = parse_adapter_config(
      R"({"peft_type": "LORA", "r": 16, "lora_alpha": 8, "use_rslora": true,
          "rank_pattern": {"q_proj": 4, "down_proj": 3}, "alpha_pattern": {"down_proj": 6}})",
      "dir/adapter_config.json");
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.v_proj"), 2.0f);  // 8 / 4
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.q_proj"), 4.0f);  // 8 / 2
  EXPECT_EQ(config.scale_of("model.layers.1.mlp.down_proj"),
            static_cast<float>(6 / std::sqrt(3.0)));
}

TEST(AdapterScale, RanksOfPatternsWithoutTheRoot) {
  const AdapterConfig config = parse_adapter_config(
      R"({"peft_type": "LORA", "r": 16, "lora_alpha": 8, "rank_pattern": {"q_proj": 4},
          "alpha_pattern": {"v_proj": 32}})",
      "dir/adapter_config.json");
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.k_proj"), 0.5f);
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.q_proj"), 2.0f);
  EXPECT_EQ(config.scale_of("model.layers.0.self_attn.v_proj"), 2.0f);
}

}  // namespace
}  // namespace heddle::model
