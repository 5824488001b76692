#include <cmath>
#include <type_traits>

#include "cuda/begin_early_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"
#include "cuda/rotate_vectors_cuda.h"

#include "ops/attention/kv_append/store_codes_cuda.h"

namespace heddle::cuda::attention {
namespace {

/// Elements on their way into the cache: as they are, or rounded to its dtype where they come one
/// by one.
template <class T, int kVec>
__device__ void store_in_cache(const KvAppendParams& p, std::byte* row, int first,
                               const Elements<T, kVec>& v) {
  if constexpr (kVec > 1) {
    store_elements(row, first, v);
  } else if (p.from == p.to) {
    store_elements(row, first, v);
  } else {
    with_type(p.to, [&]<class To>(To) {
      reinterpret_cast<To*>(row)[first] = narrow<To>(widen(v.at[0]));
    });
  }
}

/// Makes the heads of q of row t NaN. By all threads of the block.
template <class T>
__device__ __noinline__ void poison_heads(const RopeAppendParams& r, int64_t t, int head_dim) {
  std::byte* const q = r.q + t * r.q_token;
  for (int i = static_cast<int>(threadIdx.x); i < r.num_q_heads * head_dim;
       i += static_cast<int>(blockDim.x)) {
    reinterpret_cast<T*>(q + i / head_dim * r.q_head)[i % head_dim] = narrow<T>(NAN);
  }
}

/// In place of KvScaleParams where elements are stored, not codes.
struct NoScales {};
template <class Scales>
inline constexpr bool kStoresCodes = std::is_same_v<Scales, KvScaleParams>;
template <class Scales>
inline constexpr int kMaxThreads =
    kStoresCodes<Scales> ? kMaxRopeCodesThreads : kMaxRopeAppendThreads;
/// Blocks of so many threads that a multiprocessor runs at once.
template <class Scales>
inline constexpr int kRopeBlocks = kStoresCodes<Scales> ? 3 : 4;

/// All that a kernel takes.
template <class Scales>
struct RopeAppend {
  const KvAppendParams& p;
  const Scales& scales;
  const RopeAppendParams& r;
  const RowPartition& partition;
  const RotaryFrequencies& f;
};

/// Stores the codes of the keys, rotated and rounded to T, and of the values of row t. A warp takes
/// a head at a time.
template <class T>
__device__ void append_codes(const RopeAppend<KvScaleParams>& call, int t, const NewToken& token,
                             const SharedTurns& shared) {
  const KvAppendParams& p = call.p;
  const int num_pairs = call.f.num_pairs, num_warps = static_cast<int>(blockDim.x) / 32;
  for (int i = static_cast<int>(threadIdx.x) / 32; i < 2 * p.num_kv_heads; i += num_warps) {
    const bool is_value = i >= p.num_kv_heads;
    const int head = is_value ? i - p.num_kv_heads : i;
    const auto* x = reinterpret_cast<const T*>(is_value ? p.v + t * p.v_token + head * p.v_head
                                                        : p.k + t * p.k_token + head * p.k_head);
    const int num_turned = is_value ? 0 : 2 * num_pairs;
    store_codes(p.kv, call.scales, token, head, is_value, p.head_units, [&](int d) {
      if (d >= num_turned) return widen(x[d]);
      const int pair = d < num_pairs ? d : d - num_pairs;
      const float2 turned = rotate(widen(x[pair]), widen(x[pair + num_pairs]),
                                   CosSin{shared.cos[pair], shared.sin[pair]});
      return widen(narrow<T>(d < num_pairs ? turned.x : turned.y));
    });
  }
}

/// Stores the token of a block; false where the tables are wrong, unless kAsks.
template <class T, int kVec, bool kAsks, class Scales>
__device__ bool append_row(const RopeAppend<Scales>& call, SharedTurns& shared) {
  constexpr bool kCodes = kStoresCodes<Scales>;
  const auto& [p, scales, r, partition, f] = call;
  const auto t = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x), num_pairs = f.num_pairs;
  const int my_row = divide(thread, partition.by_threads_per_row);
  const int pair = (thread - my_row * partition.threads_per_row) * kVec;
  const int num_heads = r.num_q_heads + (kCodes ? 0 : p.num_kv_heads);
  const int num_rows = my_row < partition.rows_at_once ? num_heads : 0;
  std::byte* q = r.q + t * r.q_token;
  const std::byte *k = p.k + t * p.k_token, *v = p.v + t * p.v_token;
  const auto row_from = [&](int row) -> const std::byte* {
    return row < r.num_q_heads ? q + row * r.q_head : k + (row - r.num_q_heads) * p.k_head;
  };
  const int head_units = p.head_units, num_units = kCodes ? 0 : p.num_kv_heads * head_units;
  const auto value_unit = [&](int i, int& head) {
    head = divide(i, partition.by_head_units);
    return (i - head * head_units) * kVec;
  };

