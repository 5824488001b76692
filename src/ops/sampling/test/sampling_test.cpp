#include "heddle/ops/sampling.h"

#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "isa.h"
#include "ops/sampling/draw.h"
#include "ops/sampling/test/sampling_test_body.h"
#include "scoped_validation.h"

namespace heddle {
namespace {

using testing::message_of;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kSizes[] = {1, 2, 3, 7, 15, 16, 17, 31, 63, 64, 65, 1000, 1023, 1025, 5000};

ConstTensorView rows_view(const std::vector<float>& logits, int64_t rows, int64_t vocab,
                          int64_t stride) {
  const std::array<int64_t, 2> shape{rows, vocab}, strides{stride, 1};
  return {reinterpret_cast<const std::byte*>(logits.data()), DType::kFloat32, {}, shape, strides};
}

Picked sample_rows(const std::vector<float>& logits, const std::vector<SamplingRow>& rows,
                   ThreadPool* threads = nullptr) {
  const auto n = static_cast<int64_t>(rows.size());
  const int64_t vocab = static_cast<int64_t>(logits.size()) / n;
  Picked picked{std::vector<int64_t>(rows.size()), std::vector<float>(rows.size())};
  const SamplingColumns columns(rows);
  sample(SamplingContext(n, vocab, threads), host_view(picked.tokens.data(), {n}),
         host_view(picked.logprobs.data(), {n}), host_view(logits.data(), {n, vocab}),
         columns.table());
  return picked;
}

TEST(Greedy, TakesTheLargestLogitOfTheLowestIdOnEveryTarget) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t vocab : kSizes) {
      const int64_t rows = testing::random_int(1, 4), stride = vocab + testing::random_int(0, 3);
      const std::vector<float> logits = random_logits(size_t(rows * stride));
      testing::PoisonedBuffer<int64_t> tokens(size_t(2 * rows));
      testing::PoisonedBuffer<float> logprobs(size_t(3 * rows));
      const std::array<int64_t, 1> shape{rows}, two{2}, three{3};
      greedy({}, {reinterpret_cast<std::byte*>(tokens.data()), DType::kInt64, {}, shape, two},
             {reinterpret_cast<std::byte*>(logprobs.data()), DType::kFloat32, {}, shape, three},
             rows_view(logits, rows, vocab, stride));
      EXPECT_TRUE(tokens.guards_intact() && logprobs.guards_intact());
      for (int64_t r = 0; r < rows; ++r) {
        const std::span row(logits.data() + r * stride, size_t(vocab));
        const int64_t want = first_argmax(row);
        EXPECT_EQ(tokens[size_t(2 * r)], want);
        EXPECT_TRUE(tokens.untouched(size_t(2 * r + 1)));
        EXPECT_TRUE(logprobs.untouched(size_t(3 * r + 1)) && logprobs.untouched(size_t(3 * r + 2)));
        const float got = logprobs[size_t(3 * r)];
        if (!(row[size_t(want)] > -kInfinity)) {
          EXPECT_EQ(got, -kInfinity);
        } else {
          EXPECT_NEAR(got, ref::logprob(row, size_t(want)), 2e-6);
        }
      }
    }
  }
}

TEST(Greedy, WritesIntsOfBothWidthsAndNeedsNoLogprobs) {
  const std::vector<float> logits{0.0f, 3.0f, 3.0f, 1.0f, 0.5f, 0.0f};
  testing::PoisonedBuffer<int32_t> narrow(2);
  testing::PoisonedBuffer<int64_t> wide(2);
  greedy({}, narrow.view({2}), {}, host_view(logits.data(), {2, 3}));
  greedy({}, wide.view({2}), {}, host_view(logits.data(), {2, 3}));
  EXPECT_EQ((std::vector<int32_t>{narrow[0], narrow[1]}), (std::vector<int32_t>{1, 0}));
  EXPECT_EQ((std::vector<int64_t>{wide[0], wide[1]}), (std::vector<int64_t>{1, 0}));
}

TEST(Sample, DrawsWhatTheDefinitionDrawsOnEveryTarget) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int64_t vocab : kSizes) {
      for (int repeat = 0; repeat < 6; ++repeat) {
        const int64_t num_rows = testing::random_int(1, 20);
        const SamplingContext ctx(num_rows, vocab);
        testing::Mirror host;
        expect_draws(ctx, host, num_rows, vocab);
      }
    }
  }
}

