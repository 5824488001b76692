#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "ops/lora/test/lora_cases.h"
#include "ops/lora/test/lora_ref.h"
#include "ops/lora/test/lora_test_body.h"
#include "poison.h"

// The bodies of the tests of LoRA's sums, the same for every device.

namespace heddle::testing {

/// A matrix of rows farther apart than they are wide; elements that are never written stay
/// poisoned.
template <class T>
struct Rows {
  int64_t num_rows, width, stride;
  PoisonedBuffer<T> buffer;

  Rows(int64_t num_rows, int64_t width, bool is_regular = false)
      : num_rows(num_rows),
        width(width),
        stride(width + random_gap(is_regular)),
        buffer(size_t(num_rows * stride)) {}
  T& at(int64_t row, int64_t i) { return buffer[size_t(row * stride + i)]; }
  void fill_random() {
    const std::vector<T> values = random_normal<T>(size_t(num_rows * width));
    for (int64_t i = 0; i < num_rows * width; ++i) at(i / width, i % width) = values[size_t(i)];
  }
  [[nodiscard]] std::vector<float> floats(int64_t row, int64_t n) {
    std::vector<float> result;
    for (int64_t i = 0; i < n; ++i) result.push_back(to_float(at(row, i)));
    return result;
  }
  TensorView view() {
    const std::array<int64_t, 2> shape{num_rows, width}, strides{stride, 1};
    return TensorView(reinterpret_cast<std::byte*>(buffer.data()), kDType<T>, {}, shape, strides);
  }
  /// Whether two matrices made as copies of one hold the same bits, gaps included, and nothing was
  /// written around them.
  [[nodiscard]] bool same(const Rows& other) const {
    return buffer.guards_intact() && other.buffer.guards_intact() &&
           buffer.size() == other.buffer.size() &&
           std::memcmp(buffer.data(), other.buffer.data(), buffer.size() * sizeof(T)) == 0;
  }
};

inline std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

/// How far hi + lo, two values of W, may be from h.
template <class W>
double split_error(double h) {
  const double relative = kRounding<W> * kRounding<W> * std::abs(h);
  return std::is_same_v<W, half> ? std::max(relative, 0x1p-25) : relative;
}

/// Checks one element: bit for bit in the promised order where that is fixed, and against the sum
/// in double. W: dtype of the weights.
template <class W, class Y>
void expect_element(Y got, Y old, const std::vector<float>& u, const std::vector<float>& w,
                    float factor, bool accumulate, LoraSums sums, bool is_shrink = true) {
  const float before = accumulate ? to_float(old) : 0.0f;
  if (sums == LoraSums::kInOrder) {
    const float sum = ref::lora_sum_in_order(u, w);
    const float value = accumulate ? std::fma(factor, sum, before) : factor * sum;
    ASSERT_EQ(to_float(got), to_float(from_float<Y>(value)));
  }
  const double delta = double{factor} * ref::lora_sum(doubles(u), doubles(w));
  double magnitude = 0.0, split = 0.0;
  for (size_t k = 0; k < u.size(); ++k) {
    magnitude += std::abs(double{factor} * u[k] * w[k]);
    split += std::abs(double{factor} * w[k]) * split_error<W>(u[k]);
  }
  magnitude += std::abs(double{before});
  double bound = std::abs(before + delta) * kRounding<Y> +
                 magnitude * 0x1p-23 * std::sqrt(double(u.size()) + 4.0) + 0x1p-25;
  if (sums == LoraSums::kSplit) {
    // Tensor cores cut off where a sum in f32 would round.
    bound += magnitude * 0x1p-23 * std::sqrt(double(u.size()) + 4.0) + (is_shrink ? 0.0 : split);
  }
  ASSERT_LE(std::abs(to_float(got) - (before + delta)), bound);
}

/// A random call of one of the four forms, checked element by element. U, W, Y: dtypes of input,
/// weights, output.
template <class U, class W, class Y>
struct RandomCall {
  bool is_shrink = random_int(0, 1) == 0, is_table = random_int(0, 1) == 0;
  bool accumulate = random_int(0, 1) == 0;
  LoraLayout layout = pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor});
  float scale = pick({1.0f, -0.37f});
  int64_t num_tokens = pick<int64_t>({1, 2, 3, 5, 8, 9, 20, 300});
  int64_t features = pick<int64_t>({1, 5, 16, 31, 63, 64, 100, 191, 577, 1100, 2100});
  int num_slots = static_cast<int>(random_int(1, 9));
  int largest_rank = 130;
  bool is_regular = false;  // aligned for loads of vectors, with gaps that are, too

  [[nodiscard]] static std::vector<int> draw_ranks(int num_slots, bool is_mixed,
                                                   int largest_rank = 130,
                                                   bool is_regular = false) {
    std::vector<int> ranks;
    const auto draw = [&] {
      if (is_regular) return std::min(largest_rank / 8 * 8, pick({4, 8, 12, 16, 16, 24, 64, 512}));
      return std::min(largest_rank, pick({1, 2, 3, 8, 12, 16, 16, 24, 33, 64, 100, largest_rank}));
    };
    const int common = draw();
    for (int s = 0; s < num_slots; ++s) {
      ranks.push_back(!is_mixed ? common : random_int(0, 7) == 0 ? 0 : draw());
    }
    return ranks;
  }

  void run(const LoraRun& run) {
    if (num_tokens >= 300) num_slots = std::min(num_slots, 3);
    const LoraHalf<W> half(layout, features,
                           draw_ranks(num_slots, is_table, largest_rank, is_regular), is_regular);
    const LoraTableOf<W> table({&half});
    RandomLoraBatch rows(num_tokens, num_slots, random_int(0, 1) == 0);
    const int64_t rank = table.table.max_rank,
                  offset = is_shrink ? 0 : random_int(0, 3) * (is_regular ? 8 : 5);
    const int64_t extra = (is_shrink && !is_table) || is_regular ? 0 : random_int(0, 2);
    Rows<U> u(num_tokens, is_shrink ? features : rank + (is_table ? extra : 0), is_regular);
    Rows<Y> y(num_tokens, is_shrink ? rank + extra : offset + features + extra, is_regular);
    u.fill_random();
    if (accumulate) y.fill_random();
    Rows<Y> old = y;
    call(run, half, table.table, rows, y.view(), u.view(), offset);
    check(half, rows, u, y, old, offset, run.sums);
  }

  void call(const LoraRun& run, const LoraHalf<W>& half, const LoraTable& table,
            const RandomLoraBatch& rows, const TensorView& y_host, const ConstTensorView& u_host,
            int64_t offset) const {
    const int rank = table.max_rank;
    Workspace workspace = run.workspace(num_tokens, is_shrink ? features : 0, 1, rank);
    const ExecContext ctx = run.with(workspace);
    const TensorView y = run.mirror(y_host);
    const ConstTensorView u = run.mirror(u_host);
    const LoraBatch batch = run.batch(rows.batch, num_tokens, num_slots, rank, half.ranks);
    const std::vector<W> stack = is_table ? std::vector<W>{} : stacked(half);
    if (is_table) {
      const LoraTable w = run.table(table, {&features, 1});
      is_shrink ? lora_shrink(ctx, y, u, w, 0, batch, scale, accumulate)
                : lora_expand(ctx, y, u, w, 0, features, batch, offset, scale, accumulate);
    } else {
      const int64_t outer = layout == LoraLayout::kRankMajor ? rank : features;
      const ConstTensorView w =
          run.mirror(host_view(stack.data(), {num_slots, outer, half.inner(rank)}));
      is_shrink ? lora_shrink(ctx, y, u, w, batch, scale, accumulate, layout)
                : lora_expand(ctx, y, u, w, batch, offset, scale, accumulate, layout);
    }
    run.mirror.back();
  }

  /// The weights of all slots in one array without gaps.
  [[nodiscard]] std::vector<W> stacked(const LoraHalf<W>& half) const {
    std::vector<W> all;
    for (size_t slot = 0; slot < half.ranks.size(); ++slot) {
      const int64_t rank = half.ranks[slot];
      const int64_t outer = layout == LoraLayout::kRankMajor ? rank : half.other;
      const W* from = half.memory[slot].data();
      for (int64_t o = 0; o < outer; ++o, from += half.entries[slot].row_stride) {
        all.insert(all.end(), from, from + half.inner(rank));
      }
    }
    return all;
  }

  void check(const LoraHalf<W>& half, const RandomLoraBatch& rows, Rows<U>& u, Rows<Y>& y,
             Rows<Y>& old, int64_t offset, LoraSums sums) {
    EXPECT_TRUE(y.buffer.guards_intact());
    for (int64_t t = 0; t < num_tokens; ++t) {
      const int slot = rows.slots[size_t(t)];
      const int64_t rank = slot < 0 ? 0 : half.ranks[size_t(slot)];
      const int64_t width = rank == 0 ? 0 : is_shrink ? rank : half.other;
      for (int64_t i = 0; i < y.stride; ++i) {
        if (t * y.stride + i >= int64_t(y.buffer.size())) break;
        const int64_t n = i - offset;
        if (n < 0 || n >= width) {
          ASSERT_EQ(std::memcmp(&y.at(t, i), &old.at(t, i), sizeof(Y)), 0) << t << " " << i;
          continue;
        }
        if (num_tokens > 20 && (t * 7 + i) % 11 != 0) continue;  // enough of a long call
        const int64_t depth = is_shrink ? half.other : rank;
        std::vector<float> w;
        for (int64_t k = 0; k < depth; ++k) {
          w.push_back(is_shrink ? half.value(slot, n, k) : half.value(slot, k, n));
        }
        float factor = scale * rows.scales[size_t(t)];
        if (is_table && !is_shrink) factor *= half.entries[size_t(slot)].scale;
        expect_element<W>(y.at(t, i), old.at(t, i), u.floats(t, depth), w, factor, accumulate, sums,
                          is_shrink);
        if (::testing::Test::HasFatalFailure()) {
          ADD_FAILURE() << "row " << t << ", output " << n << ", rank " << rank << ", "
                        << (is_shrink ? "shrink" : "expand") << " of " << features << " features, "
                        << num_tokens << " tokens, rank "
                        << (layout == LoraLayout::kRankMajor ? "major" : "minor")
                        << (is_table ? ", table" : ", stack");
          return;
        }
      }
    }
  }
};

