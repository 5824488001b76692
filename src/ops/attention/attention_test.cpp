#include <functional>

#include <gtest/gtest.h>

#include "heddle/core/dispatch.h"
#include "heddle/core/error.h"

#include "attention_cases.h"
#include "attention_ref.h"
#include "isa.h"

namespace heddle {
namespace {

using testing::CacheShape;
using testing::PagedCache;
using testing::PageLayout;
using testing::pick;
using testing::PoisonedBuffer;
using testing::random_int;

/// Everything that may differ from call to call.
struct Case {
  CacheShape cache;
  int group_size = 1;
  bool decode = false, with_lse = true;
  std::vector<int64_t> q_lens, kv_lens;
  AttentionOptions options;
  int64_t q_gap = 0, o_gap = 0, lse_gap = 0, rows_before = 0, rows_behind = 0;

  [[nodiscard]] int64_t num_q_heads() const { return int64_t{group_size} * cache.num_kv_heads; }
};

std::ostream& operator<<(std::ostream& os, const Case& c) {
  os << "heads " << c.cache.num_kv_heads << " x " << c.group_size << " head_dim "
     << c.cache.head_dim << " page_size " << c.cache.page_size << " layout "
     << static_cast<int>(c.cache.layout) << (c.decode ? " decode" : " prefill") << " causal "
     << c.options.causal << " window " << c.options.window_left << " cap "
     << c.options.logits_soft_cap << " rope " << c.options.rope.has_value() << " q/kv";
  for (size_t i = 0; i < c.q_lens.size(); ++i) os << " " << c.q_lens[i] << "/" << c.kv_lens[i];
  return os;
}

AttentionOptions random_options(int head_dim) {
  AttentionOptions options;
  if (random_int(0, 2) == 0) options.sm_scale = pick({0.05f, 0.2f});
  options.causal = random_int(0, 3) != 0;
  options.window_left = pick<int64_t>({-1, -1, 0, 1, random_int(2, 150)});
  options.logits_soft_cap = pick({0.0f, 0.0f, 2.0f, 30.0f});
  if (head_dim >= 2 && random_int(0, 2) == 0) {
    RopeParams rope{.theta = pick({1e4, 5e5}), .scale = pick({1.0, 4.0})};
    rope.rotary_dim = 2 * static_cast<int>(random_int(head_dim % 2, head_dim / 2));
    if (random_int(0, 3) == 0) rope.llama3 = Llama3RopeScaling{.original_max_position = 100.0};
    options.rope = rope;
  }
  return options;
}

Case random_case() {
  Case c;
  c.cache.num_kv_heads = static_cast<int>(random_int(1, 3));
  c.cache.head_dim =
      static_cast<int>(pick<int64_t>({16, 32, 64, 64, 80, 96, 112, 128, 256, random_int(1, 256)}));
  c.cache.page_size = static_cast<int>(pick<int64_t>({1, 2, 16, 64, random_int(1, 70)}));
  c.cache.layout = pick({PageLayout::kHeadMajor, PageLayout::kTokenMajor,
                         PageLayout::kSeparateKeysAndValues, PageLayout::kPointers});
  c.cache.wide_indices = pick({false, true});
  c.cache.gap = c.cache.layout == PageLayout::kPointers ? 0 : static_cast<int>(random_int(0, 3));
  c.group_size = static_cast<int>(pick<int64_t>({1, 2, 3, 4, 7, 8, 9, random_int(1, 16)}));
  c.decode = random_int(0, 2) == 0;
  c.with_lse = random_int(0, 3) != 0;
  for (int64_t i = random_int(0, 4); i > 0; --i) {
    c.kv_lens.push_back(pick<int64_t>({0, 1, random_int(1, 40), random_int(1, 200), 64, 65}));
    c.q_lens.push_back(c.decode ? 1
                                : pick<int64_t>({0, 1, 1, c.kv_lens.back() % 50, random_int(1, 30),
                                                 c.kv_lens.back() % 40 + 3}));
  }
  c.options = random_options(c.cache.head_dim);
  c.q_gap = random_int(0, 3);
  c.o_gap = random_int(0, 3);
  c.lse_gap = random_int(0, 2);
  if (!c.decode) {
    c.rows_before = random_int(0, 2);
    c.rows_behind = random_int(0, 2);
  }
  return c;
}

/// A [rows, heads, head_dim] view with gaps behind each head and each row.
template <class Byte>
BasicTensorView<Byte> gapped(Byte* data, DType dtype, int64_t rows, int64_t heads, int64_t dim,
                             int64_t gap) {
  const std::array<int64_t, 3> shape{rows, heads, dim};
  const std::array<int64_t, 3> strides{heads * (dim + gap) + gap, dim + gap, 1};
  return {data, dtype, {}, shape, strides};
}

template <class TQ, class TKV>
class CaseCheck {
 public:
  explicit CaseCheck(const Case& c)
      : c_(c),
        indptr_(testing::starts_of(c.q_lens, c.rows_before)),
        cache_(c.cache, c.kv_lens),
        rows_(indptr_.back() + c.rows_behind) {
    const int64_t dim = c.cache.head_dim, kv_row = c.cache.num_kv_heads * dim;
    q_ = testing::random_normal<TQ>(static_cast<size_t>(row_elements(c.q_gap) * rows_));
    for (size_t i = 0; i < c.kv_lens.size(); ++i) {
      const auto k = testing::random_normal<TKV>(static_cast<size_t>(c.kv_lens[i] * kv_row));
      const auto v = testing::random_normal<TKV>(static_cast<size_t>(c.kv_lens[i] * kv_row));
      cache_.fill(static_cast<int64_t>(i), k, v);
      reference_sequence(static_cast<int64_t>(i), testing::to_double(k), testing::to_double(v));
    }
  }

