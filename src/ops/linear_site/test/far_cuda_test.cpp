// Sites whose x, y, weights and adapters reach beyond 2^31 elements, on the device alone.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/check.h"

#include "heddle/ops/linear_site.h"

#include "compare.h"
#include "core/math.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/lora/test/lora_cuda_cases.h"
#include "small_sizes.h"

namespace heddle::testing {
namespace {

using T = bfloat16;

/// A matrix whose rows begin `stride` elements apart; between them is what the buffer began with.
class FarRows {
 public:
  FarRows(int64_t rows, int64_t width, int64_t stride)
      : rows_(rows),
        width_(width),
        stride_(stride),
        memory_(size_t((rows - 1) * stride + width), DeviceBuffer<T>::Guards::kNone) {}
  FarRows(int64_t rows, int64_t width, int64_t stride, const std::vector<T>& values)
      : FarRows(rows, width, stride) {
    for_rows([&](int64_t row, T* there) { copy(there, values.data() + row * width); });
  }

  [[nodiscard]] TensorView view() const {
    const std::array<int64_t, 2> shape{rows_, width_}, strides{stride_, 1};
    return {reinterpret_cast<std::byte*>(memory_.data()), kDType<T>, memory_.device(), shape,
            strides};
  }
  /// The rows. What lies between them must not have been written.
  [[nodiscard]] std::vector<T> take() {
    const std::vector<T> unwritten(size_t(width_), std::bit_cast<T>(uint16_t{0xFFFF}));
    std::vector<T> values(size_t(rows_ * width_));
    for_rows([&](int64_t row, T* there) {
      copy(values.data() + row * width_, there);
      copy(there, unwritten.data());
    });
    EXPECT_TRUE(memory_.untouched(0, memory_.size()));
    return values;
  }

 private:
  /// f(row, its place) for all rows; its copies have ended when this returns.
  template <class F>
  void for_rows(const F& f) const {
    for (int64_t row = 0; row < rows_; ++row) f(row, memory_.data() + row * stride_);
    stream_.wait();
  }
  void copy(T* to, const T* from) const {
    HEDDLE_CUDA_CHECK(
        cudaMemcpyAsync(to, from, size_t(width_) * sizeof(T), cudaMemcpyDefault, stream_.get()));
  }

  int64_t rows_, width_, stride_;
  DeviceBuffer<T> memory_;
  DeviceStream stream_;
};

bool is_finite(const std::vector<T>& values) {
  return std::ranges::all_of(values, [](T v) { return std::isfinite(to_float(v)); });
}

/// How far apart rows are.
struct Strides {
  int64_t x, y, weight, b;
};

struct FarCase {
  LinearPath path;
  int64_t rows;
  int max_rank;     // of the adapters; 0: none
  WeightType type;  // kF32: dense weights
};

/// A site of one slice, and its results with rows near to each other and far apart.
class FarSite {
 public:
  static constexpr int64_t kIn = 256, kOut = 520;

  explicit FarSite(const FarCase& c)
      : c_(c),
        x_(random_normal<T>(size_t(c.rows * kIn))),
        weight_(random_normal<T>(size_t(kOut * kIn), 0.06f)),
        a_(random_normal<T>(size_t(c.max_rank * kIn), 0.06f)),
        b_(random_normal<T>(size_t(kOut * c.max_rank))),
        stored_(random_stored(WeightType::kQ4K, kOut * kIn, rng(), 0.01f)),
        host_packed_(ExecContext{}, WeightType::kQ4K, kOut, kIn, stored_),
        packed_(std::span<const std::byte>(host_packed_.bytes())) {
    for (int64_t row = 0; row < c.rows; ++row) ids_.push_back(row % 3 == 1 ? kNoAdapter : 0);
  }

