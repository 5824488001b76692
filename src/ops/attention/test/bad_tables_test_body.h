#pragma once

// Wrong words in page tables and starts, for every operation that takes them: nothing is read or
// written outside, and rows that do not use the words have the bits that they have without them. On
// the CPU the call throws before it writes; on a GPU the other rows are NaN, or not stored, and the
// context's record names operation, array, row and value.

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/core/fault.h"
#include "heddle/ops/attention.h"

#include "ops/attention/test/kv_append_test_body.h"
#include "testing/expect_error.h"

namespace heddle::testing {

enum class TableOp { kDecode, kPrefill, kInit, kAppend, kRopeAppend };
inline constexpr TableOp kTableOps[] = {TableOp::kDecode, TableOp::kPrefill, TableOp::kInit,
                                        TableOp::kAppend, TableOp::kRopeAppend};
inline const char* name_of(TableOp op) {
  switch (op) {
    case TableOp::kDecode: return "batch_decode";
    case TableOp::kPrefill: return "batch_prefill";
    case TableOp::kInit: return "kv_init";
    case TableOp::kAppend: return "kv_append";
    case TableOp::kRopeAppend: return "rope_kv_append";
  }
  return "?";
}

/// What becomes of a new token, or of the row of its query.
enum class Fate {
  kGood,
  kWrong,      // NaN, or not stored
  kUntouched,  // belongs to no sequence
};

/// A batch of T over a cache of TKV, the right call and calls with wrong words. Take: the fault of
/// the context, if there is one; of the CPU nothing.
template <class T, class TKV, class Take>
class BadTables {
 public:
  BadTables(TableOp op, const ExecContext& ctx, Mirror& mirror, const Take& take)
      : op_(op),
        ctx_(ctx),
        mirror_(mirror),
        take_(take),
        has_starts_(op == TableOp::kPrefill || op == TableOp::kInit ||
                    (op == TableOp::kRopeAppend && random_int(0, 1) == 0)),
        reads_(op == TableOp::kDecode || op == TableOp::kPrefill),
        shape_(random_shape()),
        cache_(shape_, draw_lengths()),
        starts_(starts_of(new_lens_)),
        num_tokens_(starts_.back()),
        k_(num_tokens_, shape_.num_kv_heads, shape_.head_dim),
        v_(num_tokens_, shape_.num_kv_heads, shape_.head_dim),
        q_(num_tokens_, shape_.num_kv_heads * group_size_, shape_.head_dim),
        kept_memory_(fill()),
        right_o_(q_),
        right_memory_(kept_memory_) {
    if (random_int(0, 2) == 0) options_.window_left = random_int(0, 40);
    if (op == TableOp::kPrefill) options_.causal = random_int(0, 3) != 0;
    call();
    right_o_ = o_;
    right_lse_ = lse_;
    right_memory_ = memory();
  }

  /// A call with up to three wrong words.
  void check_wrong() {
    const std::vector<int64_t> right_starts = starts_;
    for (int64_t i = random_int(0, 3); i > 0; --i) spoil();
    page_indptr_ = cache_.words(Word::kPageIndptr);
    last_page_len_ = cache_.words(Word::kLastPageLen);
    table_pages_ = std::ssize(cache_.words(Word::kPages));
    const bool is_cpu = ctx_.device.type == DeviceType::kCpu;
    const bool throws = is_cpu && must_throw();
    if (throws) {
      EXPECT_NE(message_of([&] { call(); }), "no error");
    } else {
      call();
    }
    int num_wrong = 0;
    std::vector<TKV> want_memory = throws ? kept_memory_ : right_memory_;
    for (int64_t seq = 0; seq < num_seqs(); ++seq) {
      for (int64_t r = 0; r < new_lens_[size_t(seq)]; ++r) {
        const Fate fate = fate_of(seq, r);
        num_wrong += fate == Fate::kWrong;
        check_row(right_starts[size_t(seq)] + r, throws ? Fate::kUntouched : fate);
        if (!reads_ && fate != Fate::kGood) forget_token(seq, r, want_memory);
      }
    }
    EXPECT_TRUE(same_bits<TKV>(memory(), want_memory)) << "the cache";
    EXPECT_TRUE(cache_.memory().guards_intact());
    if (ctx_.faults != nullptr) check_fault(num_wrong > 0 || spoils_starts_);
    cache_.wrong_words.clear();
    starts_ = right_starts;
    spoils_starts_ = false;
  }

 private:
  using Cache = PagedCache<TKV>;
  using Word = typename Cache::WrongWord;