  /// Runs the op on the current target and compares every element of its outputs.
  void run(ThreadPool* threads) {
    const int64_t dim = c_.cache.head_dim, heads = c_.num_q_heads();
    PoisonedBuffer<TQ> o(static_cast<size_t>(row_elements(c_.o_gap) * rows_));
    PoisonedBuffer<float> lse(static_cast<size_t>((heads + c_.lse_gap) * rows_));
    const TensorView o_view =
        gapped(reinterpret_cast<std::byte*>(o.data()), kDType<TQ>, rows_, heads, dim, c_.o_gap);
    const ConstTensorView q_view = gapped(reinterpret_cast<const std::byte*>(q_.data()), kDType<TQ>,
                                          rows_, heads, dim, c_.q_gap);
    TensorView lse_view;
    if (c_.with_lse) lse_view = lse.view({rows_, heads + c_.lse_gap}).narrow(1, 0, heads);
    const ExecContext ctx = testing::context_with(threads);
    if (c_.decode) {
      batch_decode(ctx, o_view, lse_view, q_view, cache_.kv(), cache_.table(), c_.options);
    } else {
      const std::vector<int32_t> narrow(indptr_.begin(), indptr_.end());
      const auto n = static_cast<int64_t>(indptr_.size());
      batch_prefill(
          ctx, o_view, lse_view, q_view,
          c_.cache.wide_indices ? host_view(narrow.data(), {n}) : host_view(indptr_.data(), {n}),
          cache_.kv(), cache_.table(), c_.options);
    }
    compare(o, lse);
  }

 private:
  [[nodiscard]] int64_t row_elements(int64_t gap) const {
    return c_.num_q_heads() * (c_.cache.head_dim + gap) + gap;
  }

  void reference_sequence(int64_t seq, const std::vector<double>& k, const std::vector<double>& v) {
    const int dim = c_.cache.head_dim;
    const int64_t q_len = c_.q_lens[size_t(seq)], kv_len = c_.kv_lens[size_t(seq)];
    AttentionOptions options = c_.options;
    options.causal = options.causal || c_.decode;
    for (int64_t r = 0; r < q_len; ++r) {
      for (int64_t h = 0; h < c_.num_q_heads(); ++h) {
        std::vector<double> q;
        const int64_t at =
            (indptr_[size_t(seq)] + r) * row_elements(c_.q_gap) + h * (dim + c_.q_gap);
        for (int d = 0; d < dim; ++d) q.push_back(to_float(q_[size_t(at + d)]));
        want_.push_back(ref::attention(q.data(), kv_len - q_len + r, k, v, kv_len,
                                       c_.cache.num_kv_heads, static_cast<int>(h / c_.group_size),
                                       dim, options));
      }
    }
  }

  void compare(const PoisonedBuffer<TQ>& o, const PoisonedBuffer<float>& lse) {
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
          const double rounding = 1.01 * testing::kRounding<TQ> * std::abs(want.o[d]);
          ASSERT_LE(error, rounding + 1e-5) << got << " for " << want.o[d] << ", row " << row;
        }
        if (!c_.with_lse) continue;
        const auto lse_at = static_cast<size_t>(t * (heads + c_.lse_gap) + h);
        lse_written[lse_at] = true;
        if (std::isinf(want.lse)) {
          ASSERT_EQ(lse[lse_at], want.lse);
        } else {
          ASSERT_LE(std::abs(lse[lse_at] - want.lse), 1e-5 * std::max(1.0, std::abs(want.lse)));
        }
      }
    }
    for (size_t i = 0; i < o.size(); ++i) ASSERT_TRUE(written[i] || o.untouched(i));
    for (size_t i = 0; i < lse.size(); ++i) ASSERT_TRUE(lse_written[i] || lse.untouched(i));
    ASSERT_TRUE(o.guards_intact() && lse.guards_intact());
  }

  Case c_;
  std::vector<int64_t> indptr_;
  PagedCache<TKV> cache_;
  int64_t rows_;
  std::vector<TQ> q_;
  std::vector<ref::AttentionRow> want_;
};