/// A site of three slices whose adapters have other ranks and lack a slice here and there.
template <class W>
struct Site {
  static constexpr int kNumSlots = 4, kNumSlices = 3;
  int64_t in = pick<int64_t>({33, 576, 576, 4609});
  std::vector<int64_t> outs{65, 192, random_int(1, 700)}, ins = std::vector<int64_t>(3, in);
  std::vector<std::unique_ptr<LoraHalf<W>>> a, b;

  Site(LoraLayout a_layout, LoraLayout b_layout) {
    for (int s = 0; s < kNumSlices; ++s) {
      const std::vector<int> ranks = RandomCall<float, W, float>::draw_ranks(kNumSlots, true);
      a.push_back(std::make_unique<LoraHalf<W>>(a_layout, in, ranks));
      b.push_back(std::make_unique<LoraHalf<W>>(b_layout, outs[size_t(s)], ranks));
    }
    a[0]->entries[1].data = nullptr;  // B alone, and A alone: the slice is not touched
    b[1]->entries[2].data = nullptr;
  }
  static LoraTableOf<W> table(const std::vector<std::unique_ptr<LoraHalf<W>>>& halves) {
    return LoraTableOf<W>({halves[0].get(), halves[1].get(), halves[2].get()});
  }
};

/// X, W: dtypes of x and the weights; Y of the first two slices, Z of the third.
template <class X, class W, class Y, class Z>
void expect_apply_has_the_bits_of_shrink_and_expand(const LoraRun& run, int64_t num_tokens,
                                                    bool repeated) {
  Site<W> site(pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor}),
               pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor}));
  const auto a = site.table(site.a), b = site.table(site.b);
  const int max_rank = std::max(a.table.max_rank, b.table.max_rank);
  RandomLoraBatch rows(num_tokens, site.kNumSlots, repeated);
  Rows<X> x(num_tokens, site.in);
  x.fill_random();
  Rows<Y> q(num_tokens, site.outs[0]), k(num_tokens, site.outs[1]);
  Rows<Z> v(num_tokens, site.outs[2]);
  q.fill_random(), k.fill_random(), v.fill_random();
  Rows<Y> q1 = q, k1 = k;
  Rows<Z> v1 = v;

  {
    Workspace workspace = run.workspace(num_tokens, site.in, site.kNumSlices, max_rank);
    const LoraSlice slices[] = {
        {run.mirror(q.view())}, {run.mirror(k.view())}, {run.mirror(v.view())}};
    lora_apply(run.with(workspace), slices, run.mirror(ConstTensorView(x.view())),
               run.table(a.table, site.ins), run.table(b.table, site.outs),
               run.batch(rows.batch, num_tokens, site.kNumSlots, max_rank));
    run.mirror.back();
  }

  // Rows whose slice has one half alone have no adapter for that slice.
  const TensorView wanted[] = {q1.view(), k1.view(), v1.view()};
  for (int s = 0; s < site.kNumSlices; ++s) {
    Rows<float> h(num_tokens, a.table.max_rank);
    auto only_b = b;
    for (size_t i = 0; i < only_b.entries.size(); ++i) {
      if (a.entries[i].data == nullptr) only_b.entries[i].data = nullptr;
    }
    only_b.table.entries = only_b.entries.data();
    Workspace workspace = run.workspace(num_tokens, site.in, 1, max_rank);
    ExecContext ctx = run.with(workspace);
    ctx.threads = nullptr;
    const TensorView h_there = run.mirror(h.view());
    const LoraBatch scaled = run.batch(rows.batch, num_tokens, site.kNumSlots, max_rank);
    LoraBatch plain = scaled;
    plain.row_scale = {};
    lora_shrink(ctx, h_there, run.mirror(ConstTensorView(x.view())), run.table(a.table, site.ins),
                s, plain);
    lora_expand(ctx, run.mirror(wanted[s]), h_there, run.table(only_b.table, site.outs), s,
                site.outs[size_t(s)], scaled);
    run.mirror.back();
  }
  EXPECT_TRUE(q.same(q1));
  EXPECT_TRUE(k.same(k1));
  EXPECT_TRUE(v.same(v1));
}

