// Merges of adapters against their definition in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "model/adapters/merge/merged_adapter.h"
#include "model/test/adapter_cases.h"
#include "model/test/fake_adapter.h"
#include "model/test/llama_file.h"
#include "model/test/merge_ref.h"
#include "random.h"

namespace heddle::model {
namespace {

using Method = AdapterMergeRule::Method;
using Sign = AdapterMergeRule::MajoritySign;

constexpr Method kMethods[] = {Method::kTies, Method::kDareLinear, Method::kDareTies,
                               Method::kMagnitudePrune};

AdapterMergeRule random_rule(Method method) {
  return {.method = method,
          .density = static_cast<double>(testing::random_int(1, 100)) / 100,
          .majority_sign = testing::pick({Sign::kTotal, Sign::kFrequency}),
          .seed = testing::random_int(-3, int64_t{1} << 40)};
}

double random_weight() { return static_cast<double>(testing::random_int(-20, 20)) / 8; }

/// Few different values, so that many magnitudes and sums are equal, and zeros.
template <class T>
std::vector<T> coarse_values(size_t count) {
  std::vector<T> values;
  for (size_t i = 0; i < count; ++i) {
    values.push_back(from_float<T>(static_cast<float>(testing::random_int(-3, 3)) / 4));
  }
  return values;
}

template <class T>
void expect_merged(DType dtype, const AdapterMergeRule& rule, int64_t rows, int64_t columns,
                   bool is_coarse) {
  const auto count = static_cast<size_t>(rows * columns);
  const auto num_tensors = testing::random_int(1, 5);
  std::vector<std::vector<T>> memory;
  std::vector<WeightedTensor> tensors;
  std::vector<ref::TaskTensor> tasks;
  for (int64_t j = 0; j < num_tensors; ++j) {
    memory.push_back(is_coarse ? coarse_values<T>(count) : testing::random_normal<T>(count));
    const double weight = random_weight();
    const auto place = static_cast<uint32_t>(2 * j);
    tensors.push_back({{dtype, rows, columns, nullptr, "t"}, weight, place});
    tasks.push_back({testing::to_double(memory.back()), weight, place});
  }
  for (size_t j = 0; j < memory.size(); ++j) {
    tensors[j].values.data = reinterpret_cast<const std::byte*>(memory[j].data());
  }
  const auto number = static_cast<uint32_t>(testing::random_int(0, 1000));
  std::vector<float> got(count, NAN);
  merge_tensors(got, tensors, rule, number);
  const std::vector<double> want = ref::merge(tasks, rule, number);
  EXPECT_LT(testing::relative_error<float>(got, want), 1.01 * testing::kRounding<float>)
      << rows << " x " << columns << ", density " << rule.density;
}

TEST(MergeTensors, AreTheirDefinition) {
  for (const Method method : kMethods) {
    for (int round = 0; round < 12; ++round) {
      const int64_t rows = testing::pick({1, 3, 16}), columns = testing::pick({1, 2, 7, 40});
      const bool is_coarse = round % 2 == 0;
      expect_merged<float>(DType::kFloat32, random_rule(method), rows, columns, is_coarse);
      expect_merged<half>(DType::kFloat16, random_rule(method), rows, columns, is_coarse);
      expect_merged<bfloat16>(DType::kBFloat16, random_rule(method), rows, columns, is_coarse);
    }
  }
}

std::vector<float> merged(const std::vector<std::vector<float>>& values,
                          const AdapterMergeRule& rule) {
  std::vector<WeightedTensor> tensors;
  for (size_t j = 0; j < values.size(); ++j) {
    tensors.push_back({{DType::kFloat32, 1, std::ssize(values[j]),
                        reinterpret_cast<const std::byte*>(values[j].data()), "t"},
                       1.0,
                       static_cast<uint32_t>(j)});
  }
  std::vector<float> out(values.front().size(), NAN);
  merge_tensors(out, tensors, rule, 0);
  return out;
}

/// By hand.
TEST(MergeTensors, FollowTheMajority) {
  const std::vector<std::vector<float>> values = {{5, 1, -1, 0}, {-2, 1, 1, 0}, {-2, -3, 0, 0}};
  const AdapterMergeRule total{.method = Method::kTies},
      frequency{.method = Method::kTies, .majority_sign = Sign::kFrequency};
  EXPECT_EQ(merged(values, total), (std::vector<float>{5, -3, 1, 0}));
  EXPECT_EQ(merged(values, frequency), (std::vector<float>{-2, 1, 1, 0}));
}

TEST(MergeTensors, KeepTheFirstOfEqualMagnitudes) {
  const AdapterMergeRule rule{.method = Method::kMagnitudePrune, .density = 0.5};
  EXPECT_EQ(merged({{1, -2, 2, 1, -1, 1}}, rule), (std::vector<float>{1, -2, 2, 0, 0, 0}));
  const AdapterMergeRule none{.method = Method::kMagnitudePrune, .density = 0.1};
  EXPECT_EQ(merged({{1, -2, 2, 1, -1, 1}}, none), std::vector<float>(6));
}

/// Over more elements than are summed up at once.
TEST(MergeTensors, TellMagnitudesApartThatDifferInAnyBit) {
  for (const uint32_t first_bits : {0x3f800000u, 0u, 0x007ffff0u, 0x3f7ffc00u, 0x7f7ff000u}) {
    std::vector<float> values;
    for (int i = 0; i < 2000; ++i) {
      const auto bits = first_bits + static_cast<uint32_t>(testing::random_int(0, 2047));
      const auto sign = static_cast<uint32_t>(testing::random_int(0, 1)) << 31;
      values.push_back(std::bit_cast<float>(bits | sign));
    }
    const double density = static_cast<double>(testing::random_int(1, 99)) / 100;
    const AdapterMergeRule rule{.method = Method::kMagnitudePrune, .density = density};
    std::vector<size_t> order(values.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return std::abs(values[i]); });
    std::vector<float> want(values.size());
    const auto num_kept = static_cast<size_t>(density * 2000);
    for (size_t i = 0; i < num_kept; ++i) want[order[i]] = values[order[i]];
    EXPECT_EQ(merged({values}, rule), want) << first_bits << ", density " << density;
  }
}

TEST(MergeTensors, DrawTheirShareAnewForEachSeedTensorAndPlace) {
  constexpr int64_t kCount = 20000;
  AdapterMergeRule rule{
      .method = Method::kDareLinear, .density = 0.3, .seed = testing::random_int(0, 9)};
  const auto drawn = [&](int64_t seed, uint32_t tensor, uint32_t place) {
    rule.seed = seed;
    std::vector<int> each;
    for (int64_t i = 0; i < kCount; ++i) each.push_back(is_drawn(rule, tensor, place, i) ? 1 : 0);
    return each;
  };
  const int64_t seed = rule.seed;
  const std::vector<int> first = drawn(seed, 4, 1);
  EXPECT_EQ(drawn(seed, 4, 1), first);
  for (const auto& other : {drawn(seed + 1, 4, 1), drawn(seed + (int64_t{1} << 32), 4, 1),
                            drawn(seed, 5, 1), drawn(seed, 4, 0)}) {
    double count = 0, both = 0;
    for (size_t i = 0; i < other.size(); ++i) count += other[i], both += other[i] * first[i];
    // Six standard deviations.
    EXPECT_NEAR(count / kCount, 0.3, 0.02);
    EXPECT_NEAR(both / kCount, 0.09, 0.0125);
  }
}

DecoderConfig merge_config() {
  return llama::rotating({.num_layers = 2,
                          .hidden_size = 24,
                          .intermediate_size = 40,
                          .num_q_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = 8,
                          .vocab_size = 64,
                          .context_length = 64});
}

/// Random adapters of a model, and what they are merged into.
class MergedAdapterTest : public ::testing::Test {
 protected:
  void add(int64_t rank, const std::vector<int>& targets, float weight) {
    ref::Llama unused = base_;
    auto adapter = std::make_unique<PeftAdapter>(
        random_adapter<float>("F32", rank, targets, files_.emplace_back(), unused));
    parts_.push_back({"part" + std::to_string(parts_.size()), std::move(adapter), weight});
  }
  void add(std::unique_ptr<Adapter> adapter) { parts_.push_back({"fake", std::move(adapter), 1}); }

