#include "model/adapters/adapter_config.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"

namespace heddle::model {
namespace {

using testing::expect_invalid;
using testing::expect_unsupported;

const std::string kPath = "dir/adapter_config.json";
const std::string kQ3 = "model.layers.3.self_attn.q_proj";
const std::string kQ13 = "model.layers.13.self_attn.q_proj";
const std::string kDown3 = "model.layers.3.mlp.down_proj";

/// A LoRA configuration with the fields given.
AdapterConfig read(const std::string& fields) {
  return parse_adapter_config(std::string(R"({"peft_type": "LORA", )") + fields + "}", kPath);
}
void expect_refused(std::initializer_list<const char*> parts, const std::string& fields) {
  expect_invalid(parts, [&] { (void)read(fields); });
}

TEST(AdapterConfig, FillsInWhatPeftDoes) {
  const AdapterConfig config = parse_adapter_config(R"({"peft_type": "LORA"})", kPath);
  EXPECT_EQ(config.rank_of(kQ3), 8);
  EXPECT_EQ(config.scale_of(kQ3), 1.0f);
  EXPECT_TRUE(config.targets(kQ3));
  EXPECT_TRUE(config.base_model.empty());
}

TEST(AdapterConfig, ScalesByRankOrItsRoot) {
  EXPECT_EQ(read(R"("r": 24, "lora_alpha": 48)").scale_of(kQ3), 2.0f);
  EXPECT_EQ(read(R"("r": 3, "lora_alpha": 0.5)").scale_of(kQ3), static_cast<float>(0.5 / 3));
  EXPECT_EQ(read(R"("r": 32, "lora_alpha": 32, "use_rslora": true)").scale_of(kQ3),
            static_cast<float>(32 / std::sqrt(32.0)));
  EXPECT_EQ(read(R"("r": 4, "lora_alpha": -8, "fan_in_fan_out": true)").scale_of(kQ3), -2.0f);
  const AdapterConfig huge = read(R"("r": 1, "lora_alpha": 1e300)");
  expect_invalid(
      {"dir/adapter_config.json: the scale of model.layers.3.self_attn.q_proj", "1e+300"},
      [&] { (void)huge.scale_of(kQ3); });
}

TEST(AdapterConfig, ScalesByTheRankAndAlphaOfTheModule) {
  for (const bool rslora : {false, true}) {
    for (const bool own_rank : {false, true}) {
      for (const bool own_alpha : {false, true}) {
        const AdapterConfig config =
            read(std::string(R"("r": 5, "lora_alpha": 12, "use_rslora": )") +
                 (rslora ? "true" : "false") + R"(, "rank_pattern": {")" +
                 (own_rank ? "q_proj" : "x_proj") + R"(": 3}, "alpha_pattern": {")" +
                 (own_alpha ? "q_proj" : "x_proj") + R"(": 7})");
        const double rank = own_rank ? 3 : 5, alpha = own_alpha ? 7 : 12;
        EXPECT_EQ(config.scale_of(kQ3),
                  static_cast<float>(alpha / (rslora ? std::sqrt(rank) : rank)))
            << rslora << own_rank << own_alpha;
      }
    }
  }
}

TEST(AdapterConfig, MatchesPatternsAsPeftDoes) {
  const auto rank = [](const std::string& key, const std::string& module) {
    return read(R"("r": 7, "rank_pattern": {")" + key + R"(": 2})").rank_of(module);
  };
  EXPECT_EQ(rank("q_proj", kQ3), 2);
  EXPECT_EQ(rank("self_attn.q_proj", kQ3), 2);
  EXPECT_EQ(rank(kQ3, kQ3), 2);
  EXPECT_EQ(rank(kQ3, kQ13), 7);
  EXPECT_EQ(rank("3.self_attn.q_proj", kQ13), 7);  // a key begins where a segment does
  EXPECT_EQ(rank("proj", kQ3), 7);
  EXPECT_EQ(rank("q_proj", kDown3), 7);
  EXPECT_EQ(rank("self_attn", kQ3), 7);         // and ends where the name does
  EXPECT_EQ(rank("self.attn.q_proj", kQ3), 2);  // the dot is an expression's
  EXPECT_EQ(rank("(q|k)_proj", kQ3), 2);
  EXPECT_EQ(rank("^model.layers.3.self_attn.q_proj", kQ3), 2);
  EXPECT_EQ(rank("^layers.3.self_attn.q_proj", kQ3), 7);
  EXPECT_EQ(rank("layers\\\\.[0-5]\\\\..*", kQ3), 2);
  EXPECT_EQ(rank("layers\\\\.[0-5]\\\\..*", kQ13), 7);
  EXPECT_EQ(rank(".*", kQ3), 2);
  EXPECT_EQ(rank("q_proj|k_proj", kQ3), 2);
}

