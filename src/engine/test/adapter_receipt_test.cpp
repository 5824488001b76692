// Receipts of adapters, through the engine, against the model with the adapter added to its weights
// in double.
#include "heddle/engine/adapter_receipt.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "engine/adapters/test/adapter_folder_case.h"
#include "engine/test/tiny_adapter.h"
#include "engine/test/tiny_model.h"
#include "expect_error.h"
#include "temp_folder.h"

namespace heddle {
namespace {

namespace llama = model::llama;
using model::ref::Llama;
using testing::TinyAdapter;

double norm_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

/// Of each projection, by its name: what the adapter changes it by, and itself.
std::map<std::string, std::pair<double, double>> norms_in_double(const Llama& base,
                                                                 const Llama& merged,
                                                                 const std::vector<int>& targets) {
  std::map<std::string, std::pair<double, double>> norms;
  for (size_t layer = 0; layer < base.layers.size(); ++layer) {
    for (const int p : targets) {
      const std::vector<double>& before = base.layers[layer].projection[p];
      std::vector<double> delta = merged.layers[layer].projection[p];
      for (size_t i = 0; i < delta.size(); ++i) delta[i] -= before[i];
      norms["model.layers." + std::to_string(layer) + "." + llama::module_name(p)] = {
          norm_of(delta), norm_of(before)};
    }
  }
  return norms;
}

/// The weights of a GPU are rounded to bf16 when the model is loaded.
double base_tolerance() { return testing::is_on_cpu() ? 1e-5 : 1e-2; }

TEST(AdapterReceipts, HaveTheNormsOfWhatIsAdded) {
  const Llama base = model::random_llama(testing::tiny_config(), true);
  const std::vector<int> targets = {llama::kQ, llama::kV, llama::kDown};
  const TinyAdapter adapter(base, 3, targets);
  Engine engine = testing::TinyModel(base).engine();
  const AdapterReceipt at_once = engine.add_adapter("it", adapter.folder.path().string()).receipt;
  const AdapterReceipt receipt = engine.adapter_receipt("it", ReceiptNorms::kComputed).value();
  EXPECT_EQ(receipt.digest, at_once.digest);
  EXPECT_EQ(receipt.tensors_given, 12);
  EXPECT_EQ(receipt.tensors_applied, 12);
  EXPECT_FALSE(receipt.is_zero);
  auto expected = norms_in_double(base, adapter.merged, targets);
  ASSERT_EQ(receipt.sites.size(), expected.size());
  double delta = 0, weights = 0;
  for (const AdapterSite& site : receipt.sites) {
    ASSERT_TRUE(expected.contains(site.module)) << site.module;
    const auto [of_delta, of_base] = expected[site.module];
    EXPECT_NEAR(site.delta_norm.value(), of_delta, 1e-5 * of_delta) << site.module;
    EXPECT_NEAR(site.base_norm.value(), of_base, base_tolerance() * of_base) << site.module;
    EXPECT_EQ(site.kind, "lora");
    EXPECT_EQ(site.rank, 3);
    EXPECT_EQ(site.scale, 1.0f);
    EXPECT_EQ(site.dtype, "f32");
    delta += of_delta * of_delta, weights += of_base * of_base;
  }
  EXPECT_NEAR(receipt.delta_norm().value(), std::sqrt(delta), 1e-5 * std::sqrt(delta));
  EXPECT_NEAR(receipt.base_norm().value(), std::sqrt(weights),
              base_tolerance() * std::sqrt(weights));
  EXPECT_NE(receipt.summary().find("12 tensors, 6 sites, rank 3, scale 1, f32, |delta| / |W| "),
            std::string::npos)
      << receipt.summary();
  testing::expect_invalid({"unknown adapter \"other\""},
                          [&] { (void)engine.adapter_receipt("other", ReceiptNorms::kAsKnown); });
}

/// A new embedding and head, of more tokens than the model's.
TEST(AdapterReceipts, HaveTheNormsOfWhatIsReplaced) {
  const Llama base = model::random_llama(testing::tiny_config(), true);
  const testing::WideAdapter adapter(base, 300);
  Engine engine = testing::TinyModel(base).engine();
  (void)engine.add_adapter("it", adapter.folder.path().string());
  const AdapterReceipt receipt = engine.adapter_receipt("it", ReceiptNorms::kComputed).value();
  ASSERT_EQ(receipt.sites.size(), 2u);
  const std::pair<const std::vector<double>*, const std::vector<double>*> weights[] = {
      {&base.embedding, &adapter.merged.embedding}, {&base.output, &adapter.merged.output}};
  for (size_t i = 0; i < 2; ++i) {
    const auto [before, after] = weights[i];
    std::vector<double> delta = *after;
    for (size_t k = 0; k < before->size(); ++k) delta[k] -= (*before)[k];
    EXPECT_EQ(receipt.sites[i].kind, "weight");
    EXPECT_EQ(receipt.sites[i].rank, 0);
    const double expected = norm_of(delta);
    EXPECT_NEAR(receipt.sites[i].delta_norm.value(), expected, base_tolerance() * expected);
  }
}

/// Adapters that a user gives and that are odd.
class OddAdapters : public ::testing::Test {
 protected:
  /// Whose scale is alpha / 3, and whose halves are B: sigma * A's.
  std::string write(float sigma, double alpha) {
    testing::SafetensorsBuilder tensors;
    const auto add = [&](const char* name, int64_t rows, int64_t columns, float factor) {
      const auto values =
          testing::random_normal<float>(static_cast<size_t>(rows * columns), factor);
      tensors.tensor(std::string("base_model.model.model.layers.0.self_attn.q_proj.") + name, "F32",
                     {rows, columns},
                     {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
    };
    const auto [in, out] = base_.config.block().slice(llama::kQ).dims;
    add("lora_A.weight", 3, in, 0.5f);
    add("lora_B.weight", out, 3, sigma);
    folder_.write("adapter_model.safetensors", tensors.build());
    folder_.write("adapter_config.json",
                  R"({"peft_type": "LORA", "r": 3, "target_modules": ["q_proj"], )"
                  R"("layers_to_transform": [0], "lora_alpha": )" +
                      std::to_string(alpha) + "}");
    return folder_.path().string();
  }
  [[nodiscard]] EngineOptions options(bool strict) {
    return {.strict = strict, .on_warning = [this](const std::string& what) {
              const std::lock_guard lock(mutex_);
              warnings_ += what + "\n";
            }};
  }
  std::string warnings() {
    const std::lock_guard lock(mutex_);
    return warnings_;
  }

  const Llama base_ = model::random_llama(testing::tiny_config(), true);
  const testing::TinyModel model_{base_};
  testing::TempFolder folder_;
  std::mutex mutex_;
  std::string warnings_;
};

TEST_F(OddAdapters, OneThatChangesNothingIsTold) {
  const std::string path = write(0.0f, 3);
  Engine engine = model_.engine(options(false));
  const AdapterInfo info = engine.add_adapter("it", path);
  EXPECT_TRUE(info.receipt.is_zero);
  ASSERT_EQ(info.warnings.size(), 1u);
  EXPECT_EQ(info.warnings[0],
            path + ": changes nothing, as before any training: at every site A or B is zero");
  EXPECT_EQ(engine.adapter_receipt("it", ReceiptNorms::kComputed)->delta_norm(), 0.0);
  Engine strict = model_.engine(options(true));
  testing::expect_invalid({"changes nothing"}, [&] { (void)strict.add_adapter("it", path); });
}

TEST_F(OddAdapters, OneThatChangesMoreThanThereIsIsTold) {
  const std::string path = write(1.0f, 3e4);
  {
    Engine engine = model_.engine(options(false));
    EXPECT_EQ(engine.add_adapter("it", path).warnings, std::vector<std::string>());
    (void)engine.adapter_receipt("it", ReceiptNorms::kComputed);
    while (warnings().empty()) std::this_thread::yield();  // of the thread that computes norms
    EXPECT_NE(warnings().find(path + ": changes the weights by more than they are"),
              std::string::npos)
        << warnings();
  }
  Engine strict = model_.engine(options(true));
  testing::expect_invalid({"changes the weights by more than they are"},
                          [&] { (void)strict.add_adapter("it", path); });
}

class ReceiptsOfFolder : public testing::AdapterFolderTest {};

TEST_F(ReceiptsOfFolder, ComeWithTheWeights) {
  write("second");
  std::map<std::string, AdapterReceipt> told;
  EngineOptions options{.adapter_dir = folder_.path().string()};
  options.on_receipt = [&](const std::string& path, const AdapterReceipt& receipt) {
    told.emplace(std::filesystem::path(path).filename().string(), receipt);
  };
  Engine engine = model_.engine(options);
  const std::vector<Completion> answers = testing::run_all(
      engine, {request("first"), request(""), request("second"), request("first")});
  ASSERT_EQ(told.size(), 2u);
  const std::string first = told.at("first").digest, second = told.at("second").digest;
  EXPECT_NE(first, second);
  EXPECT_EQ(answers[0].adapter_digest, first);
  EXPECT_EQ(answers[1].adapter_digest, "");
  EXPECT_EQ(answers[2].adapter_digest, second);
  EXPECT_EQ(answers[3].adapter_digest, first);
  Request both = request("");
  both.adapters = {{"second", 0.5f}, {"first", 1.0f}};
  EXPECT_EQ(testing::run_all(engine, {both}).front().adapter_digest, second + "+" + first);
  const AdapterReceipt receipt = engine.adapter_receipt("second", ReceiptNorms::kComputed).value();
  EXPECT_EQ(receipt.digest, second);
  EXPECT_GT(receipt.delta_norm().value(), 0.0);
  // An engine that has it by another name and path.
  EXPECT_EQ(alone_.replace_adapter("it", (folder_.path() / "second").string()).receipt.digest,
            second);
}

/// Norms of other weights than those that run are refused.
TEST_F(ReceiptsOfFolder, NormsAreOfWhatRuns) {
  Engine engine = model_.engine({.adapter_dir = folder_.path().string()});
  const std::string digest = answer(engine, "first").adapter_digest;
  write("first");
  EXPECT_EQ(engine.adapter_receipt("first", ReceiptNorms::kAsKnown)->digest, digest);
  testing::expect_invalid({"first: has changed since it was loaded"},
                          [&] { (void)engine.adapter_receipt("first", ReceiptNorms::kComputed); });
}

}  // namespace
}  // namespace heddle