/// Rows of a batch of num_tokens one by one, about `num_alone` of them.
template <class X, class W, class Y>
void expect_a_row_alone_has_the_bits_it_has_in_a_batch(const LoraRun& run, int64_t num_tokens,
                                                       int64_t num_alone) {
  Site<W> site(LoraLayout::kRankMinor, LoraLayout::kRankMajor);
  const auto a = site.table(site.a), b = site.table(site.b);
  const int64_t out = site.outs[1];
  const int max_rank = a.table.max_rank;
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < num_tokens; ++t) ids.push_back(static_cast<int32_t>(random_int(-1, 1)));
  Rows<X> x(num_tokens, site.in);
  Rows<float> h(num_tokens, max_rank);
  Rows<Y> y(num_tokens, out);
  x.fill_random();
  y.fill_random();
  Rows<Y> alone = y;
  const auto call = [&](Rows<Y>& into, int64_t first, int64_t count) {
    Workspace workspace = run.workspace(count, site.in, 1, max_rank);
    const ExecContext ctx = run.with(workspace);
    const TensorView h_there = run.mirror(h.view().narrow(0, first, count));
    const LoraBatch batch = run.batch(LoraBatch::from_ids(host_view(ids.data() + first, {count})),
                                      count, site.kNumSlots, max_rank);
    lora_shrink(ctx, h_there, run.mirror(ConstTensorView(x.view().narrow(0, first, count))),
                run.table(a.table, site.ins), 1, batch);
    lora_expand(ctx, run.mirror(into.view().narrow(0, first, count)), h_there,
                run.table(b.table, site.outs), 1, out, batch);
    run.mirror.back();
  };
  call(y, 0, num_tokens);
  const int64_t step = std::max<int64_t>(1, num_tokens / num_alone);
  for (int64_t t = random_int(0, step - 1); t < num_tokens; t += step) {
    call(alone, t, 1);
    EXPECT_EQ(std::memcmp(&y.at(t, 0), &alone.at(t, 0), size_t(out) * sizeof(Y)), 0) << t;
  }
}

