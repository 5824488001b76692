#pragma once

// Where a row of new tokens goes: the sequence it belongs to, its position there, and the page.

#include "core/math.h"
#include "ops/attention/kv_append/kv_append_cuda_params.h"
#include "ops/attention/paged/paged_kv_cuda.h"

namespace heddle::cuda::attention {

/// The rows of a sequence.
struct NewRows {
  int64_t begin, end;

  __device__ NewRows(int64_t its_begin, int64_t its_end) : begin(its_begin), end(its_end) {}
  __device__ NewRows(const KvAppendParams& p, int64_t seq)
      : NewRows(p.seq_indptr[seq], p.seq_indptr[seq + 1]) {}
  [[nodiscard]] __device__ bool has(int t) const { return begin <= t && t < end; }
  [[nodiscard]] __device__ bool are_wrong(const KvAppendParams& p) const {
    return begin < 0 || begin > end || end > p.num_tokens;
  }
};

/// The last sequence of [0, num_seqs) that begins at or before row t; -1 where the first begins
/// after it. in_order becomes false where starts that descend have been seen. By all lanes of a
/// warp for the same t, 32 candidates a load.
__device__ inline int find_sequence(const ConstIndexVector& seq_indptr, int num_seqs, int t,
                                    bool& in_order) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int low = 0, count = num_seqs;
  do {
    const int step = ceil_div(count, 32), candidate = lane * step;
    const bool is_before = candidate < count && seq_indptr[low + candidate] <= t;
    const unsigned all_before = __ballot_sync(~0u, is_before);
    in_order &= (all_before & (all_before + 1)) == 0;
    const int num_before = __popc(all_before);
    if (num_before == 0) return -1;
    const int skipped = (num_before - 1) * step;
    low += skipped;
    count = min(step, count - skipped);
  } while (count > 1);
  return low;
}

struct NewToken {
  static constexpr int kNone = -1, kWrong = -2;

  int position = kNone;      // kNone: the row is not stored; kWrong: since the tables are wrong
  std::byte* key = nullptr;  // of head 0
  int64_t page = 0;          // what the table says
  int slot = 0;              // of the page

  [[nodiscard]] __device__ bool is_wrong() const { return position == kWrong; }
};

/// An entry of the page table that was loaded before it is known to be wanted; -1: none was.
struct EarlyEntry {
  int64_t entry = -1;
  LoadedIndex id{};
};

/// Where the last token of sequence t goes by tables that the kernel in front may still write.
struct StaleToken {
  int64_t entry = -1;  // of the table, in which it lies whatever is written; -1: unknown
  int position = NewToken::kNone;

  __device__ StaleToken(const KvAppendParams& p, int t);
  /// Has the entry brought into the L2 cache: since the last layer weights have taken its place.
  __device__ void bring_near(const KvAppendParams& p) const {
    if (entry >= 0) prefetch(p.kv.pages.address(entry));
  }
  /// Asks, after the wait, without waiting for an answer.
  [[nodiscard]] __device__ EarlyEntry ask(const KvAppendParams& p) const {
    if (entry < 0) return {};
    return {entry, load_given(p.kv.pages, entry)};
  }
};

/// Where the row goes that is `from_end` rows before the end of its sequence.
__device__ inline NewToken place_token(const KvAppendParams& p, const SequencePages& pages,
                                       int from_end, const EarlyEntry& early = {}) {
  if (pages.is_wrong()) return {NewToken::kWrong};
  const int position = pages.kv_len - from_end;
  if (from_end <= 0 || position < 0) return {};
  const PageSlot at = page_slot(p.kv, position);
  const int64_t entry = pages.first_page + at.page;
  const int64_t id = entry == early.entry ? p.kv.pages.value_of(early.id) : p.kv.pages[entry];
  if (!is_page(p.kv, id)) return {NewToken::kWrong};
  return {position, page_address(p.kv, id) + row_offset(p.kv, 0, at.slot), id, at.slot};
}

/// What sequence t says: where there are as many rows as sequences, each may well have one.
struct OwnSequence {
  SequenceWords words;
  LoadedIndex begin, end;  // of its rows, where sequences have starts

