#include "heddle/ops/lora.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"

#include "compare.h"
#include "isa.h"
#include "ops/lora/lora_cases.h"
#include "ops/lora/lora_ref.h"
#include "poison.h"

namespace heddle {
namespace {

using testing::LoraHalf;
using testing::LoraTableOf;
using testing::RandomLoraBatch;

/// A matrix of rows farther apart than they are wide; elements that are never written stay poisoned.
template <class T>
struct Rows {
  int64_t num_rows, width, stride;
  testing::PoisonedBuffer<T> buffer;

  Rows(int64_t num_rows, int64_t width)
      : num_rows(num_rows),
        width(width),
        stride(width + testing::random_int(0, 4)),
        buffer(size_t(num_rows * stride)) {}
  T& at(int64_t row, int64_t i) { return buffer[size_t(row * stride + i)]; }
  void fill_random() {
    const std::vector<T> values = testing::random_normal<T>(size_t(num_rows * width));
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
};

std::vector<double> doubles(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

/// Checks one element: bit for bit in the promised order where a multiply-add is fused, and against the sum in double.
template <class Y>
void expect_element(Y got, Y old, const std::vector<float>& u, const std::vector<float>& w,
                    float factor, bool accumulate, bool exact) {
  const float sum = ref::lora_sum_in_order(u, w), before = accumulate ? to_float(old) : 0.0f;
  if (exact) {
    const float value = accumulate ? std::fma(factor, sum, before) : factor * sum;
    ASSERT_EQ(to_float(got), to_float(from_float<Y>(value)));
  }
  const double delta = double{factor} * ref::lora_sum(doubles(u), doubles(w));
  double magnitude = std::abs(double{before});
  for (size_t k = 0; k < u.size(); ++k) magnitude += std::abs(double{factor} * u[k] * w[k]);
  const double bound = std::abs(before + delta) * testing::kRounding<Y> +
                       magnitude * 0x1p-23 * std::sqrt(double(u.size()) + 4.0) + 0x1p-25;
  ASSERT_LE(std::abs(to_float(got) - (before + delta)), bound);
}

/// A random call of one of the four forms, checked element by element. U, W, Y: dtypes of input, weights, output.
template <class U, class W, class Y>
struct RandomCall {
  bool is_shrink = testing::random_int(0, 1) == 0, is_table = testing::random_int(0, 1) == 0;
  bool accumulate = testing::random_int(0, 1) == 0;
  LoraLayout layout = testing::pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor});
  float scale = testing::pick({1.0f, -0.37f});
  int64_t num_tokens = testing::pick<int64_t>({1, 2, 3, 5, 8, 9, 20, 300});
  int num_slots = static_cast<int>(testing::random_int(1, 9));

  static std::vector<int> draw_ranks(int num_slots, bool is_mixed) {
    std::vector<int> ranks;
    const auto draw = [] { return testing::pick({1, 2, 3, 8, 12, 16, 16, 24, 33, 64, 100, 130}); };
    const int common = draw();
    for (int s = 0; s < num_slots; ++s) {
      ranks.push_back(!is_mixed ? common : testing::random_int(0, 7) == 0 ? 0 : draw());
    }
    return ranks;
  }

  void run(const ExecContext& ctx, bool exact) {
    if (num_tokens == 300) num_slots = std::min(num_slots, 3);
    const int64_t features =
        testing::pick<int64_t>({1, 5, 16, 31, 63, 64, 100, 191, 577, 1100, 2100});
    const LoraHalf<W> half(layout, features, draw_ranks(num_slots, is_table));
    const LoraTableOf<W> table({&half});
    RandomLoraBatch rows(num_tokens, num_slots, testing::random_int(0, 1) == 0);
    const int64_t rank = table.table.max_rank, offset = is_shrink ? 0 : testing::random_int(0, 20);
    const int64_t extra = is_shrink && !is_table ? 0 : testing::random_int(0, 2);
    Rows<U> u(num_tokens, is_shrink ? features : rank + (is_table ? testing::random_int(0, 2) : 0));
    Rows<Y> y(num_tokens, is_shrink ? rank + extra : offset + features + extra);
    u.fill_random();
    if (accumulate) y.fill_random();
    Rows<Y> old = y;

    if (is_table) {
      is_shrink
          ? lora_shrink(ctx, y.view(), u.view(), table.table, 0, rows.batch, scale, accumulate)
          : lora_expand(ctx, y.view(), u.view(), table.table, 0, features, rows.batch, offset,
                        scale, accumulate);
    } else {
      const std::vector<W> stack = stacked(half);
      const int64_t outer = layout == LoraLayout::kRankMajor ? rank : features;
      const ConstTensorView w = host_view(stack.data(), {num_slots, outer, half.inner(rank)});
      is_shrink
          ? lora_shrink(ctx, y.view(), u.view(), w, rows.batch, scale, accumulate, layout)
          : lora_expand(ctx, y.view(), u.view(), w, rows.batch, offset, scale, accumulate, layout);
    }
    check(half, rows, u, y, old, offset, exact);
  }

