#pragma once

// Random states and what merging them gives, on any device.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/ops/attention.h"

#include "testing/compare.h"
#include "testing/mirror.h"
#include "testing/poison.h"
#include "testing/random.h"

namespace heddle::testing {

inline constexpr float kNoKey = -std::numeric_limits<float>::infinity();

/// Random states, a third of them empty with an o that is NaN.
template <class T>
struct AttentionState {
  AttentionState(int64_t rows, int64_t dim)
      : o(random_normal<T>(static_cast<size_t>(rows * dim))),
        lse(random_normal<float>(static_cast<size_t>(rows), 5.0f)) {
    for (int64_t r = 0; r < rows; ++r) {
      if (random_int(0, 2) != 0) continue;
      lse[size_t(r)] = kNoKey;
      std::fill_n(o.begin() + r * dim, dim, from_float<T>(std::numeric_limits<float>::quiet_NaN()));
    }
  }
  std::vector<T> o;
  std::vector<float> lse;
};

/// One row in double.
template <class T>
double merged(const AttentionState<T>& a, const AttentionState<T>& b, size_t r, size_t at,
              double* lse) {
  const double max = std::max(a.lse[r], b.lse[r]);
  if (max == kNoKey) {
    *lse = kNoKey;
    return 0.0;
  }
  const double wa = std::exp(a.lse[r] - max), wb = std::exp(b.lse[r] - max);
  *lse = max + std::log(wa + wb);
  double o = 0.0;
  if (wa > 0.0) o += wa / (wa + wb) * to_float(a.o[at]);
  if (wb > 0.0) o += wb / (wa + wb) * to_float(b.o[at]);
  return o;
}

template <class T>
void check_merge_states(const ExecContext& ctx, Mirror& mirror) {
  const int64_t tokens = random_int(0, 9), heads = random_int(1, 5);
  const int64_t dim = pick<int64_t>({1, 16, 64, 80, 96, 112, 128, 192, 256, random_int(1, 300)});
  const int64_t rows = tokens * heads, gap = pick<int64_t>({0, 8, random_int(0, 3)});
  AttentionState<T> a(rows, dim), b(rows, dim);
  PoisonedBuffer<T> o(static_cast<size_t>(rows * (dim + gap)));
  PoisonedBuffer<float> lse(static_cast<size_t>(rows));
  const bool with_lse = random_int(0, 3) != 0;
  const auto constant = [&](const TensorView& t) { return mirror(ConstTensorView(t)); };
  merge_states(ctx, mirror(o.view({tokens, heads, dim + gap}).narrow(2, 0, dim)),
               with_lse ? mirror(lse.view({tokens, heads})) : TensorView{},
               constant(host_view(a.o.data(), {tokens, heads, dim})),
               constant(host_view(a.lse.data(), {tokens, heads})),
               constant(host_view(b.o.data(), {tokens, heads, dim})),
               constant(host_view(b.lse.data(), {tokens, heads})));
  mirror.back();
  for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
    double want_lse = 0.0;
    for (size_t d = 0; d < static_cast<size_t>(dim + gap); ++d) {
      const size_t at = r * static_cast<size_t>(dim + gap) + d;
      if (d >= static_cast<size_t>(dim)) {
        EXPECT_TRUE(o.untouched(at));
        continue;
      }
      const double want = merged(a, b, r, r * static_cast<size_t>(dim) + d, &want_lse);
      const double bound = 1.01 * kRounding<T> * std::abs(want) + 1e-6;
      EXPECT_LE(std::abs(to_float(o[at]) - want), bound);
    }
    if (!with_lse) {
      EXPECT_TRUE(lse.untouched(r));
    } else if (std::isinf(want_lse)) {
      EXPECT_EQ(lse[r], kNoKey);
    } else {
      EXPECT_LE(std::abs(lse[r] - want_lse), 1e-6 * std::max(1.0, std::abs(want_lse)));
    }
  }
  EXPECT_TRUE(o.guards_intact() && lse.guards_intact());
}

/// o and lse may lie over either input. on_device(body) calls body(mirror); the tensors that share
/// memory are one view each, since two views are two copies of a mirror.
template <class T, class OnDevice>
void check_merge_in_place(const ExecContext& ctx, const OnDevice& on_device) {
  const int64_t rows = 12, dim = pick<int64_t>({70, 128, 256});
  AttentionState<T> a(rows, dim), b(rows, dim);
  std::vector<T> o(a.o.size());
  std::vector<float> lse(a.lse.size());
  const auto o_view = [&](std::vector<T>& v) { return host_view(v.data(), {rows, 1, dim}); };
  const auto lse_view = [&](std::vector<float>& v) { return host_view(v.data(), {rows, 1}); };
  on_device([&](Mirror& mirror) {
    merge_states(ctx, mirror(o_view(o)), mirror(lse_view(lse)), mirror(o_view(a.o)),
                 mirror(lse_view(a.lse)), mirror(o_view(b.o)), mirror(lse_view(b.lse)));
    mirror.back();
  });
  for (const bool over_a : {true, false}) {
    AttentionState<T> x = a, y = b;
    AttentionState<T>& to = over_a ? x : y;
    on_device([&](Mirror& mirror) {
      const TensorView o_x = mirror(o_view(x.o)), lse_x = mirror(lse_view(x.lse));
      const TensorView o_y = mirror(o_view(y.o)), lse_y = mirror(lse_view(y.lse));
      merge_states(ctx, over_a ? o_x : o_y, over_a ? lse_x : lse_y, o_x, lse_x, o_y, lse_y);
      mirror.back();
    });
    EXPECT_TRUE(same_bits<T>(to.o, o) && same_bits<float>(to.lse, lse)) << over_a;
  }
}

}  // namespace heddle::testing
