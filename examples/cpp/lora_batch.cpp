// One linear site, three rows, two adapters: each row of the batch gets its own low-rank update, in
// one call.
#include <array>
#include <cmath>
#include <cstdio>
#include <vector>

#include "heddle/core/thread_pool.h"
#include "heddle/ops/lora.h"

namespace {

constexpr int kInFeatures = 64, kOutFeatures = 32;

/// The weights of one adapter: A [in_features, rank] and B [out_features, rank], the rank without
/// gaps.
struct Adapter {
  int rank;
  std::vector<float> a = std::vector<float>(size_t(kInFeatures) * size_t(rank), 0.25f);
  std::vector<float> b = std::vector<float>(size_t(kOutFeatures) * size_t(rank), 0.5f);
};

heddle::LoraTable table_of(const std::array<heddle::LoraWeight, 2>& entries) {
  return {.entries = entries.data(),
          .num_slots = 2,
          .max_rank = 16,
          .layout = heddle::LoraLayout::kRankMinor};
}

}  // namespace

int main() {
  const Adapter small{4}, large{16};  // ranks differ, nothing is padded
  const std::array<heddle::LoraWeight, 2> a{
      {{small.a.data(), 4, 1.0f, 4}, {large.a.data(), 16, 1.0f, 16}}};
  const std::array<heddle::LoraWeight, 2> b{
      {{small.b.data(), 4, 2.0f, 4}, {large.b.data(), 16, 1.0f, 16}}};

  // Row 0 uses the second adapter, row 1 none, row 2 the first.
  const std::array<int32_t, 3> slots{1, heddle::kNoAdapter, 0};
  const std::vector<float> x(3 * kInFeatures, 1.0f);
  std::vector<float> y(3 * kOutFeatures, 100.0f);  // what the base weight gave

  std::vector<std::byte> scratch(heddle::lora_apply_workspace_bytes({}, 3, kInFeatures, 1, 16));
  heddle::Workspace workspace(scratch);
  heddle::ThreadPool threads(2);
  heddle::ExecContext ctx;
  ctx.workspace = &workspace;
  ctx.threads = &threads;

  const std::array<heddle::LoraSlice, 1> slices{{{heddle::host_view(y.data(), {3, kOutFeatures})}}};
  heddle::lora_apply(ctx, slices, heddle::host_view(x.data(), {3, kInFeatures}), table_of(a),
                     table_of(b),
                     heddle::LoraBatch::from_ids(heddle::host_view(slots.data(), {3})));

  // h = 64 * 0.25 = 16 in every rank; the update is scale * rank * 0.5 * 16.
  const std::array<float, 3> expected{100 + 1 * 16 * 8, 100, 100 + 2 * 4 * 8};
  for (size_t row = 0; row < 3; ++row) {
    const float got = y[row * kOutFeatures];
    std::printf("row %zu: %g\n", row, static_cast<double>(got));
    if (!(std::abs(got - expected[row]) < 1e-3f)) return 1;
  }
  return 0;
}