  /// The weights of all slots in one array without gaps.
  std::vector<W> stacked(const LoraHalf<W>& half) {
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
             Rows<Y>& old, int64_t offset, bool exact) {
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
        expect_element(y.at(t, i), old.at(t, i), u.floats(t, depth), w, factor, accumulate, exact);
        if (::testing::Test::HasFatalFailure()) return;
      }
    }
  }
};

template <class W>
class Lora : public ::testing::Test {};
using AllTypes = ::testing::Types<float, half, bfloat16>;
TYPED_TEST_SUITE(Lora, AllTypes);

TYPED_TEST(Lora, ShrinkAndExpandSumInThePromisedOrder) {
  ThreadPool pool(3);
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    const bool exact = testing::has_fused_multiply_add(target);
    for (int round = 0; round < 60; ++round) {
      ExecContext ctx;
      ctx.threads = round % 2 == 0 ? nullptr : &pool;
      const DType u = testing::pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
      const DType y = testing::pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16});
      dispatch_dtype<float, half, bfloat16>(u, "u", [&]<class U>() {
        dispatch_dtype<float, half, bfloat16>(
            y, "y", [&]<class Y>() { RandomCall<U, TypeParam, Y>().run(ctx, exact); });
      });
      ASSERT_FALSE(this->HasFatalFailure()) << "round " << round;
    }
  }
}

TYPED_TEST(Lora, TakesTheLargestRank) {
  const LoraHalf<TypeParam> a(LoraLayout::kRankMinor, 40, {kMaxLoraRank, 1});
  LoraHalf<TypeParam> b(LoraLayout::kRankMajor, 40, {kMaxLoraRank, 1});
  const LoraTableOf<TypeParam> a_table({&a}), b_table({&b});
  const std::vector<int32_t> ids{0, 1};
  Rows<float> x(2, 40), h(2, kMaxLoraRank), y(2, 40);
  x.fill_random();
  lora_shrink({}, h.view(), x.view(), a_table.table, 0,
              LoraBatch::from_ids(host_view(ids.data(), {2})));
  for (int64_t r = 0; r < kMaxLoraRank; ++r) {
    std::vector<float> w;
    for (int64_t k = 0; k < 40; ++k) w.push_back(a.value(0, r, k));
    expect_element(h.at(0, r), 0.0f, x.floats(0, 40), w, 1.0f, false, false);
  }
  for (int64_t r = 1; r < kMaxLoraRank; ++r) EXPECT_TRUE(h.buffer.untouched(size_t(h.stride + r)));
  lora_expand({}, y.view(), h.view(), b_table.table, 0, 40,
              LoraBatch::from_ids(host_view(ids.data(), {2})), 0, 1.0f, false);
  for (int64_t n = 0; n < 40; ++n) {
    std::vector<float> w;
    for (int64_t r = 0; r < kMaxLoraRank; ++r) w.push_back(b.value(0, r, n));
    expect_element(y.at(0, n), 0.0f, h.floats(0, kMaxLoraRank), w, b.entries[0].scale, false,
                   false);
  }
}

