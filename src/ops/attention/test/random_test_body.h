#pragma once

// One call of attention drawn at random from all that the contract allows, checked against the
// definition in double, on any device.

#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include <gtest/gtest.h>

#include "core/math.h"
#include "ops/attention/test/attention_cases.h"
#include "ops/attention/test/attention_ref.h"

namespace heddle::testing {

/// Everything that may differ from call to call.
struct AttentionCase {
  CacheShape cache;
  int group_size = 1;
  bool decode = false, with_lse = true;
  std::vector<int64_t> q_lens, kv_lens;
  AttentionOptions options;
  std::vector<bool> has_tree;  // of each sequence; empty: none
  int64_t q_gap = 0, o_gap = 0, lse_gap = 0, rows_before = 0, rows_behind = 0;

  [[nodiscard]] int64_t num_q_heads() const { return int64_t{group_size} * cache.num_kv_heads; }
};

inline std::ostream& operator<<(std::ostream& os, const AttentionCase& c) {
  os << "heads " << c.cache.num_kv_heads << " x " << c.group_size << " head_dim "
     << c.cache.head_dim << " page_size " << c.cache.page_size << " layout "
     << static_cast<int>(c.cache.layout) << " scales " << static_cast<int>(c.cache.scales)
     << (c.decode ? " decode" : " prefill") << " causal " << c.options.causal << " window "
     << c.options.window_left << " cap " << c.options.logits_soft_cap << " rope "
     << c.options.rope.has_value() << " gap " << c.cache.gap << " q_gap " << c.q_gap << " q/kv";
  for (size_t i = 0; i < c.q_lens.size(); ++i) {
    os << " " << c.q_lens[i] << "/" << c.kv_lens[i];
    if (!c.has_tree.empty() && c.has_tree[i]) os << " tree";
  }
  return os;
}

inline AttentionOptions random_options(int head_dim, bool may_rotate = true) {
  AttentionOptions options;
  if (random_int(0, 2) == 0) options.sm_scale = pick({0.05f, 0.2f});
  options.causal = random_int(0, 3) != 0;
  options.window_left = pick<int64_t>({-1, -1, 0, 1, random_int(2, 150)});
  options.logits_soft_cap = pick({0.0f, 0.0f, 2.0f, 30.0f});
  if (may_rotate && head_dim >= 2 && random_int(0, 2) == 0) {
    RopeParams rope{.theta = pick({1e4, 5e5}), .scale = pick({1.0, 4.0})};
    rope.rotary_dim = 2 * static_cast<int>(random_int(head_dim % 2, head_dim / 2));
    const int64_t correction = random_int(0, 5);
    if (correction == 0) rope.llama3 = Llama3RopeScaling{.original_max_position = 100.0};
    if (correction == 1) rope.yarn = YarnRopeScaling{.factor = 4, .original_max_position = 100.0};
    options.rope = rope;
  }
  return options;
}

/// What random cases are drawn from.
struct AttentionLimits {
  bool prefill = true, decode = true;
  bool any_head_dim =
      true;  // else multiples of 8, and mostly no gaps, so that kernels can load vectors
  int64_t longest = 200;  // keys
  int64_t max_seqs = 4;
  bool may_rotate = true;  // RoPE inside
};

inline CacheShape random_cache_shape(const AttentionLimits& limits) {
  CacheShape shape;
  shape.num_kv_heads = static_cast<int>(random_int(1, 3));
  shape.head_dim = static_cast<int>(
      limits.any_head_dim
          ? pick<int64_t>({16, 32, 64, 64, 80, 96, 112, 128, 256, random_int(1, 256)})
          : pick<int64_t>({64, 64, 80, 96, 112, 128, 128, 192, 256, 8 * random_int(1, 32)}));
  shape.page_size = static_cast<int>(pick<int64_t>({1, 2, 16, 16, 64, random_int(1, 70)}));
  shape.layout = pick({PageLayout::kHeadMajor, PageLayout::kTokenMajor,
                       PageLayout::kSeparateKeysAndValues, PageLayout::kPointers});
  shape.wide_indices = pick({false, true});
  shape.scales = pick({ScalePlace::kInPages, ScalePlace::kOwnPool, ScalePlace::kWholeCache});
  if (shape.layout != PageLayout::kPointers) {
    shape.gap = static_cast<int>(limits.any_head_dim ? random_int(0, 3) : pick({0, 0, 8}));
  }
  return shape;
}

/// Lengths around those where pages and segments end.
inline int64_t random_kv_len(const AttentionLimits& limits, int page_size) {
  const int64_t pages = page_size * random_int(1, std::max<int64_t>(1, limits.longest / page_size));
  return std::min(limits.longest,
                  pick<int64_t>({0, 1, random_int(1, 40), random_int(1, limits.longest),
                                 random_int(1, limits.longest), 64, 65, pages, pages + 1}));
}

inline AttentionCase random_case(const AttentionLimits& limits = {}) {
  AttentionCase c;
  c.cache = random_cache_shape(limits);
  c.group_size = static_cast<int>(pick<int64_t>({1, 2, 3, 4, 7, 8, 9, random_int(1, 16)}));
  c.decode = limits.decode && (!limits.prefill || random_int(0, 2) == 0);
  c.with_lse = random_int(0, 3) != 0;
  for (int64_t i = random_int(0, limits.max_seqs); i > 0; --i) {
    const int64_t kv_len = random_kv_len(limits, c.cache.page_size);
    c.kv_lens.push_back(kv_len);
    c.q_lens.push_back(
        c.decode ? 1 : pick<int64_t>({0, 1, 1, kv_len % 50, random_int(1, 30), kv_len % 40 + 3}));
  }
  c.options = random_options(c.cache.head_dim, limits.may_rotate);
  if (!c.decode && random_int(0, 3) == 0) {
    for (size_t i = 0; i < c.q_lens.size(); ++i) c.has_tree.push_back(random_int(0, 2) != 0);
  }
  c.q_gap = limits.any_head_dim ? random_int(0, 3) : pick<int64_t>({0, 0, 8, random_int(0, 3)});
  c.o_gap = limits.any_head_dim ? random_int(0, 3) : pick<int64_t>({0, 0, 8, random_int(0, 3)});
  c.lse_gap = random_int(0, 2);
  if (!c.decode) {
    c.rows_before = random_int(0, 2);
    c.rows_behind = random_int(0, 2);
  }
  return c;
}

/// A [rows, heads, head_dim] view with gaps after each head and each row.
template <class Byte>
BasicTensorView<Byte> gapped(Byte* data, DType dtype, int64_t rows, int64_t heads, int64_t dim,
                             int64_t gap) {
  const std::array<int64_t, 3> shape{rows, heads, dim};
  const std::array<int64_t, 3> strides{heads * (dim + gap) + gap, dim + gap, 1};
  return {data, dtype, {}, shape, strides};
}

template <class TQ, class TKV>
class AttentionCheck {
 public:
  explicit AttentionCheck(const AttentionCase& c)
      : c_(c),
        indptr_(starts_of(c.q_lens, c.rows_before)),
        cache_(c.cache, c.kv_lens),
        rows_(indptr_.back() + c.rows_behind) {
    const int64_t dim = c.cache.head_dim, kv_row = c.cache.num_kv_heads * dim;
    q_ = random_normal<TQ>(static_cast<size_t>(row_elements(c.q_gap) * rows_));
    draw_trees();
    for (size_t i = 0; i < c.kv_lens.size(); ++i) {
      const auto k = random_normal<TKV>(static_cast<size_t>(c.kv_lens[i] * kv_row));
      const auto v = random_normal<TKV>(static_cast<size_t>(c.kv_lens[i] * kv_row));
      cache_.fill(static_cast<int64_t>(i), k, v);
      reference_sequence(static_cast<int64_t>(i), cache_.values_of(k, false),
                         cache_.values_of(v, true));
    }
  }

