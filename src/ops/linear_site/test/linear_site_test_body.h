#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <deque>
#include <memory>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/linear_site.h"

#include "compare.h"
#include "core/math.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/lora/test/lora_cases.h"
#include "ops/lora/test/lora_test_body.h"
#include "small_sizes.h"

namespace heddle::testing {

inline constexpr LinearPath kLinearPaths[] = {LinearPath::kDecode, LinearPath::kPrompt};

struct SiteShape {
  int64_t rows, in;
  std::vector<int64_t> outs;
  int max_rank = 0;        // of six adapters; 0: a call without
  bool is_regular = true;  // what is loaded is aligned for vectors
  bool has_float_y = false;
  bool has_bias = false;
  std::vector<WeightType> formats = {};  // of the slices; kF32 and past the end: dense weights
  bool has_rounded_weights =
      false;  // what is right for packed weights: theirs rounded to x's dtype
};

/// An adapter of a row that has several, and its factor.
struct SitePair {
  int slot;  // -1, or from HostSite::kNumSlots on: none
  float scale;
};

/// A site with its adapters and its result, in host memory.
template <class T>
class HostSite {
 public:
  static constexpr int kNumSlots = 6;

  explicit HostSite(SiteShape s)
      : shape(std::move(s)), batch(shape.rows, kNumSlots, random_int(0, 1) == 0) {
    x_stride = shape.in + random_gap(shape.is_regular);
    x.assign(size_t(shape.rows * x_stride), from_float<T>(NAN));
    for (int64_t row = 0; row < shape.rows; ++row) {
      const auto values = random_normal<T>(size_t(shape.in));
      std::ranges::copy(values, x.begin() + row * x_stride);
    }
    for (size_t i = 0; i < shape.outs.size(); ++i) {
      const int64_t out = shape.outs[i];
      const auto scale = static_cast<float>(1 / std::sqrt(double(shape.in)));
      add_weight(i < shape.formats.size() ? shape.formats[i] : WeightType::kF32, out, scale);
      biases.push_back(random_normal<T>(size_t(out)));
      if (shape.max_rank == 0) continue;
      a.emplace_back(LoraLayout::kRankMajor, shape.in, random_ranks(), shape.is_regular);
      b.emplace_back(LoraLayout::kRankMinor, out, a.back().ranks, shape.is_regular);
    }
    width = 0;
    for (const int64_t out : shape.outs) width += out;
    clear();
  }

  /// y: NaN, so that an element that is not written is seen.
  void clear() {
    y.assign(size_t(shape.rows * width), from_float<T>(NAN));
    y32.assign(size_t(shape.rows * width), NAN);
  }

  /// Slots, -1 for none, and factors of all rows, as ids.
  void set_batch(const std::vector<int>& slots, const std::vector<float>& scales) {
    batch.slots = slots;
    batch.scales = scales;
    batch.narrow.assign(slots.begin(), slots.end());
    batch.batch = LoraBatch::from_ids(host_view(batch.narrow.data(), {shape.rows}));
    batch.batch.row_scale = host_view(batch.scales.data(), {shape.rows});
  }

