#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/adapter_parts.h"

#include "compare.h"
#include "mirror.h"
#include "ops/adapter_parts/test/adapter_parts_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle::testing {

/// Random rows with gaps between them, which hold poison; looked at after the call.
class GappedRows {
 public:
  GappedRows(int64_t rows, int64_t width)
      : rows_(rows),
        width_(width),
        stride_(width + random_int(0, 5)),
        before_(random_normal<float>(size_t(rows * width))),
        buffer_(size_t(rows * stride_)) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(&before_[size_t(r * width)], width, buffer_.data() + r * stride_);
    }
  }

  /// Before the call: a row of zeros.
  void clear(int64_t row) {
    std::fill_n(&before_[size_t(row * width_)], width_, 0.0f);
    std::fill_n(buffer_.data() + row * stride_, width_, 0.0f);
  }

  [[nodiscard]] TensorView view() { return buffer_.view({rows_, stride_}).narrow(1, 0, width_); }
  [[nodiscard]] double before(int64_t row, int64_t i) const {
    return double{before_[size_t(row * width_ + i)]};
  }
  [[nodiscard]] std::vector<ref::Sum> before(int64_t row) const {
    std::vector<ref::Sum> sums(static_cast<size_t>(width_));
    for (size_t i = 0; i < sums.size(); ++i) sums[i].add(before(row, int64_t(i)));
    return sums;
  }
  [[nodiscard]] std::span<const float> row(int64_t r) const {
    return {buffer_.data() + r * stride_, size_t(width_)};
  }
  [[nodiscard]] bool is_as_before(int64_t r) const {
    return same_bits<float>(row(r), std::span(before_).subspan(size_t(r * width_), size_t(width_)));
  }
  /// All rows without their gaps.
  [[nodiscard]] std::vector<float> values() const {
    std::vector<float> all;
    for (int64_t r = 0; r < rows_; ++r) all.insert(all.end(), row(r).begin(), row(r).end());
    return all;
  }
  void expect_gaps_untouched() const {
    EXPECT_TRUE(buffer_.guards_intact());
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t i = width_; i < stride_; ++i) {
        ASSERT_TRUE(buffer_.untouched(size_t(r * stride_ + i))) << "row " << r;
      }
    }
  }

 private:
  int64_t rows_, width_, stride_;
  std::vector<float> before_;
  PoisonedBuffer<float> buffer_;
};

/// n different ids below `limit`, ascending.
inline std::vector<int32_t> random_ids(int64_t n, int64_t limit) {
  std::vector<int32_t> ids(static_cast<size_t>(limit));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), rng());
  ids.resize(static_cast<size_t>(n));
  std::ranges::sort(ids);
  return ids;
}

/// `length`: terms of a sum.
inline void expect_sums(std::span<const float> got, const std::vector<ref::Sum>& want,
                        int64_t length) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const double error = std::abs(double{got[i]} - want[i].value);
    ASSERT_TRUE(error <= tolerance<float>(length) * want[i].size) << got[i] << ", " << error;
  }
}

