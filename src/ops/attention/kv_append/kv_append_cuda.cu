#include "cuda/convert_cuda.h"
#include "cuda/early_launch.h"
#include "cuda/memory_cuda.h"

#include "core/math.h"
#include "ops/attention/kv_append/store_codes_cuda.h"

namespace heddle::cuda::attention {
namespace {

constexpr int kWarps = kAppendThreads / 32;
/// Blocks that a multiprocessor runs at once: else the functions that report wrong tables would
/// decide how many registers a kernel has.
constexpr int kAppendBlocks = 6;

__device__ inline const char* name_of_call(const KvAppendParams& p) {
  return p.seq_indptr.is_given() ? "kv_init" : "kv_append";
}

/// Where unit i of a token's key, or of its value, lies: a unit of head i / head_units.
struct ItemPlace {
  bool is_value;
  int head, unit;

  __device__ ItemPlace(const KvAppendParams& p, int i) {
    const int of_plane = p.num_kv_heads * p.head_units;
    is_value = i >= of_plane;
    const int rest = is_value ? i - of_plane : i;
    head = divide(rest, p.by_head_units);
    unit = rest - head * p.head_units;
  }
  [[nodiscard]] const __device__ std::byte* from(const KvAppendParams& p, int t) const {
    return is_value ? p.v + t * p.v_token + head * p.v_head : p.k + t * p.k_token + head * p.k_head;
  }
  [[nodiscard]] __device__ std::byte* to(const KvAppendParams& p, std::byte* key) const {
    return key + head * p.kv.head_step + (is_value ? p.kv.value_distance : 0);
  }
};

/// The work of a warp: token t, and of its units those that lanes have: first, first + step, ...
struct WarpWork {
  int t, first, step, end;