  [[nodiscard]] int64_t num_seqs() const { return std::ssize(kv_lens_); }
  [[nodiscard]] int64_t position_of(int64_t seq, int64_t r) const {
    return kv_lens_[size_t(seq)] - new_lens_[size_t(seq)] + r;
  }
  std::vector<TKV> memory() {
    return {cache_.memory().data(), cache_.memory().data() + cache_.memory().size()};
  }

  CacheShape random_shape() {
    CacheShape shape;
    shape.num_kv_heads = static_cast<int>(random_int(1, 2));
    shape.head_dim = static_cast<int>(pick<int64_t>({8, 16, 40, 64, 72, reads_ ? 64 : 7}));
    if (op_ == TableOp::kRopeAppend) shape.head_dim = shape.head_dim / 2 * 2;
    shape.page_size = static_cast<int>(pick<int64_t>({1, 3, 16, 16}));
    shape.layout = pick({PageLayout::kHeadMajor, PageLayout::kTokenMajor,
                         PageLayout::kSeparateKeysAndValues, PageLayout::kPointers});
    shape.wide_indices = pick({false, true});
    // Where a call stores, the scales of tokens would change, too.
    shape.scales =
        reads_ ? pick({ScalePlace::kInPages, ScalePlace::kOwnPool}) : ScalePlace::kWholeCache;
    if (shape.layout != PageLayout::kPointers) shape.gap = pick({0, 0, 8, 1});
    if (shape.layout == PageLayout::kPointers && shape.head_dim % 8 != 0) shape.head_dim = 64;
    return shape;
  }
  /// Few sequences, seldom more than a warp or a block asks for at once.
  std::vector<int64_t> draw_lengths() {
    const int64_t count = pick<int64_t>({1, 2, 3, 4, 5, 6, random_int(30, 40)});
    const int64_t many = random_int(0, 60) == 0 ? 140 : count;
    for (int64_t i = 0; i < many; ++i) {
      kv_lens_.push_back(many > 6 ? random_int(0, 4) : pick<int64_t>({0, 1, random_int(1, 90)}));
      new_lens_.push_back(has_starts_ ? pick<int64_t>({1, 1, 2, random_int(1, many > 6 ? 2 : 9)})
                                      : 1);
    }
    group_size_ = static_cast<int>(pick<int64_t>({1, 2, 3}));
    return kv_lens_;
  }
  /// A cache for reading holds keys and values; one that is written to is poisoned.
  std::vector<TKV> fill() {
    if (reads_) {
      for (int64_t seq = 0; seq < num_seqs(); ++seq) {
        const auto n =
            static_cast<size_t>(kv_lens_[size_t(seq)] * shape_.num_kv_heads * shape_.head_dim);
        cache_.fill(seq, random_normal<TKV>(n), random_normal<TKV>(n));
      }
    }
    return memory();
  }

  void call() {
    std::copy(kept_memory_.begin(), kept_memory_.end(), cache_.memory().data());
    o_ = q_;
    lse_.assign(reads_ ? size_t(num_tokens_ * q_.extents[1]) : 0, -77.0f);
    if (reads_) std::fill(o_.values.begin(), o_.values.end(), from_float<T>(-77.0f));
    narrow_starts_.assign(starts_.begin(), starts_.end());
    const bool wide = shape_.wide_indices;
    const int64_t n = std::ssize(starts_);
    const ConstTensorView host_starts =
        wide ? host_view(starts_.data(), {n}) : host_view(narrow_starts_.data(), {n});
    try {
      const auto [kv, table] = cache_.on(mirror_);
      run(kv, table, has_starts_ ? mirror_(host_starts) : ConstTensorView{});
    } catch (...) {
      mirror_.back();
      throw;
    }
    mirror_.back();
  }
  void run(const PagedKv& kv, const PageTable& table, const ConstTensorView& starts) {
    const TensorView o = mirror_(o_.view());
    TensorView lse;
    if (reads_) lse = mirror_(host_view(lse_.data(), {num_tokens_, q_.extents[1]}));
    const ConstTensorView q = mirror_(ConstTensorView(q_.view()));
    const ConstTensorView k = mirror_(ConstTensorView(k_.view()));
    const ConstTensorView v = mirror_(ConstTensorView(v_.view()));
    switch (op_) {
      case TableOp::kDecode: return batch_decode(ctx_, o, lse, q, kv, table, options_);
      case TableOp::kPrefill: return batch_prefill(ctx_, o, lse, q, starts, kv, table, options_);
      case TableOp::kInit: return kv_init(ctx_, kv, table, k, v, starts);
      case TableOp::kAppend: return kv_append(ctx_, kv, table, k, v);
      case TableOp::kRopeAppend: return rope_kv_append(ctx_, o, kv, table, k, v, starts, {}, {});
    }
  }