  /// Runs the op and compares every element of its outputs.
  void run(const AttentionRun& run) {
    const int64_t dim = c_.cache.head_dim, heads = c_.num_q_heads();
    PoisonedBuffer<TQ> o(static_cast<size_t>(row_elements(c_.o_gap) * rows_));
    PoisonedBuffer<float> lse(static_cast<size_t>((heads + c_.lse_gap) * rows_));
    const TensorView o_view = run.mirror(
        gapped(reinterpret_cast<std::byte*>(o.data()), kDType<TQ>, rows_, heads, dim, c_.o_gap));
    const ConstTensorView q_view = run.mirror(gapped(reinterpret_cast<const std::byte*>(q_.data()),
                                                     kDType<TQ>, rows_, heads, dim, c_.q_gap));
    TensorView lse_view;
    if (c_.with_lse) {
      lse_view = run.mirror(lse.view({rows_, heads + c_.lse_gap}).narrow(1, 0, heads));
    }
    const auto [kv, table] = cache_.on(run.mirror);
    if (c_.decode) {
      Workspace workspace = run.workspace(rows_, heads, dim);
      const ExecContext ctx = random_int(0, 3) == 0 ? run.ctx : run.with(workspace);
      batch_decode(ctx, o_view, lse_view, q_view, kv, table, c_.options);
    } else {
      AttentionOptions options = c_.options;
      if (!c_.has_tree.empty()) {
        options.tree_mask = run.mirror(ConstTensorView(vector_view(tree_words_)));
        options.tree_mask_indptr = run.mirror(ConstTensorView(vector_view(tree_indptr_)));
      }
      const std::vector<int32_t> narrow(indptr_.begin(), indptr_.end());
      const ConstTensorView starts =
          c_.cache.wide_indices ? vector_view(narrow) : vector_view(indptr_);
      batch_prefill(run.ctx, o_view, lse_view, q_view, run.mirror(starts), kv, table, options);
    }
    run.mirror.back();
    compare(run, o, lse);
  }