  ref::Llama base_ = random_llama(merge_config(), true);
  std::list<std::string> files_;
  std::vector<MergePart> parts_;
};

/// Layers that some have, weights of either sign, and the factors of their scales.
TEST_F(MergedAdapterTest, HasTheTensorsOfThoseThatHaveThem) {
  add(3, {llama::kQ, llama::kDown}, 0.7f);
  add(3, {llama::kQ, llama::kUp}, -1.5f);
  add(3, {llama::kDown, llama::kQ}, 0.0f);
  const AdapterMergeRule rule = random_rule(Method::kDareTies);
  std::vector<std::vector<AdapterPair>> pairs;
  std::vector<double> weights;
  for (const MergePart& part : parts_) {
    pairs.push_back(part.adapter->pairs());
    weights.push_back(part.weight);
  }
  MergedAdapter merged("it", std::move(parts_), rule);
  merged.load();
  merged.check_fits(merge_config().dims());
  ASSERT_EQ(merged.pairs().size(), 6u);
  uint32_t number = 0;
  for (const AdapterPair& pair : merged.pairs()) {
    EXPECT_EQ(pair.scale, 1.0f);
    std::vector<ref::TaskTensor> a, b;
    for (size_t j = 0; j < pairs.size(); ++j) {
      for (const AdapterPair& other : pairs[j]) {
        if (other.layer != pair.layer || other.module != pair.module) continue;
        const double weight = weights[j] * static_cast<double>(other.scale);
        const double root = std::sqrt(std::abs(weight));
        const auto place = static_cast<uint32_t>(j);
        a.push_back(
            {testing::to_double(other.stored_a().floats()), weight < 0 ? -root : root, place});
        b.push_back({testing::to_double(other.stored_b().floats()), root, place});
      }
    }
    ASSERT_FALSE(a.empty());
    for (const auto& [got, tasks] : {std::pair(pair.stored_a(), &a), {pair.stored_b(), &b}}) {
      EXPECT_LT(testing::relative_error<float>(got.floats(), ref::merge(*tasks, rule, number++)),
                1.01 * testing::kRounding<float>);
    }
  }
}

TEST_F(MergedAdapterTest, HasTheSameBitsOnAnyNumberOfThreads) {
  for (int i = 0; i < 3; ++i) add(3, {llama::kQ, llama::kUp, llama::kDown}, 0.5f);
  MergedAdapter merged("it", std::move(parts_),
                       random_rule(testing::pick({Method::kTies, Method::kDareTies})));
  merged.load();
  std::vector<std::vector<float>> want;
  for (const AdapterPair& pair : merged.pairs()) want.push_back(pair.stored_b().floats());
  for (const int num_threads : {1, 2, 7}) {
    ThreadPool threads(num_threads);
    merged.load(threads);
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_EQ(merged.pairs()[i].stored_b().floats(), want[i]) << num_threads;
    }
  }
}