template <class TQ, class TKV>
void check_random_case(ThreadPool* pool) {
  const Case c = random_case();
  SCOPED_TRACE(::testing::Message() << c << " q " << kDType<TQ> << " cache " << kDType<TKV>);
  CaseCheck<TQ, TKV> check(c);
  for (const int64_t target : testing::cpu_targets()) {
    SCOPED_TRACE(testing::cpu_target_name(target));
    const testing::ScopedCpuTarget scope(target);
    check.run(pick<ThreadPool*>({nullptr, pool}));
  }
}

// A few hundred draws from everything that the contract allows, against the definition in double. What lies around the
// keys and values of a sequence (gaps, slots past its end, other pages) is NaN; unused entries of the table are wild.
TEST(Attention, AgreesWithTheDefinition) {
  ThreadPool pool(3);
  for (int round = 0; round < 300 && !HasFatalFailure(); ++round) {
    dispatch_dtype<float, half, bfloat16>(
        pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), "q", [&]<class TQ>() {
          dispatch_dtype<float, half, bfloat16>(
              pick({DType::kFloat32, DType::kFloat16, DType::kBFloat16}), "cache",
              [&]<class TKV>() { check_random_case<TQ, TKV>(&pool); });
        });
  }
}

// Two keys, one query: softmax of (ln 3, 0) is (3/4, 1/4).
TEST(Attention, HandComputedCase) {
  const testing::HeadShape heads{1, 1, 1};
  const std::vector<testing::Sequence<float, float>> sequences{
      {1, 2, {1.0f}, {1.0986122887f, 0.0f}, {8.0f, 4.0f}}};
  const auto got = testing::attend(heads, sequences, {}, {.sm_scale = 1.0f});
  EXPECT_FLOAT_EQ(got.o[0], 7.0f);
  EXPECT_FLOAT_EQ(got.lse[0], 1.3862943611f);  // ln 4
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Attention, NamesWhatIsWrong) {
  PagedCache<float> cache({.num_kv_heads = 2, .head_dim = 4, .page_size = 8}, {9, 3});
  const PagedKv kv = cache.kv();
  const PageTable table = cache.table();
  std::vector<float> data(1000);
  const TensorView o = host_view(data.data(), {5, 6, 4});
  const std::vector<int32_t> indptr{0, 3, 5}, too_long{0, 3, 6};
  auto prefill = [&](const TensorView& out, const TensorView& lse, const ConstTensorView& q,
                     const std::vector<int32_t>& q_indptr, const AttentionOptions& options) {
    return message([&] {
      const auto n = static_cast<int64_t>(q_indptr.size());
      batch_prefill({}, out, lse, q, host_view(q_indptr.data(), {n}), kv, table, options);
    });
  };
  const TensorView lse = host_view(data.data(), {5, 6});
  EXPECT_EQ(prefill(o, lse, host_view(data.data(), {5, 5, 4}), indptr, {}),
            "o.size(1) is 6, expected num_q_heads = 5");
  EXPECT_EQ(prefill(host_view(data.data(), {5, 5, 4}), lse, host_view(data.data(), {5, 5, 4}),
                    indptr, {}),
            "q.size(1) is 5, expected a multiple of the cache's num_kv_heads = 2");
  EXPECT_EQ(prefill(o, host_view(data.data(), {4, 6}), o, indptr, {}),
            "lse.size(0) is 4, expected num_tokens = 5");
  EXPECT_EQ(prefill(o, lse, o, too_long, {}),
            "q_indptr[2] is 6, expected at least q_indptr[1] = 3 and at most num_tokens = 5");
  EXPECT_EQ(prefill(o, lse, o, indptr, {.rope = RopeParams{.rotary_dim = 3}}),
            "options.rope: rotary_dim is 3, expected an even number up to head_dim = 4");
  EXPECT_EQ(prefill(o, lse, o, indptr, {.window_left = -2}),
            "options.window_left is -2, expected >= -1");
  EXPECT_EQ(message([&] { batch_decode({}, o, lse, o, kv, table); }),
            "q.size(0) is 5, expected num_seqs = 2");
  PagedCache<float> wide({.num_kv_heads = 1, .head_dim = 257, .page_size = 8}, {1});
  const TensorView row = host_view(data.data(), {1, 1, 257});
  EXPECT_EQ(message([&] { batch_decode({}, row, {}, row, wide.kv(), wide.table()); }),
            "head_dim is 257, supported: up to 256");
}

}  // namespace
}  // namespace heddle
