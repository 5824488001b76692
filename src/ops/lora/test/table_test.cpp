// Weights by address and in an AdapterTable: the same bits as stacked weights, and what a wrong
// call says.
#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/lora.h"
#include "heddle/ops/lora_table.h"

#include "expect_error.h"
#include "ops/lora/test/table_test_body.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::expect_unsupported;

template <class T>
class LoraTableBits : public ::testing::Test {
 protected:
  testing::Mirror mirror_;
  testing::LoraRun run_{{}, mirror_};
};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(LoraTableBits, AllTypes);

TYPED_TEST(LoraTableBits, AddressesGiveTheBitsOfStackedWeights) {
  testing::expect_addresses_give_the_bits_of_stacked_weights<float, TypeParam>(this->run_);
}

TYPED_TEST(LoraTableBits, AnAdapterTableGivesTheBitsOfStackedWeights) {
  testing::expect_an_adapter_table_gives_the_bits_of_stacked_weights<float, TypeParam>(this->run_);
}

TYPED_TEST(LoraTableBits, ApplyMixesAddressesAndEntries) {
  testing::expect_apply_mixes_addresses_and_entries<float, TypeParam>(this->run_);
}

TYPED_TEST(LoraTableBits, ANullAddressTouchesNothingAndEmptyTablesAreLegal) {
  testing::expect_a_null_address_touches_nothing_and_empty_tables_are_legal<TypeParam>(this->run_);
}

TYPED_TEST(LoraTableBits, ARankAboveTheLimitGoesInParts) {
  testing::expect_a_rank_above_the_limit_goes_in_parts<TypeParam>(this->run_);
}

TYPED_TEST(LoraTableBits, AClearedSlotTouchesNothing) {
  testing::expect_a_cleared_slot_touches_nothing<TypeParam>(this->run_);
}

TEST(LoraPointers, ErrorsNameTheArgument) {
  const std::vector<int64_t> addresses(3);
  const std::vector<int32_t> narrow(3);
  const auto make = [&](const ConstTensorView& pointers, DType dtype, int64_t rank,
                        int64_t layer_idx) {
    (void)LoraTable::from_pointers(pointers, dtype, LoraLayout::kRankMajor, rank, 4, layer_idx);
  };
  expect_unsupported({"pointers is i32, supported: i64"},
                     [&] { make(host_view(narrow.data(), {3}), DType::kFloat32, 2, 0); });
  expect_invalid({"pointers has rank 2, expected 1"}, [&] {
    make(host_view(addresses.data(), {3, 1}), DType::kFloat32, 2, 0);
  });
  expect_unsupported({"dtype is i32"},
                     [&] { make(host_view(addresses.data(), {3}), DType::kInt32, 2, 0); });
  expect_invalid({"layer_idx is -1, expected at least 0"},
                 [&] { make(host_view(addresses.data(), {3}), DType::kFloat32, 2, -1); });
  expect_invalid({"rank is -2, expected 0"},
                 [&] { make(host_view(addresses.data(), {3}), DType::kFloat32, -2, 0); });
}

TEST(AdapterTable, ErrorsNameTheArgument) {
  const std::array<int64_t, 2> features{3, 4}, negative{3, -4};
  const auto make = [&](std::span<const int64_t> of, int32_t slots, int32_t rank, DType dtype) {
    AdapterTable({}, slots, of, rank, dtype, LoraLayout::kRankMinor);
  };
  expect_invalid({"features[1] is -4, expected at least 0"},
                 [&] { make(negative, 2, 8, DType::kFloat32); });
  expect_invalid({"features is empty"}, [&] { make({}, 2, 8, DType::kFloat32); });
  expect_invalid({"num_slots is -1"}, [&] { make(features, -1, 8, DType::kFloat32); });
  expect_invalid({"max_rank is 513, expected 0 to 512"},
                 [&] { make(features, 2, 513, DType::kFloat32); });
  expect_unsupported({"dtype is i64"}, [&] { make(features, 2, 8, DType::kInt64); });

  AdapterTable table({}, 2, features, 8, DType::kFloat32, LoraLayout::kRankMinor);
  const std::vector<float> w(64);
  const auto set = [&](int32_t slot, int32_t slice, const ConstTensorView& weight) {
    table.set({}, slot, slice, weight);
  };
  expect_invalid({"slot is 2, expected 0 to 1"}, [&] { set(2, 0, host_view(w.data(), {3, 2})); });
  expect_invalid({"slot is -1, expected 0 to 1"}, [&] { table.clear({}, -1); });
  expect_invalid({"slice is 2, expected 0 to 1"}, [&] { set(0, 2, host_view(w.data(), {3, 2})); });
  expect_invalid({"weight.size(0) is 3, expected features[slice] = 4"}, [&] {
    set(0, 1, host_view(w.data(), {3, 2}));
  });
  expect_invalid({"weight.size(1) is rank = 9, expected 1 to max_rank = 8"}, [&] {
    set(0, 0, host_view(w.data(), {3, 9}));
  });
  expect_unsupported({"weight is f16, supported: f32"}, [&] {
    const std::vector<half> h(6);
    set(0, 0, host_view(h.data(), {3, 2}));
  });
  ExecContext elsewhere;
  elsewhere.device = {DeviceType::kCuda, 0};
  expect_invalid({"the table is on cpu"}, [&] { table.clear(elsewhere, 0); });
  elsewhere.device.index = 1 << 20;
  const std::string refusal = testing::message_of(
      [&] { AdapterTable(elsewhere, 1, features, 8, DType::kFloat32, LoraLayout::kRankMinor); });
  EXPECT_NE(refusal.find("device is cuda:1048576"), std::string::npos) << refusal;
}

TEST(AdapterTable, TheOpsCheckItsFeatures) {
  const std::array<int64_t, 1> features{3};
  const AdapterTable table({}, 2, features, 2, DType::kFloat32, LoraLayout::kRankMajor);
  const std::vector<float> x(8);
  const std::vector<int32_t> ids{0, 1};
  const LoraBatch batch = LoraBatch::from_ids(host_view(ids.data(), {2}));
  testing::PoisonedBuffer<float> y(8);
  expect_invalid({"x.size(1) is 4, expected a.features[0] = 3"}, [&] {
    lora_shrink({}, y.view({2, 2}), host_view(x.data(), {2, 4}), table.view(), 0, batch);
  });
  expect_invalid({"out_features is 4, expected b.features[0] = 3"}, [&] {
    lora_expand({}, y.view({2, 4}), host_view(x.data(), {2, 2}), table.view(), 0, 4, batch);
  });
  const LoraSlice slice{y.view({2, 4})};
  expect_invalid({"x.size(1) is 4, expected a.features[0] = 3"}, [&] {
    lora_apply({}, {&slice, 1}, host_view(x.data(), {2, 4}), table.view(), table.view(), batch);
  });
  expect_invalid({"slices[0].y.size(1) is 4, expected b.features[0] = 3"}, [&] {
    lora_apply({}, {&slice, 1}, host_view(x.data(), {2, 3}), table.view(), table.view(), batch);
  });
}

}  // namespace
}  // namespace heddle