  /// Calls linear_site for the rows [first, first + num), in the mirror's memory.
  template <class Call>
  void run(const LoraRun& run, int64_t first, int64_t num, const Call& call) {
    std::vector<LinearSlice> slices;
    std::vector<int64_t> ins;
    int64_t column = 0;
    const TensorView all = run.mirror(y_view().narrow(0, first, num));
    for (size_t i = 0; i < shape.outs.size(); ++i) {
      const int64_t out = shape.outs[i];
      LinearSlice slice{.y = all.narrow(1, column, out)};
      if (packed[i]) {
        slice.packed = packed[i]->view();
        slice.packed.data = run.mirror(packed[i]->bytes());
      } else {
        slice.weight = run.mirror(host_const(weights[i], {out, shape.in}));
      }
      if (shape.has_bias) slice.bias = run.mirror(host_const(biases[i], {out}));
      slices.push_back(slice);
      ins.push_back(shape.in);
      column += out;
    }
    const ConstTensorView x_rows(reinterpret_cast<const std::byte*>(x.data() + first * x_stride),
                                 kDType<T>, Device{}, std::vector<int64_t>{num, shape.in},
                                 std::vector<int64_t>{x_stride, 1});
    const ConstTensorView device_x = run.mirror(x_rows);
    LinearAdapters adapters;
    std::vector<LoraTableOf<T>> tables;
    std::vector<int32_t> ids(batch.slots.begin() + first, batch.slots.begin() + first + num);
    if (shape.max_rank > 0) {
      for (const auto* halves : {&a, &b}) {
        std::vector<const LoraHalf<T>*> of_slices;
        for (const LoraHalf<T>& half : *halves) of_slices.push_back(&half);
        tables.emplace_back(of_slices);
        tables.back().table.max_rank = shape.max_rank;
      }
      adapters.a = run.table(tables[0].table, ins);
      adapters.b = run.table(tables[1].table, shape.outs);
      LoraBatch rows = LoraBatch::from_ids(host_view(ids.data(), {num}));
      rows.row_scale = host_view(batch.scales.data() + first, {num});
      const bool is_whole = first == 0 && num == shape.rows;
      adapters.batch = run.batch(is_whole ? batch.batch : rows, num, kNumSlots, shape.max_rank);
    }
    Workspace workspace(run.mirror.scratch(
        linear_site_workspace_bytes(run.ctx.device, num, shape.in, width,
                                    static_cast<int>(shape.outs.size()), shape.max_rank)));
    call(run.with(workspace), slices, device_x, shape.max_rank > 0 ? &adapters : nullptr);
    run.mirror.back();
  }
  void run(const LoraRun& where, LinearPath path, int64_t first, int64_t num) {
    run(where, first, num,
        [path](const ExecContext& ctx, const auto& slices, const ConstTensorView& device_x,
               const LinearAdapters* adapters) {
          linear_site(ctx, slices, device_x, path, adapters);
        });
  }
  void run(const LoraRun& where, LinearPath path) { run(where, path, 0, shape.rows); }

  /// Every element against three loops in double.
  void expect_right() const {
    for (int64_t row = 0; row < shape.rows; ++row) {
      int64_t column = 0;
      for (size_t i = 0; i < shape.outs.size(); ++i) {
        for (int64_t out = 0; out < shape.outs[i]; ++out) expect_element(row, i, out, column++);
      }
    }
  }

  /// Whether an element of y is NaN, as one that was not written is.
  [[nodiscard]] bool has_nan() const {
    const auto is_nan = [](auto v) { return std::isnan(to_float(v)); };
    return shape.has_float_y ? std::ranges::any_of(y32, is_nan) : std::ranges::any_of(y, is_nan);
  }

  /// The bits of row `row`, from its first column on.
  [[nodiscard]] std::vector<uint32_t> bits(int64_t row) const {
    std::vector<uint32_t> result;
    for (int64_t i = row * width; i < (row + 1) * width; ++i) {
      result.push_back(shape.has_float_y ? std::bit_cast<uint32_t>(y32[size_t(i)])
                                         : std::bit_cast<uint16_t>(y[size_t(i)]));
    }
    return result;
  }

  SiteShape shape;
  int64_t x_stride = 0, width = 0;
  RandomLoraBatch batch;
  std::vector<std::vector<SitePair>> pairs;  // of each row, in place of the batch, where given
  std::vector<T> x, y;
  std::vector<float> y32;
  std::vector<std::vector<T>> weights, biases;             // weights: empty where packed
  std::vector<std::shared_ptr<const OwnedWeight>> packed;  // null: dense
  std::vector<std::vector<float>> values;                  // of the weights
  std::deque<LoraHalf<T>> a, b;