  NewToken token;
  int64_t stale_position = 0;
  EarlyEntry early;
  if constexpr (kAsks) {
    token = ask_for_token(p, "rope_kv_append", t);
  } else if (r.is_speculative) {
    const StaleToken stale(p, t);
    stale.bring_near(p);
    stale_position = r.positions.is_given()
                         ? load_given<load_changing_word_if>(r.positions, t).value()
                         : int64_t{stale.position};
    shared.put(stale_position, f);
    wait_for_predecessor();
    early = stale.ask(p);
  } else {
    wait_for_predecessor();
  }
  LoadedIndex asked_position;
  if (r.positions.is_given()) asked_position = load_given(r.positions, t);
  int row = my_row, head = 0;
  // The last row in place of one that there is not: as a branch the load would be waited for.
  const auto load_row = [&](int wanted) {
    return ElementPairs<T, kVec>(row_from(min(wanted, num_heads - 1)), pair, num_pairs);
  };
  ElementPairs<T, kVec> pairs, next;
  if constexpr (kCodes) {  // of q, which may be absent
    if (row < num_rows) pairs = load_row(row);
  } else {
    pairs = load_row(row);
    next = load_row(row + partition.rows_at_once);
  }
  OwnSequence own;
  if constexpr (!kAsks) own = OwnSequence(p, t);
  Elements<T, kVec> value;
  const int first_unit = value_unit(thread, head);
  if (thread < num_units) value = load_elements<T, kVec>(v + head * p.v_head, first_unit);