TEST_F(MergedAdapterTest, RefusesWhatItCannotHave) {
  const auto make = [this] { MergedAdapter("the merge", std::move(parts_), AdapterMergeRule{}); };
  add(3, {llama::kQ}, 1);
  add(4, {llama::kV}, 1);
  EXPECT_NO_THROW(make()) << "no layer has two ranks";
  parts_.clear();
  add(3, {llama::kQ}, 1);
  add(4, {llama::kQ}, 1);
  testing::expect_invalid({"the merge: tensor '",
                           "q_proj.lora_A.weight' of adapter 'part1' has "
                           "rank 4, that of 'part0' has 3; a merge needs adapters of one rank"},
                          make);
  const std::pair<const char*, void (*)(FakeAdapter&)> settings[] = {
      {"use_dora", [](auto& a) { a.pair(0).magnitude = a.tensor("m", DType::kFloat32, 1, 4); }},
      {"lora_bias", [](auto& a) { a.pair(0).bias = a.tensor("m", DType::kFloat32, 1, 4); }},
      {"biases of layers (bias)",
       [](auto& a) { a.pair(0).layer_bias = a.tensor("m", DType::kFloat32, 1, 4); }},
      {"alora_invocation_tokens", [](auto& a) { a.invocation() = {3}; }},
      {"trainable_token_indices", [](auto& a) { a.of_head().token_ids = {3}; }}};
  for (const auto& [setting, set] : settings) {
    parts_.clear();
    auto fake = std::make_unique<FakeAdapter>();
    fake->add_pair(fake->tensor("a", DType::kFloat32, 2, 6),
                   fake->tensor("b", DType::kFloat32, 4, 2));
    set(*fake);
    add(std::move(fake));
    testing::expect_invalid({"adapter 'fake' has ", setting, ", which a merge cannot have"}, make);
  }
}

TEST_F(MergedAdapterTest, RefusesFusedAndSingleLayersOfTheSameRows) {
  for (const char* module : {"self_attn.q_proj", "self_attn.qkv_proj"}) {
    auto fake = std::make_unique<FakeAdapter>();
    fake->add_pair(fake->tensor(module, DType::kFloat32, 2, 24),
                   fake->tensor("b", DType::kFloat32, 8, 2))
        .module = find_linear_module(module);
    add(std::move(fake));
  }
  const MergedAdapter merged("the merge", std::move(parts_), AdapterMergeRule{});
  testing::expect_invalid({"the merge: tensors 'self_attn.q_proj' and 'self_attn.qkv_proj' are "
                           "for the same rows of a layer"},
                          [&] { merged.check_fits(merge_config().dims()); });
}

}  // namespace
}  // namespace heddle::model