 private:
  [[nodiscard]] std::vector<int> random_ranks() const {
    std::vector<int> ranks;
    for (int slot = 0; slot < kNumSlots; ++slot) {
      const int64_t rank = random_int(0, 5) == 0 ? 0 : random_int(1, shape.max_rank);
      const int64_t unit = !shape.is_regular ? 1 : rank <= 16 ? 4 : 8;
      ranks.push_back(static_cast<int>(std::min<int64_t>(round_up(rank, unit), shape.max_rank)));
    }
    return ranks;
  }
  void add_weight(WeightType type, int64_t out, float scale) {
    auto& of_slice = values.emplace_back(size_t(out * shape.in));
    if (type == WeightType::kF32) {
      weights.push_back(random_normal<T>(size_t(out * shape.in), scale));
      std::ranges::transform(weights.back(), of_slice.begin(), [](T v) { return to_float(v); });
      packed.emplace_back();
      return;
    }
    const auto stored = random_stored(type, out * shape.in, rng(), 0.1f * scale);
    dequantize(of_slice, type, stored);
    if (shape.has_rounded_weights) {
      for (float& v : of_slice) v = to_float(from_float<T>(v));
    }
    packed.push_back(
        std::make_shared<const OwnedWeight>(ExecContext{}, type, out, shape.in, stored));
    weights.emplace_back();
  }
  template <class V>
  static ConstTensorView host_const(const std::vector<V>& values,
                                    std::initializer_list<int64_t> extents) {
    return host_view(values.data(), extents);
  }
  [[nodiscard]] TensorView y_view() {
    return shape.has_float_y ? host_view(y32.data(), {shape.rows, width})
                             : host_view(y.data(), {shape.rows, width});
  }
  void expect_element(int64_t row, size_t slice, int64_t out, int64_t column) const {
    const T* x_row = x.data() + row * x_stride;
    const auto product = [&](const auto& weight, double& size) {
      double sum = 0;
      for (int64_t k = 0; k < shape.in; ++k) {
        const double term = double(weight(k)) * double(to_float(x_row[k]));
        sum += term;
        size += std::abs(term);
      }
      return sum;
    };
    // Half the distance of the smallest values.
    constexpr double kLeast = std::is_same_v<T, half> ? 0x1p-25 : 1e-30;
    double size = 0, lora_size = 0;
    double split = 0;  // h enters the product with B as two values of T on a GPU
    const float* w = values[slice].data() + out * shape.in;
    double want = product([&](int64_t k) { return w[k]; }, size);
    if (shape.has_bias) want += double(to_float(biases[slice][size_t(out)]));
    const auto add_adapter = [&](int slot, float scale) {
      if (slot < 0 || slot >= kNumSlots) return;
      const double factor = double(scale) * double(b[slice].entries[size_t(slot)].scale);
      for (int64_t r = 0; r < a[slice].ranks[size_t(slot)]; ++r) {
        double h_size = 0;
        const double h = product([&](int64_t k) { return a[slice].value(slot, r, k); }, h_size);
        const double of_b = factor * double(b[slice].value(slot, r, out));
        want += of_b * h;
        lora_size += std::abs(of_b) * h_size;
        split += std::abs(of_b) * std::max(kRounding<T> * kRounding<T> * 4 * h_size, kLeast);
      }
    };
    if (!pairs.empty()) {
      for (const SitePair& pair : pairs[size_t(row)]) add_adapter(pair.slot, pair.scale);
    } else if (shape.max_rank > 0) {
      add_adapter(batch.slots[size_t(row)], batch.scales[size_t(row)]);
    }
    const double got = shape.has_float_y ? double(y32[size_t(row * width + column)])
                                         : double(to_float(y[size_t(row * width + column)]));
    const double rounding = shape.has_float_y ? kRounding<float> : kRounding<T>;
    const double bound = 1.01 * rounding * std::abs(want) + 0x1p-20 * (size + lora_size) + split +
                         (shape.has_float_y ? 1e-30 : kLeast);
    ASSERT_TRUE(std::abs(got - want) <= bound)
        << "row " << row << " of " << shape.rows << ", slice " << slice << ", output " << out
        << ": got " << got << ", want " << want << " within " << bound << "; in " << shape.in
        << ", max_rank " << shape.max_rank << ", slot " << batch.slots[size_t(row)] << ", "
        << pairs.size() << " rows with pairs";
  }
};

/// A few shapes that reach every kernel: tails of features and outputs, one to three slices.
inline SiteShape random_site_shape(int64_t max_rows) {
  SiteShape s;
  s.rows = random_int(1, max_rows);
  s.is_regular = random_int(0, 3) > 0;
  const int64_t max_in = small_or<int64_t>(320, 1200), max_out = small_or<int64_t>(160, 400);
  s.in = s.is_regular ? 8 * random_int(1, max_in / 8) : random_int(1, max_in);
  const int64_t num = random_int(1, 3);
  for (int64_t i = 0; i < num; ++i) s.outs.push_back(random_int(1, max_out));
  s.max_rank = pick({0, 4, 16, 40, 128});
  s.has_float_y = random_int(0, 1) == 0;
  s.has_bias = random_int(0, 1) == 0;
  return s;
}

}  // namespace heddle::testing