/// Slices of random widths, adapters with a factor, both or nothing, by ids or by pairs. Returns
/// what the slices hold afterwards.
inline std::vector<float> check_affines(const ExecContext& ctx, Mirror& on, bool has_pairs) {
  const auto num_slices = static_cast<size_t>(random_int(1, 3));
  const int64_t num_slots = random_int(1, 5), num_tokens = random_int(1, 9);
  std::vector<GappedRows> y;
  std::vector<int64_t> widths;
  for (size_t s = 0; s < num_slices; ++s) {
    widths.push_back(pick<int64_t>({1, 7, 255, 1024, 1500, 4099}));
    y.emplace_back(num_tokens, widths.back());
  }
  const auto entry_of = [&](int64_t slot, size_t s) { return size_t(slot) * num_slices + s; };
  std::vector<std::vector<float>> values(size_t(num_slots) * num_slices);
  std::vector<int32_t> ranks(values.size());
  std::vector<LoraWeight> entries(values.size());
  for (int64_t slot = 0; slot < num_slots; ++slot) {
    for (size_t s = 0; s < num_slices; ++s) {
      const size_t e = entry_of(slot, s);
      ranks[e] = static_cast<int32_t>(random_int(0, 2));
      if (ranks[e] == 0) continue;  // does not touch the slice
      const int64_t stride = widths[s] + random_int(0, 3);
      values[e] = random_normal<float>(size_t(ranks[e] * stride));
      entries[e] = {
          .data = on(std::span<const float>(values[e])), .rank = ranks[e], .row_stride = stride};
    }
  }
  std::vector<int32_t> starts{0}, slots;
  std::vector<float> scales;
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t n = has_pairs ? random_int(0, 3) : 1; n > 0; --n) {
      slots.push_back(static_cast<int32_t>(random_int(-1, num_slots)));
      scales.push_back(has_pairs ? random_normal<float>(1)[0] : 1.0f);
    }
    starts.push_back(static_cast<int32_t>(slots.size()));
  }
  const auto array = [&](const auto& host) {
    return on(ConstTensorView(host_view(host.data(), {std::ssize(host)})));
  };
  const LoraBatch batch = has_pairs
                              ? LoraBatch::from_pairs(array(starts), array(slots), array(scales), 3)
                              : LoraBatch::from_ids(array(slots));
  std::vector<LoraSlice> slices;
  for (GappedRows& rows : y) slices.push_back({on(rows.view())});
  const float scale = pick({1.0f, -0.375f});
  const LoraTable table{.entries = on(std::span<const LoraWeight>(entries)),
                        .num_slots = static_cast<int32_t>(num_slots),
                        .num_slices = static_cast<int32_t>(num_slices),
                        .max_rank = 2,
                        .device = ctx.device,
                        .features = widths.data()};
  apply_affines(ctx, slices, table, batch, scale);
  on.back();
  std::vector<float> all;
  for (size_t s = 0; s < num_slices; ++s) {
    y[s].expect_gaps_untouched();
    for (int64_t t = 0; t < num_tokens; ++t) {
      std::vector<ref::Sum> want = y[s].before(t);
      bool is_touched = false;
      for (int32_t pair = starts[size_t(t)]; pair < starts[size_t(t) + 1]; ++pair) {
        const int64_t slot = slots[size_t(pair)];
        if (slot < 0 || slot >= num_slots || ranks[entry_of(slot, s)] == 0) continue;
        const size_t e = entry_of(slot, s);
        is_touched = true;
        ref::apply_affine(want, std::span<const float>(values[e]), entries[e],
                          double{scale} * double{scales[size_t(pair)]});
      }
      expect_sums(y[s].row(t), want, 4);
      EXPECT_TRUE(is_touched || y[s].is_as_before(t)) << "row " << t;
    }
    const std::vector<float> got = y[s].values();
    all.insert(all.end(), got.begin(), got.end());
  }
  return all;
}

inline std::vector<int32_t> random_tokens(int64_t num_tokens, int64_t vocab_size) {
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < num_tokens; ++t) {
    tokens.push_back(static_cast<int32_t>(random_int(-1, vocab_size)));
  }
  return tokens;
}

inline void check_replace_rows(const ExecContext& ctx, Mirror& on) {
  const int64_t vocab_size = random_int(1, 40), num_tokens = random_int(1, 30);
  const int64_t num_own = random_int(0, vocab_size), width = pick<int64_t>({1, 33, 576, 4099});
  GappedRows y(num_tokens, width), own(num_own, width);
  const std::vector<int32_t> ids = random_ids(num_own, vocab_size);
  const std::vector<int32_t> tokens = random_tokens(num_tokens, vocab_size);
  replace_rows(ctx, on(y.view()), on(ConstTensorView(host_view(tokens.data(), {num_tokens}))),
               on(ConstTensorView(host_view(ids.data(), {num_own}))),
               on(ConstTensorView(own.view())));
  on.back();
  y.expect_gaps_untouched();
  for (int64_t t = 0; t < num_tokens; ++t) {
    const auto found = std::ranges::find(ids, tokens[size_t(t)]);
    if (found == ids.end()) {
      ASSERT_TRUE(y.is_as_before(t)) << t;
    } else {
      ASSERT_TRUE(same_bits<float>(y.row(t), own.row(found - ids.begin()))) << t;
    }
  }
}