/// Rank 512 next to rank 1. T: dtype of all.
template <class T>
void expect_takes_the_largest_rank(const LoraRun& run) {
  const LoraHalf<T> a(LoraLayout::kRankMinor, 40, {kMaxLoraRank, 1});
  const LoraHalf<T> b(LoraLayout::kRankMajor, 40, {kMaxLoraRank, 1});
  const LoraTableOf<T> a_table({&a}), b_table({&b});
  const std::vector<int32_t> ids{0, 1};
  const std::vector<int64_t> features{40};
  Rows<T> x(2, 40);
  Rows<float> h(2, kMaxLoraRank), y(2, 40);
  x.fill_random();
  Workspace workspace = run.workspace(2, 40, 1, kMaxLoraRank);
  const ExecContext ctx = run.with(workspace);
  const LoraBatch batch =
      run.batch(LoraBatch::from_ids(host_view(ids.data(), {2})), 2, 2, kMaxLoraRank);
  const TensorView h_there = run.mirror(h.view());
  lora_shrink(ctx, h_there, run.mirror(ConstTensorView(x.view())),
              run.table(a_table.table, features), 0, batch);
  lora_expand(ctx, run.mirror(y.view()), h_there, run.table(b_table.table, features), 0, 40, batch,
              0, 1.0f, false);
  run.mirror.back();

  const LoraSums sums = run.sums == LoraSums::kSplit ? LoraSums::kSplit : LoraSums::kClose;
  for (int64_t r = 0; r < kMaxLoraRank; ++r) {
    std::vector<float> w;
    for (int64_t k = 0; k < 40; ++k) w.push_back(a.value(0, r, k));
    expect_element<T>(h.at(0, r), 0.0f, x.floats(0, 40), w, 1.0f, false, sums);
  }
  for (int64_t r = 1; r < kMaxLoraRank; ++r) EXPECT_TRUE(h.buffer.untouched(size_t(h.stride + r)));
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<float> w;
    for (int64_t r = 0; r < kMaxLoraRank; ++r) w.push_back(b.value(0, r, n));
    expect_element<T>(y.at(0, n), 0.0f, h.floats(0, kMaxLoraRank), w, b.entries[0].scale, false,
                      sums, false);
  }
}

}  // namespace heddle::testing
