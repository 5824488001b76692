#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "ops/lora/test/contract_test_body.h"
#include "ops/lora/test/lora_ref.h"
#include "ops/lora/test/sum_test_body.h"

// The bodies of the tests of lora_apply with several pairs (adapter, scale) for one token, the same
// for every device.

namespace heddle::testing {

/// An array of indices as i32 or i64, held for a call.
struct IndexVector {
  std::vector<int64_t> wide;
  std::vector<int32_t> narrow;

  explicit IndexVector(const std::vector<int64_t>& values) : wide(values) {
    if (random_int(0, 1) == 0) narrow.assign(values.begin(), values.end());
  }
  [[nodiscard]] ConstTensorView view() const {
    const auto n = static_cast<int64_t>(wide.size());
    return narrow.empty() ? host_view(wide.data(), {n}) : host_view(narrow.data(), {n});
  }
};

/// Tokens with `fewest` to `most` pairs each; adapters repeat, and some slots are none or out of
/// range.
struct RandomPairs {
  std::vector<int64_t> starts{0}, slots;
  std::optional<std::vector<float>> scales, row_scale;
  int64_t max_pairs;
  IndexVector starts_given, slots_given;

  RandomPairs(int64_t num_tokens, int num_slots, int64_t fewest, int64_t most)
      : max_pairs(most + random_int(0, 2)),
        starts_given(draw(num_tokens, num_slots, fewest, most)),
        slots_given(slots) {
    if (random_int(0, 2) > 0) scales = random_normal<float>(slots.size());
    if (random_int(0, 1) == 0) row_scale = random_normal<float>(size_t(num_tokens));
  }
  /// Of the tokens [first, first + count); from then on the object must stay where it is.
  [[nodiscard]] LoraBatch batch(int64_t first, int64_t count) const {
    const auto floats = [](const std::optional<std::vector<float>>& v) {
      return v ? host_view(v->data(), {int64_t(v->size())}) : ConstTensorView{};
    };
    LoraBatch b = LoraBatch::from_pairs(starts_given.view().narrow(0, first, count + 1),
                                        slots_given.view(), floats(scales), max_pairs);
    if (row_scale) b.row_scale = floats(row_scale).narrow(0, first, count);
    return b;
  }
  [[nodiscard]] LoraBatch batch() const { return batch(0, num_tokens()); }
  [[nodiscard]] int64_t num_tokens() const { return int64_t(starts.size()) - 1; }
  [[nodiscard]] float factor(int64_t t, int64_t pair) const {
    return (scales ? (*scales)[size_t(pair)] : 1.0f) * (row_scale ? (*row_scale)[size_t(t)] : 1.0f);
  }
  /// The index-th pair of every token, as the ids and factors of a call; -1 where it has none.
  [[nodiscard]] std::pair<std::vector<int64_t>, std::vector<float>> pass(int64_t index) const {
    std::vector<int64_t> ids;
    std::vector<float> factors;
    for (int64_t t = 0; t < num_tokens(); ++t) {
      const int64_t pair = starts[size_t(t)] + index;
      const bool is_there = pair < starts[size_t(t + 1)];
      ids.push_back(is_there ? slots[size_t(pair)] : kNoAdapter);
      factors.push_back(is_there ? factor(t, pair) : NAN);
    }
    return {ids, factors};
  }

 private:
  const std::vector<int64_t>& draw(int64_t num_tokens, int num_slots, int64_t fewest,
                                   int64_t most) {
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t i = random_int(fewest, most); i > 0; --i) {
        const bool repeats = !slots.empty() && random_int(0, 2) == 0;
        slots.push_back(repeats ? slots.back() : random_int(-2, num_slots + 1));
      }
      starts.push_back(int64_t(slots.size()));
    }
    return starts;
  }
};

/// The outputs of a site of three slices: Y of the first two, Z of the third.
template <class Y, class Z>
struct SiteRows {
  Rows<Y> q, k;
  Rows<Z> v;

  template <class W>
  SiteRows(const Site<W>& site, int64_t num_tokens)
      : q(num_tokens, site.outs[0]), k(num_tokens, site.outs[1]), v(num_tokens, site.outs[2]) {
    q.fill_random(), k.fill_random(), v.fill_random();
  }
  [[nodiscard]] std::vector<TensorView> views() { return {q.view(), k.view(), v.view()}; }
  [[nodiscard]] bool same(const SiteRows& other) const {
    return q.same(other.q) && k.same(other.k) && v.same(other.v);
  }
};