 private:
  [[nodiscard]] int64_t row_elements(int64_t gap) const {
    return c_.num_q_heads() * (c_.cache.head_dim + gap) + gap;
  }

  template <class I>
  static ConstTensorView vector_view(const std::vector<I>& v) {
    return host_view(v.data(), {std::ssize(v)});
  }

  /// Masks of random bits, and wild ones after each query's.
  void draw_trees() {
    tree_indptr_.push_back(static_cast<int32_t>(random_int(0, 3)));
    tree_words_.assign(size_t(tree_indptr_[0]), -1);
    for (size_t i = 0; i < c_.has_tree.size(); ++i) {
      const int64_t words = ceil_div(c_.q_lens[i], 32);
      for (int64_t w = 0; c_.has_tree[i] && w < c_.q_lens[i] * words; ++w) {
        tree_words_.push_back(static_cast<int32_t>(rng()()));
      }
      tree_indptr_.push_back(static_cast<int32_t>(tree_words_.size()));
    }
  }
  /// Which new tokens query r of a sequence sees; empty without a tree mask.
  [[nodiscard]] std::vector<bool> tree_row(size_t seq, int64_t r) const {
    if (c_.has_tree.empty() || !c_.has_tree[seq]) return {};
    const int64_t q_len = c_.q_lens[seq], words = ceil_div(q_len, 32);
    std::vector<bool> sees;
    for (int64_t j = 0; j < q_len; ++j) {
      const int32_t word = tree_words_[size_t(tree_indptr_[seq] + r * words + j / 32)];
      sees.push_back((static_cast<uint32_t>(word) >> (j % 32) & 1u) != 0);
    }
    return sees;
  }

  void reference_sequence(int64_t seq, const std::vector<double>& k, const std::vector<double>& v) {
    const int dim = c_.cache.head_dim;
    const int64_t q_len = c_.q_lens[size_t(seq)], kv_len = c_.kv_lens[size_t(seq)];
    AttentionOptions options = c_.options;
    options.causal = options.causal || c_.decode;
    const auto keys = ref::rotated_keys(k, c_.cache.num_kv_heads, dim, options.rope);
    for (int64_t r = 0; r < q_len; ++r) {
      const std::vector<bool> tree = tree_row(size_t(seq), r);
      for (int64_t h = 0; h < c_.num_q_heads(); ++h) {
        std::vector<double> q;
        const int64_t at =
            (indptr_[size_t(seq)] + r) * row_elements(c_.q_gap) + h * (dim + c_.q_gap);
        for (int d = 0; d < dim; ++d) q.push_back(to_float(q_[size_t(at + d)]));
        want_.push_back(ref::attention(q.data(), kv_len - q_len + r, keys, v, kv_len,
                                       c_.cache.num_kv_heads, static_cast<int>(h / c_.group_size),
                                       dim, options, tree.empty() ? nullptr : &tree));
      }
    }
  }

  void compare(const AttentionRun& run, const PoisonedBuffer<TQ>& o,
               const PoisonedBuffer<float>& lse) {
    const int64_t dim = c_.cache.head_dim, heads = c_.num_q_heads();
    std::vector<bool> written(o.size(), false), lse_written(lse.size(), false);
    size_t row = 0;
    for (int64_t t = indptr_.front(); t < indptr_.back(); ++t) {
      for (int64_t h = 0; h < heads; ++h, ++row) {
        const ref::AttentionRow& want = want_[row];
        const auto at = static_cast<size_t>(t * row_elements(c_.o_gap) + h * (dim + c_.o_gap));
        for (size_t d = 0; d < want.o.size(); ++d) {
          const double got = to_float(o[at + d]), error = std::abs(got - want.o[d]);
          written[at + d] = true;
          ASSERT_LE(error, (run.bound<TQ, TKV>(want.o[d])))
              << got << " for " << want.o[d] << ", row " << row << ", element " << d;
        }
        if (!c_.with_lse) continue;
        const auto lse_at = static_cast<size_t>(t * (heads + c_.lse_gap) + h);
        lse_written[lse_at] = true;
        if (std::isinf(want.lse)) {
          ASSERT_EQ(lse[lse_at], want.lse);
        } else {
          ASSERT_LE(std::abs(lse[lse_at] - want.lse), (run.lse_bound<TQ, TKV>(want.lse)));
        }
      }
    }
    for (size_t i = 0; i < o.size(); ++i) ASSERT_TRUE(written[i] || o.untouched(i));
    for (size_t i = 0; i < lse.size(); ++i) ASSERT_TRUE(lse_written[i] || lse.untouched(i));
    ASSERT_TRUE(o.guards_intact() && lse.guards_intact());
  }

  AttentionCase c_;
  std::vector<int64_t> indptr_;
  PagedCache<TKV> cache_;
  int64_t rows_;
  std::vector<TQ> q_;
  std::vector<ref::AttentionRow> want_;
  std::vector<int32_t> tree_words_, tree_indptr_;
};

}  // namespace heddle::testing