  [[nodiscard]] static Strides near() { return {kIn, kOut, kIn, 16}; }
  /// y of a call.
  [[nodiscard]] std::vector<T> run(const LoraStream& stream, const Strides& strides) const {
    const FarRows x(c_.rows, kIn, strides.x, x_), weight(kOut, kIn, strides.weight, weight_);
    FarRows y(c_.rows, kOut, strides.y);
    LinearSlice slice{.y = y.view(), .weight = weight.view()};
    if (c_.type != WeightType::kF32) {
      slice.weight = {};
      slice.packed = {c_.type, kOut, kIn, packed_.data()};
    }
    if (c_.max_rank == 0) {
      linear_site(stream.ctx(), {&slice, 1}, x.view(), c_.path);
    } else {
      run_with_adapters(stream, slice, x.view(), strides.b);
    }
    stream.wait();
    return y.take();
  }

 private:
  void run_with_adapters(const LoraStream& stream, const LinearSlice& slice,
                         const ConstTensorView& x, int64_t b_stride) const {
    const int rank = c_.max_rank;
    const DeviceBuffer<T> a(a_);
    const FarRows b(kOut, rank, b_stride, b_);
    const auto entry = [&](const void* data, int64_t stride) {
      return DeviceBuffer<LoraWeight>(
          std::vector{LoraWeight{.data = data, .rank = rank, .row_stride = stride}});
    };
    const auto a_entry = entry(a.data(), kIn), b_entry = entry(b.view().raw(), b_stride);
    const DeviceBuffer<int32_t> ids(ids_);
    const auto table = [&](const DeviceBuffer<LoraWeight>& entries, LoraLayout layout) {
      return LoraTable{.entries = entries.data(),
                       .num_slots = 1,
                       .num_slices = 1,
                       .max_rank = rank,
                       .dtype = kDType<T>,
                       .device = entries.device(),
                       .layout = layout,
                       .is_aligned = true};
    };
    const LinearAdapters adapters{table(a_entry, LoraLayout::kRankMajor),
                                  table(b_entry, LoraLayout::kRankMinor),
                                  LoraBatch::from_ids(ids.view({c_.rows}))};
    linear_site(stream.ctx(), {&slice, 1}, x, c_.path, &adapters);
    stream.wait();
  }

  FarCase c_;
  std::vector<T> x_, weight_, a_, b_;
  std::vector<std::byte> stored_;
  OwnedWeight host_packed_;
  DeviceBuffer<std::byte> packed_;
  std::vector<int32_t> ids_;
};

class LinearSiteFar : public CudaTest {
 protected:
  [[nodiscard]] LoraStream stream() const { return {cuda_context().device, 64 << 20, true}; }
};

// 520 rows of 2^22 elements are the furthest that adapters may be inside: kMaxVectorStride.
TEST_F(LinearSiteFar, RowsBeyond2To31ElementsHaveTheirBits) {
  const LoraStream stream = this->stream();
  const int64_t of_many = small_or<int64_t>(1 << 10, 1 << 22);
  const int64_t of_few = small_or<int64_t>(1 << 12, (1 << 30) + 8);
  for (const LinearPath path : {LinearPath::kDecode, LinearPath::kPrompt}) {
    for (const int64_t rows : {3, 520}) {
      const int64_t far = rows == 3 ? of_few : of_many;
      for (const int max_rank : {0, 16}) {
        for (const WeightType type : {WeightType::kF32, WeightType::kQ4K}) {
          const FarSite site({path, rows, max_rank, type});
          const std::vector<T> want = site.run(stream, FarSite::near());
          ASSERT_TRUE(is_finite(want));
          const std::vector<T> got = site.run(stream, {far, far, of_many, of_many});
          EXPECT_TRUE(same_bits<T>(got, want)) << "path " << int(path) << ", " << rows << " rows, "
                                               << max_rank << " ranks, " << type;
        }
      }
    }
  }
}

TEST_F(LinearSiteFar, RowsThatAreNoVectorsDoToo) {
  const LoraStream stream = this->stream();
  const int64_t of_weight = small_or<int64_t>(1 << 10, 1 << 22) + 1;
  const int64_t far = small_or<int64_t>(1 << 12, 1 << 30) + 9;
  for (const LinearPath path : {LinearPath::kDecode, LinearPath::kPrompt}) {
    const FarSite site({path, 3, 0, WeightType::kF32});
    Strides near = FarSite::near();
    near.weight += 1;  // the general kernel
    const std::vector<T> want = site.run(stream, near);
    ASSERT_TRUE(is_finite(want));
    EXPECT_TRUE(same_bits<T>(site.run(stream, {far, far, of_weight, 16}), want));
  }
}

/// Rows of a weight [outs, in] that are not NaN: three groups of 16 at its begin, its middle and
/// its end.
class SparseWeight {
 public:
  static constexpr int64_t kGroup = 16, kGroups = 3;

