// Folders of Medusa heads: what is read, and what is refused.
#include "model/adapters/medusa/medusa_files.h"

#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "model/adapters/medusa/test/medusa_cases.h"
#include "model/test/llama_slices.h"

namespace heddle::model {
namespace {

using testing::expect_invalid;
using testing::MedusaCase;

constexpr int64_t kHidden = 6, kVocab = 11;

DecoderConfig config() {
  DecoderConfig config;
  config.hidden_size = kHidden;
  config.vocab_size = kVocab;
  return config;
}

/// A folder with these files.
class Folder {
 public:
  explicit Folder(const MedusaCase& heads) : Folder(heads.config(), text_of(heads)) {}
  Folder(const std::string& config, const std::string& tensors,
         const char* file = "medusa_lm_head.safetensors") {
    folder_.write("config.json", config);
    folder_.write(file, tensors);
  }
  [[nodiscard]] static std::string text_of(const MedusaCase& heads,
                                           const std::string& prefix = "") {
    testing::SafetensorsBuilder tensors;
    heads.add_tensors(tensors, prefix);
    return tensors.build();
  }
  [[nodiscard]] std::string path() const { return folder_.path().string(); }
  void load(std::optional<DType> rounded_to = {}) const {
    MedusaFiles files(path(), config(), {});
    files.load(rounded_to);
  }