  OwnSequence() = default;
  /// Asks, without waiting for an answer.
  __device__ OwnSequence(const KvAppendParams& p, int t) {
    if (!is_asked(p)) return;
    words = ask_sequence(p.kv, t);
    if (!p.seq_indptr.is_given()) return;
    begin = load_given(p.seq_indptr, t);
    end = load_given(p.seq_indptr, t + 1);
  }
  [[nodiscard]] static __device__ bool is_asked(const KvAppendParams& p) {
    return !p.seq_indptr.is_given() || p.num_tokens == p.num_seqs;
  }
};

__device__ inline StaleToken::StaleToken(const KvAppendParams& p, int t) {
  if (!OwnSequence::is_asked(p)) return;
  const SequencePages pages = stale_pages(p.kv, t);
  if (pages.kv_len == 0) return;
  position = pages.kv_len - 1;
  entry = pages.first_page + page_slot(p.kv, position).page;
}

/// By all lanes of a warp for the same row t of [0, num_tokens). Where something is wrong,
/// ask_for_token() has the answer.
__device__ inline NewToken find_token(const KvAppendParams& p, int t, const OwnSequence& own,
                                      const EarlyEntry& early = {}) {
  SequenceWords words = own.words;
  int from_end = 1;  // rows from t to the end of its sequence, where nothing is wrong
  if (p.seq_indptr.is_given()) {
    bool is_found = false, is_wrong = false;
    if (OwnSequence::is_asked(p)) {
      const NewRows rows(p.seq_indptr.value_of(own.begin), p.seq_indptr.value_of(own.end));
      is_found = rows.has(t);
      is_wrong = rows.are_wrong(p);
      from_end = static_cast<int>(rows.end) - t;
    }
    if (!is_found) {
      bool in_order = true;
      const int seq = find_sequence(p.seq_indptr, p.num_seqs, t, in_order);
      const NewRows rows(p, max(seq, 0));
      is_wrong |= !in_order || rows.are_wrong(p);
      if (seq < 0) return {is_wrong ? NewToken::kWrong : NewToken::kNone};
      words = ask_sequence(p.kv, seq);
      from_end = static_cast<int>(rows.end) - t;
    }
    if (is_wrong) return {NewToken::kWrong};
  }
  return place_token(p, sequence_pages(p.kv, words), from_end, early);
}

/// Where something is wrong: every sequence is asked for row t, and what is wrong is reported.
/// The kernel's own loads begin anew after the call, so that nothing has to be kept over it.
__device__ inline __noinline__ NewToken ask_for_token(const KvAppendParams& p, const char* op,
                                                      int t) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int seq = p.seq_indptr.is_given() ? -1 : t, from_end = 1;
  for (int first = 0; p.seq_indptr.is_given() && first < p.num_seqs; first += 32) {
    const int mine = min(first + lane, p.num_seqs - 1);
    const NewRows rows(p, mine);
    const bool are_wrong = rows.are_wrong(p);
    if (are_wrong) {
      const bool is_begin = rows.begin < 0 || rows.begin > p.num_tokens;
      report_fault(p.kv.faults, op, "seq_indptr", mine, is_begin ? rows.begin : rows.end);
    }
    __syncwarp();
    const unsigned have = __ballot_sync(~0u, !are_wrong && rows.has(t));
    if (have == 0 || seq >= 0) continue;
    const int owner = __ffs(static_cast<int>(have)) - 1;
    seq = first + owner;
    from_end = __shfl_sync(~0u, static_cast<int>(rows.end), owner) - t;
  }
  if (seq < 0) return {};
  const SequencePages pages = sequence_pages(p.kv, seq);
  const NewToken token = place_token(p, pages, from_end);
  if (token.is_wrong() && lane == 0) {
    if (pages.is_wrong()) {
      report_sequence(p.kv, op, seq);
    } else {
      const PageSlot at = page_slot(p.kv, pages.kv_len - from_end);
      report_page(p.kv, op, seq, p.kv.pages[pages.first_page + at.page]);
    }
  }
  return token;
}

}  // namespace heddle::cuda::attention