  __device__ explicit WarpWork(const KvAppendParams& p) {
    const int warp = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
    t = divide(warp, p.by_warps_per_token);
    first = (warp - t * p.warps_per_token) * 32 + static_cast<int>(threadIdx.x % 32);
    step = p.warps_per_token * 32;
    end = 2 * p.num_kv_heads * p.head_units;
  }
};

/// Stores the units of a warp; false where the tables are wrong, unless kAsks.
template <bool kAsks>
__device__ bool append_units(const KvAppendParams& p, const WarpWork& share) {
  NewToken token;
  OwnSequence own;
  if constexpr (kAsks) {
    token = ask_for_token(p, name_of_call(p), share.t);
  } else {
    own = OwnSequence(p, share.t);
  }
  uint4 data[kAppendItems];
#pragma unroll
  for (int u = 0; u < kAppendItems; ++u) {
    const int i = share.first + u * share.step;
    if (i >= share.end) continue;
    const ItemPlace place(p, i);
    data[u] = load_once_16(place.from(p, share.t) + place.unit * 16);
  }
  if constexpr (!kAsks) token = find_token(p, share.t, own);
  if (token.position < 0) return !token.is_wrong();
#pragma unroll
  for (int u = 0; u < kAppendItems; ++u) {
    const int i = share.first + u * share.step;
    if (i >= share.end) continue;
    const ItemPlace place(p, i);
    *reinterpret_cast<uint4*>(place.to(p, token.key) + place.unit * 16) = data[u];
  }
  return true;
}
/// A function, so that the kernel has no registers for it.
__device__ __noinline__ void append_units_asked(const KvAppendParams& p) {
  append_units<true>(p, WarpWork(p));
}

// cache[position of t] = k[t], v[t], 16 bytes at a time. Tokens and their parts in grid.x.
//
//   token   [keys of all heads | values of all heads], in units of 16 bytes
//     warp    warps_per_token of them share a token; nothing is shared between warps
//       lane    up to 4 units, 32 * warps_per_token apart
//
// The warp first asks where the token goes, then a lane asks for its units.
__global__ void __launch_bounds__(kAppendThreads, kAppendBlocks)
    append_vectors_kernel(const __grid_constant__ KvAppendParams p) {
  const WarpWork share(p);
  wait_for_predecessor();
  if (share.t >= p.num_tokens) return;
  if (!append_units<false>(p, share)) append_units_asked(p);
}

// The same element by element, from any dtype to any, with rows that begin anywhere.
__global__ void __launch_bounds__(kAppendThreads, kAppendBlocks)
    append_elements_kernel(const __grid_constant__ KvAppendParams p) {
  const WarpWork share(p);
  wait_for_predecessor();
  if (share.t >= p.num_tokens) return;
  NewToken token = find_token(p, share.t, OwnSequence(p, share.t));
  if (token.is_wrong()) token = ask_for_token(p, name_of_call(p), share.t);
  if (token.position < 0) return;
  for (int i = share.first; i < share.end; i += share.step) {
    const ItemPlace place(p, i);
    const std::byte* from = place.from(p, share.t);
    std::byte* to = place.to(p, token.key);
    if (p.from == p.to) {  // the bits, also of a NaN
      if (p.from == DType::kFloat32) {
        reinterpret_cast<uint32_t*>(to)[place.unit] =
            reinterpret_cast<const uint32_t*>(from)[place.unit];
      } else {
        reinterpret_cast<uint16_t*>(to)[place.unit] =
            reinterpret_cast<const uint16_t*>(from)[place.unit];
      }
      continue;
    }
    with_type(p.from, [&]<class From>(From) {
      with_type(p.to, [&]<class To>(To) {
        reinterpret_cast<To*>(to)[place.unit] =
            narrow<To>(widen(reinterpret_cast<const From*>(from)[place.unit]));
      });
    });
  }
}

/// Blocks of the kernel below that a multiprocessor runs at once, see kAppendBlocks.
constexpr int kCodeBlocks = 4;

// The same into a cache of f8e4m3: a warp takes a head of a key or value at a time, of one token.
__global__ void __launch_bounds__(kAppendThreads, kCodeBlocks)
    append_codes_kernel(const __grid_constant__ KvAppendParams p,
                        const __grid_constant__ KvScaleParams scales) {
  const int warp = static_cast<int>(blockIdx.x * kWarps + threadIdx.x / 32);
  const int t = divide(warp, p.by_warps_per_token);
  wait_for_predecessor();
  if (t >= p.num_tokens) return;
  NewToken token = find_token(p, t, OwnSequence(p, t));
  if (token.is_wrong()) token = ask_for_token(p, name_of_call(p), t);
  if (token.position < 0) return;
  for (int i = warp - t * p.warps_per_token; i < 2 * p.num_kv_heads; i += p.warps_per_token) {
    const bool is_value = i >= p.num_kv_heads;
    const int head = is_value ? i - p.num_kv_heads : i;
    const std::byte* from =
        is_value ? p.v + t * p.v_token + head * p.v_head : p.k + t * p.k_token + head * p.k_head;
    with_type(p.from, [&]<class From>(From) {
      store_codes(p.kv, scales, token, head, is_value, p.head_units,
                  [&](int d) { return widen(reinterpret_cast<const From*>(from)[d]); });
    });
  }
}

}  // namespace

void launch_kv_append(const ExecContext& ctx, const KvAppendParams& p, const KvScaleParams& scales,
                      const AppendChoice& choice) {
  const auto blocks = static_cast<unsigned>(ceil_div(p.num_tokens * p.warps_per_token, kWarps));
  if (choice.stores_codes) {
    launch_early<append_codes_kernel>(ctx, blocks, kAppendThreads, p, scales);
  } else if (choice.moves_vectors) {
    launch_early<append_vectors_kernel>(ctx, blocks, kAppendThreads, p);
  } else {
    launch_early<append_elements_kernel>(ctx, blocks, kAppendThreads, p);
  }
}

}  // namespace heddle::cuda::attention
