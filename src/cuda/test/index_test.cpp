#include "cuda/index.h"

#include <array>
#include <cstdint>

#include <gtest/gtest.h>

namespace heddle::cuda {
namespace {

// Each 8 bytes of a kernel's parameters are paid for in every launch.
static_assert(sizeof(ConstIndexVector) == 16 && sizeof(ConstContiguousIndices) == 8);
static_assert(sizeof(ConstIndexRows) == 24 && sizeof(ContiguousIndexRows) == 16);

/// Vectors are read and written on the host as kernels do it.
template <class T, DType kType>
struct Numbers {
  std::array<T, 6> values{10, 11, 12, 13, -14, 15};

  [[nodiscard]] TensorView view(std::initializer_list<int64_t> shape,
                                std::initializer_list<int64_t> strides) {
    return {reinterpret_cast<std::byte*>(values.data()), kType, {}, shape, strides};
  }
};
using Int32s = Numbers<int32_t, DType::kInt32>;
using Int64s = Numbers<int64_t, DType::kInt64>;

/// What cpu/index_array.h has, of which IndexVector and IndexRows are made.
struct Array {
  std::byte* values = nullptr;
  int64_t step = 0;
  bool holds_int64 = false;

  Array() = default;
  explicit Array(const TensorView& t)
      : values(t.raw()),
        step(t.stride(0) * static_cast<int64_t>(size_of(t.dtype()))),
        holds_int64(t.dtype() == DType::kInt64) {}

  [[nodiscard]] std::byte* data() const { return values; }
  [[nodiscard]] int64_t step_bytes() const { return step; }
  [[nodiscard]] bool is_int64() const { return holds_int64; }
};
struct Matrix {
  Array rows, columns;

  Matrix() = default;
  explicit Matrix(const TensorView& t) : rows(t), columns(t) {
    columns.step = t.stride(1) * static_cast<int64_t>(size_of(t.dtype()));
  }

  [[nodiscard]] std::byte* data() const { return rows.data(); }
  [[nodiscard]] int64_t row_step_bytes() const { return rows.step; }
  [[nodiscard]] int64_t column_step_bytes() const { return columns.step; }
  [[nodiscard]] bool is_int64() const { return rows.holds_int64; }
};

template <class Any>
class IndexVectorTest : public ::testing::Test {};
using Types = ::testing::Types<Int32s, Int64s>;
TYPED_TEST_SUITE(IndexVectorTest, Types);

TYPED_TEST(IndexVectorTest, OfATensorHasItsStride) {
  TypeParam numbers;
  const MutableIndexVector v(numbers.view({3}, {2}));
  EXPECT_EQ(v.is_int64(), sizeof(numbers.values[0]) == 8);
  EXPECT_EQ(v[0], 10);
  EXPECT_EQ(v[2], -14);
  EXPECT_EQ(v.from(1)[1], -14);
  v.set(1, -7);
  EXPECT_EQ(numbers.values[2], -7);
  EXPECT_EQ(numbers.values[1], 11);
}

TYPED_TEST(IndexVectorTest, RowsHaveTheTypeAndTheColumnStride) {
  TypeParam numbers;
  const MutableIndexRows rows{Matrix(numbers.view({2, 3}, {1, 2}))};
  EXPECT_EQ(rows.row(0)[2], -14);
  EXPECT_EQ(rows.row_given(1)[1], 13);
}

TYPED_TEST(IndexVectorTest, NeighboursAreAddressedInTheLayoutThatIsKnown) {
  TypeParam numbers;
  constexpr bool kIsInt64 = sizeof(numbers.values[0]) == 8;
  IndexPacker pack;
  const auto mixed = pack(Array(numbers.view({6}, {1})));
  EXPECT_EQ(pack.layout(), kIsInt64 ? IndexLayout::kI64 : IndexLayout::kI32);
  EXPECT_EQ(mixed.address(4), reinterpret_cast<std::byte*>(&numbers.values[4]));
  constexpr IndexLayout kKnown = kIsInt64 ? IndexLayout::kI64 : IndexLayout::kI32;
  const auto known = mixed.template as<kKnown>();
  EXPECT_EQ(known.address(4), mixed.address(4));
  EXPECT_EQ(known[4], -14);
  EXPECT_EQ(known.from(4)[1], 15);
  EXPECT_EQ(mixed.from(4)[1], 15);
}

TEST(IndexVectorTest, OneWithoutDataIsAbsent) {
  const MutableIndexVector none{Array()};
  EXPECT_FALSE(none.is_given());
  none.set(3, 7);  // dropped
  const MutableIndexRows no_rows{Matrix()};
  EXPECT_FALSE(no_rows.row(5).is_given());
  IndexPacker pack;
  EXPECT_FALSE(pack(Array()).is_given());
  EXPECT_EQ(pack.layout(), IndexLayout::kI32);
}

TEST(IndexPacker, SeesGapsAndBothTypes) {
  Int32s narrow;
  Int64s large;
  IndexPacker mixed;
  static_cast<void>(mixed(Array(narrow.view({6}, {1}))));
  static_cast<void>(mixed(Matrix(large.view({2, 3}, {3, 1}))));
  EXPECT_EQ(mixed.layout(), IndexLayout::kMixed);
  IndexPacker gaps;
  static_cast<void>(gaps(Array(narrow.view({3}, {2}))));
  EXPECT_EQ(gaps.layout(), IndexLayout::kStrided);
  IndexPacker one;  // of which element 0 alone is used
  static_cast<void>(one.element(Array(narrow.view({3}, {2}))));
  EXPECT_EQ(one.layout(), IndexLayout::kI32);
}

TEST(LoadedIndex, JoinsItsWords) {
  EXPECT_EQ(LoadedIndex::of(-5).value(), -5);
  EXPECT_EQ((LoadedIndex{0xfffffffbu, 0, false}).value(), -5);
  EXPECT_EQ((LoadedIndex{5, 1, true}).value(), (int64_t{1} << 32) + 5);
  EXPECT_TRUE(LoadedIndex::of(-8).is_within(8));
  EXPECT_FALSE(LoadedIndex::of(8).is_within(8));
  EXPECT_FALSE(LoadedIndex::of((int64_t{1} << 32) + 1).is_within(8));
}

}  // namespace
}  // namespace heddle::cuda