 private:
  [[nodiscard]] static DecoderConfig config() { return model::config(); }
  testing::TempFolder folder_;
};

TEST(MedusaFilesTest, AllFormsAreRead) {
  for (const bool has_outputs : {false, true}) {
    for (const int64_t num_layers : {1, 2}) {
      const MedusaCase heads = MedusaCase(kHidden, kVocab, 3, num_layers, has_outputs).random();
      for (const std::string prefix : {"", "medusa_head."}) {
        for (const char* file :
             {"medusa_lm_head.safetensors", "adapter_model.safetensors", "model.safetensors"}) {
          const Folder folder(heads.config(R"(, "transformers_version": "4.40")"),
                              Folder::text_of(heads, prefix), file);
          MedusaFiles files(folder.path(), config());
          files.load({});
          ASSERT_EQ(files.heads().size(), 3u);
          EXPECT_EQ(files.heads()[2].layers.back().weight.floats(), heads.weights.back());
          EXPECT_EQ(files.heads()[2].layers.back().bias.floats(), heads.biases.back());
          EXPECT_EQ(files.heads()[1].output.is_present(), has_outputs);
          if (has_outputs) {
            EXPECT_EQ(files.heads()[1].output.floats(), heads.outputs[1]);
          }
          EXPECT_TRUE(files.warnings().empty());
        }
      }
    }
  }
  const MedusaCase heads(kHidden, kVocab, 1);
  const Folder odd(heads.config(R"(, "medusa_choices": 3)"), Folder::text_of(heads));
  EXPECT_NE(MedusaFiles(odd.path(), config()).warnings().at(0).find("medusa_choices"),
            std::string::npos);
  EXPECT_TRUE(has_medusa_config(odd.path(), {}));
  const Folder other(R"({"hidden_size": 6})", Folder::text_of(heads));
  EXPECT_FALSE(has_medusa_config(other.path(), {}));
  EXPECT_EQ(open_heads(other.path(), config(), {}), nullptr);
}

TEST(MedusaFilesTest, WrongSettingsAreNamed) {
  const MedusaCase heads(kHidden, kVocab, 2);
  const std::string tensors = Folder::text_of(heads);
  const auto with = [&](const std::string& text) { Folder(text, tensors).load(); };
  for (const std::string version : {"1", "2", "1.0", "\"2\"", "null"}) {
    with(R"({"medusa_num_heads": 2, "medusa_num_layers": 1, "version": )" + version + "}");
  }
  for (const std::string version : {"3", "\"x\"", "[]", "1.5", "true"}) {
    expect_invalid({"config.json: version is ", "expected 1 or 2"}, [&] {
      with(R"({"medusa_num_heads": 2, "medusa_num_layers": 1, "version": )" + version + "}");
    });
  }
  expect_invalid({"has no medusa_num_layers"}, [&] { with(R"({"medusa_num_heads": 2})"); });
  expect_invalid({"medusa_num_heads is 65, expected 1 to 64"},
                 [&] { with(R"({"medusa_num_heads": 65, "medusa_num_layers": 1})"); });
  expect_invalid({"medusa_num_heads is -1"},
                 [&] { with(R"({"medusa_num_heads": -1, "medusa_num_layers": 1})"); });
  expect_invalid({"medusa_num_layers is \"1\""},
                 [&] { with(R"({"medusa_num_heads": 2, "medusa_num_layers": "1"})"); });
  expect_invalid({"config.json"}, [&] { with("{"); });
  expect_invalid({"config.json"}, [&] { with("[]"); });
}

TEST(MedusaFilesTest, WrongTensorsAreNamed) {
  const MedusaCase two(kHidden, kVocab, 2), three(kHidden, kVocab, 3);
  expect_invalid({"has no tensor '2.0.linear.weight'", "3 heads of 1 layer"},
                 [&] { Folder(three.config(), Folder::text_of(two)).load(); });
  expect_invalid({"tensor '2.0.linear.weight' has no place in 2 Medusa heads"},
                 [&] { Folder(two.config(), Folder::text_of(three)).load(); });
  expect_invalid({"tensor '0.0.linear.weight' is [5, 5], expected [6, 6]"},
                 [&] { Folder(MedusaCase(5, kVocab, 2)).load(); });
  expect_invalid({"tensor '0.1.weight' is [12, 6], expected [11, 6]"},
                 [&] { Folder(MedusaCase(kHidden, 12, 2, 1, true)).load(); });
  testing::SafetensorsBuilder more, twice, half, of_integers;
  two.add_tensors(more);
  more.tensor("lm_head.weight", "F32", {1}, "abcd");
  expect_invalid({"tensor 'lm_head.weight' has no place"},
                 [&] { Folder(two.config(), more.build()).load(); });
  two.add_tensors(twice);
  two.add_tensors(twice, "medusa_head.");
  expect_invalid({"'0.0.linear.weight' and 'medusa_head.0.0.linear.weight' are for the same place"},
                 [&] { Folder(two.config(), twice.build()).load(); });
  two.add_tensors(half);
  half.tensor("1.1.weight", "F32", {kVocab, kHidden},
              std::string(static_cast<size_t>(kVocab * kHidden) * sizeof(float), '\0'));
  expect_invalid({"has no tensor '0.1.weight'"},
                 [&] { Folder(two.config(), half.build()).load(); });
  of_integers.tensor("0.0.linear.weight", "I32", {1}, "abcd");
  testing::expect_unsupported({"0.0.linear.weight", "I32"},
                              [&] { Folder(two.config(), of_integers.build()).load(); });
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    MedusaCase wrong = two;
    wrong.weights[1][7] = value;
    expect_invalid({"tensor '1.0.linear.weight' has ", " at [1, 1]"},
                   [&] { Folder(wrong).load(); });
  }
  MedusaCase large = two;
  large.biases[0][2] = 1e6f;
  Folder(large).load();
  expect_invalid({"'0.0.linear.bias' has 1e+06 at [0, 2], which is out of range for"},
                 [&] { Folder(large).load(DType::kFloat16); });
}

/// Every prefix of a file is refused, and none ends the process.
TEST(MedusaFilesTest, TruncatedFilesAreRefused) {
  const MedusaCase heads(kHidden, kVocab, 1);
  const std::string tensors = Folder::text_of(heads);
  for (size_t size = 0; size < tensors.size(); size += size < 64 ? 1 : 37) {
    expect_invalid({"medusa_lm_head.safetensors"},
                   [&] { Folder(heads.config(), tensors.substr(0, size)).load(); });
  }
  testing::TempFolder none;
  expect_invalid({"has no config.json with medusa_num_heads"},
                 [&] { (void)MedusaFiles(none.path().string(), config()); });
  none.write("config.json", heads.config());
  expect_invalid({"has no medusa_lm_head.safetensors, adapter_model.safetensors or"},
                 [&] { (void)MedusaFiles(none.path().string(), config()); });
  none.write("medusa_lm_head.pt", "x");
  testing::expect_unsupported({"medusa_lm_head.pt: is a pickle", "python -c"},
                              [&] { (void)MedusaFiles(none.path().string(), config()); });
}

}  // namespace
}  // namespace heddle::model
