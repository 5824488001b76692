#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "heddle/core/context.h"
#include "heddle/ops/speculation.h"

#include "core/math.h"
#include "ops/speculation/test/speculation_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

using ref::Ints;

/// How the buffers of a test lie: with gaps and of either index type as it falls, or as calls are
/// for which there are kernels of their own.
enum class BufferLayout { kGeneral, kContiguous, kContiguousInt32, kContiguousInt64 };
inline BufferLayout buffer_layout = BufferLayout::kGeneral;

class ScopedBufferLayout {
 public:
  explicit ScopedBufferLayout(BufferLayout layout) { buffer_layout = layout; }
  ~ScopedBufferLayout() { buffer_layout = BufferLayout::kGeneral; }
  ScopedBufferLayout(const ScopedBufferLayout&) = delete;
  ScopedBufferLayout& operator=(const ScopedBufferLayout&) = delete;
};

/// A number of elements from `least` to `most`; the least where buffers have no gaps.
inline int64_t random_gap(int64_t least, int64_t most) {
  return buffer_layout == BufferLayout::kGeneral ? random_int(least, most) : least;
}
inline bool random_is_wide() {
  const bool either = random_int(0, 1) == 1;
  return buffer_layout == BufferLayout::kContiguousInt64 ||
         (buffer_layout != BufferLayout::kContiguousInt32 && either);
}

/// A vector or matrix of i32 or i64 with gaps between its elements, both as it falls. Elements
/// begin as kBefore, so that a written -1 differs from one that nothing wrote; gaps and guards must
/// keep their bytes.
class IndexBuffer {
 public:
  static constexpr int64_t kBefore = 0x5A5A5A5A;

  explicit IndexBuffer(int64_t rows) : IndexBuffer(rows, 1) { rank_ = 1; }
  explicit IndexBuffer(const Ints& values) : IndexBuffer(int64_t(values.size())) {
    for (int64_t i = 0; i < rows_; ++i) set(i, values[size_t(i)]);
  }
  IndexBuffer(int64_t rows, int64_t columns)
      : rows_(rows),
        columns_(columns),
        column_stride_(random_gap(1, 2)),
        row_stride_(std::max<int64_t>(1, columns * column_stride_) +
                    (columns == 1 ? random_gap(0, 3) : random_int(0, 3))),
        wide_(random_is_wide()),
        narrow_data_(wide_ ? 0 : size_t(rows * row_stride_)),
        wide_data_(wide_ ? size_t(rows * row_stride_) : 0) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < columns; ++j) set(i, j, kBefore);
    }
  }

  [[nodiscard]] int64_t rows() const { return rows_; }
  [[nodiscard]] int64_t get(int64_t i, int64_t j = 0) const {
    const size_t at = size_t(i * row_stride_ + j * column_stride_);
    return wide_ ? wide_data_[at] : narrow_data_[at];
  }
  void set(int64_t i, int64_t value) { set(i, 0, value); }
  void set(int64_t i, int64_t j, int64_t value) {
    const size_t at = size_t(i * row_stride_ + j * column_stride_);
    if (wide_) {
      wide_data_[at] = value;
    } else {
      narrow_data_[at] = static_cast<int32_t>(value);
    }
  }
  [[nodiscard]] Ints values() const { return column(0); }
  [[nodiscard]] Ints row(int64_t i) const {
    Ints result;
    for (int64_t j = 0; j < columns_; ++j) result.push_back(get(i, j));
    return result;
  }
  /// [rows], [rows, columns]
  TensorView view() { return rank_ == 1 ? make({rows_}, {row_stride_}) : matrix(); }
  /// [1, rows]
  TensorView as_row() {
    const std::array<int64_t, 2> shape{1, rows_}, strides{7, row_stride_};
    return {raw(), dtype(), {}, shape, strides};
  }
  [[nodiscard]] bool gaps_intact() const {
    return wide_ ? gaps_intact(wide_data_) : gaps_intact(narrow_data_);
  }

 private:
  [[nodiscard]] DType dtype() const { return wide_ ? DType::kInt64 : DType::kInt32; }
  std::byte* raw() {
    return wide_ ? reinterpret_cast<std::byte*>(wide_data_.data())
                 : reinterpret_cast<std::byte*>(narrow_data_.data());
  }
  TensorView make(std::array<int64_t, 1> shape, std::array<int64_t, 1> strides) {
    return {raw(), dtype(), {}, shape, strides};
  }
  TensorView matrix() {
    const std::array<int64_t, 2> shape{rows_, columns_}, strides{row_stride_, column_stride_};
    return {raw(), dtype(), {}, shape, strides};
  }
  [[nodiscard]] Ints column(int64_t j) const {
    Ints result;
    for (int64_t i = 0; i < rows_; ++i) result.push_back(get(i, j));
    return result;
  }
  template <class T>
  [[nodiscard]] bool gaps_intact(const PoisonedBuffer<T>& data) const {
    for (int64_t at = 0; at < rows_ * row_stride_; ++at) {
      const int64_t in_row = at % row_stride_;
      const bool element = in_row % column_stride_ == 0 && in_row / column_stride_ < columns_;
      if (!element && !data.untouched(size_t(at))) return false;
    }
    return data.guards_intact();
  }

  int64_t rows_, columns_, column_stride_, row_stride_;
  int rank_ = 2;
  bool wide_;
  PoisonedBuffer<int32_t> narrow_data_;
  PoisonedBuffer<int64_t> wide_data_;
};

