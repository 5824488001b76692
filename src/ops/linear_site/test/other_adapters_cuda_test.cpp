#include <cstdint>
#include <deque>
#include <vector>

#include "ops/linear_site/test/cuda_test_body.h"
#include "ops/linear_site/test/linear_site_test_body.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class T>
class OtherAdaptersCuda : public LoraCuda<T> {};
TYPED_TEST_SUITE(OtherAdaptersCuda, HalfTypes);

template <class T>
void copy_adapters(LoraHalf<T>& to, size_t first, const LoraHalf<T>& from) {
  for (size_t i = 0; i < from.ranks.size(); ++i) {
    const size_t slot = first + i;
    to.ranks[slot] = from.ranks[i];
    to.values[slot] = from.values[i];
    to.memory[slot] = from.memory[i];
    to.entries[slot] = from.entries[i];
    to.entries[slot].data = from.ranks[i] == 0 ? nullptr : to.memory[slot].data();
  }
}
/// New adapters of these ranks, 0 for none, in the slots from `first` on.
template <class T>
void set_adapters(HostSite<T>& site, size_t first, const std::vector<int>& ranks,
                  bool is_regular = true) {
  for (size_t s = 0; s < site.shape.outs.size(); ++s) {
    copy_adapters(site.a[s], first,
                  LoraHalf<T>(LoraLayout::kRankMajor, site.shape.in, ranks, is_regular));
    copy_adapters(site.b[s], first,
                  LoraHalf<T>(LoraLayout::kRankMinor, site.shape.outs[s], ranks, is_regular));
  }
}

/// The same adapters in another layout.
template <class T>
void change_layout(std::deque<LoraHalf<T>>& halves, LoraLayout layout) {
  for (LoraHalf<T>& half : halves) {
    const std::vector<LoraWeight> before = half.entries;
    half.lay_out(layout);
    for (size_t slot = 0; slot < before.size(); ++slot) {
      half.entries[slot].scale = before[slot].scale;
    }
  }
}

struct OthersCase {
  std::vector<int> ranks;  // of the slots 3 to 5
  int max_rank;            // of the tables
  bool is_aligned;
};

/// Rows with the slots 0 to 2, and between them rows with others.
template <class T>
void mix_slots(HostSite<T>& site) {
  std::vector<int> slots = site.batch.slots;
  for (size_t row = 0; row < slots.size(); ++row) {
    if (slots[row] >= 0) slots[row] = slots[row] % 3 + (row % 2 == 0 ? 0 : 3);
  }
  slots[0] = 1;
  site.set_batch(slots, std::vector<float>(site.batch.scales));
}

/// Rows of the slots 0 to 2 and those without an adapter keep their bits, whatever is in the other
/// slots.
template <class T>
void expect_other_adapters_change_no_bit(HostSite<T>& site, const LoraRun& run, LinearPath path) {
  const int64_t rows = site.shape.rows;
  mix_slots(site);
  set_adapters(site, 0, {16, 64, 4});
  set_adapters(site, 3, {64, 4, 24});
  run_aligned(site, run, path, 0, rows);
  ASSERT_FALSE(site.has_nan());
  const HostSite<T> before = site;
  const auto expect_same = [&](bool is_aligned) {
    site.clear();
    is_aligned ? run_aligned(site, run, path, 0, rows) : site.run(run, path);
    for (int64_t row = 0; row < rows; ++row) {
      if (site.batch.slots[size_t(row)] >= 3) continue;
      ASSERT_EQ(site.bits(row), before.bits(row)) << "row " << row;
    }
  };
  for (const OthersCase& others :
       {OthersCase{{8, 128, 32}, 128, true}, OthersCase{{4, 64, 16}, 64, true},
        OthersCase{{1, 127, 33}, 128, false}, OthersCase{{0, 0, 0}, 64, true},
        OthersCase{{200, 3, 131}, 200, false}}) {
    site.shape.max_rank = others.max_rank;
    set_adapters(site, 3, others.ranks, others.is_aligned);
    expect_same(others.is_aligned);
    if (::testing::Test::HasFatalFailure()) FAIL() << "max_rank " << others.max_rank;
  }
  change_layout(site.a, LoraLayout::kRankMinor);
  change_layout(site.b, LoraLayout::kRankMajor);
  expect_same(false);
}

TYPED_TEST(OtherAdaptersCuda, ChangeNoBit) {
  for (const WeightType type : {WeightType::kF32, WeightType::kQ4_0}) {
    for (const LinearPath path : kLinearPaths) {
      HostSite<TypeParam> site({.rows = path == LinearPath::kPrompt ? 300 : 32,
                                .in = small_or(512, 1024),
                                .outs = {small_or(96, 512), small_or(40, 256)},
                                .max_rank = 64,
                                .formats = {type, type}});
      const LoraRun run =
          this->runs().run(TestFixture::Form::kGeneralBlocks, random_int(0, 1) == 0);
      expect_other_adapters_change_no_bit(site, run, path);
      if (this->HasFatalFailure()) FAIL() << type << ", path " << int(path);
    }
  }
}

}  // namespace
}  // namespace heddle::testing