/// Pearson's statistic of 50,000 draws must stay below a bound that it exceeds with a probability
/// of less than 1e-10 where the sampler is right (Wilson and Hilferty's approximation at 6.5
/// standard deviations).
void expect_distribution(const std::vector<float>& logits, SamplingRow row) {
  constexpr int64_t kDraws = 50000;
  const auto c = ref::candidates(logits, {row.temperature, row.top_k, row.top_p, row.min_p});
  row.seed = testing::random_int(INT64_MIN, INT64_MAX);
  std::vector<SamplingRow> rows(size_t{kDraws}, row);
  for (int64_t i = 0; i < kDraws; ++i) rows[size_t(i)].step = i;
  std::vector<int32_t> tokens(size_t{kDraws});
  const auto vocab = static_cast<int64_t>(logits.size());
  const SamplingColumns columns(rows);
  sample(SamplingContext(kDraws, vocab), host_view(tokens.data(), {kDraws}), {},
         rows_view(logits, kDraws, vocab, 0), columns.table());  // one row of logits for all

  std::vector<double> counts(logits.size());
  for (const int32_t token : tokens) ++counts[size_t(token)];
  double statistic = 0.0, seen = 0.0;
  for (size_t i = 0; i < c.tokens.size(); ++i) {
    const double expected = c.probabilities[i] * kDraws, count = counts[size_t(c.tokens[i])];
    ASSERT_GT(expected, 20.0) << "the case is too thin for the test";
    statistic += (count - expected) * (count - expected) / expected;
    seen += count;
  }
  EXPECT_EQ(seen, kDraws) << "a token was drawn that the filters leave out";
  const double k = static_cast<double>(c.tokens.size()) - 1.0;
  if (k < 1.0) return;
  EXPECT_LT(statistic, k * std::pow(1.0 - 2.0 / (9.0 * k) + 6.5 * std::sqrt(2.0 / (9.0 * k)), 3));
}

TEST(Sample, DrawsWithTheExactProbabilities) {
  const std::vector<float> eight{0.3f, -1.2f, 2.0f, 0.3f, 1.1f, -0.4f, 1.9f, 0.0f};
  expect_distribution(eight, {});
  expect_distribution(eight, {.temperature = 0.5f});
  expect_distribution(eight, {.temperature = 2.0f});
  expect_distribution(eight, {.top_k = 3});
  expect_distribution(eight, {.top_p = 0.8f});
  expect_distribution(eight, {.min_p = 0.2f});
  expect_distribution(eight, {.temperature = 1.5f, .top_k = 6, .top_p = 0.9f, .min_p = 0.15f});
  expect_distribution(std::vector<float>(100, 1.0f), {});             // all equal
  expect_distribution(std::vector<float>(100, 1.0f), {.top_k = 10});  // the ten lowest ids
  expect_distribution(testing::random_normal<float>(90, 0.5f), {});
}

TEST(Sample, ARowDependsOnItsOwnLogitsAndParametersAlone) {
  const int64_t num_rows = 37, vocab = 3001;
  const std::vector<float> logits = testing::random_normal<float>(size_t(num_rows * vocab), 3.0f);
  std::vector<SamplingRow> rows;
  for (int64_t r = 0; r < num_rows; ++r) rows.push_back(random_sampling_row(vocab));
  Picked first;
  for (const int64_t target : testing::cpu_targets()) {
    if (!testing::has_fused_multiply_add(target)) continue;
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      ThreadPool pool(threads);
      const Picked picked = sample_rows(logits, rows, &pool);
      if (first.tokens.empty()) first = picked;
      EXPECT_EQ(picked.tokens, first.tokens);
      EXPECT_TRUE(testing::same_bits<float>(picked.logprobs, first.logprobs));
    }
    for (int64_t r = 0; r < num_rows; ++r) {
      const std::vector<float> own(logits.begin() + r * vocab, logits.begin() + (r + 1) * vocab);
      const Picked alone = sample_rows(own, {rows[size_t(r)]});
      EXPECT_EQ(alone.tokens[0], first.tokens[size_t(r)]);
      EXPECT_TRUE(testing::same_bits<float>(alone.logprobs, {&first.logprobs[size_t(r)], 1}));
    }
  }
}

/// Where the sum of the largest reaches top_p exactly, nothing more is kept; where a weight is
/// exactly min_p times the largest, its token is.
TEST(Sample, FiltersKeepWhatReachesTheirBoundExactly) {
  const auto drawn = [](const std::vector<float>& logits, SamplingRow row) {
    std::vector<SamplingRow> rows(400, row);
    for (size_t i = 0; i < rows.size(); ++i) rows[i].step = static_cast<int64_t>(i);
    std::vector<float> repeated;
    for (size_t i = 0; i < rows.size(); ++i) {
      repeated.insert(repeated.end(), logits.begin(), logits.end());
    }
    const std::vector<int64_t> tokens = sample_rows(repeated, rows).tokens;
    return std::set<int64_t>(tokens.begin(), tokens.end());
  };
  const std::vector<float> equal(8, 1.5f);  // a probability of 1/8 each
  using Ids = std::set<int64_t>;
  EXPECT_EQ(drawn(equal, {.top_p = 0.5f}), (Ids{0, 1, 2, 3}));
  EXPECT_EQ(drawn(equal, {.top_p = 0.125f}), (Ids{0}));
  EXPECT_EQ(drawn(equal, {.top_k = 4, .top_p = 0.75f}), (Ids{0, 1, 2}));
  EXPECT_EQ(drawn({2.0f, 1.9f, 2.0f, 2.0f, 1.0f}, {.min_p = 1.0f}), (Ids{0, 2, 3}));
  // All weigh the same at last, but for what is masked.
  EXPECT_EQ(drawn({-kInfinity, 3.0f, 50.0f, kNan}, {.temperature = kInfinity}), (Ids{1, 2}));
}

