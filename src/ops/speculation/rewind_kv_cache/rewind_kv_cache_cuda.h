#pragma once

#include "cuda/warp.h"

#include "core/math.h"
#include "ops/speculation/rewind_kv_cache/rewind_kv_cache_kernels.h"
#include "ops/speculation/shared/drafts_cuda.h"
#include "ops/speculation/shared/select_kernel.h"

namespace heddle::cuda::speculation {

/// The cache of one request.
struct KvRow {
  int64_t offset, length, count, last_id;
};
/// What a rewind makes of it. Int: i64, or i32 where no value comes near its ends.
template <class Int>
struct BasicKvRewind {
  Int rejected;      // tokens
  Int crossed;       // blocks that end with them
  Int offset;        // of the last token, afterwards
  Int left;          // blocks in use, afterwards
  Int num_released;  // ids for the list
};
using KvRewind = BasicKvRewind<int64_t>;

/// Of the blocks that are released behind the last one, the first that the table has.
template <class Int>
[[nodiscard]] __device__ Int last_listed(Int count, Int max_blocks) {
  return count - 2 < max_blocks - 1 ? count - 2 : max_blocks - 1;
}
/// a / b, out of the way of kernels that hardly ever divide.
template <class Int>
[[nodiscard]] __device__ __noinline__ Int general_quotient(Int a, Int b) {
  return a / b;
}
/// Divides only where a rewind crosses more than one block, or the offset was wrong before.
template <class Int>
[[nodiscard]] __device__ BasicKvRewind<Int> plan_rewind(Int offset, Int count, Int rejected,
                                                        Int max_blocks, Int block_size) {
  const Int missing = rejected - offset;
  Int crossed = missing > 0 ? 1 : 0;
  if (missing > block_size) crossed = general_quotient<Int>(missing + block_size - 1, block_size);
  Int moved = crossed * block_size - missing;
  if (moved >= block_size) moved -= general_quotient<Int>(moved, block_size) * block_size;
  if (crossed == 0) return {rejected, 0, moved, count, 0};
  const Int left = count > crossed ? count - crossed : 0;
  const Int listed = last_listed<Int>(count, max_blocks) - left + 1;
  return {rejected, crossed, moved, left, Int{count > 0} + (listed > 0 ? listed : 0)};
}

/// KvBlocks.
struct DeviceKvBlocks {
  MutableIndexVector last_offset, length, count, last_id;  // [rows]
  MutableIndexRows ids;                                    // [rows, max_blocks]
  int64_t max_blocks, block_size;

  explicit DeviceKvBlocks(const KvBlocks& kv)
      : last_offset(on_device(kv.last_offset)),
        length(on_device(kv.length)),
        count(on_device(kv.count)),
        last_id(on_device(kv.last_id)),
        ids(on_device(kv.ids)),
        max_blocks(kv.max_blocks),
        block_size(kv.block_size) {}

  [[nodiscard]] __device__ KvRow load(int64_t i) const {
    return {last_offset[i], length[i], count[i], last_id[i]};
  }
  /// Asks for the ids about the last block of request i, which its rewind and its next step look
  /// at.
  __device__ void touch_ids(int64_t i, const KvRow& row) const {
    if (row.count < 1 || max_blocks < 1) return;
    touch(ids.row(i), (row.count < max_blocks ? row.count : max_blocks) - 1);
  }
  [[nodiscard]] __device__ KvRewind plan(const KvRow& row, int64_t rejected) const {
    return plan_rewind<int64_t>(row.offset, row.count, rejected, max_blocks, block_size);
  }
  [[nodiscard]] __device__ int64_t last_listed(const KvRow& row) const {
    return cuda::speculation::last_listed<int64_t>(row.count, max_blocks);
  }
};

/// Releases.
struct DeviceReleases {
  MutableIndexVector last_ids;  // [num_last_ids]
  DeviceMask<std::byte> mask;   // [mask_size]
  MutableIndexVector list;      // [capacity]
  MutableIndexVector list_size;
  int64_t num_last_ids, mask_size, capacity;

  explicit DeviceReleases(const Releases& r)
      : last_ids(on_device(r.last_ids)),
        mask(r.mask),
        list(on_device(r.list)),
        list_size(on_device(r.list_size)),
        num_last_ids(r.num_last_ids),
        mask_size(r.mask_size),
        capacity(r.capacity) {}

  __device__ void put(int64_t place, int64_t id) const {
    if (place < capacity) list.set(place, id);
  }
  /// What a row that is not active gets.
  __device__ void store_padding(int64_t i) const {
    if (i < num_last_ids) last_ids.set(i, 0);
    if (i < mask_size) mask.set(i, false);
  }
};

/// Writes the cache of request i after its rewind, and its released ids to places [place, ...) of
/// the list.
__device__ inline void store_rewind(const DeviceKvBlocks& kv, const DeviceReleases& out, int64_t i,
                                    const KvRow& row, const KvRewind& rewind, int64_t place) {
  if (rewind.offset != row.offset) kv.last_offset.set(i, rewind.offset);
  if (rewind.rejected != 0) kv.length.set(i, row.length - rewind.rejected);
  out.last_ids.set(i, row.last_id);
  out.mask.set(i, rewind.crossed > 0);
  if (rewind.crossed == 0) return;

  const MutableIndexVector ids = kv.ids.row(i);
  const int64_t last_entry = kv.max_blocks - 1, left = rewind.left;
  const int64_t new_last = left - 1 < last_entry ? left - 1 : last_entry;
  kv.count.set(i, left);
  kv.last_id.set(i, left > 0 && new_last >= 0 ? ids[new_last] : kNoBlock);
  if (row.count > 0) out.put(place++, row.last_id);
  for (int64_t b = kv.last_listed(row); b >= left; --b) out.put(place++, ids[b]);
  const int64_t used =
      row.count > 1 ? row.count : 1;  // entry 0 is cleared even without a block in use
  for (int64_t b = left; b < used && b <= last_entry; ++b) ids.set(b, kNoBlock);
  if (used > kv.max_blocks && last_entry >= 0) ids.set(last_entry, kNoBlock);
}

/// Threads of a block that keeps a list: it goes over the requests in tiles of so many.

/// Sums over the threads of a block in the order of the threads, one sum a tile.
class TileSums {
 public:
  /// Shared memory: two sets of totals, so that one barrier a tile suffices.
  struct Shared {
    int64_t warp_totals[2][kListThreads / 32];
  };
  __device__ explicit TileSums(Shared& shared) : shared_(shared) {}

  /// The sum of `n` over all threads before this one in all tiles so far. Every thread of the block
  /// calls it.
  [[nodiscard]] __device__ int64_t before(int64_t n) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    int64_t sum = n;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int64_t below = __shfl_up_sync(kAllLanes, sum, d);
      if (lane >= d) sum += below;
    }
    int64_t(&totals)[kListThreads / 32] = shared_.warp_totals[tile_ ^= 1];
    if (lane == 31) totals[warp] = sum;
    __syncthreads();
    int64_t place = total_ + sum - n;
    const int num_warps = static_cast<int>(blockDim.x / 32);
    for (int w = 0; w < num_warps; ++w) {
      const int64_t of_warp = totals[w];
      if (w < warp) place += of_warp;
      total_ += of_warp;
    }
    return place;
  }
  /// Of all tiles so far.
  [[nodiscard]] __device__ int64_t total() const { return total_; }

 private:
  Shared& shared_;
  int64_t total_ = 0;
  int tile_ = 0;
};

}  // namespace heddle::cuda::speculation
