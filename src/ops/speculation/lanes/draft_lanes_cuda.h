#pragma once

#include "cuda/index_cuda.h"

#include "ops/speculation/call/draft_layout.h"
#include "ops/speculation/lanes/lanes_cuda.h"

namespace heddle::cuda::speculation {

/// DraftLayout.
struct GroupDrafts {
  ConstContiguousIndices indptr;  // [num_starts], or absent
  uint32_t num_starts = 0, max_drafts = 0, num_tokens = 0;
  bool rejects_placeholders = false;
};
[[nodiscard]] inline bool is_large(const DraftLayout& layout, int64_t num_rows) {
  return layout.num_tokens() > kMaxOfLaneGroups || layout.num_starts() > kMaxOfLaneGroups ||
         num_rows * (1 + layout.max_drafts()) > kMaxOfLaneGroups;
}
[[nodiscard]] inline GroupDrafts make_group_drafts(const DraftLayout& layout, IndexPacker& pack) {
  return {.indptr = pack(layout.indptr()),
          .num_starts = static_cast<uint32_t>(layout.num_starts()),
          .max_drafts = static_cast<uint32_t>(layout.max_drafts()),
          .num_tokens = static_cast<uint32_t>(layout.num_tokens()),
          .rejects_placeholders = layout.rejects_placeholders()};
}

/// Where the tokens of a request lie; none: length 0. `next` is where those of the next one begin.
struct GroupRange {
  uint32_t begin = 0, length = 0, drafts = 0;
  int64_t next = 0;
};

template <IndexLayout kLayout>
__device__ int64_t start_of(const GroupDrafts& d, uint32_t request) {
  const uint32_t s = request < d.num_starts ? request : d.num_starts - 1;
  return request + load_if<kLayout>(true, d.indptr, s).value();
}
/// As DraftLayout::tokens.
template <IndexLayout kLayout>
__device__ GroupRange range_of(const GroupDrafts& d, uint32_t row, uint32_t num_decode) {
  const bool decode = row < num_decode;
  GroupRange range;
  int64_t begin;
  if (!d.indptr.is_given()) {
    const uint32_t first = decode ? row : num_decode;
    range.drafts = decode ? d.max_drafts : 0;
    begin = int64_t{first} * (1 + d.max_drafts) + (row - first);
    range.next = begin + 1 + range.drafts;
  } else if (decode) {
    begin = start_of<kLayout>(d, row);
    range.next = start_of<kLayout>(d, row + 1);
    const int64_t n = range.next - begin - 1;
    range.drafts = row + 1 >= d.num_starts || n < 0 ? 0
                   : n < d.max_drafts               ? static_cast<uint32_t>(n)
                                                    : d.max_drafts;
  } else {
    begin = start_of<kLayout>(d, num_decode) + (row - num_decode);
    range.next = begin + 1;
  }
  if (begin < 0 || begin >= d.num_tokens) return range;
  range.begin = static_cast<uint32_t>(begin);
  const uint32_t left = d.num_tokens - range.begin, wanted = 1 + range.drafts;
  range.length = wanted < left ? wanted : left;
  return range;
}

}  // namespace heddle::cuda::speculation
