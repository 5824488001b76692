#include "heddle/core/product.h"

#include <gtest/gtest.h>

#include "heddle/core/tensor_view.h"
#include "heddle/core/workspace.h"

#include "expect_error.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::message_of;

TEST(CheckedProduct, IsTheProductUpToTheLargestNumber) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(checked_product("bytes", {3, 5, 7}), 105);
  EXPECT_EQ(checked_product("bytes", {kMax}), kMax);
  EXPECT_EQ(checked_product("bytes", {int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
  EXPECT_EQ(checked_product("bytes", {0, kMax}), 0);
  EXPECT_EQ(checked_product("bytes", {}), 1);
}

TEST(CheckedProduct, NamesTheFactorsOfOneThatDoesNotFit) {
  EXPECT_EQ(message_of([] {
              (void)checked_product("bytes", {int64_t{1} << 60, 2, 4});
            }),
            "bytes: 1152921504606846976 x 2 x 4, expected 0 to 9223372036854775807");
  EXPECT_EQ(message_of([] {
              (void)checked_product("bytes", {2, -1});
            }),
            "bytes: 2 x -1, expected 0 to 9223372036854775807");
}

TEST(CheckExtent, NamesTheExtentAndTheRange) {
  check_extent("num_tokens", kMaxExtent);
  EXPECT_EQ(message_of([] { check_extent("num_tokens", kMaxExtent + 1); }),
            "num_tokens is 1099511627777, expected 0 to 1099511627776");
  EXPECT_EQ(message_of([] { check_extent("max_rank", -1, 8); }), "max_rank is -1, expected 0 to 8");
}

TEST(TensorView, ItsExtentsMultiplyToLessThan2ToThe60) {
  const auto view = [](std::initializer_list<int64_t> shape) {
    return message_of([&] { (void)TensorView(nullptr, DType::kFloat32, {}, shape); });
  };
  constexpr int64_t kLarge = int64_t{1} << 30;
  EXPECT_EQ(view({kLarge, kLarge - 1}), "no error");
  EXPECT_EQ(view({kLarge, kLarge}),
            "the extents of a tensor multiply to more than 1152921504606846975");
  EXPECT_NE(view({kLarge, kLarge, kLarge}), "no error") << "above 64 bits, too";
  EXPECT_NE(view({0, kLarge, kLarge, kLarge}), "no error") << "its strides would not fit";
  const TensorView x(nullptr, DType::kFloat32, {}, {4});
  EXPECT_EQ(message_of([&] { (void)x.narrow(0, 2, std::numeric_limits<int64_t>::max()); }),
            "9223372036854775807 elements from 2 on of axis 0, which has 4");
}

TEST(Workspace, ASizeThatDoesNotFitIsAnErrorAndNotASmallOne) {
  constexpr size_t kTooMany = (size_t{1} << 62) + 1;  // of f32: 4 bytes when it wraps
  expect_invalid({"a workspace of 4611686018427387905 elements of 4 bytes"},
                 [] { (void)Workspace::bytes_for<float>(kTooMany); });
  std::vector<std::byte> buffer(1000);
  Workspace workspace(buffer);
  EXPECT_FALSE(workspace.has_room<float>(kTooMany));
  testing::expect_error(ErrorCode::kOutOfMemory, {"workspace holds 1000 bytes"},
                        [&] { (void)workspace.take<float>(kTooMany); });
}

}  // namespace
}  // namespace heddle