  /// Of i32 or i64, below or above all that may be.
  static int64_t wild(bool is_int64, int64_t end) {
    using Narrow = std::numeric_limits<int32_t>;
    using Wide = std::numeric_limits<int64_t>;
    const int64_t value =
        pick<int64_t>({-1, -2, end, end + 1, end + 1000, Narrow::min(), Narrow::max(), Wide::min(),
                       Wide::max(), int64_t{1} << 40});
    const bool fits = value >= Narrow::min() && value <= Narrow::max();
    return is_int64 || fits ? value : -1;
  }
  void spoil() {
    const int64_t used_pages = ceil_sum();
    const int64_t table_pages = std::ssize(cache_.words(Word::kPages));
    const bool is_int64 = shape_.wide_indices, has_pool = shape_.layout != PageLayout::kPointers;
    const int64_t seq = random_int(0, num_seqs() - 1);
    switch (random_int(has_starts_ ? 0 : 1, 3)) {
      case 0:
        starts_[size_t(random_int(0, num_seqs()))] = wild(is_int64, num_tokens_ + 1);
        spoils_starts_ = true;
        return;
      case 1:
        cache_.wrong_words.push_back(
            {Word::kPageIndptr, random_int(0, num_seqs()), wild(is_int64, table_pages + 1)});
        return;
      case 2: {
        const int64_t value = pick<int64_t>({0, wild(!is_int64, shape_.page_size + 1)});
        cache_.wrong_words.push_back({Word::kLastPageLen, seq, value});
        return;
      }
      default: {
        if (used_pages == 0) return;
        const int64_t value = has_pool ? wild(is_int64, cache_.pool_pages())
                                       : pick<int64_t>({0, 0, -4096, int64_t{-1} << 50});
        cache_.wrong_words.push_back({Word::kPages, random_int(0, used_pages - 1), value});
      }
    }
  }
  [[nodiscard]] int64_t ceil_sum() const {
    int64_t pages = 0;
    for (const int64_t len : kv_lens_) pages += ceil_div(len, shape_.page_size);
    return pages;
  }

  /// By the definition: what the words say of a sequence.
  [[nodiscard]] bool table_is_wrong(int64_t seq) const {
    const int64_t begin = page_indptr_[size_t(seq)], end = page_indptr_[size_t(seq + 1)];
    const int64_t last = last_page_len_[size_t(seq)];
    if (begin < 0 || end < begin || end > table_pages_) return true;
    return begin < end && (last < 1 || last > shape_.page_size);
  }
  [[nodiscard]] bool starts_are_wrong(int64_t seq) const {
    const int64_t begin = starts_[size_t(seq)], end = starts_[size_t(seq + 1)];
    return has_starts_ && (begin < 0 || end < begin || end > num_tokens_);
  }
  [[nodiscard]] bool page_is_wrong(int64_t seq, int64_t page) const {
    const int64_t index = page_indptr_[size_t(seq)] + page;
    return std::ranges::any_of(cache_.wrong_words, [&](const Word& w) {
      return w.array == Word::kPages && w.index == index;
    });
  }
  /// Positions [first, end) that a row reads or writes.
  [[nodiscard]] Fate fate_of(int64_t seq, int64_t r) const {
    if (starts_are_wrong(seq)) return Fate::kUntouched;
    if (table_is_wrong(seq)) return Fate::kWrong;
    const int64_t position = position_of(seq, r), len = kv_lens_[size_t(seq)];
    int64_t first = position, end = position + 1;
    if (reads_) {
      first = options_.window_left >= 0 ? std::max<int64_t>(position - options_.window_left, 0) : 0;
      if (!options_.causal) end = len;
    }
    if (first < 0) return Fate::kGood;
    for (int64_t j = first; j < std::min(end, len); ++j) {
      if (page_is_wrong(seq, j / shape_.page_size)) return Fate::kWrong;
    }
    return Fate::kGood;
  }
  [[nodiscard]] bool must_throw() const {
    for (int64_t seq = 0; seq < num_seqs(); ++seq) {
      if (table_is_wrong(seq) || starts_are_wrong(seq)) return true;
      for (int64_t r = 0; r < new_lens_[size_t(seq)]; ++r) {
        if (fate_of(seq, r) == Fate::kWrong) return true;
      }
    }
    return false;
  }