/// lora_apply of the rows [first, first + count) of all slices.
template <class W>
void apply_rows(const LoraRun& run, const Site<W>& site, const std::vector<TensorView>& y,
                const ConstTensorView& x, const LoraBatch& rows, int64_t first, int64_t count) {
  const auto a = site.table(site.a), b = site.table(site.b);
  const int max_rank = std::max(a.table.max_rank, b.table.max_rank);
  int64_t out_features = 0;
  for (const TensorView& t : y) out_features += t.dtype() == DType::kFloat32 ? 0 : t.size(1);
  Workspace workspace = rows.pair_starts ? run.pairs_workspace(count, site.in, out_features,
                                                               site.kNumSlices, max_rank)
                                         : run.workspace(count, site.in, site.kNumSlices, max_rank);
  std::vector<LoraSlice> slices;
  for (const TensorView& t : y) slices.push_back({run.mirror(t.narrow(0, first, count))});
  lora_apply(run.with(workspace), slices, run.mirror(x.narrow(0, first, count)),
             run.table(a.table, site.ins), run.table(b.table, site.outs),
             run.batch(rows, count, site.kNumSlots, max_rank));
  run.mirror.back();
}

template <class W>
Site<W> random_site() {
  return Site<W>(pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor}),
                 pick({LoraLayout::kRankMajor, LoraLayout::kRankMinor}));
}

/// One row of a slice against the reference in double.
template <class W, class Y, class X>
void expect_row_of_pairs(const Site<W>& site, int s, const RandomPairs& rows, int64_t t, Rows<X>& x,
                         Rows<Y>& got, Rows<Y>& old, LoraSums sums) {
  struct Term {
    int slot;
    double factor;
    std::vector<double> h, magnitude;  // A x, and the same of absolute values
  };
  const LoraHalf<W>&half_a = *site.a[size_t(s)], &half_b = *site.b[size_t(s)];
  std::vector<Term> terms;
  const std::vector<double> u = doubles(x.floats(t, site.in));
  for (int64_t pair = rows.starts[size_t(t)]; pair < rows.starts[size_t(t + 1)]; ++pair) {
    const int64_t slot = rows.slots[size_t(pair)];
    if (slot < 0 || slot >= site.kNumSlots) continue;
    const LoraWeight &a = half_a.entries[size_t(slot)], &b = half_b.entries[size_t(slot)];
    if (a.data == nullptr || b.data == nullptr) continue;
    Term term{int(slot), double{rows.factor(t, pair)} * b.scale, {}, {}};
    for (int r = 0; r < a.rank; ++r) {
      std::vector<double> w;
      double magnitude = 0.0;
      for (int64_t i = 0; i < site.in; ++i) {
        w.push_back(half_a.value(term.slot, r, i));
        magnitude += std::abs(w.back() * u[size_t(i)]);
      }
      term.h.push_back(ref::lora_sum(u, w));
      term.magnitude.push_back(magnitude);
    }
    terms.push_back(std::move(term));
  }
  const int64_t out = site.outs[size_t(s)];
  if (terms.empty()) {
    ASSERT_EQ(std::memcmp(&got.at(t, 0), &old.at(t, 0), size_t(out) * sizeof(Y)), 0)
        << "no pair touches row " << t << " of slice " << s;
    return;
  }
  for (int64_t n = 0; n < out; ++n) {
    const double before = to_float(old.at(t, n));
    double magnitude = std::abs(before), split = 0.0;
    std::vector<std::vector<double>> weights;
    std::vector<ref::LoraPairTerm> pairs;
    for (const Term& term : terms) {
      std::vector<double>& w = weights.emplace_back();
      for (size_t r = 0; r < term.h.size(); ++r) {
        w.push_back(half_b.value(term.slot, int64_t(r), n));
        magnitude += std::abs(term.factor * w[r]) * term.magnitude[r];
        split += std::abs(term.factor * w[r]) * split_error<W>(term.h[r]);
      }
    }
    for (size_t i = 0; i < terms.size(); ++i) {
      pairs.push_back({terms[i].factor, terms[i].h, weights[i]});
    }
    const double want = ref::lora_pairs(before, pairs);
    const double bound = 1.01 * std::abs(want) * kRounding<Y> +
                         2.0 * magnitude * 0x1p-23 * std::sqrt(double(site.in) + 4.0) +
                         (sums == LoraSums::kSplit ? split : 0.0) + 0x1p-25;
    ASSERT_LE(std::abs(double{to_float(got.at(t, n))} - want), bound)
        << "row " << t << ", slice " << s << ", output " << n << ", " << terms.size() << " pairs";
  }
}

