#include "heddle/core/overlap.h"

#include <chrono>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "random.h"

namespace heddle {
namespace {

using testing::expect_invalid;
using testing::random_int;

using Ints = std::vector<int64_t>;

/// By the places of all elements.
bool overlap_by_places(const Ints& shape, const Ints& strides) {
  std::set<int64_t> places;
  int64_t elements = 1;
  for (const int64_t extent : shape) elements *= extent;
  for (int64_t i = 0; i < elements; ++i) {
    int64_t place = 0, rest = i;
    for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) place += rest % shape[d] * strides[d];
    if (!places.insert(place).second) return true;
  }
  return false;
}

TEST(ElementsOverlap, EqualsTheReference) {
  int overlapping = 0;
  for (int round = 0; round < 20000; ++round) {
    const auto rank = size_t(random_int(0, 5));
    Ints shape(rank), strides(rank);
    for (size_t d = 0; d < rank; ++d) {
      shape[d] = random_int(0, 4);
      strides[d] = random_int(-40, 40);
    }
    const bool overlaps = overlap_by_places(shape, strides);
    ASSERT_EQ(elements_overlap(shape, strides), overlaps)
        << ::testing::PrintToString(shape) << ::testing::PrintToString(strides);
    overlapping += overlaps;
  }
  EXPECT_GT(overlapping, 1000);
  EXPECT_LT(overlapping, 19000);
}

TEST(ElementsOverlap, OfOutputsThatThereAre) {
  EXPECT_FALSE(elements_overlap({}, {}));
  EXPECT_FALSE(elements_overlap(Ints{2, 3, 4}, Ints{12, 4, 1}));  // without gaps
  EXPECT_FALSE(elements_overlap(Ints{4, 3, 2}, Ints{1, 4, 12}));  // turned
  EXPECT_FALSE(elements_overlap(Ints{2, 64}, Ints{-64, -1}));     // backwards
  EXPECT_FALSE(elements_overlap(Ints{2, 64}, Ints{1, 2}));        // every other one
  EXPECT_FALSE(elements_overlap(Ints{2, 3}, Ints{3, 2}));         // 0 2 4, 3 5 7
  EXPECT_FALSE(elements_overlap(Ints{1, 64}, Ints{0, 1}));        // one row
  EXPECT_FALSE(elements_overlap(Ints{5, 0}, Ints{0, 0}));         // none
  EXPECT_TRUE(elements_overlap(Ints{2, 64}, Ints{0, 1}));         // expanded
  EXPECT_TRUE(elements_overlap(Ints{64, 2}, Ints{1, 0}));
  EXPECT_TRUE(elements_overlap(Ints{2, 64}, Ints{63, 1}));          // one element is in both rows
  EXPECT_TRUE(elements_overlap(Ints{2, 3, 64}, Ints{128, 64, 1}));  // rows 1 of 0 and 0 of 1
}

// No two of these elements are in one place, which only 10^10 steps of a search would tell.
TEST(ElementsOverlap, EndsSoonWhereTheStridesAreEntangled) {
  constexpr int64_t kExtent = 100'000, kStride = kExtent * kExtent * 10;
  const Ints shape{kExtent, kExtent, kExtent};
  const Ints strides{kStride, kStride + 1, kStride + 1 + kExtent};
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(elements_overlap(shape, strides));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(seconds.count(), 1.0);
}

TEST(ElementsOverlap, OfExtentsAndStridesThatNoMemoryHas) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  for (const int64_t stride : {kMost, kLeast, kMost / 2, kLeast / 2}) {
    EXPECT_FALSE(elements_overlap(Ints{3, 4}, Ints{stride, 1}));
    EXPECT_FALSE(elements_overlap(Ints{3, 4}, Ints{1, stride}));
  }
  EXPECT_TRUE(elements_overlap(Ints{int64_t{1} << 59, 2}, Ints{0, 1}));
}

TEST(CheckNoOverlap, NamesTensorShapeAndStrides) {
  std::vector<float> data(64);
  const Ints shape{2, 64}, strides{0, 1};
  const TensorView rows(reinterpret_cast<std::byte*>(data.data()), DType::kFloat32, {}, shape,
                        strides);
  expect_invalid({"y has elements that overlap in memory, but the operation writes to it: "
                  "shape [2, 64], strides [0, 1]"},
                 [&] { check_no_overlap("y", rows); });
  check_no_overlap("y", rows.narrow(0, 0, 1));
}

}  // namespace
}  // namespace heddle
