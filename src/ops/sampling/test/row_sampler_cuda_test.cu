// HostCluster is for the host alone, what it is passed to for both.
#pragma nv_diag_suppress 20014

#include "core/math.h"
#include "ops/sampling/test/host_cluster_cuda.h"
#include "ops/sampling/test/sampling_test_body.h"

namespace heddle::cuda::sampling {
namespace {

// The steps of the kernels, taken by one thread of the CPU: no GPU is needed.

constexpr int kNumBlocks[] = {1, 2, 4, 8};
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

RowLayout layout_of(int64_t vocab_size, int num_blocks) {
  const int64_t chunk = 4 * num_blocks * kRowThreads;
  return {static_cast<uint32_t>(num_blocks), static_cast<uint32_t>(ceil_div(vocab_size, chunk))};
}

/// What sample picks, by the steps of the kernel.
Picked sample_by_steps(const SampledRows& rows, const std::vector<SamplingRow>& options,
                       int num_blocks, bool with_logprobs) {
  Picked picked;
  for (int64_t r = 0; r < rows.num_rows; ++r) {
    const SamplingRow& row = options[size_t(r)];
    SampleParams params{};
    params.temperature = {&row.temperature, 0};
    params.top_k = {&row.top_k, 0};
    params.top_p = {&row.top_p, 0};
    params.min_p = {&row.min_p, 0};
    params.seed = {&row.seed, 0};
    params.step = {&row.step, 0};
    const RowLayout layout = layout_of(rows.vocab_size, num_blocks);
    const auto leader = static_cast<int>(testing::random_int(0, num_blocks - 1));
    HostCluster cluster(rows.row(r), layout, leader);
    const RowDraw draw = draw_of(params, r);
    const RowNeeds needs = needs_of(draw, rows.vocab_size, with_logprobs);
    if (needs.is_greedy()) {
      find_leading(cluster, leader);
      const LeadingToken best = cluster.leading();
      picked.tokens.push_back(best.logit() > -kInfinity ? best.id() : 0);
      picked.logprobs.push_back(0.0f);
      continue;
    }
    RowBounds bounds = find_bounds(cluster, leader, needs);
    if (!(bounds.largest > -kInfinity)) {
      picked.tokens.push_back(0);
      picked.logprobs.push_back(-kInfinity);
      continue;
    }
    bounds = RowCollector<HostCluster>(cluster, rows.vocab_size, leader, bounds).collect(needs);
    const uint64_t one_units = cluster.total(needs.one);
    RowSampler<HostCluster> sampler(cluster, layout, rows.vocab_size, bounds, draw);
    if (!sampler.finish()) sampler.search();
    picked.tokens.push_back(sampler.token());
    picked.logprobs.push_back(
        heddle::sampling::logprob_of(rows.row(r)[sampler.token()], bounds.largest,
                                     heddle::sampling::log_sum_of(one_units, rows.vocab_size)));
  }
  return picked;
}

void expect_same_as_cpu(const SampledRows& rows, const std::vector<SamplingRow>& options) {
  testing::Mirror host;
  const SamplingContext ctx(rows.num_rows, rows.vocab_size);
  const Picked want = sample_on(ctx, host, rows, options, true, true);
  for (const int num_blocks : kNumBlocks) {
    const Picked got = sample_by_steps(rows, options, num_blocks, true);
    const Picked no_logprobs = sample_by_steps(rows, options, num_blocks, false);
    for (size_t r = 0; r < options.size(); ++r) {
      const SamplingRow& row = options[r];
      EXPECT_EQ(got.tokens[r], want.tokens[r])
          << "of " << rows.vocab_size << " in " << num_blocks << " blocks, temperature "
          << row.temperature << ", top_k " << row.top_k << ", top_p " << row.top_p << ", min_p "
          << row.min_p;
      EXPECT_EQ(no_logprobs.tokens[r], want.tokens[r]);
    }
    EXPECT_TRUE(testing::same_bits<float>(got.logprobs, want.logprobs)) << rows.vocab_size;
  }
}

/// Logits from the largest one down to those without a unit, and what is no number.
TEST(UnitSum, AddsTheUnitsOfTheDefinition) {
  const auto fma = [](float a, float b, float c) { return std::fmaf(a, b, c); };
  for (const int64_t vocab : {1, 131072, 262144, 2147483647}) {
    for (int repeat = 0; repeat < 20000; ++repeat) {
      const float largest = testing::random_normal<float>(1, 10.0f)[0];
      const float scale = heddle::sampling::scale_of(testing::pick({1.0f, 0.1f, 7.0f}));
      float logits[4] = {largest, -kInfinity, kNan, largest};
      logits[3] -= static_cast<float>(testing::random_int(0, 50 << 20)) * 0x1p-20f / scale;
      logits[repeat % 3] = largest - static_cast<float>(repeat % 4096) / 4096.0f / scale;
      UnitSum sum(largest, scale, vocab);
      uint64_t want = 0;
      for (int call = 0; call < 2; ++call) {
        sum.add(float4{logits[0], logits[1], logits[2], logits[3]});
        for (const float x : logits) {
          want += heddle::sampling::units_of(
              heddle::sampling::weight_of(x == x ? x : -kInfinity, largest, scale, fma),
              heddle::sampling::units_magic(vocab));
        }
      }
      ASSERT_EQ(sum.total(), want) << logits[0] << ", " << logits[3] << " below " << largest;
    }
  }
}

TEST(RowSampler, HasTheTokensAndBitsOfTheCpu) {
  for (const int64_t vocab :
       {1, 2, 3, 5, 64, 127, 511, 513, 2047, 2049, 5000, 16385, 30011, 50257}) {
    constexpr int64_t kRows = 12;
    std::vector<SamplingRow> options;
    for (int64_t r = 0; r < kRows; ++r) options.push_back(random_sampling_row(vocab));
    expect_same_as_cpu(random_rows(kRows, vocab, 1), options);
  }
}

/// Rows of which no beginning is enough: flat ones, ties in large numbers, large top_k.
TEST(RowSampler, SearchesWhereTheListIsNotEnough) {
  constexpr int64_t kVocab = 20011;
  SampledRows rows{6, kVocab, kVocab, {}};
  rows.logits.assign(size_t(6 * kVocab), 1.5f);
  for (int64_t i = 0; i < kVocab; ++i) {
    const size_t at = size_t(i);
    rows.logits[size_t(kVocab) + at] = static_cast<float>(i % 3);
    rows.logits[size_t(2 * kVocab) + at] = 1.0f + static_cast<float>(i) * 1e-6f;
    rows.logits[size_t(3 * kVocab) + at] = -static_cast<float>(i % 700) * 1e-3f;
    rows.logits[size_t(4 * kVocab) + at] = i % 2 == 0 ? kInfinity : 3.0f;
    rows.logits[size_t(5 * kVocab) + at] = static_cast<float>(i % 97) * 1e4f - 5e5f;
  }
  for (int repeat = 0; repeat < 12; ++repeat) {
    std::vector<SamplingRow> options;
    for (int64_t r = 0; r < rows.num_rows; ++r) {
      using testing::pick;
      options.push_back({.temperature = pick({1.0f, 0.3f, 1e30f, kInfinity, 1e-40f, 2.0f}),
                         .top_k = pick({0, 65, 700, 15000, 20010}),
                         .top_p = pick({1.0f, 0.99f, 0.5f, 0.0f, -1.0f}),
                         .min_p = pick({0.0f, 0.9f, 0.5f, 1.0f, 2.0f, 1e-40f}),
                         .seed = testing::random_int(INT64_MIN, INT64_MAX),
                         .step = testing::random_int(0, 100)});
    }
    expect_same_as_cpu(rows, options);
  }
}

/// Rows whose cut a leader finds alone: it is that of all tokens, sorted.
TEST(ShareSearch, CutsRowsOfManySimilarLogits) {
  constexpr int64_t kVocab = 20011;
  const RowLayout layout = layout_of(kVocab, 2);
  for (int repeat = 0; repeat < 6; ++repeat) {
    std::vector<float> row = testing::random_normal<float>(kVocab, testing::pick({0.1f, 1.0f}));
    if (repeat == 5) row[7] = -kInfinity, row[11] = kNan;
    float largest = row[0];
    for (const float x : row) largest = std::fmax(largest, x);
    const float share = testing::pick({0.5f, 0.9f, 0.99f}), scale = 1.4f;
    HostCluster cluster(row, layout, 1);
    const RowSearch<HostCluster> search(cluster, kVocab, largest, scale);
    std::vector<uint64_t> places;
    uint64_t total = 0, units = 0;
    for (uint32_t i = 0; i < kVocab; ++i) {
      if (row[i] > -kInfinity) places.push_back(search.places().place_of(row[i], i));
    }
    std::sort(places.begin(), places.end());
    for (const uint64_t place : places) total += search.mass_of(place).units;
    const double enough = double{share} * static_cast<double>(total);
    const SearchTarget target{SearchTarget::Kind::kAtLeast, total, enough};
    ShareSearch<HostCluster> alone(cluster, search, layout, largest, scale);
    const auto cut = alone.find(target, share, kVocab);
    ASSERT_TRUE(cut.found) << share << " of " << total;
    size_t kept = 0;
    while (static_cast<double>(units) < enough) units += search.mass_of(places[kept++]).units;
    EXPECT_EQ(search.places().place_of(cut.logit, cut.id), places[kept - 1]);
    EXPECT_EQ(cut.units, units);
    EXPECT_EQ(cluster.total(false), units);
  }
}

/// The k largest, few or all of them.
TEST(ListTop, HasTheOrderOfTheCpu) {
  for (const int64_t vocab : {1, 3, 100, 600, 5000, 9001}) {
    const SampledRows rows = random_rows(5, vocab, 0);
    for (const int64_t k : {int64_t{1}, std::min<int64_t>(vocab, 20), vocab}) {
      testing::Mirror host;
      const Scored want = score_on({}, host, rows, std::vector<int64_t>(5), k);
      for (const int num_blocks : kNumBlocks) {
        std::vector<int32_t> ids(want.top_ids.size(), -1);
        for (int64_t r = 0; r < rows.num_rows; ++r) {
          HostCluster cluster(rows.row(r), layout_of(vocab, num_blocks), num_blocks - 1);
          const RowBounds bounds = find_bounds(cluster);
          const RowSearch<HostCluster> search(cluster, vocab, bounds.largest, 1.0f);
          list_top(cluster, search, k, [&](int64_t i, uint64_t place) {
            ids[size_t(r * k + i)] = static_cast<int32_t>(search.places().id_of(place));
          });
        }
        EXPECT_EQ(ids, want.top_ids) << k << " of " << vocab;
      }
    }
  }
}

}  // namespace
}  // namespace heddle::cuda::sampling