/// X, W: dtypes of x and the weights; Y of the first two slices, Z of the third.
template <class X, class W, class Y, class Z>
void expect_pairs_are_the_sums_of_the_reference(const LoraRun& run, int64_t num_tokens) {
  const Site<W> site = random_site<W>();
  const RandomPairs rows(num_tokens, site.kNumSlots, 0, pick<int64_t>({0, 1, 3, 5}));
  Rows<X> x(num_tokens, site.in);
  x.fill_random();
  SiteRows<Y, Z> y(site, num_tokens), old = y;
  apply_rows(run, site, y.views(), x.view(), rows.batch(), 0, num_tokens);
  EXPECT_TRUE(y.q.buffer.guards_intact() && y.k.buffer.guards_intact() &&
              y.v.buffer.guards_intact());
  const int64_t step = std::max<int64_t>(1, num_tokens / 8);
  for (int64_t t = random_int(0, step - 1); t < num_tokens; t += step) {
    expect_row_of_pairs(site, 0, rows, t, x, y.q, old.q, run.sums);
    expect_row_of_pairs(site, 1, rows, t, x, y.k, old.k, run.sums);
    expect_row_of_pairs(site, 2, rows, t, x, y.v, old.v, run.sums);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

/// y in f32, one call with ids after another, and then one rounding: what the contract says of all
/// rows, bit for bit, and that nothing between them is written.
template <class X, class W, class Y, class Z>
void expect_pairs_have_the_bits_of_one_call_after_another(const LoraRun& run, int64_t num_tokens) {
  const Site<W> site = random_site<W>();
  const int64_t most = pick<int64_t>({1, 2, 4});
  const RandomPairs rows(num_tokens, site.kNumSlots, 0, most);
  Rows<X> x(num_tokens, site.in);
  x.fill_random();
  SiteRows<Y, Z> y(site, num_tokens), want = y;
  apply_rows(run, site, y.views(), x.view(), rows.batch(), 0, num_tokens);

  SiteRows<float, float> sums(site, num_tokens);
  const auto convert = [&](auto& to, auto& from) {
    using T = std::remove_reference_t<decltype(to.at(0, 0))>;
    for (int64_t t = 0; t < num_tokens; ++t) {
      for (int64_t n = 0; n < to.width; ++n) to.at(t, n) = from_float<T>(to_float(from.at(t, n)));
    }
  };
  convert(sums.q, want.q), convert(sums.k, want.k), convert(sums.v, want.v);
  for (int64_t index = 0; index < most; ++index) {
    const auto [ids, factors] = rows.pass(index);
    LoraBatch pass = LoraBatch::from_ids(host_view(ids.data(), {num_tokens}));
    pass.row_scale = host_view(factors.data(), {num_tokens});
    apply_rows(run, site, sums.views(), x.view(), pass, 0, num_tokens);
  }
  convert(want.q, sums.q), convert(want.k, sums.k), convert(want.v, sums.v);
  EXPECT_TRUE(y.same(want));
}

/// One pair a token is an id with a factor, whatever the dtype of y.
template <class X, class W, class Y>
void expect_one_pair_has_the_bits_of_an_id(const LoraRun& run, int64_t num_tokens) {
  const Site<W> site = random_site<W>();
  const RandomPairs rows(num_tokens, site.kNumSlots, 1, 1);
  Rows<X> x(num_tokens, site.in);
  x.fill_random();
  SiteRows<Y, Y> y(site, num_tokens), want = y;
  apply_rows(run, site, y.views(), x.view(), rows.batch(), 0, num_tokens);
  const auto [ids, factors] = rows.pass(0);
  LoraBatch by_id = LoraBatch::from_ids(host_view(ids.data(), {num_tokens}));
  if (rows.scales || rows.row_scale) by_id.row_scale = host_view(factors.data(), {num_tokens});
  apply_rows(run, site, want.views(), x.view(), by_id, 0, num_tokens);
  EXPECT_TRUE(y.same(want));
}

/// Rows of a batch of num_tokens one by one, about `num_alone` of them.
template <class X, class W, class Y>
void expect_pairs_of_a_row_alone_have_the_bits_of_a_batch(const LoraRun& run, int64_t num_tokens,
                                                          int64_t num_alone) {
  const Site<W> site = random_site<W>();
  const RandomPairs rows(num_tokens, site.kNumSlots, 0, 3);
  Rows<X> x(num_tokens, site.in);
  x.fill_random();
  SiteRows<Y, Y> y(site, num_tokens), alone = y;
  apply_rows(run, site, y.views(), x.view(), rows.batch(), 0, num_tokens);
  const int64_t step = std::max<int64_t>(1, num_tokens / num_alone);
  for (int64_t t = random_int(0, step - 1); t < num_tokens; t += step) {
    apply_rows(run, site, alone.views(), x.view(), rows.batch(t, 1), t, 1);
    const auto same_row = [&](Rows<Y>& a, Rows<Y>& b) {
      return std::memcmp(&a.at(t, 0), &b.at(t, 0), size_t(a.width) * sizeof(Y)) == 0;
    };
    EXPECT_TRUE(same_row(y.q, alone.q) && same_row(y.k, alone.k) && same_row(y.v, alone.v)) << t;
  }
}

/// So many outputs that their sums are made in windows of few rows. T: dtype of all.
template <class T>
void expect_pairs_take_any_number_of_outputs(const LoraRun& run, int64_t num_tokens, int64_t out) {
  const int64_t in = 2;
  const LoraHalf<T> a(LoraLayout::kRankMinor, in, {1, 2}), b(LoraLayout::kRankMajor, out, {1, 2});
  const LoraTableOf<T> a_table({&a}), b_table({&b});
  const RandomPairs rows(num_tokens, 2, 0, 2);
  Rows<T> x(num_tokens, in), y(num_tokens, out);
  x.fill_random();
  for (int64_t t = 0; t < num_tokens; ++t) {
    for (int64_t n = 0; n < out; ++n) y.at(t, n) = from_float<T>(float(t % 7) * 0.25f);
  }
  Rows<T> alone = y;
  const auto call = [&](Rows<T>& into, int64_t first, int64_t count) {
    Workspace workspace = run.pairs_workspace(count, in, out, 1, 2);
    const LoraSlice slice{run.mirror(into.view().narrow(0, first, count))};
    lora_apply(run.with(workspace), {&slice, 1},
               run.mirror(ConstTensorView(x.view().narrow(0, first, count))),
               run.table(a_table.table, {&in, 1}), run.table(b_table.table, {&out, 1}),
               run.batch(rows.batch(first, count), count, 2, 2));
    run.mirror.back();
  };
  call(y, 0, num_tokens);
  for (const int64_t t : {int64_t{0}, num_tokens / 2, num_tokens - 1}) {
    call(alone, t, 1);
    EXPECT_EQ(std::memcmp(&y.at(t, 0), &alone.at(t, 0), size_t(out) * sizeof(T)), 0) << t;
  }
  EXPECT_TRUE(y.buffer.guards_intact());
}

/// More slices than are taken together, each with the bits that it has alone. T: dtype of all.
template <class T>
void expect_pairs_take_any_number_of_slices(const LoraRun& run) {
  constexpr int64_t kTokens = 5, kIn = 40;
  constexpr int kSlots = 3, kSlices = 6;
  const RandomPairs rows(kTokens, kSlots, 0, 3);
  Rows<T> x(kTokens, kIn);
  x.fill_random();
  std::vector<std::unique_ptr<LoraHalf<T>>> a, b;
  std::vector<const LoraHalf<T>*> all_a, all_b;
  std::vector<int64_t> ins(kSlices, kIn), outs;
  std::vector<Rows<T>> y;
  for (int s = 0; s < kSlices; ++s) {
    const std::vector<int> ranks = RandomCall<T, T, T>::draw_ranks(kSlots, true);
    outs.push_back(random_int(1, 70));
    a.push_back(std::make_unique<LoraHalf<T>>(LoraLayout::kRankMajor, kIn, ranks));
    b.push_back(std::make_unique<LoraHalf<T>>(LoraLayout::kRankMinor, outs.back(), ranks));
    all_a.push_back(a.back().get()), all_b.push_back(b.back().get());
    y.emplace_back(kTokens, outs.back()).fill_random();
  }
  std::vector<Rows<T>> alone = y;
  const auto call = [&](std::vector<Rows<T>>& into, size_t first, size_t count) {
    const auto some = [&](const auto& v) {
      return std::vector(v.begin() + int64_t(first), v.begin() + int64_t(first + count));
    };
    const LoraTableOf<T> a_table(some(all_a)), b_table(some(all_b));
    const int rank = a_table.table.max_rank;
    int64_t out_features = 0;
    std::vector<LoraSlice> slices;
    for (size_t s = first; s < first + count; ++s) {
      slices.push_back({run.mirror(into[s].view())});
      out_features += outs[s];
    }
    Workspace workspace = run.pairs_workspace(kTokens, kIn, out_features, int(count), rank);
    lora_apply(run.with(workspace), slices, run.mirror(ConstTensorView(x.view())),
               run.table(a_table.table, some(ins)), run.table(b_table.table, some(outs)),
               run.batch(rows.batch(), kTokens, kSlots, rank));
    run.mirror.back();
  };
  call(y, 0, kSlices);
  for (size_t s = 0; s < kSlices; ++s) {
    call(alone, s, 1);
    EXPECT_TRUE(y[s].same(alone[s])) << "slice " << s;
  }
}

/// The site of LoraCall: slot 0 adds 18 to each output, slot 1 adds 6. The y of five tokens that
/// begins with 1, after a call.
template <class T>
std::vector<float> after_pairs(LoraCall<T>& c, const std::vector<int64_t>& starts,
                               const std::vector<int32_t>& slots, std::optional<int64_t> max_pairs,
                               const std::vector<float>& scales = {}) {
  const auto n = static_cast<int64_t>(slots.size());
  std::vector<float> y(20, 1.0f), of_tokens;
  c.apply(LoraBatch::from_pairs(host_view(starts.data(), {6}), host_view(slots.data(), {n}),
                                scales.empty() ? ConstTensorView{} : host_view(scales.data(), {n}),
                                max_pairs),
          host_view(y.data(), {5, 4}), host_view(std::as_const(c.x).data(), {5, 3}));
  for (size_t t = 0; t < 5; ++t) {
    of_tokens.push_back(y[4 * t]);
    for (size_t i = 1; i < 4; ++i) EXPECT_EQ(y[4 * t + i], y[4 * t]);
  }
  return of_tokens;
}

template <class T>
void expect_pairs_add_up_in_the_lists_of_tokens(const LoraRun& run) {
  using Values = std::vector<float>;
  LoraCall<T> c(run);
  const std::vector<int64_t> starts{0, 2, 2, 3, 6, 8};
  const std::vector<int32_t> slots{0, 1, 0, 1, 1, 1, 5, -3};
  EXPECT_EQ(after_pairs(c, starts, slots, 3), (Values{25, 1, 19, 19, 1}));
  EXPECT_EQ(after_pairs(c, starts, slots, 3, {0.5f, 2, -1, 1, 1, 0.25f, 9, 9}),
            (Values{22, 1, -17, 14.5f, 1}));
  EXPECT_EQ(after_pairs(c, starts, slots, 2), (Values{25, 1, 19, 13, 1})) << "the first two";
  EXPECT_EQ(after_pairs(c, starts, slots, 0), (Values{1, 1, 1, 1, 1}));
  EXPECT_EQ(after_pairs(c, starts, slots, 1'000'000'000), (Values{25, 1, 19, 19, 1}));
  EXPECT_EQ(after_pairs(c, {0, 0, 0, 0, 0, 0}, {}, 4), (Values{1, 1, 1, 1, 1}));
  // Starts that are wrong read nothing outside the arrays.
  EXPECT_EQ(after_pairs(c, {-7, 2, 1, 9, INT64_MAX, INT64_MIN}, slots, 8),
            (Values{25, 1, 43, 1, 1}));
}

template <class T>
void expect_rows_without_pairs_are_not_touched(const LoraRun& run) {
  LoraCall<T> c(run);
  const std::vector<int64_t> starts{0, 1, 1, 3, 3, 3};
  const std::vector<int32_t> slots{0, 2, -1};
  const LoraBatch batch =
      LoraBatch::from_pairs(host_view(starts.data(), {6}), host_view(slots.data(), {3}), {}, 2);
  for (size_t i = 0; i < 4; ++i) c.y[i] = 1.0f;
  c.apply(batch);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(c.y[i], 19.0f);
  for (size_t i = 4; i < 20; ++i) EXPECT_TRUE(c.y.untouched(i)) << i;
  for (const bool without_a : {false, true}) {
    LoraCall<T> half(run);
    (without_a ? half.a_entries : half.b_entries)[0].data = nullptr;
    half.apply(batch);
    for (size_t i = 0; i < 20; ++i) EXPECT_TRUE(half.y.untouched(i)) << i;
  }
}

}  // namespace heddle::testing
