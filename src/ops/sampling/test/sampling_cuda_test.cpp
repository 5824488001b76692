#include "cuda_test.h"

#include "heddle/core/cuda_context.h"

#include "device_buffer.h"
#include "device_mirror.h"
#include "expect_error.h"
#include "graph_timing_cuda.h"
#include "late_copy.h"
#include "ops/sampling/test/adjust_test_body.h"
#include "ops/sampling/test/sampling_test_body.h"
#include "scoped_validation.h"
#include "small_sizes.h"

namespace heddle {
namespace {

using testing::DeviceBuffer;
using testing::DeviceMirror;
using testing::small_or;

class SamplingCuda : public testing::CudaTest {};

std::vector<SamplingRow> random_options(int64_t num_rows, int64_t vocab) {
  std::vector<SamplingRow> options;
  for (int64_t r = 0; r < num_rows; ++r) options.push_back(random_sampling_row(vocab));
  return options;
}

Picked on_cpu(const SampledRows& rows, const std::vector<SamplingRow>& options) {
  testing::Mirror host;
  return sample_on(SamplingContext(rows.num_rows, rows.vocab_size), host, rows, options, true,
                   true);
}

void expect_same(const Picked& got, const Picked& want) {
  EXPECT_EQ(got.tokens, want.tokens);
  EXPECT_TRUE(testing::same_bits<float>(got.logprobs, want.logprobs));
}

TEST_F(SamplingCuda, DrawsWhatTheDefinitionDraws) {
  for (const auto guards : {DeviceMirror::Guards::kBoth, DeviceMirror::Guards::kFlush}) {
    DeviceMirror device(guards);
    for (const int64_t vocab : {1, 2, 3, 7, 17, 64, 1000, 2049, 5000, 20011}) {
      expect_draws(cuda_context(), device, testing::random_int(0, small_or(3, 20)), vocab);
    }
  }
}

/// The same token and the same bits as the CPU, whatever the sizes.
TEST_F(SamplingCuda, HasTheBitsOfTheCpu) {
  DeviceMirror device;
  for (const int64_t vocab : {511, 2048, 16385, 32000, 50257, 128256, 151936, 262144}) {
    if (vocab > small_or<int64_t>(20000, 262144)) continue;
    const int64_t num_rows = small_or(3, 17);
    const SampledRows rows = random_rows(num_rows, vocab, testing::random_int(0, 5));
    const auto options = random_options(num_rows, vocab);
    const Picked want = on_cpu(rows, options);
    expect_same(sample_on(cuda_context(), device, rows, options, true, true), want);
    const Picked narrow = sample_on(cuda_context(), device, rows, options, false, false);
    EXPECT_EQ(narrow.tokens, want.tokens) << vocab;
  }
}

/// Above 2^18 logits a unit is larger. It shows where one logit has nearly all of the weight.
TEST_F(SamplingCuda, LargeVocabulariesHaveTheBitsOfTheCpu) {
  DeviceMirror device;
  for (const int64_t vocab : {int64_t{262143}, int64_t{262144}, int64_t{600000}}) {
    SampledRows rows = random_rows(4, vocab, 0);
    for (int64_t r = 0; r < rows.num_rows; ++r) {
      const int64_t id = testing::random_int(0, vocab - 1);
      rows.logits[static_cast<size_t>(r * rows.stride + id)] =
          static_cast<float>(testing::random_int(22, 34));
    }
    const auto options = random_options(rows.num_rows, vocab);
    expect_same(sample_on(cuda_context(), device, rows, options, true, true),
                on_cpu(rows, options));
  }
}

/// Every combination of options, one a row, after penalties: the bits of the CPU at each step.
TEST_F(SamplingCuda, AllOptionsTogetherHaveTheBitsOfTheCpu) {
  const int64_t vocab = testing::pick<int64_t>({700, 3000, 20011});
  std::vector<SamplingRow> options;
  for (const float temperature : {0.0f, 0.7f, 1.0f}) {
    for (const int32_t top_k : {0, 5, 300}) {
      for (const float top_p : {1.0f, 0.8f}) {
        for (const float min_p : {0.0f, 0.1f}) {
          options.push_back({temperature, top_k, top_p, min_p, testing::random_int(0, 1 << 30),
                             testing::random_int(0, 1000)});
        }
      }
    }
  }
  const int64_t num_rows = std::ssize(options);
  AdjustColumns adjustments;
  for (int64_t r = 0; r < num_rows; ++r) adjustments.add(random_adjustment(vocab));
  SampledRows want = random_rows(num_rows, vocab, 0);
  for (float& x : want.logits) {
    if (std::isnan(x)) x = 0.0f;  // the bits of NaN are not specified
  }
  SampledRows got = want;
  const auto adjust = [&](const ExecContext& ctx, testing::Mirror& m, SampledRows& rows) {
    adjust_logits(ctx, m(host_view(rows.logits.data(), {num_rows, vocab})), {}, adjustments.on(m));
    m.back();
  };
  testing::Mirror host;
  DeviceMirror device;
  adjust({}, host, want);
  adjust(cuda_context(), device, got);
  EXPECT_TRUE(testing::same_bits<float>(got.logits, want.logits));
  const Picked picked = sample_on(cuda_context(), device, want, options, true, true);
  expect_same(picked, on_cpu(want, options));
  const Scored scored = score_on(cuda_context(), device, want, picked.tokens, 20);
  const Scored on_host = score_on({}, host, want, picked.tokens, 20);
  EXPECT_TRUE(testing::same_bits<float>(scored.logprobs, picked.logprobs));
  EXPECT_TRUE(testing::same_bits<float>(scored.logprobs, on_host.logprobs));
  EXPECT_EQ(scored.top_ids, on_host.top_ids);
  EXPECT_TRUE(testing::same_bits<float>(scored.top_logprobs, on_host.top_logprobs));
}

/// Rows in which no beginning of the order is enough, so that histograms are needed.
TEST_F(SamplingCuda, SearchesFlatRowsAndTies) {
  constexpr int64_t kVocab = 40009, kRows = 5;
  DeviceMirror device;
  SampledRows rows{kRows, kVocab, kVocab, std::vector<float>(size_t(kRows * kVocab), 1.5f)};
  for (size_t i = 0; i < size_t{kVocab}; ++i) {
    rows.logits[kVocab + i] = static_cast<float>(i % 3);
    rows.logits[2 * kVocab + i] = 1.0f + static_cast<float>(i) * 1e-6f;
    rows.logits[3 * kVocab + i] = -static_cast<float>(i % 700) * 1e-3f;
    rows.logits[4 * kVocab + i] = i % 2 == 0 ? std::numeric_limits<float>::infinity() : 3.0f;
  }
  for (int repeat = 0; repeat < small_or(2, 20); ++repeat) {
    auto options = random_options(kRows, kVocab);
    for (SamplingRow& row : options) {
      row.top_k = testing::pick({0, 65, 700, 15000, 40008});
      row.temperature = testing::pick({1.0f, 0.3f, 1e30f, 2.0f});
    }
    expect_same(sample_on(cuda_context(), device, rows, options, true, true),
                on_cpu(rows, options));
  }
}

TEST_F(SamplingCuda, ARowDependsOnItsOwnLogitsAndParametersAlone) {
  DeviceMirror device;
  const int64_t num_rows = small_or(5, 300), vocab = 9001;
  const SampledRows rows = random_rows(num_rows, vocab, 0);
  const auto options = random_options(num_rows, vocab);
  const Picked all = sample_on(cuda_context(), device, rows, options, true, true);
  for (int64_t r = 0; r < num_rows; r += 7) {
    const std::span<const float> own = rows.row(r);
    const SampledRows alone{1, vocab, vocab, {own.begin(), own.end()}};
    expect_same(sample_on(cuda_context(), device, alone, {options[size_t(r)]}, true, true),
                {{all.tokens[size_t(r)]}, {all.logprobs[size_t(r)]}});
  }
}

TEST_F(SamplingCuda, GreedyTakesTheLowestOfTheLargest) {
  DeviceMirror device;
  for (const int64_t vocab : {1, 5, 2047, 50001}) {
    const SampledRows rows = random_rows(4, vocab, 1);
    std::vector<int32_t> tokens(4, -1);
    greedy(cuda_context(), device(host_view(tokens.data(), {4})), {}, device(rows.view()));
    device.back();
    for (int64_t r = 0; r < 4; ++r) {
      EXPECT_EQ(tokens[size_t(r)], first_argmax(rows.row(r))) << r << " of " << vocab;
    }
  }
}

TEST_F(SamplingCuda, TokenLogprobsAreTheDefinitionAndTheBitsOfTheCpu) {
  DeviceMirror device;
  testing::Mirror host;
  for (const int64_t vocab : {1, 2, 17, 1000, 30001}) {
    for (const int64_t k : {int64_t{1}, std::min<int64_t>(vocab, 20), std::min<int64_t>(vocab, 700),
                            small_or<int64_t>(1, vocab)}) {
      expect_scores(cuda_context(), device, 3, vocab, k);
      const SampledRows rows = random_rows(4, vocab, 2);
      const std::vector<int64_t> tokens{0, -1, vocab, vocab - 1};
      const Scored got = score_on(cuda_context(), device, rows, tokens, k);
      const Scored want = score_on({}, host, rows, tokens, k);
      EXPECT_TRUE(testing::same_bits<float>(got.logprobs, want.logprobs));
      EXPECT_EQ(got.top_ids, want.top_ids) << k << " of " << vocab;
      EXPECT_TRUE(testing::same_bits<float>(got.top_logprobs, want.top_logprobs));
    }
  }
}

TEST_F(SamplingCuda, ValidationRefusesValuesWithoutMeaning) {
  DeviceMirror device;
  const SampledRows rows = random_rows(2, 40, 0);
  const testing::ScopedValidation on;
  const auto message = [&](const SamplingRow& row) {
    std::vector<int64_t> tokens(2);
    const SamplingColumns columns({{}, row});
    const std::string text = testing::message_of([&] {
      sample(cuda_context(), device(host_view(tokens.data(), {2})), {}, device(rows.view()),
             columns.on(device));
    });
    device.back();
    return text;
  };
  EXPECT_EQ(message({}), "no error");
  EXPECT_EQ(message({.top_p = 0.0f}), "top_p[1] is 0, expected above 0");
  EXPECT_EQ(message({.step = -2}), "step[1] is -2, expected at least 0");
}

/// Logits and parameters that a captured call finds at its replay, written last by the kernel in
/// front of it, which lets it start early.
TEST_F(SamplingCuda, ReplaysSeeWhatTheKernelInFrontWritesLast) {
  const testing::DeviceStream stream;
  constexpr int64_t kRows = 5, kVocab = 20011;
  const DeviceBuffer<float> logits(size_t{kRows * kVocab}), temperature(size_t{kRows}),
      top_p(size_t{kRows}), min_p(size_t{kRows}), logprobs(size_t{kRows});
  const DeviceBuffer<int32_t> top_k(size_t{kRows});
  const DeviceBuffer<int64_t> seed(size_t{kRows}), tokens(size_t{kRows}),
      step(std::vector<int64_t>(size_t{kRows}, 3));
  DeviceBuffer<float> late_logits(size_t{kRows * kVocab}), late_temperature(size_t{kRows}),
      late_top_p(size_t{kRows}), late_min_p(size_t{kRows});
  DeviceBuffer<int32_t> late_top_k(size_t{kRows});
  DeviceBuffer<int64_t> late_seed(size_t{kRows});
  const testing::RecordedGraph graph(stream.get(), [&] {
    const std::array first{
        testing::LateCopy{temperature.data(), late_temperature.data(), kRows * sizeof(float)},
        testing::LateCopy{top_p.data(), late_top_p.data(), kRows * sizeof(float)},
        testing::LateCopy{min_p.data(), late_min_p.data(), kRows * sizeof(float)}};
    copy_late(first, stream.get());
    const std::array last{
        testing::LateCopy{top_k.data(), late_top_k.data(), kRows * sizeof(int32_t)},
        testing::LateCopy{seed.data(), late_seed.data(), kRows * sizeof(int64_t)},
        testing::LateCopy{logits.data(), late_logits.data(), kRows * kVocab * sizeof(float)}};
    copy_late(last, stream.get());
    sample(cuda_context(stream.get()), tokens.view({kRows}), logprobs.view({kRows}),
           logits.view({kRows, kVocab}),
           {temperature.view({kRows}), top_k.view({kRows}), top_p.view({kRows}),
            min_p.view({kRows}), seed.view({kRows}), step.view({kRows})});
  });
  for (int replay = 0; replay < small_or(2, 20); ++replay) {
    const SampledRows rows = random_rows(kRows, kVocab, 0);
    auto options = random_options(kRows, kVocab);
    std::vector<float> temperatures, top_ps, min_ps;
    std::vector<int32_t> top_ks;
    std::vector<int64_t> seeds;
    for (SamplingRow& row : options) {
      row.step = 3;
      temperatures.push_back(row.temperature);
      top_ps.push_back(row.top_p);
      min_ps.push_back(row.min_p);
      top_ks.push_back(row.top_k);
      seeds.push_back(row.seed);
    }
    late_logits.upload(rows.logits);
    late_temperature.upload(temperatures);
    late_top_p.upload(top_ps);
    late_min_p.upload(min_ps);
    late_top_k.upload(top_ks);
    late_seed.upload(seeds);
    graph.launch(stream.get());
    stream.wait();
    expect_same({tokens.download(), logprobs.download()}, on_cpu(rows, options));
  }
}

}  // namespace
}  // namespace heddle
