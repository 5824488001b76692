// The text halves of models that see images: folders in the forms that there are, and names of
// adapters.
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/context.h"

#include "expect_error.h"
#include "model/adapters/adapter_config.h"
#include "model/adapters/kinds/peft_names.h"
#include "model/source/folder_model.h"
#include "model/weights/decoder_weights.h"
#include "small_folder.h"

namespace heddle::model {
namespace {

using testing::expect_unsupported;
using testing::SmallFolder;

/// Makes the small model the text half of a Qwen2.5-VL.
void wrap(SmallFolder& small, const std::string& decoder, const std::string& head) {
  nlohmann::json text = small.config;
  text.erase("architectures");
  text["model_type"] = "qwen2_5_vl_text";
  text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {1, 1}}};
  small.config = {{"architectures", {"Qwen2_5_VLForConditionalGeneration"}},
                  {"model_type", "qwen2_5_vl"},
                  {"image_token_id", 5},
                  {"text_config", text},
                  {"vision_config", {{"depth", 1}}}};
  SmallFolder::Shapes shapes;
  for (auto& [name, shape] : small.shapes) {
    const bool is_head = name == "lm_head.weight";
    shapes[is_head ? head : decoder + name.substr(std::string("model.").size())] = shape;
  }
  shapes["visual.blocks.0.attn.qkv.weight"] = {2, 3};
  shapes["model.visual.merger.bias"] = {2};
  small.shapes = shapes;
}

TEST(TextHalf, LoadsByAnyFormOfItsNames) {
  const std::vector<std::pair<std::string, std::string>> forms = {
      {"model.", "lm_head.weight"},
      {"model.language_model.", "lm_head.weight"},
      {"language_model.model.", "language_model.lm_head.weight"}};
  for (const auto& [decoder, head] : forms) {
    SmallFolder small;
    wrap(small, decoder, head);
    small.write_all();
    const FolderModel model(small.path());
    EXPECT_EQ(model.config().family, "qwen2");
    EXPECT_EQ(model.config().rotations[0].params,
              (RopeParams{.theta = 1e6, .scale = 1.0, .rotary_dim = 4}));
    EXPECT_FALSE(model.config().tied_head);
    EXPECT_EQ(model.config().rms_epsilon, 1e-5f);
    EXPECT_EQ(model.unread_settings(), std::vector<std::string>());
    EXPECT_EQ(model.warnings(), std::vector<std::string>());
    ASSERT_EQ(model.notes().size(), 1u);
    EXPECT_NE(model.notes()[0].find("without 2 tensors, the first '"), std::string::npos);
    EXPECT_EQ(model.tensor_names().output, head);
    EXPECT_FALSE(model.weights().contains("visual.blocks.0.attn.qkv.weight"));
    const ExecContext ctx;
    EXPECT_EQ(
        load_weights(ctx, model.weights(), model.config(), model.tensor_names()).layers.size(), 2u);
  }
}

TEST(TextHalf, SaysWhatItDoesNotKnow) {
  SmallFolder small;
  wrap(small, "model.language_model.", "lm_head.weight");
  small.config["text_config"]["new"] = 1;
  small.config["text_config"]["rope_scaling"]["of_tomorrow"] = 2;
  small.config["newer"] = 3;
  small.shapes["talker.weight"] = {3};
  small.write_all();
  const FolderModel model(small.path());
  EXPECT_EQ(model.unread_settings(),
            (std::vector<std::string>{"text_config.new", "newer",
                                      "text_config.rope_scaling.of_tomorrow"}));
  ASSERT_EQ(model.warnings().size(), 1u);
  EXPECT_NE(model.warnings()[0].find("1 tensor, 'talker.weight', not loaded: not part"),
            std::string::npos);
  small.config["text_config"]["num_hidden_layers"] = "2";
  small.write_all();
  testing::expect_invalid(
      {"config.json: text_config.num_hidden_layers is \"2\", expected an integer"},
      [&] { const FolderModel wrong(small.path()); });
  small.config["text_config"] = {{"model_type", "qwen3_vl_text"}};
  small.write_all();
  expect_unsupported({"config.json: text_config.model_type is qwen3_vl_text, a "
                      "Qwen2_5_VLForConditionalGeneration is supported with qwen2_5_vl_text"},
                     [&] { const FolderModel wrong(small.path()); });
}

TEST(TextHalf, AdaptersNameItsModulesByEitherForm) {
  const std::string of_a = "layers.3.self_attn.q_proj.lora_A.weight";
  for (const char* decoder : {"model.", "model.language_model.", "language_model.model."}) {
    const auto name = parse_peft_name("base_model.model." + (decoder + of_a));
    ASSERT_TRUE(name) << decoder;
    EXPECT_EQ(name->decoder, decoder);
    EXPECT_EQ(name->place.name(), "model.layers.3.self_attn.q_proj");
    EXPECT_EQ(name->part, AdapterPart::kA);
    AdapterConfig config = parse_adapter_config(R"({"peft_type": "LORA", "r": 4, "target_modules":
            ".*language_model.*q_proj", "rank_pattern": {"language_model.layers.3.self_attn.q_proj": 2}})",
                                                "c");
    config.decoder = name->decoder;
    EXPECT_EQ(config.targets(name->place.name()), config.decoder != "model.");
    EXPECT_EQ(config.rank_of(name->place.name()),
              config.decoder == "model.language_model." ? 2 : 4);
  }
  const auto head = parse_peft_name("base_model.model.language_model.lm_head.lora_A.weight");
  ASSERT_TRUE(head);
  EXPECT_EQ(head->place.name(), "lm_head");
  EXPECT_TRUE(is_of_other_half("base_model.model.model.visual.blocks.0.attn.qkv.lora_A.weight"));
  EXPECT_TRUE(is_of_other_half("base_model.model.vision_tower.encoder.layers.0.lora_A.weight"));
  EXPECT_FALSE(is_of_other_half("base_model.model." + of_a));
  EXPECT_FALSE(is_of_other_half("base_model.model.model.audiovisual.lora_A.weight"));
}

}  // namespace
}  // namespace heddle::model