/// A site of three slices whose adapters have other ranks and lack a slice here and there.
template <class W>
struct Site {
  static constexpr int kNumSlots = 4, kNumSlices = 3;
  int64_t in = testing::pick<int64_t>({33, 576});
  std::vector<int64_t> outs{65, 192, testing::random_int(1, 700)};
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

TYPED_TEST(Lora, ApplyHasTheBitsOfShrinkAndExpand) {
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scoped(target);
    for (const int threads : {1, 2, 3}) {
      Site<TypeParam> site(testing::pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor}),
                           testing::pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor}));
      const auto a = site.table(site.a), b = site.table(site.b);
      const int64_t num_tokens = testing::pick<int64_t>({1, 8, 270});
      RandomLoraBatch rows(num_tokens, site.kNumSlots, threads == 2);
      Rows<half> x(num_tokens, site.in);
      x.fill_random();
      Rows<float> q(num_tokens, site.outs[0]), k(num_tokens, site.outs[1]);
      Rows<bfloat16> v(num_tokens, site.outs[2]);
      q.fill_random(), k.fill_random(), v.fill_random();
      Rows<float> q1 = q, k1 = k;
      Rows<bfloat16> v1 = v;

      ThreadPool pool(threads);
      std::vector<std::byte> memory(lora_apply_workspace_bytes(
          num_tokens, site.kNumSlices, std::max(a.table.max_rank, b.table.max_rank)));
      Workspace workspace(memory);
      ExecContext ctx;
      ctx.threads = &pool;
      ctx.workspace = &workspace;
      const LoraSlice slices[] = {{q.view()}, {k.view()}, {v.view()}};
      lora_apply(ctx, slices, x.view(), a.table, b.table, rows.batch);

      // Rows whose slice has one half alone have no adapter for that slice.
      LoraBatch without_scale = rows.batch;
      without_scale.row_scale = {};
      const TensorView wanted[] = {q1.view(), k1.view(), v1.view()};
      for (int s = 0; s < site.kNumSlices; ++s) {
        Rows<float> h(num_tokens, a.table.max_rank);
        auto only_b = b;
        for (size_t i = 0; i < only_b.entries.size(); ++i) {
          if (a.entries[i].data == nullptr) only_b.entries[i].data = nullptr;
        }
        only_b.table.entries = only_b.entries.data();
        lora_shrink({}, h.view(), x.view(), a.table, s, without_scale);
        lora_expand({}, wanted[s], h.view(), only_b.table, s, site.outs[size_t(s)], rows.batch);
      }
      const auto same = [](const auto& one, const auto& other) {
        return one.guards_intact() &&
               std::memcmp(one.data(), other.data(), one.size() * sizeof(one[0])) == 0;
      };
      EXPECT_TRUE(same(q.buffer, q1.buffer));
      EXPECT_TRUE(same(k.buffer, k1.buffer));
      EXPECT_TRUE(same(v.buffer, v1.buffer));
    }
  }
}

TYPED_TEST(Lora, ARowAloneHasTheBitsItHasInABatch) {
  Site<TypeParam> site(LoraLayout::kRankMinor, LoraLayout::kRankMajor);
  const auto a = site.table(site.a), b = site.table(site.b);
  const int64_t num_tokens = 21, out = site.outs[1];
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < num_tokens; ++t)
    ids.push_back(static_cast<int32_t>(testing::random_int(-1, 1)));
  Rows<float> x(num_tokens, site.in), h(num_tokens, a.table.max_rank), y(num_tokens, out);
  x.fill_random();
  y.fill_random();
  Rows<float> alone = y, h_alone(num_tokens, a.table.max_rank);
  const LoraBatch all = LoraBatch::from_ids(host_view(ids.data(), {num_tokens}));
  lora_shrink({}, h.view(), x.view(), a.table, 1, all);
  lora_expand({}, y.view(), h.view(), b.table, 1, out, all);
  for (int64_t t = 0; t < num_tokens; ++t) {
    const LoraBatch one = LoraBatch::from_ids(host_view(ids.data() + t, {1}));
    lora_shrink({}, h_alone.view().narrow(0, t, 1), x.view().narrow(0, t, 1), a.table, 1, one);
    lora_expand({}, alone.view().narrow(0, t, 1), h_alone.view().narrow(0, t, 1), b.table, 1, out,
                one);
    EXPECT_EQ(std::memcmp(&y.at(t, 0), &alone.at(t, 0), size_t(out) * sizeof(float)), 0) << t;
  }
}

}  // namespace
}  // namespace heddle
