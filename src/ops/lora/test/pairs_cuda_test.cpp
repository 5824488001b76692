// lora_apply with several pairs (adapter, scale) for one token, on a GPU: the bodies of the CPU's
// tests, and pairs that change in place under a captured graph.
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"

#include "expect_error.h"
#include "ops/lora/test/lora_cuda_test_body.h"
#include "ops/lora/test/pairs_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

template <class W>
class LoraPairsCuda : public LoraCuda<W> {
 protected:
  /// body.operator()<Y>() for a random dtype of y.
  template <class Body>
  void with_any_y(const Body& body) {
    dispatch_dtype<float, half, bfloat16>(
        pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), "y", body);
  }
};
TYPED_TEST_SUITE(LoraPairsCuda, HalfTypes);

TYPED_TEST(LoraPairsCuda, AreTheSumsOfTheReference) {
  using W = TypeParam;
  for (int round = 0; round < small_or(2, 4); ++round) {
    const int64_t tokens = small_sizes() ? pick<int64_t>({1, 6}) : pick<int64_t>({1, 5, 40, 300});
    const LoraRun run = this->runs().any();
    this->with_any_y(
        [&]<class Y>() { expect_pairs_are_the_sums_of_the_reference<W, W, Y, W>(run, tokens); });
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(LoraPairsCuda, HaveTheBitsOfOneCallAfterAnother) {
  using W = TypeParam;
  for (int round = 0; round < small_or(2, 4); ++round) {
    const int64_t tokens = small_sizes() ? pick<int64_t>({1, 6}) : pick<int64_t>({1, 5, 40, 300});
    const LoraRun run = this->runs().any();
    this->with_any_y([&]<class Y>() {
      expect_pairs_have_the_bits_of_one_call_after_another<W, W, Y, W>(run, tokens);
    });
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(LoraPairsCuda, OnePairHasTheBitsOfAnId) {
  using W = TypeParam;
  for (int round = 0; round < small_or(2, 4); ++round) {
    const int64_t tokens = small_sizes() ? 6 : pick<int64_t>({1, 17, 300});
    const LoraRun run = this->runs().any();
    this->with_any_y(
        [&]<class Y>() { expect_one_pair_has_the_bits_of_an_id<W, W, Y>(run, tokens); });
    ASSERT_FALSE(this->HasFailure()) << "round " << round;
  }
}

TYPED_TEST(LoraPairsCuda, OfARowAloneHaveTheBitsOfABatch) {
  using W = TypeParam;
  for (const int64_t tokens : {20, small_or(21, 256), small_or(22, 600)}) {
    expect_pairs_of_a_row_alone_have_the_bits_of_a_batch<W, W, float>(this->runs().any(), tokens,
                                                                      small_or(2, 8));
    expect_pairs_of_a_row_alone_have_the_bits_of_a_batch<W, W, W>(this->runs().any(), tokens,
                                                                  small_or(2, 8));
  }
}

TYPED_TEST(LoraPairsCuda, AddUpInTheListsOfTokens) {
  this->for_each_form(expect_pairs_add_up_in_the_lists_of_tokens<TypeParam>);
}

TYPED_TEST(LoraPairsCuda, RowsWithoutPairsAreNotTouched) {
  this->for_each_form(expect_rows_without_pairs_are_not_touched<TypeParam>);
}

TYPED_TEST(LoraPairsCuda, TakeAnyNumberOfOutputs) {
  // A row has more sums than a window may have together, or a window has 83 rows.
  expect_pairs_take_any_number_of_outputs<TypeParam>(this->runs().any(), small_or(3, 90),
                                                     small_or(5'003, 100'003));
}

TYPED_TEST(LoraPairsCuda, TakeAnyNumberOfSlices) {
  this->for_each_form(expect_pairs_take_any_number_of_slices<TypeParam>);
}

/// The ids of a DeviceSite, and their factors, as lists of one pair each. With is_regular kernels
/// load vectors when they add to y, and those of many rows take more than 256, but not when they
/// add to sums in f32.
TYPED_TEST(LoraPairsCuda, OnePairHasTheBitsOfAnIdOnEveryPath) {
  const Device device = this->cuda_context().device;
  for (int round = 0; round < small_or(2, 4); ++round) {
    const int64_t tokens = small_or<int64_t>(9, pick<int64_t>({1, 33, 256, 300}));
    const bool is_regular = round % 2 == 0;
    DeviceSite<TypeParam> site(tokens, small_or(520, 2104), {192, is_regular ? 64 : 65, 256, 8, 72},
                               pick({16, 64, 136}), is_regular);
    const auto want = site.expected_bits(device);
    ASSERT_NE(want, site.start_bits());
    std::vector<int64_t> starts(size_t(tokens + 1));
    std::iota(starts.begin(), starts.end(), 0);
    const DeviceBuffer<int64_t> starts_there(starts);
    const LoraBatch ids = site.batch();
    const LoraBatch pairs = LoraBatch::from_pairs(starts_there.view({tokens + 1}), ids.slot_ids,
                                                  ids.row_scale, pick<int64_t>({1, 2}));
    const LoraStream stream(device, site.pairs_workspace_bytes(), round % 3 == 0);
    site.restart();
    site.apply(stream.ctx_of_chip(pick({1, 40, 1000})), pairs);
    ASSERT_EQ(site.bits(), want) << "round " << round;
    ASSERT_TRUE(site.guards_intact());
  }
}

/// Lists of up to kMost pairs that change in place.
class DevicePairs {
 public:
  static constexpr int64_t kMost = 3;

  explicit DevicePairs(int64_t num_tokens)
      : num_tokens_(num_tokens),
        starts_(size_t(num_tokens + 1)),
        slots_(size_t(num_tokens * kMost)),
        scales_(size_t(num_tokens * kMost)) {
    change();
  }
  void change() {
    std::vector<int64_t> starts{0};
    std::vector<int32_t> slots(slots_.size());
    for (int32_t& slot : slots) slot = static_cast<int32_t>(random_int(-1, 6));
    slots[0] = 0;  // one pair at least adds something
    for (int64_t t = 0; t < num_tokens_; ++t) {
      starts.push_back(starts.back() + random_int(t == 0 ? 1 : 0, kMost));
    }
    starts_.upload(starts);
    slots_.upload(slots);
    scales_.upload(random_normal<float>(scales_.size()));
  }
  void remove_all() { starts_.upload(std::vector<int64_t>(starts_.size())); }
  [[nodiscard]] LoraBatch batch() const {
    return LoraBatch::from_pairs(starts_.view({num_tokens_ + 1}),
                                 slots_.view({num_tokens_ * kMost}),
                                 scales_.view({num_tokens_ * kMost}), kMost);
  }

 private:
  int64_t num_tokens_;
  DeviceBuffer<int64_t> starts_;
  DeviceBuffer<int32_t> slots_;
  DeviceBuffer<float> scales_;
};

TYPED_TEST(LoraPairsCuda, AReplaySeesPairsThatChangedInPlace) {
  const Device device = this->cuda_context().device;
  for (const bool exchange : {false, true}) {
    const int64_t tokens = small_or(9, 300);
    DeviceSite<TypeParam> site(tokens, small_or(520, 1104), {192, 65, 256}, small_or(24, 64),
                               exchange);
    DevicePairs pairs(tokens);
    const LoraStream stream(device, site.pairs_workspace_bytes(), exchange);
    const LoraStream other(device, site.pairs_workspace_bytes(), false);
    const ExecContext ctx = stream.ctx_of_chip(small_or(1, 40));
    site.apply(ctx, pairs.batch());  // loads the kernels
    const Graph graph(stream, [&] { site.apply(ctx, pairs.batch()); });
    std::vector<uint16_t> last;
    for (int round = 0; round < small_or(3, 6); ++round) {
      site.change();
      pairs.change();
      site.restart();
      site.apply(other.ctx(), pairs.batch());
      const auto want = site.bits();
      site.restart();
      graph.launch();
      const auto got = site.bits();
      ASSERT_EQ(got, want) << "round " << round;
      ASSERT_NE(got, last) << "round " << round;
      last = got;
    }
    pairs.remove_all();
    site.restart();
    graph.launch();
    EXPECT_EQ(site.bits(), site.start_bits());
    EXPECT_TRUE(site.guards_intact());
  }
}

class LoraPairsCudaErrors : public CudaTest {};

TEST_F(LoraPairsCudaErrors, NameTheCountAndTheWorkspace) {
  DeviceSite<half> site(4, 64, {32, 8}, 16, true);
  const DevicePairs pairs(4);
  const LoraStream stream(cuda_context().device, site.pairs_workspace_bytes(), false);
  LoraBatch batch = pairs.batch();
  batch.max_pairs = {};
  expect_invalid({"max_pairs is absent, but pair_starts is on cuda:"},
                 [&] { site.apply(stream.ctx(), batch); });
  const LoraStream bare(cuda_context().device, 256, false);
  expect_error(ErrorCode::kOutOfMemory, {"workspace"},
               [&] { site.apply(bare.ctx(), pairs.batch()); });
  EXPECT_EQ(site.bits(), site.start_bits());
}

}  // namespace
}  // namespace heddle::testing