/// Returns the rows afterwards.
inline std::vector<float> check_low_rank_rows(const ExecContext& ctx, Mirror& on) {
  const int64_t vocab_size = random_int(1, 40), num_tokens = random_int(1, 30);
  const int64_t rank = pick<int64_t>({1, 3, 16, 70}), width = pick<int64_t>({1, 33, 576, 4099});
  const bool has_factor = random_int(0, 1) == 1;
  GappedRows y(num_tokens, width), a(vocab_size, rank), b(rank, width);
  const auto factor = random_normal<float>(size_t(width));
  const std::vector<int32_t> tokens = random_tokens(num_tokens, vocab_size);
  const float scale = 0.75f;
  add_low_rank_rows(
      ctx, on(y.view()), on(ConstTensorView(host_view(tokens.data(), {num_tokens}))),
      on(ConstTensorView(a.view())), on(ConstTensorView(b.view())),
      has_factor ? on(ConstTensorView(host_view(factor.data(), {width}))) : ConstTensorView(),
      scale);
  on.back();
  y.expect_gaps_untouched();
  for (int64_t t = 0; t < num_tokens; ++t) {
    const int32_t token = tokens[size_t(t)];
    if (token < 0 || token >= vocab_size) {
      EXPECT_TRUE(y.is_as_before(t)) << t;
      continue;
    }
    std::vector<ref::Sum> want = y.before(t);
    for (size_t i = 0; i < want.size(); ++i) {
      for (int64_t r = 0; r < rank; ++r) {
        want[i].add(double{scale} * a.before(token, r) * b.before(r, int64_t(i)));
      }
      if (has_factor) want[i].multiply(double{factor[i]});
    }
    expect_sums(y.row(t), want, rank);
  }
  return y.values();
}

inline void check_divide_by_lengths(const ExecContext& ctx, Mirror& on) {
  const int64_t num_rows = random_int(1, 300), width = pick<int64_t>({1, 33, 576, 4099});
  GappedRows x(num_rows, width);
  x.clear(random_int(0, num_rows - 1));
  const auto before = random_normal<float>(size_t(num_rows));
  PoisonedBuffer<float> y(before.size());
  std::copy(before.begin(), before.end(), y.data());
  divide_by_lengths(ctx, on(y.view({num_rows})), on(ConstTensorView(x.view())));
  on.back();
  EXPECT_TRUE(y.guards_intact());
  for (int64_t i = 0; i < num_rows; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < width; ++k) sum += x.before(i, k) * x.before(i, k);
    const double want = double{before[size_t(i)]} / std::sqrt(sum);
    const double found{y[size_t(i)]};
    if (std::isfinite(want)) {
      ASSERT_TRUE(std::abs(found - want) <= 1.01 * kRounding<float> * std::abs(want)) << i;
    } else {  // a row of zeros
      ASSERT_TRUE(found == want || (std::isnan(found) && std::isnan(want))) << i;
    }
  }
}

template <class T>
void check_linear_at(const ExecContext& ctx, Mirror& on) {
  const int64_t out_features = random_int(1, 400), num_tokens = random_int(1, 12);
  const int64_t in_features = pick<int64_t>({1, 31, 64, 1000});
  const int64_t num_own = random_int(0, std::min<int64_t>(out_features, 40));
  GappedRows y(num_tokens, out_features), own(num_own, in_features);
  const int64_t x_stride = in_features + random_int(0, 3);
  const auto x = random_normal<T>(size_t(num_tokens * x_stride));
  std::vector<int32_t> ids = random_ids(num_own, out_features);
  if (num_own > 0 && random_int(0, 3) == 0) ids.back() = static_cast<int32_t>(out_features);
  const ConstTensorView rows = host_view(x.data(), {num_tokens, x_stride});
  linear_at(ctx, on(y.view()), on(rows.narrow(1, 0, in_features)),
            on(ConstTensorView(host_view(ids.data(), {num_own}))), on(ConstTensorView(own.view())));
  on.back();
  y.expect_gaps_untouched();
  for (int64_t t = 0; t < num_tokens; ++t) {
    std::vector<ref::Sum> products;
    std::vector<float> got;
    std::vector<bool> is_own(static_cast<size_t>(out_features));
    for (int64_t j = 0; j < num_own; ++j) {
      const int32_t id = ids[size_t(j)];
      if (id >= out_features) continue;
      is_own[size_t(id)] = true;
      products.emplace_back();
      for (int64_t k = 0; k < in_features; ++k) {
        products.back().add(own.before(j, k) * double{to_float(x[size_t(t * x_stride + k)])});
      }
      got.push_back(y.row(t)[size_t(id)]);
    }
    expect_sums(got, products, in_features);
    for (int64_t i = 0; i < out_features; ++i) {
      ASSERT_TRUE(is_own[size_t(i)] || double{y.row(t)[size_t(i)]} == y.before(t, i)) << t;
    }
  }
}

}  // namespace heddle::testing