  void check_row(int64_t t, Fate fate) {
    const auto begin = static_cast<size_t>(t * o_.token_stride);
    const bool is_output = reads_ || op_ == TableOp::kRopeAppend;
    for (int64_t h = 0; reads_ && h < o_.extents[1]; ++h) {
      const auto i = static_cast<size_t>(t * o_.extents[1] + h);
      if (fate == Fate::kWrong) {
        EXPECT_TRUE(std::isnan(lse_[i])) << "lse of row " << t << " is " << lse_[i];
      } else {
        EXPECT_EQ(lse_[i], fate == Fate::kUntouched ? -77.0f : right_lse_[i]) << "row " << t;
      }
    }
    for (int64_t h = 0; is_output && h < o_.extents[1]; ++h) {
      for (int64_t d = 0; d < o_.extents[2]; ++d) {
        const size_t i = begin + size_t(h * o_.head_stride + d);
        const T got = o_.values[i];
        const T untouched = reads_ ? from_float<T>(-77.0f) : q_.values[i];
        if (fate == Fate::kWrong) {
          if (!std::isnan(to_float(got))) FAIL() << "row " << t << " holds " << to_float(got);
          continue;
        }
        const T want = fate == Fate::kUntouched ? untouched : right_o_.values[i];
        if (!same_bits<T>({&got, 1}, {&want, 1})) {
          FAIL() << "row " << t << " holds " << to_float(got) << " instead of " << to_float(want);
        }
      }
    }
  }
  /// The token of a call that writes was not stored.
  void forget_token(int64_t seq, int64_t r, std::vector<TKV>& want) {
    const int64_t position = position_of(seq, r);
    if (position < 0 || kv_lens_[size_t(seq)] == 0) return;
    for (int64_t h = 0; h < shape_.num_kv_heads; ++h) {
      for (const TKV* row : {cache_.key(seq, position, h), cache_.value(seq, position, h)}) {
        const auto at = row - cache_.memory().data();
        std::copy_n(kept_memory_.begin() + at, shape_.head_dim, want.begin() + at);
      }
    }
  }
  void check_fault(bool must_be_told) {
    const std::optional<Fault> fault = take_();
    if (!fault) {
      EXPECT_FALSE(must_be_told) << "no fault was reported";
      return;
    }
    EXPECT_EQ(fault->op, name_of(op_));
    const bool is_table = fault->array == "page_indptr" || fault->array == "last_page_len";
    const int64_t seq = fault->row;
    ASSERT_TRUE(seq >= 0 && seq < num_seqs()) << fault->text();
    EXPECT_TRUE(!is_table || table_is_wrong(seq)) << fault->text();
    bool is_known = false;
    for (const Word& w : cache_.wrong_words) is_known |= w.value == fault->value;
    for (const int64_t start : starts_) is_known |= start == fault->value;
    for (const int64_t start : page_indptr_) is_known |= start == fault->value;
    EXPECT_TRUE(is_known) << fault->text();
  }

  TableOp op_;
  const ExecContext& ctx_;
  Mirror& mirror_;
  const Take& take_;
  bool has_starts_, reads_, spoils_starts_ = false;
  int group_size_ = 1;
  std::vector<int64_t> kv_lens_, new_lens_;
  AttentionOptions options_;
  CacheShape shape_;
  Cache cache_;
  std::vector<int64_t> starts_;
  std::vector<int32_t> narrow_starts_;
  int64_t num_tokens_;
  NewRows<T> k_, v_, q_;
  std::vector<TKV> kept_memory_;
  NewRows<T> o_ = q_, right_o_;
  std::vector<TKV> right_memory_;
  std::vector<float> lse_, right_lse_;                // [num_tokens, heads of q]
  std::vector<int64_t> page_indptr_, last_page_len_;  // with the wrong words
  int64_t table_pages_ = 0;
};

/// So many wrong tables, eight for each batch.
template <class T, class TKV = T, class Take>
void check_bad_tables(TableOp op, const ExecContext& ctx, Mirror& mirror, int num_tables,
                      const Take& take) {
  constexpr int kOfBatch = 8;
  for (int i = 0; i < num_tables && !::testing::Test::HasFailure(); i += kOfBatch) {
    BadTables<T, TKV, Take> batch(op, ctx, mirror, take);
    for (int k = 0; k < kOfBatch && !::testing::Test::HasFailure(); ++k) batch.check_wrong();
  }
}

}  // namespace heddle::testing