TEST(AdapterConfig, TakesTheFirstPatternInTheFileAndKeepsTheTwoMapsApart) {
  const AdapterConfig config = read(R"("r": 8, "lora_alpha": 16,
      "rank_pattern": {"self_attn.q_proj": 2, "q_proj": 4},
      "alpha_pattern": {"z_proj": 1, "q_proj": 12.0, ".*q_proj": 5})");
  EXPECT_EQ(config.rank_of(kQ3), 2);
  EXPECT_EQ(config.scale_of(kQ3), 6.0f);
  EXPECT_EQ(config.scale_of(kDown3), 2.0f);
}

TEST(AdapterConfig, TargetsWhatPeftDoes) {
  const AdapterConfig list = read(R"("target_modules": ["q_proj", "mlp.down_proj"])");
  EXPECT_TRUE(list.targets(kQ3));
  EXPECT_TRUE(list.targets(kDown3));
  EXPECT_FALSE(list.targets("model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(read(R"("target_modules": ["proj", "q.proj"])").targets(kQ3));
  EXPECT_TRUE(read(R"("target_modules": "all-linear")").targets(kDown3));
  const AdapterConfig expression = read(R"("target_modules": ".*\\.[0-5]\\..*q_proj")");
  EXPECT_TRUE(expression.targets(kQ3));
  EXPECT_FALSE(expression.targets(kQ13));
  EXPECT_FALSE(read(R"("target_modules": "q_proj")").targets(kQ3));  // the whole name or nothing
  const AdapterConfig excluded =
      read(R"("target_modules": ["q_proj"], "exclude_modules": ".*13.*")");
  EXPECT_TRUE(excluded.targets(kQ3));
  EXPECT_FALSE(excluded.targets(kQ13));
  const AdapterConfig without = read(R"("exclude_modules": ["down_proj", "13.self_attn.q_proj"])");
  EXPECT_TRUE(without.targets(kQ3));
  EXPECT_FALSE(without.targets(kQ13));
  EXPECT_FALSE(without.targets(kDown3));
}

TEST(AdapterConfig, TargetsTheLayersToTransform) {
  const AdapterConfig list = read(R"("target_modules": ["q_proj"], "layers_to_transform": [1, 3])");
  EXPECT_TRUE(list.targets(kQ3));
  EXPECT_FALSE(list.targets(kQ13));
  EXPECT_FALSE(list.targets(kDown3));
  EXPECT_TRUE(read(R"("target_modules": ["q_proj"], "layers_to_transform": 13)").targets(kQ13));
  EXPECT_TRUE(read(R"("target_modules": ["q_proj"], "layers_to_transform": [])").targets(kQ13));
  const auto with_pattern = [](const std::string& pattern) {
    const AdapterConfig config =
        read(R"("target_modules": ["q_proj"], "layers_to_transform": [3, 13], "layers_pattern": )" +
             pattern);
    EXPECT_EQ(config.targets(kQ3), config.targets(kQ13));  // a number of any length
    return config.targets(kQ3);
  };
  EXPECT_TRUE(with_pattern("\"layers\""));
  EXPECT_TRUE(with_pattern(R"(["h", "layers"])"));
  EXPECT_TRUE(with_pattern("[]"));
  EXPECT_FALSE(with_pattern("\"h\""));
  expect_refused(
      {"layers_to_transform is set, but target_modules is \"all-linear\", expected a list"},
      R"("target_modules": "all-linear", "layers_to_transform": [3])");
}

TEST(AdapterConfig, RefusesWhatComputesSomethingElseByName) {
  for (const auto& [field, value] : {
           std::pair("modules_to_save", "[\"lm_head\", \"norm\"]"),
           {"trainable_token_indices", "{\"wte\": [1]}"},
           {"target_parameters", "[\"w\"]"},
           {"layer_replication", "[[0, 4]]"},
           {"alora_invocation_tokens", "[7], \"use_dora\": true"},
           {"lora_bias", "true, \"use_dora\": true"},
           {"use_qalora", "true"},
           {"use_bdlora", "{\"nblocks\": 2}"},
           {"arrow_config", "{\"top_k\": 3}"},
           {"kasa_config", "{\"beta\": 0.1}"},
           {"monteclora_config", "{\"num_samples\": 8}"},
           {"megatron_config", "{\"tensor_model_parallel_size\": 2}"},
           {"init_lora_weights", "\"pissa_niter_4\""},
           {"init_lora_weights", "\"olora\""},
           {"init_lora_weights", "\"corda\""},
           {"init_lora_weights", "\"loftq\""},
           {"init_lora_weights", "\"lora_ga\""},
       }) {
    const std::string fields = std::string("\"") + field + "\": " + value;
    expect_unsupported({"dir/adapter_config.json: ", field, " is ", "support"},
                       [&] { (void)read(fields); });
  }
  for (const char* init : {"OLoRA", "LORA_GA", "newer"}) {
    expect_unsupported({"init_lora_weights is \"", init, "a changed base model"},
                       [&] { (void)read(std::string(R"("init_lora_weights": ")") + init + '"'); });
  }
  expect_unsupported({"peft_type is \"XLORA\": it mixes several adapters", "supported: LORA, LOHA"},
                     [] { (void)parse_adapter_config(R"({"peft_type": "XLORA"})", kPath); });
  expect_unsupported({"peft_type is \"NEWER\": heddle does not compute it"},
                     [] { (void)parse_adapter_config(R"({"peft_type": "NEWER"})", kPath); });
  expect_invalid({"has no peft_type"}, [] { (void)parse_adapter_config(R"({"r": 8})", kPath); });
}

TEST(AdapterConfig, ReadsWhatIsForTheVocabulary) {
  const AdapterConfig saved = read(R"("modules_to_save": ["model.embed_tokens"])");
  EXPECT_TRUE(saved.saves_embedding);
  EXPECT_FALSE(saved.saves_head);
  EXPECT_EQ(read(R"("trainable_token_indices": [5, 2])").embedding_tokens,
            (std::vector<int32_t>{5, 2}));
  const AdapterConfig both =
      read(R"("trainable_token_indices": {"embed_tokens": [1], "lm_head": [4, 3]})");
  EXPECT_EQ(both.embedding_tokens, (std::vector<int32_t>{1}));
  EXPECT_EQ(both.head_tokens, (std::vector<int32_t>{4, 3}));
  expect_refused({"trainable_token_indices is -1, expected"}, R"("trainable_token_indices": [-1])");
  expect_refused({"trainable_token_indices is 4, expected a list"},
                 R"("trainable_token_indices": 4)");
  EXPECT_EQ(read(R"("alora_invocation_tokens": [7, 1])").invocation_tokens,
            (std::vector<int32_t>{7, 1}));
  expect_refused({"alora_invocation_tokens is 7, expected a list of token ids"},
                 R"("alora_invocation_tokens": 7)");
  EXPECT_FALSE(read(R"("target_modules": "all-linear")").targets_vocabulary("lm_head"));
  EXPECT_TRUE(read(R"("target_modules": ".*")").targets_vocabulary("lm_head"));
  EXPECT_TRUE(read(R"("target_modules": ["lm_head"])").targets_vocabulary("lm_head"));
}

TEST(AdapterConfig, AcceptsWhatOnlySteersTrainingAndWhatIsUnset) {
  EXPECT_NO_THROW((void)read(R"(
      "use_dora": false, "lora_bias": null, "modules_to_save": [], "layer_replication": null,
      "use_bdlora": {}, "bias": "none", "init_lora_weights": "gaussian", "loftq_config": {"bits": 4},
      "eva_config": {"rho": 2.0}, "corda_config": {}, "lora_dropout": 0.1, "velora_config": {"a": 1},
      "task_type": "CAUSAL_LM", "inference_mode": true, "revision": null,
      "qalora_group_size": 16, "megatron_core": "megatron.core", "r": null, "lora_alpha": null,
      "target_modules": null, "rank_pattern": null, "base_model_name_or_path": null)"));
  EXPECT_NO_THROW((void)read(R"("init_lora_weights": true)"));
  for (const char* init : {"eva", "Gaussian", "orthogonal", "mica"}) {
    EXPECT_NO_THROW((void)read(std::string(R"("init_lora_weights": ")") + init + '"')) << init;
  }
}

TEST(AdapterConfig, WarnsOfFieldsThatItDoesNotKnow) {
  const auto warning = [](const std::string& field) {
    const AdapterConfig config = read("\"" + field + R"(": true, "lora_dropout": 0.1)");
    EXPECT_EQ(config.warnings.size(), 1u) << field;
    return config.warnings.at(0);
  };
  const std::string known = kPath + ": 'use_new_variant' is a field that heddle does not know, ";
  EXPECT_EQ(warning("use_new_variant"), known + "and so is ignored");
  for (const auto& [field, meant] : {std::pair("target_module", "target_modules"),
                                     {"rank_patern", "rank_pattern"},
                                     {"use_rslor", "use_rslora"},
                                     {"userslora", "use_rslora"},
                                     {"lora_alhpa", "lora_alpha"},
                                     {"module_to_save", "modules_to_save"}}) {
    EXPECT_TRUE(warning(field).ends_with(std::string("; did you mean ") + meant + "?")) << field;
  }
  for (const std::string field : {"lora_scale_by_norm", "s", "rr", "alpha", "scaling"}) {
    EXPECT_EQ(warning(field).find("did you mean"), std::string::npos) << field;
  }
  EXPECT_EQ(warning(std::string(5000, 'r')).find("did you mean"), std::string::npos);
  EXPECT_TRUE(read(R"("merge_weights": false, "enable_lora": null)").warnings.empty());
  expect_unsupported({"enable_lora is [true], which is not supported"},
                     [] { (void)read(R"("enable_lora": [true])"); });
}

TEST(AdapterConfig, TakesRanksThatAreWrittenAsFractions) {
  EXPECT_EQ(read(R"("r": 4.0, "lora_alpha": 8.0)").scale_of(kQ3), 2.0f);
  EXPECT_EQ(read(R"("rank_pattern": {"q_proj": 3.0})").rank_of(kQ3), 3);
}

TEST(AdapterConfig, ReadsMlxsArguments) {
  const auto read_mlx = [](const std::string& fields) {
    return parse_adapter_config("{" + fields + "}", kPath);
  };
  const AdapterConfig config =
      read_mlx(R"("fine_tune_type": "dora", "model": "org/model", "seed": 0,
      "lora_parameters": {"rank": 3, "scale": 20.0, "dropout": 0.0})");
  EXPECT_EQ(config.method, AdapterMethod::kMlx);
  EXPECT_TRUE(config.use_dora);
  EXPECT_EQ(config.base_model, "org/model");
  EXPECT_EQ(config.rank_of(kQ3), 3);
  EXPECT_EQ(config.scale_of(kQ3), 20.0f);
  EXPECT_TRUE(config.warnings.empty());
  expect_unsupported({"fine_tune_type is \"full\"", "mlx_lm.fuse"},
                     [&] { (void)read_mlx(R"("fine_tune_type": "full")"); });
  expect_invalid({"lora_parameters is missing, expected an object"},
                 [&] { (void)read_mlx(R"("fine_tune_type": "lora")"); });
  expect_invalid({"rank of lora_parameters is 0, expected an integer of 1 or more"},
                 [&] { (void)read_mlx(R"("lora_parameters": {"rank": 0, "scale": 1.0})"); });
  expect_invalid({"scale of lora_parameters is missing, expected a number"},
                 [&] { (void)read_mlx(R"("lora_parameters": {"rank": 1, "alpha": 1.0})"); });
}

TEST(AdapterConfig, NamesFieldAndValueOfTheWrongType) {
  expect_refused({"dir/adapter_config.json: r is \"8\", expected an integer of 1 or more"},
                 R"("r": "8")");
  expect_refused({"r is 0, expected an integer of 1"}, R"("r": 0)");
  expect_refused({"r is -3"}, R"("r": -3)");
  expect_refused({"r is 8.5, expected an integer"}, R"("r": 8.5)");
  expect_refused({"r is 0.0"}, R"("r": 0.0)");
  expect_refused({"r is 1e+300"}, R"("r": 1e300)");
  expect_refused({"bias is \"some\", expected \"none\", \"all\" or \"lora_only\""},
                 R"("bias": "some")");
  expect_refused({"lora_dropout is \"0.1\", expected a number"}, R"("lora_dropout": "0.1")");
  expect_refused({"inference_mode is 1, expected true or false"}, R"("inference_mode": 1)");
  expect_refused({"loftq_config is [], expected an object"}, R"("loftq_config": [])");
  expect_refused({"task_type is {}, expected a string"}, R"("task_type": {})");
  expect_refused({"r is 4294967296"}, R"("r": 4294967296)");
  expect_refused({"lora_alpha is true, expected a number"}, R"("lora_alpha": true)");
  expect_refused({"use_rslora is 1, expected true or false"}, R"("use_rslora": 1)");
  expect_refused({"fan_in_fan_out is \"no\""}, R"("fan_in_fan_out": "no")");
  expect_refused({"base_model_name_or_path is 3, expected a string"},
                 R"("base_model_name_or_path": 3)");
  expect_refused({"init_lora_weights is [], expected a string"}, R"("init_lora_weights": [])");
  expect_refused({"target_modules is {\"q\":1}, expected a string or a list"},
                 R"("target_modules": {"q": 1})");
  expect_refused({"target_modules is [\"q\",1]"}, R"("target_modules": ["q", 1])");
  expect_refused({"layers_to_transform is \"3\", expected an integer"},
                 R"("layers_to_transform": ["3"])");
  expect_refused({"layers_to_transform is -1"}, R"("layers_to_transform": -1)");
  expect_refused({"rank_pattern is [], expected an object"}, R"("rank_pattern": [])");
  expect_refused({"rank_pattern['q_proj'] is 1.5, expected an integer of 1"},
                 R"("rank_pattern": {"q_proj": 1.5})");
  expect_refused({"alpha_pattern['q_proj'] is null, expected a number"},
                 R"("alpha_pattern": {"q_proj": null})");
}

TEST(AdapterConfig, RefusesWhatIsNoConfiguration) {
  const auto refused = [](std::initializer_list<const char*> parts, const std::string& text) {
    expect_invalid(parts, [&] { (void)parse_adapter_config(text, kPath); });
  };
  refused({"dir/adapter_config.json: not valid JSON: parse error at line 1, column 2"}, "{");
  refused({"not valid JSON"}, "");
  refused({"is an array, expected an object"}, "[1]");
  refused({"key 'r' is given twice"}, R"({"peft_type": "LORA", "r": 8, "r": 16})");
  refused({"nested deeper than 32 levels"}, std::string(100000, '['));
  refused({"has 1048577 bytes, at most 1048576 are read"}, std::string((1 << 20) + 1, ' '));
  std::string many = R"({"peft_type": "LORA")";
  for (int i = 0; i < 5000; ++i) many += ", \"" + std::to_string(i) + "\": 0";
  refused({"an object has more than 4096 members"}, many + "}");
}

TEST(AdapterConfig, BoundsItsExpressions) {
  expect_refused(
      {"rank_pattern has 'q[', which is not a valid regular expression: missing terminating ]"},
      R"("rank_pattern": {"q[": 2})");
  expect_refused({"target_modules has '(', which is not a valid regular expression"},
                 R"("target_modules": "(")");
  expect_refused({"an expression of ", "at most 4096 are read"},
                 std::string(R"("target_modules": ")") + std::string(5000, 'a') + '"');
  std::string keys;
  for (int i = 0; i < 65; ++i) {
    keys += std::string(i > 0 ? ", " : "") + "\"x+" + std::to_string(i) + "\": 1";
  }
  expect_refused({"alpha_pattern holds more than 64 regular expressions"},
                 std::string("\"alpha_pattern\": {") + keys + "}");
  const AdapterConfig slow = read(R"("rank_pattern": {"((.*)*)*[xz]": 2})");
  expect_invalid(
      {"rank_pattern: matching '((.*)*)*[xz]' against 'model.layers.3", "failed: match limit"},
      [&] { (void)slow.rank_of(kQ3); });
}

TEST(AdapterConfig, BoundsTheKeysOfItsLayers) {
  const auto keys = [](int count) {
    std::string fields = R"("layers_pattern": ["layers")";
    for (int i = 1; i < count; ++i) fields += ", \"h" + std::to_string(i) + '"';
    return fields + ']';
  };
  EXPECT_EQ(read(keys(64)).layers_pattern.size(), 64u);
  expect_refused({"layers_pattern holds more than 64 regular expressions"}, keys(65));
}

TEST(AdapterConfig, BoundsTheStepsOfAFieldForAModule) {
  // Each expression for itself stays below the limit.
  const auto keys = [](int count) {
    std::string fields = R"("rank_pattern": {)";
    for (int i = 0; i < count; ++i) {
      fields += std::string(i > 0 ? ", " : "") + R"(".*.*.*x)" + std::to_string(i) + R"(": 1)";
    }
    return read(fields + "}");
  };
  EXPECT_EQ(keys(1).rank_of(kQ3), 8);
  const AdapterConfig many = keys(64);
  expect_invalid({"rank_pattern: matching '.*.*.*x", "against 'model.layers.3.self_attn.q_proj'",
                  "failed: match limit exceeded: a field may take 32768 steps for a module"},
                 [&] { (void)many.rank_of(kQ3); });
}

TEST(AdapterConfig, ReadsSixtyFourHonestExpressions) {
  std::string fields = R"("r": 8, "rank_pattern": {)";
  for (int i = 0; i < 64; ++i) {
    fields += std::string(i > 0 ? ", " : "") + R"("model\\.layers\\.)" + std::to_string(100 + i) +
              R"(\\.(self_attn|mlp)\\.(q|k|v|o|gate|up|down)_proj": 2)";
  }
  const AdapterConfig config = read(fields + "}");
  EXPECT_EQ(config.rank_of(kQ3), 8);
  EXPECT_EQ(config.rank_of("model.layers.163.mlp.down_proj"), 2);
}

/// Looks up all that the file says of the modules of `num_layers` layers.
void ask(const AdapterConfig& config, int num_layers) {
  for (int layer = 0; layer < num_layers; ++layer) {
    const std::string module = "model.layers." + std::to_string(layer) + ".self_attn.q_proj";
    (void)config.targets(module);
    (void)config.scale_of(module);
  }
}

TEST(AdapterConfig, TakesTimeInProportionToItsFields) {
  const auto list = [](const char* field, const char* quote) {
    return [=](size_t n) {
      std::string fields = R"("target_modules": ["q_proj"], ")" + std::string(field) + "\": [";
      if (field == std::string("target_modules")) fields = R"("target_modules": [)";
      for (size_t i = 0; i < n; ++i) {
        fields += (i > 0 ? "," : "") + std::string(quote) + std::to_string(i) + quote;
      }
      return fields + ']';
    };
  };
  const auto object = [](const char* field) {
    return [=](size_t n) {
      std::string fields = std::string(1, '"') + field + "\": {";
      for (size_t i = 0; i < n; ++i) {
        fields += (i > 0 ? ",\"" : "\"") + std::to_string(i) + ".q_proj\":4";
      }
      return fields + '}';
    };
  };
  const auto read_and_ask = [](const std::string& fields) { ask(read(fields), 100); };
  for (const char* field : {"target_modules", "exclude_modules"}) {
    testing::expect_linear(field, 2000, list(field, "\""), read_and_ask);
  }
  testing::expect_linear("layers_to_transform", 2000, list("layers_to_transform", ""),
                         read_and_ask);
  for (const char* field : {"rank_pattern", "alpha_pattern", "a_newer_field"}) {
    testing::expect_linear(field, 250, object(field), read_and_ask);
  }
}

/// What is read once is looked up for each tensor, so the product of a long list and many
/// tensors counts as well.
TEST(AdapterConfig, AsksOfALongListInNoMoreTimeThanOfAShortOne) {
  const auto config_of = [](int n) {
    std::string fields = R"("target_modules": ["q_proj")", layers = "0";
    for (int i = 0; i < n; ++i) fields += ",\"x" + std::to_string(i) + '"';
    for (int i = 0; i < n; ++i) layers += ',' + std::to_string(i + 1000);
    return read(fields + R"(], "layers_to_transform": [)" + layers + ']');
  };
  const AdapterConfig small = config_of(10), large = config_of(20000);
  const double few = testing::processor_seconds([&] { ask(small, 2000); });
  const double many = testing::processor_seconds([&] { ask(large, 2000); });
  EXPECT_LT(many, 20 * few + 0.01);
}

TEST(AdapterConfig, QuotesLittleOfTheFile) {
  const std::string text = nlohmann::json(testing::hostile_text(150'000)).dump();
  const auto refused = [](const std::string& fields) {
    testing::expect_clean_message(fields.substr(0, 50), [&] {
      const AdapterConfig config = read(fields);
      ask(config, 1);
    });
  };
  constexpr const char* kFields[] = {"r",
                                     "lora_alpha",
                                     "use_rslora",
                                     "fan_in_fan_out",
                                     "target_modules",
                                     "exclude_modules",
                                     "layers_to_transform",
                                     "layers_pattern",
                                     "rank_pattern",
                                     "alpha_pattern",
                                     "use_dora",
                                     "lora_bias",
                                     "modules_to_save",
                                     "trainable_token_indices",
                                     "target_parameters",
                                     "layer_replication",
                                     "alora_invocation_tokens",
                                     "use_qalora",
                                     "use_bdlora",
                                     "arrow_config",
                                     "kasa_config",
                                     "monteclora_config",
                                     "megatron_config",
                                     "bias",
                                     "peft_type"};
  for (const char* field : kFields) {
    const std::string name = std::string("\"") + field + "\": ";
    refused(name + text);
    refused(name + "[[" + text + "]]");
    refused(name + "{" + text + ": " + text + "}");
  }
  refused(R"("base_model_name_or_path": [)" + text + "]");
  refused(R"("init_lora_weights": ["pissa)" + text.substr(1) + "]");
  refused(R"("init_lora_weights": "pissa)" + text.substr(1));
  refused(text + ": 1, " + text + ": 2");
  const std::string bad = nlohmann::json("(" + testing::hostile_text(3000)).dump();
  for (const char* field : {"rank_pattern", "alpha_pattern"}) {
    refused('"' + std::string(field) + "\": {" + bad + ": 1}");
  }
  for (const char* field : {"target_modules", "exclude_modules", "layers_pattern"}) {
    refused('"' + std::string(field) + "\": " + bad);
  }
  refused(R"("target_modules": "(a|)" + bad.substr(2, 2000) + ")\"");
  refused(R"("r": 1, "lora_alpha": 1e300)");
  refused(R"("target_modules": )" + bad.substr(0, 1) + bad.substr(2) +
          R"(, "layers_to_transform": [1])");
}

}  // namespace
}  // namespace heddle::model