  if constexpr (!kAsks) token = find_token(p, t, own, early);
  if (token.position < 0) {
    if (kAsks && token.is_wrong()) poison_heads<T>(r, t, head_units * (kCodes ? 1 : kVec));
    return !token.is_wrong();
  }
  if (thread < num_units) {
    store_in_cache(p, token.key + p.kv.value_distance + head * p.kv.head_step, first_unit, value);
  }
  const int64_t position =
      r.positions.is_given() ? r.positions.value_of(asked_position) : int64_t{token.position};
  // Threads may have seen different tables: together they know whether the angles are right.
  const bool is_speculative = !kAsks && r.is_speculative;
  if (!is_speculative || __syncthreads_or(position != stale_position ? 1 : 0) != 0) {
    shared.fill(position, f);
  }
  if (row < num_rows) {
    CosSin turns[kVec];
    shared.read(pair, turns);
    while (true) {
      pairs.turn(turns);
      if (row < r.num_q_heads) {
        pairs.store(q + row * r.q_head, pair, num_pairs);
      } else {
        std::byte* to = token.key + (row - r.num_q_heads) * p.kv.head_step;
        store_in_cache(p, to, pair, pairs.a);
        store_in_cache(p, to, pair + num_pairs, pairs.b);
      }
      row += partition.rows_at_once;
      if (row >= num_rows) break;
      pairs = kCodes ? load_row(row) : next;
      if constexpr (!kCodes) next = load_row(row + partition.rows_at_once);
    }
  }
  if constexpr (kCodes) append_codes<T>(call, t, token, shared);
  for (int i = thread; i < num_units; i += static_cast<int>(blockDim.x)) {
    const int element = value_unit(i, head);
    if (element >= 2 * num_pairs) {  // what of a key does not turn
      store_in_cache(p, token.key + head * p.kv.head_step, element,
                     load_elements<T, kVec>(k + head * p.k_head, element));
    }
    if (i == thread) continue;
    store_in_cache(p, token.key + p.kv.value_distance + head * p.kv.head_step, element,
                   load_elements<T, kVec>(v + head * p.v_head, element));
  }
  return true;
}
/// A function, so that the kernel has no registers for it.
template <class T, int kVec, class Scales>
__device__ __noinline__ void append_row_asked(const KvAppendParams& p, const Scales& scales,
                                              const RopeAppendParams& r,
                                              const RowPartition& partition,
                                              const RotaryFrequencies& f, SharedTurns& shared) {
  append_row<T, kVec, true>(RopeAppend<Scales>{p, scales, r, partition, f}, shared);
}

// q[t][h] and k[t][h] rotated by the token's position: q in place, k and v into the cache. T: dtype
// of q, k and v.
//
//   block    one token (grid.x); it computes the angles of the token once, in shared memory
//     row      a head of q, or of k; threads_per_row threads, kVec pairs each
//       thread   the same pairs of every rows_at_once-th row, then units of v and what stays
//
// Into a cache of f8e4m3 the rows are heads of q alone, after which a warp takes a head of k or v
// at a time.
//
// What can be had before the kernel in front has ended is: position and page by what the tables say
// by then, and the angles. After it a thread asks for its first row, its first value and these
// tables at once, and where they have changed finds position and page anew. Of many tokens most
// blocks begin after that kernel: a speculative start would only delay what they ask for.
template <class T, int kVec, class Scales>
__global__ void __launch_bounds__(kMaxThreads<Scales>, kRopeBlocks<Scales>)
    rope_append_kernel(const __grid_constant__ KvAppendParams p,
                       const __grid_constant__ RopeAppendParams r,
                       const __grid_constant__ RowPartition partition,
                       const __grid_constant__ RotaryFrequencies f,
                       const __grid_constant__ Scales scales) {
  __shared__ SharedTurns shared;
  trigger_dependents();
  fetch_parameters(p);
  fetch_parameters(r);
  fetch_parameters(partition);
  if (append_row<T, kVec, false>(RopeAppend<Scales>{p, scales, r, partition, f}, shared)) return;
  append_row_asked<T, kVec>(p, scales, r, partition, f, shared);
}

}  // namespace

namespace {

template <class Scales>
void launch_with(const ExecContext& ctx, const KvAppendParams& p, const Scales& scales,
                 const RopeAppendParams& rope, const RowPartition& rows,
                 const RotaryFrequencies& frequencies, const AppendChoice& choice) {
  const auto blocks = static_cast<unsigned>(p.num_tokens);
  const auto threads = static_cast<unsigned>(choice.threads);
  const auto launch = [&]<class T, int kVec>(std::integral_constant<int, kVec>, T) {
    launch_early<rope_append_kernel<T, kVec, Scales>>(ctx, blocks, threads, p, rope, rows,
                                                      frequencies, scales);
  };
  const auto of_type = [&]<class T>(T of) {
    if (choice.moves_vectors) {
      launch(std::integral_constant<int, 16 / sizeof(T)>{}, of);
    } else {
      launch(std::integral_constant<int, 1>{}, of);
    }
  };
  switch (p.from) {
    case DType::kFloat16: return of_type(__half{});
    case DType::kBFloat16: return of_type(__nv_bfloat16{});
    default: return of_type(float{});
  }
}

}  // namespace

void launch_rope_kv_append(const ExecContext& ctx, const KvAppendParams& p,
                           const KvScaleParams& scales, const RopeAppendParams& rope,
                           const RowPartition& rows, const RotaryFrequencies& frequencies,
                           const AppendChoice& choice) {
  if (choice.stores_codes) return launch_with(ctx, p, scales, rope, rows, frequencies, choice);
  launch_with(ctx, p, NoScales{}, rope, rows, frequencies, choice);
}

}  // namespace heddle::cuda::attention