  SparseWeight(int64_t in, WeightType type) : in_(in), type_(type) {
    if (is_packed()) {
      for (int64_t i = 0; i < kGroups; ++i) {
        const auto stored = random_stored(type, kGroup * in, rng(), 0.002f);
        packed_.emplace_back(ExecContext{}, type, kGroup, in, stored);
      }
    } else {
      dense_ = random_normal<T>(size_t(kGroups * kGroup * in), 0.01f);
    }
  }

  [[nodiscard]] static std::array<int64_t, kGroups> places(int64_t outs) {
    return {0, round_up(outs / 2, kGroup), outs - kGroup};
  }
  [[nodiscard]] size_t num_bytes(int64_t outs) const {
    return is_packed() ? packed_bytes(type_, outs, in_) : size_t(outs * in_) * sizeof(T);
  }
  /// y of those rows, for a weight of so many.
  [[nodiscard]] std::vector<T> run(const LoraStream& stream, LinearPath path, int64_t outs,
                                   const DeviceBuffer<T>& x) const {
    DeviceBuffer<std::byte> weight(num_bytes(outs), DeviceBuffer<std::byte>::Guards::kNone);
    const int64_t rows = int64_t(x.size()) / in_;
    const DeviceBuffer<T> y(size_t(rows * outs));
    for (int64_t i = 0; i < kGroups; ++i) {
      weight.upload(group(i), num_bytes(places(outs)[size_t(i)]));
    }
    LinearSlice slice{.y = y.view({rows, outs})};
    if (is_packed()) {
      slice.packed = {type_, outs, in_, weight.data()};
    } else {
      slice.weight = TensorView(weight.data(), kDType<T>, weight.device(), {outs, in_});
    }
    linear_site(stream.ctx(), {&slice, 1}, x.view({rows, in_}), path);
    stream.wait();
    std::vector<T> result;
    for (int64_t row = 0; row < rows; ++row) {
      for (const int64_t place : places(outs)) {
        const auto some = y.download(size_t(row * outs + place), size_t(kGroup));
        result.insert(result.end(), some.begin(), some.end());
      }
    }
    return result;
  }

 private:
  [[nodiscard]] bool is_packed() const { return type_ != WeightType::kF32; }
  [[nodiscard]] std::span<const std::byte> group(int64_t i) const {
    if (is_packed()) return packed_[size_t(i)].bytes();
    const auto size = size_t(kGroup * in_);
    return std::as_bytes(std::span(dense_).subspan(size_t(i) * size, size));
  }

  int64_t in_;
  WeightType type_;
  std::vector<T> dense_;
  std::vector<OwnedWeight> packed_;
};

TEST_F(LinearSiteFar, AWeightOfMoreThan2To31ElementsHasItsBits) {
  const LoraStream stream(cuda_context().device, size_t{128} << 20, true);
  const auto in = small_or<int64_t>(256, 8192);
  const DeviceBuffer<T> x(random_normal<T>(size_t(2 * in)));
  for (const LinearPath path : {LinearPath::kDecode, LinearPath::kPrompt}) {
    for (const WeightType type : {WeightType::kF32, WeightType::kQ8_0, WeightType::kQ4K}) {
      // More than 2^31 elements, of Q8_0 also bytes. A site of a quarter of the outputs is summed
      // in the same order.
      const int64_t outs = small_or<int64_t>(65536, 262144) + 256;
      const SparseWeight weight(in, type);
      const std::vector<T> want = weight.run(stream, path, outs / 4, x);
      ASSERT_TRUE(is_finite(want)) << type;
      EXPECT_TRUE(same_bits<T>(weight.run(stream, path, outs, x), want)) << type;
    }
  }
}

}  // namespace
}  // namespace heddle::testing
