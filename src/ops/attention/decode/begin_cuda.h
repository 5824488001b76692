#pragma once

// How a block of decode begins. On chips from 9.0 on it may do so while the kernel in front of it still runs, and that one may write the
// lengths and the page table. So the block deals the work and finds its first pages by what lies there: a guess. When the kernel in front
// has ended it asks for the first rows of q, keys and values, and reads lengths and pages again. If something has changed it begins anew.
// What a guess makes it read lies in the table and in the pool of pages, whatever the table says.

#include "ops/attention/decode/ring_cuda.h"

namespace heddle::cuda::attention::decode {

/// The rows of q of a run: heads of one token.
struct QueryRows {
  int64_t token, first_head;
  int count;

  __device__ QueryRows(const DecodeParams& p, const Run& run, int most) : token(run.seq) {
    const UnitRows rows = rows_of(p, run.unit);
    first_head = int64_t{rows.kv_head} * p.group_size + rows.first;
    count = min(p.group_size - rows.first, most);
  }
};

/// The place of vector number `place` of the rows in shared memory, where it comes from, and how many of its elements there are: none
/// behind the last row or the end of a row.
struct RowVector {
  std::byte* to;
  const std::byte* from;
  int there;
};
template <class Shape>
__device__ RowVector row_vector(const DecodeParams& p, const QueryRows& rows, int place,
                                std::byte* q) {
  constexpr int kVectors = Shape::kDim / 8;
  const int row = place / kVectors, vector = place % kVectors;
  return {q + vector_offset(row, vector, Shape::kRowBytes),
          p.q + (rows.token * p.q_token + (rows.first_head + row) * p.q_head + vector * 8) * 2,
          row < rows.count ? p.head_dim - vector * 8 : 0};
}

/// Copies rows of q to shared memory: where they begin at multiples of 16 bytes, the copies are on their way then, else they have ended.
template <class Shape>
__device__ void fetch_rows(const DecodeParams& p, const Run& run, std::byte* q) {
  constexpr int kPlaces = Shape::kRows * Shape::kDim / 8;
  const QueryRows rows(p, run, Shape::kRows);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < kPlaces; i += Shape::kThreads) {
    const RowVector v = row_vector<Shape>(p, rows, i, q);
    if (p.is_q_aligned) {
      copy_async_16(v.to, v.from, v.there > 0 ? 16 : 0);
    } else {
      copy_elements(v.to, v.from, v.there);
    }
  }
}

/// Brings element `i`, which may be behind the last one, to the L2 cache.
__device__ inline void prefetch_index(const IndexParams& a, int64_t i, int64_t count) {
  if (i < count) prefetch(a.data + i * a.stride * (a.is_wide ? 8 : 4));
}
/// Brings lengths and the page table near.
__device__ inline void fetch_tables(const DecodeParams& p) {
#if __CUDA_ARCH__ >= 900
  constexpr int64_t kEntriesOfLine = 16;  // or more
  const int64_t thread = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  prefetch_index(p.kv.page_indptr, thread, p.num_seqs + 1);
  prefetch_index(p.kv.last_page_len, thread, p.num_seqs);
  prefetch_index(p.kv.pages, thread * kEntriesOfLine, p.num_pages);
#endif
}

/// Whether what a warp was to read first are pages of the pool. All lanes call.
__device__ inline bool are_of_pool(const DecodeParams& p, const FirstPages& first) {
  bool are = true;
  for (const AskedPage& page : first.of_batch) {
    are &= page.entry < 0 || (page.id >= 0 && page.id < p.kv.pool_pages);
  }
  return __all_sync(~0u, are) != 0;
}

/// What the table says now of a thread's sequence and its first pages.
struct TableWords {
  SequenceWords sequence;
  IndexWords pages[2];
};
__device__ inline TableWords ask_again(const DecodeParams& p, const FirstPages& first) {
  TableWords now{};
  if (static_cast<int>(threadIdx.x) < p.num_seqs) {
    now.sequence = ask_sequence(p.kv, threadIdx.x);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    if (first.of_batch[i].entry >= 0) {
      now.pages[i] = ask_index(p.kv.pages, first.of_batch[i].entry);
    }
  }
  return now;
}
template <int kWarps>
__device__ bool is_unchanged(const DecodeParams& p, const Schedule<kWarps>& share,
                             const FirstPages& first, const TableWords& now) {
  bool is_unchanged = true;
  if (static_cast<int>(threadIdx.x) < p.num_seqs) {
    const SequencePages pages = sequence_pages(p.kv, now.sequence);
    const SequenceCut& cut = share.cuts[threadIdx.x];
    is_unchanged = pages.first_page == cut.first_page && pages.kv_len == cut.kv_len;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const AskedPage& page = first.of_batch[i];
    is_unchanged &= page.entry < 0 || join_index(p.kv.pages, now.pages[i]) == page.id;
  }
  return is_unchanged;
}

/// Waits for the kernel in front, sets the share of the block, and asks for the first rows of q, keys and values. All threads call.
template <class Shape>
__device__ BlockWork begin_work(const DecodeParams& p, uint32_t block, DecodeShared<Shape>& s,
                                RunWalk<Shape::kWarps, 1, 2>& walk, PartRing<Shape>& ring) {
#if __CUDA_ARCH__ >= 900
  bool is_speculative = p.can_start_on_stale_table;
#else
  bool is_speculative = false;
#endif
  if (!is_speculative) fetch_tables(p);
#pragma unroll 1
  while (true) {
    if (!is_speculative) wait_for_predecessor();
    const BlockWork share = partition_work(p, block, gridDim.x, is_speculative, s.work);
    FirstPages first;
    if (share == BlockWork::kSegments) {
      walk.start();
      first = ring.start();
    }
    const bool is_in_pool = !is_speculative || are_of_pool(p, first);
    TableWords now;
    if (is_speculative) {
      wait_for_predecessor();
      now = ask_again(p, first);  // not behind the copies, which would hold it up
    }
    if (share == BlockWork::kSegments && is_in_pool) {
      fetch_rows<Shape>(p, walk.run(), s.q[0]);
      commit_copies();
      ring.begin();
    }
    if (!is_speculative || __syncthreads_and(is_in_pool && is_unchanged(p, s.work, first, now)))
      return share;
    wait_for_copies<0>();
    __syncthreads();
    is_speculative = false;
  }
}

}  // namespace heddle::cuda::attention::decode
