#pragma once

// Batches of attention for the tests: plain keys and values, and calls of the ops over a cache that
// is made of them.

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "heddle/ops/attention.h"

#include "ops/attention/test/paged_cases.h"
#include "testing/compare.h"
#include "testing/exec_context.h"
#include "testing/mirror.h"

namespace heddle::testing {

/// One sequence: its last q_len positions have queries.
template <class TQ, class TKV>
struct Sequence {
  int64_t q_len, kv_len;
  std::vector<TQ> q;      // [q_len, num_q_heads, head_dim]
  std::vector<TKV> k, v;  // [kv_len, num_kv_heads, head_dim]
};

struct HeadShape {
  int group_size = 1, num_kv_heads = 1, head_dim = 64;
  [[nodiscard]] int num_q_heads() const { return group_size * num_kv_heads; }
};

template <class TQ, class TKV>
Sequence<TQ, TKV> random_sequence(const HeadShape& heads, int64_t q_len, int64_t kv_len) {
  const auto kv_size = static_cast<size_t>(kv_len * heads.num_kv_heads * heads.head_dim);
  const auto q_size = static_cast<size_t>(q_len * heads.num_q_heads() * heads.head_dim);
  return {q_len, kv_len, random_normal<TQ>(q_size), random_normal<TKV>(kv_size),
          random_normal<TKV>(kv_size)};
}

/// Where calls run, and how far from the definition their results may be.
struct AttentionRun {
  ExecContext ctx;
  Mirror& mirror;
  /// CUDA: products of tensor cores, with weights and rotated keys in the dtype of the cache.
  bool is_gpu = false;

  /// What an element may differ by. Values of codes are larger, and prefill rounds them, and keys,
  /// to the dtype of q.
  template <class T, class TKV = T>
  [[nodiscard]] double bound(double want) const {
    if (!is_gpu) return 1.01 * kRounding<T> * std::abs(want) + 2e-5;
    constexpr bool kIsHalf = std::is_same_v<T, half>;
    constexpr double kOfCodes = kIsHalf ? 10.0 : 5.0;
    constexpr double kSize = std::is_same_v<TKV, float8_e4m3> ? kOfCodes : 1.0;
    return (kIsHalf ? 1e-3 : 8e-3) * std::abs(want) + (kIsHalf ? 5e-4 : 8e-3) * kSize;
  }
  /// Whether calls with keys that rotate inside are supported.
  template <class TKV>
  [[nodiscard]] bool can_rotate() const {
    return !is_gpu || !std::is_same_v<TKV, float8_e4m3>;
  }
  template <class T, class TKV = T>
  [[nodiscard]] double lse_bound(double want) const {
    constexpr double kSize = std::is_same_v<TKV, float8_e4m3> ? 2.0 : 1.0;
    const double each = !is_gpu ? 1e-5 : std::is_same_v<T, half> ? 1e-3 * kSize : 8e-3 * kSize;
    return each * std::max(1.0, std::abs(want));
  }
  /// The context with the workspace that batch_decode can use, until mirror.back(). `workspace` is
  /// the caller's.
  [[nodiscard]] Workspace workspace(int64_t num_seqs, int64_t num_q_heads, int64_t head_dim) const {
    return Workspace(
        mirror.scratch(batch_decode_workspace_bytes(ctx.device, num_seqs, num_q_heads, head_dim)));
  }
  [[nodiscard]] ExecContext with(Workspace& workspace) const {
    ExecContext result = ctx;
    result.workspace = &workspace;
    return result;
  }
};

struct Setting {
  int page_size = 16;
  PageLayout layout = PageLayout::kHeadMajor;
  ThreadPool* threads = nullptr;
  bool decode = false;
  const AttentionRun* run = nullptr;  // nullptr: the CPU with `threads`
  ScalePlace scales = ScalePlace::kInPages;

  template <class TKV>
  [[nodiscard]] bool can_rotate() const {
    return run == nullptr || run->can_rotate<TKV>();
  }
};

/// Output rows of one call, all sequences one after the other.
template <class TQ>
struct Attended {
  std::vector<TQ> o;       // [num_tokens, num_q_heads, head_dim]
  std::vector<float> lse;  // [num_tokens, num_q_heads]

  [[nodiscard]] bool same_bits_as(const Attended& other) const {
    return same_bits<TQ>(o, other.o) && same_bits<float>(lse, other.lse);
  }
  /// Appends the rows of another call.
  void append(const Attended& other) {
    o.insert(o.end(), other.o.begin(), other.o.end());
    lse.insert(lse.end(), other.lse.begin(), other.lse.end());
  }
  /// Rows [begin, begin + count) of the tokens.
  [[nodiscard]] Attended tokens(const HeadShape& heads, int64_t begin, int64_t count) const {
    const int64_t n = heads.num_q_heads(), row = n * heads.head_dim;
    return {{o.begin() + begin * row, o.begin() + (begin + count) * row},
            {lse.begin() + begin * n, lse.begin() + (begin + count) * n}};
  }
};

template <class TQ, class TKV>
Attended<TQ> attend(const HeadShape& heads, const std::vector<Sequence<TQ, TKV>>& sequences,
                    const Setting& setting, const AttentionOptions& options) {
  std::vector<int64_t> q_lens, kv_lens;
  std::vector<TQ> q;
  for (const auto& s : sequences) {
    q_lens.push_back(s.q_len);
    kv_lens.push_back(s.kv_len);
    q.insert(q.end(), s.q.begin(), s.q.end());
  }
  CacheShape shape;
  shape.num_kv_heads = heads.num_kv_heads;
  shape.head_dim = heads.head_dim;
  shape.page_size = setting.page_size;
  shape.layout = setting.layout;
  shape.scales = setting.scales;
  PagedCache<TKV> cache(shape, kv_lens);
  for (size_t i = 0; i < sequences.size(); ++i) {
    cache.fill(static_cast<int64_t>(i), sequences[i].k, sequences[i].v);
  }
  const std::vector<int64_t> indptr = starts_of(q_lens);
  const int64_t tokens = indptr.back(), q_heads = heads.num_q_heads();
  Attended<TQ> result{std::vector<TQ>(q.size()),
                      std::vector<float>(static_cast<size_t>(tokens * q_heads))};
  Mirror here;
  const AttentionRun cpu{context_with(setting.threads), here};
  const AttentionRun& run = setting.run != nullptr ? *setting.run : cpu;
  const auto [kv, table] = cache.on(run.mirror);
  const TensorView o =
      run.mirror(host_view(result.o.data(), {tokens, q_heads, int64_t{heads.head_dim}}));
  const TensorView lse = run.mirror(host_view(result.lse.data(), {tokens, q_heads}));
  const ConstTensorView queries =
      run.mirror(ConstTensorView(host_view(q.data(), {tokens, q_heads, int64_t{heads.head_dim}})));
  if (setting.decode) {
    Workspace workspace = run.workspace(tokens, q_heads, heads.head_dim);
    batch_decode(run.with(workspace), o, lse, queries, kv, table, options);
  } else {
    const ConstTensorView starts = host_view(indptr.data(), {std::ssize(indptr)});
    batch_prefill(run.ctx, o, lse, queries, run.mirror(starts), kv, table, options);
  }
  run.mirror.back();
  return result;
}

}  // namespace heddle::testing