/// The first token whose running sum exceeds u times the total, not one that reaches it.
TEST(Sample, TakesTheFirstTokenWhoseSumExceedsTheDraw) {
  const std::vector<float> logits{1.0f, 1.0f, -kInfinity, 1.0f, 1.0f};
  std::vector<float> weights(logits.size());
  std::vector<OrderKey> keys(logits.size());
  const auto at = [&](double u) {
    return draw_token({logits.data(), std::ssize(logits)}, 1.0f,
                      {.temperature = 1.0f, .top_k = 0, .top_p = 1.0f, .min_p = 0.0f, .u = u},
                      {weights.data(), keys.data()});
  };
  EXPECT_EQ(at(0.0), 0);
  EXPECT_EQ(at(0.25 - 0x1p-53), 0);
  EXPECT_EQ(at(0.25), 1);
  EXPECT_EQ(at(0.5), 3);
  EXPECT_EQ(at(0.75), 4);
  EXPECT_EQ(at(1.0 - 0x1p-53), 4);
}

/// Ranges of weights have no gap between them: each holds its lower bound and not its upper one.
TEST(Sample, RangesOfWeightsMeet) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    const std::vector<float> logits(37, 0.0f);
    std::vector<float> weights(logits.size(), 0.125f);
    weights[5] = weights[35] = 0.25f;
    weights[6] = weights[36] = 0.5f;
    std::vector<OrderKey> keys(logits.size());
    const LogitRow row{logits.data(), std::ssize(logits)};
    const auto tokens = [&](float low, float high) {
      const int64_t n = cpu::sampling::keys_of_weights(row, weights.data(), low, high, keys.data());
      std::vector<int32_t> found;
      for (int64_t i = 0; i < n; ++i) found.push_back(token_of(keys[size_t(i)]));
      return found;
    };
    EXPECT_EQ(tokens(0.25f, 0.5f), (std::vector<int32_t>{5, 35}));
    EXPECT_EQ(tokens(0.5f, 2.0f), (std::vector<int32_t>{6, 36}));
    EXPECT_EQ(tokens(0.0f, 0.25f).size(), 33u);
  }
}

/// Sums of blocks are added in f64: after one token of weight 1, each of 200 blocks weighs less
/// than f32 could add to 1.
TEST(Sample, SmallWeightsOfManyBlocksAdd) {
  constexpr int64_t kBlocks = 200, kBlock = 1024;
  std::vector<float> logits(size_t{kBlocks * kBlock}, -kInfinity);
  logits[0] = 0.0f;
  for (size_t block = 1; block < size_t{kBlocks}; ++block) logits[block * kBlock] = -17.5f;
  const double want = -std::log1p((kBlocks - 1) * std::exp(-17.5));
  const Picked greedy_row = sample_rows(logits, {{.temperature = 0.0f}});
  EXPECT_NEAR(greedy_row.logprobs[0], want, 1e-5 * -want);
  const Picked drawn = sample_rows(logits, {{.temperature = 1.0f, .seed = 1}});
  EXPECT_EQ(drawn.tokens[0], 0);
  EXPECT_NEAR(drawn.logprobs[0], want, 1e-5 * -want);
}