/// A buffer for masks, bool or u8.
class MaskBuffer {
 public:
  explicit MaskBuffer(int64_t n)
      : n_(n), stride_(random_gap(1, 2)), data_(size_t(n * stride_)), boolean_(random_int(0, 1)) {}
  explicit MaskBuffer(const Ints& values) : MaskBuffer(int64_t(values.size())) {
    for (int64_t i = 0; i < n_; ++i) data_[size_t(i * stride_)] = uint8_t(values[size_t(i)]);
  }
  /// 255 where nothing was written.
  [[nodiscard]] Ints values() const {
    Ints result;
    for (int64_t i = 0; i < n_; ++i) result.push_back(data_[size_t(i * stride_)]);
    return result;
  }
  TensorView view() {
    const std::array<int64_t, 1> shape{n_}, strides{stride_};
    return {raw(), dtype(), {}, shape, strides};
  }
  TensorView as_row() {
    const std::array<int64_t, 2> shape{1, n_}, strides{7, stride_};
    return {raw(), dtype(), {}, shape, strides};
  }
  [[nodiscard]] bool gaps_intact() const {
    for (size_t i = 0; i < data_.size(); ++i) {
      if (i % size_t(stride_) != 0 && !data_.untouched(i)) return false;
    }
    return data_.guards_intact();
  }

 private:
  [[nodiscard]] DType dtype() const { return boolean_ ? DType::kBool : DType::kUInt8; }
  std::byte* raw() { return reinterpret_cast<std::byte*>(data_.data()); }

  int64_t n_, stride_;
  PoisonedBuffer<uint8_t> data_;
  bool boolean_;
};

/// A context on one to three threads.
struct RandomThreads {
  ThreadPool pool{static_cast<int>(random_int(1, 3))};
  [[nodiscard]] ExecContext context() {
    ExecContext ctx;
    ctx.threads = &pool;
    return ctx;
  }
};

/// A batch of requests before verification, with `padding` tokens after them. Half of the drafts
/// are right.
struct DraftedBatch {
  int64_t num_decode, num_prefill, max_drafts;
  bool ragged;
  Ints drafts;         // [num_decode]
  Ints draft_indptr;   // [num_decode + 1]
  Ints input, output;  // [num_tokens]

  [[nodiscard]] int64_t num_requests() const { return num_decode + num_prefill; }
  [[nodiscard]] int64_t num_tokens() const { return int64_t(input.size()); }
};

inline DraftedBatch random_batch(int64_t num_decode, int64_t num_prefill, int64_t max_drafts,
                                 bool ragged, int64_t padding = 0) {
  DraftedBatch batch{num_decode, num_prefill, max_drafts, ragged, {}, {0}, {}, {}};
  for (int64_t p = 0; p < num_decode; ++p) {
    const int64_t n = ragged ? random_int(0, max_drafts) : max_drafts;
    batch.drafts.push_back(n);
    batch.draft_indptr.push_back(batch.draft_indptr.back() + n);
  }
  const int64_t num_tokens = batch.num_requests() + batch.draft_indptr.back() + padding;
  for (int64_t t = 0; t < num_tokens; ++t) {
    const bool right = t > 0 && random_int(0, 1) == 1;
    batch.input.push_back(right ? batch.output.back() : random_int(-1, 50));
    batch.output.push_back(random_int(-1, 50));
  }
  return batch;
}

/// The state of `rows` requests that hold tokens in blocks of block_size, of which `drafted` at
/// least were drafted.
inline std::vector<ref::KvRequest> random_kv(int64_t rows, int64_t max_blocks, int64_t block_size,
                                             int64_t drafted) {
  std::vector<ref::KvRequest> kv;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t length = random_int(drafted + 1, max_blocks * block_size);
    const int64_t count = ceil_div(length, block_size);
    Ints ids;
    for (int64_t b = 0; b < max_blocks; ++b) ids.push_back(b < count ? random_int(0, 9999) : -1);
    kv.push_back({(length - 1) % block_size, length, count, ids[size_t(count - 1)], ids});
  }
  return kv;
}

/// The tensors of such a state, with gaps.
struct KvBuffers {
  IndexBuffer offset, length, count, last_id, ids;

  explicit KvBuffers(const std::vector<ref::KvRequest>& kv, int64_t max_blocks)
      : offset(int64_t(kv.size())),
        length(int64_t(kv.size())),
        count(int64_t(kv.size())),
        last_id(int64_t(kv.size())),
        ids(int64_t(kv.size()), max_blocks) {
    for (size_t i = 0; i < kv.size(); ++i) {
      const int64_t row = int64_t(i);
      offset.set(row, kv[i].offset);
      length.set(row, kv[i].length);
      count.set(row, kv[i].count);
      last_id.set(row, kv[i].last_id);
      for (int64_t b = 0; b < max_blocks; ++b) ids.set(row, b, kv[i].ids[size_t(b)]);
    }
  }
  KvBlockState state() {
    return {offset.view(), length.view(), count.view(), last_id.view(), ids.view()};
  }
  [[nodiscard]] bool holds(int64_t i, const ref::KvRequest& kv) const {
    return offset.get(i) == kv.offset && length.get(i) == kv.length && count.get(i) == kv.count &&
           last_id.get(i) == kv.last_id && ids.row(i) == kv.ids;
  }
  [[nodiscard]] bool gaps_intact() const {
    return offset.gaps_intact() && length.gaps_intact() && count.gaps_intact() &&
           last_id.gaps_intact() && ids.gaps_intact();
  }
};

}  // namespace heddle::testing
