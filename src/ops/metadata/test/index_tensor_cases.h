#pragma once

#include <array>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/tensor_view.h"

#include "ops/metadata/test/conversions_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// What index tensors are: the GPU has kernels for those without gaps between elements, and for i32
/// of them alone.
enum class IndexTensors { kGeneral, kContiguous, kContiguousI32, kContiguousI64 };

/// While one lives, new index tensors are such.
class ScopedIndexTensors {
 public:
  explicit ScopedIndexTensors(IndexTensors are) : before_(are_) { are_ = are; }
  ~ScopedIndexTensors() { are_ = before_; }
  ScopedIndexTensors(const ScopedIndexTensors&) = delete;
  ScopedIndexTensors& operator=(const ScopedIndexTensors&) = delete;

  [[nodiscard]] static IndexTensors are() { return are_; }

 private:
  static inline IndexTensors are_ = IndexTensors::kGeneral;
  IndexTensors before_;
};
/// Each kind in turn.
inline IndexTensors index_tensors_of(int repeat) {
  constexpr std::array kKinds{IndexTensors::kContiguousI32, IndexTensors::kGeneral,
                              IndexTensors::kContiguous, IndexTensors::kContiguousI64};
  return kKinds[size_t(repeat) % kKinds.size()];
}

/// An index tensor of tests: i32 or i64 at random, with gaps between rows and elements at random,
/// all of them filled, so that a write next to the elements shows.
class IndexTensor {
 public:
  explicit IndexTensor(const ref::Vector& values) : IndexTensor(1, int64_t(values.size()), values) {
    rank_ = 1;
  }
  explicit IndexTensor(const ref::Matrix& m) : IndexTensor(m.rows, m.width, m.values) {}

  [[nodiscard]] TensorView view() {
    const std::array<int64_t, 2> shape{rows_, width_}, strides{row_stride_, stride_};
    const auto skip = size_t(2 - rank_);
    return {wide_ ? reinterpret_cast<std::byte*>(i64_.data())
                  : reinterpret_cast<std::byte*>(i32_.data()),
            wide_ ? DType::kInt64 : DType::kInt32,
            {},
            std::span(shape).subspan(skip),
            std::span(strides).subspan(skip)};
  }

  /// The elements in logical order.
  [[nodiscard]] ref::Vector values() const {
    ref::Vector result;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < width_; ++j)
        result.push_back(read(size_t(i * row_stride_ + j * stride_)));
    }
    return result;
  }

  /// Expects these elements, and all between and around them as it was.
  void expect(const ref::Vector& want) const {
    EXPECT_EQ(values(), want);
    EXPECT_TRUE(i32_.guards_intact() && i64_.guards_intact());
    size_t changed = 0;
    std::vector<bool> is_element(size_, false);
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < width_; ++j) is_element[size_t(i * row_stride_ + j * stride_)] = true;
    }
    for (size_t i = 0; i < size_; ++i) changed += !is_element[i] && read(i) != kGap;
    EXPECT_EQ(changed, 0u) << "elements between those of the tensor";
  }

 private:
  static constexpr int64_t kGap = 0x5a5a5a5;

  IndexTensor(int64_t rows, int64_t width, const ref::Vector& values)
      : rows_(rows),
        width_(width),
        stride_(ScopedIndexTensors::are() == IndexTensors::kGeneral ? pick<int64_t>({1, 1, 2, 3})
                                                                    : 1),
        row_stride_(width * stride_ + random_int(0, 3)),
        size_(size_t(rows * row_stride_)),
        wide_(has_int64()),
        i32_(wide_ ? 0 : size_),
        i64_(wide_ ? size_ : 0) {
    for (size_t i = 0; i < size_; ++i) write(i, kGap);
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < width; ++j) {
        write(size_t(i * row_stride_ + j * stride_), values[size_t(i * width + j)]);
      }
    }
  }
  [[nodiscard]] static bool has_int64() {
    const IndexTensors are = ScopedIndexTensors::are();
    if (are == IndexTensors::kContiguousI32 || are == IndexTensors::kContiguousI64) {
      return are == IndexTensors::kContiguousI64;
    }
    return pick({false, true});
  }
  [[nodiscard]] int64_t read(size_t i) const { return wide_ ? i64_[i] : int64_t{i32_[i]}; }
  void write(size_t i, int64_t value) {
    if (wide_) {
      i64_[i] = value;
    } else {
      i32_[i] = static_cast<int32_t>(value);
    }
  }

  int rank_ = 2;
  int64_t rows_, width_, stride_, row_stride_;
  size_t size_;
  bool wide_;
  PoisonedBuffer<int32_t> i32_;
  PoisonedBuffer<int64_t> i64_;
};

/// n numbers in [low, high].
inline ref::Vector random_vector(int64_t n, int64_t low, int64_t high) {
  ref::Vector values(static_cast<size_t>(n));
  for (int64_t& value : values) value = random_int(low, high);
  return values;
}
inline ref::Matrix random_matrix(int64_t rows, int64_t width) {
  return {rows, width, random_vector(rows * width, 0, 1'000'000)};
}
/// Lengths as batches have them: most alike, some zero, at times one that is far longer than the
/// others.
inline ref::Vector random_lengths(int64_t n, int64_t typical) {
  ref::Vector lengths(static_cast<size_t>(n));
  for (int64_t& l : lengths) l = pick<int64_t>({0, 1, typical, random_int(0, typical)});
  if (n > 0 && random_int(0, 3) == 0) lengths[size_t(random_int(0, n - 1))] = 40 * typical;
  return lengths;
}
/// Exclusive prefix sum and the total, from `first` on.
inline ref::Vector starts_of_lengths(const ref::Vector& lengths, int64_t first = 0) {
  ref::Vector starts{first};
  for (const int64_t length : lengths) starts.push_back(starts.back() + length);
  return starts;
}

}  // namespace heddle::testing