TEST(Sample, DefinesTheBordersOfItsDomain) {
  const auto draw = [](const std::vector<float>& logits, SamplingRow row) {
    row.seed = testing::random_int(0, 1 << 30);
    return sample_rows(logits, {row});
  };
  for (int repeat = 0; repeat < 30; ++repeat) {
    const Picked nothing = draw({-kInfinity, kNan, -kInfinity}, {});
    EXPECT_EQ(nothing.tokens[0], 0);
    EXPECT_EQ(nothing.logprobs[0], -kInfinity);
    EXPECT_EQ(draw({kNan, -kInfinity, -5.0f}, {.temperature = kInfinity}).tokens[0], 2);
    EXPECT_EQ(draw({1.0f, 2.0f, 1.9f}, {.temperature = 1e-40f}).tokens[0], 1);
    EXPECT_EQ(draw({1.0f, 2.0f, 2.0f}, {.top_p = 0.0f}).tokens[0], 1);
    EXPECT_EQ(draw({1.0f, 2.0f, 2.0f}, {.min_p = 7.0f}).tokens[0], 1);
    EXPECT_EQ(draw({1.0f, 2.0f, 2.0f}, {.temperature = -1.0f}).tokens[0], 1);
    EXPECT_EQ(draw({4.0f}, {.top_k = 1}).logprobs[0], 0.0f);
    const Picked infinite = draw({kInfinity, 3.0f, kInfinity}, {});
    EXPECT_NE(infinite.tokens[0], 1);
    EXPECT_NEAR(infinite.logprobs[0], -std::log(2.0), 1e-6);
  }
}

TEST(Sample, EmptyBatchesAreANoOpAndGreedyRowsNeedNoWorkspace) {
  const std::vector<float> logits{1.0f, 5.0f, 2.0f, 0.0f};
  testing::PoisonedBuffer<int64_t> tokens(2);
  sample({}, tokens.view({0}), {}, host_view(logits.data(), {0, 4}), SamplingColumns({}).table());
  EXPECT_TRUE(tokens.untouched(0));
  const SamplingColumns columns({{.temperature = 0.0f}, {.temperature = 0.0f}});
  sample({}, tokens.view({2}), {}, host_view(logits.data(), {2, 2}), columns.table());
  EXPECT_EQ(tokens[0], 1);
  EXPECT_EQ(tokens[1], 0);
}

TEST(SampleErrors, NameTensorAxisAndBothValues) {
  std::vector<float> logits(8), logprobs(3);
  std::vector<int64_t> tokens(2);
  const SamplingColumns two({{}, {}}), three({{}, {}, {}});
  const auto with = [&](const ExecContext& ctx, TensorView out_logprobs, ConstTensorView in,
                        const SamplingTable& table) {
    return message_of([&] { sample(ctx, host_view(tokens.data(), {2}), out_logprobs, in, table); });
  };
  const ConstTensorView in = host_view(logits.data(), {2, 4});
  const SamplingContext ctx(2, 4);
  EXPECT_EQ(with(ctx, {}, in, two.table()), "no error");
  EXPECT_EQ(with(ctx, {}, in, three.table()), "temperature.size(0) is 3, expected num_rows = 2");
  EXPECT_EQ(with(ctx, host_view(logprobs.data(), {3}), in, two.table()),
            "logprobs.size(0) is 3, expected num_rows = 2");
  EXPECT_EQ(with(ctx, {}, host_view(logits.data(), {2, 0}), two.table()),
            "logits.size(1) is 0, expected 1 to 2147483647");
  EXPECT_EQ(with({}, {}, in, two.table()), "sample: the context has no workspace");
  const std::vector<float> wide(2000);
  const ConstTensorView wide_in = host_view(wide.data(), {2, 1000});
  EXPECT_EQ(with(SamplingContext(2, 1000), {}, wide_in, two.table()), "no error");
  EXPECT_EQ(with(SamplingContext(1, 1000), {}, wide_in, two.table()).substr(0, 28),
            "workspace holds 12128 bytes,");
  SamplingTable wrong = two.table();
  wrong.top_k = wrong.seed;
  EXPECT_EQ(with(ctx, {}, in, wrong), "top_k is i64, supported: i32");
}

TEST(SampleErrors, ValidationRefusesValuesWithoutMeaning) {
  const std::vector<float> logits(8);
  std::vector<int64_t> tokens(2);
  const SamplingContext ctx(2, 4);
  const testing::ScopedValidation on;
  const auto with = [&](const SamplingRow& row) {
    return message_of([&] {
      sample(ctx, host_view(tokens.data(), {2}), {}, host_view(logits.data(), {2, 4}),
             SamplingColumns({{}, row}).table());
    });
  };
  EXPECT_EQ(with(SamplingRow{}), "no error");
  EXPECT_EQ(with(SamplingRow{.temperature = -1.0f}),
            "temperature[1] is -1, expected a finite number of at least 0");
  EXPECT_EQ(with(SamplingRow{.temperature = NAN}).substr(0, 17), "temperature[1] is");
  EXPECT_EQ(with(SamplingRow{.top_p = 0.0f}), "top_p[1] is 0, expected above 0");
  EXPECT_EQ(with(SamplingRow{.min_p = 1.5f}), "min_p[1] is 1.5, expected at most 1");
  EXPECT_EQ(with(SamplingRow{.step = -2}), "step[1] is -2, expected at least 0");
}

}  // namespace
}  // namespace heddle
