#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::ref {

// The definitions in plain loops over vectors; tests only. Request p of `drafts` (one number per
// decode request) has 1 + drafts[p] tokens; prefill requests have one each and follow.

using Ints = std::vector<int64_t>;

struct Verified {
  Ints last_one_indices, mask;
};

inline Verified verify_speculative_tokens(const Ints& input, const Ints& output, const Ints& drafts,
                                          int64_t num_prefill, bool reject_placeholders) {
  Verified result{{}, Ints(input.size(), 0)};
  size_t base = 0;
  for (const int64_t n : drafts) {
    result.mask[base] = 1;
    int64_t count = 1;
    for (size_t j = 1; j <= size_t(n); ++j) {
      const bool equal = input[base + j] == output[base + j - 1];
      const bool placeholder = reject_placeholders && input[base + j] == -1;
      result.mask[base + j] = equal && !placeholder && result.mask[base + j - 1];
      count += result.mask[base + j];
    }
    result.last_one_indices.push_back(int64_t(base) + count - 1);
    base += 1 + size_t(n);
  }
  for (int64_t p = 0; p < num_prefill; ++p) {
    result.mask[base] = 1;
    result.last_one_indices.push_back(int64_t(base++));
  }
  return result;
}

struct Prepared {
  Ints sampled_tokens, last_accepted_seq, accepted_counts;
  std::vector<Ints> accepted_tokens;  // width S
};

/// `rows` holds what the buffers held before.
inline Prepared prepare_next_forward_pass(Prepared rows, const Ints& output, const Ints& required,
                                          const Ints& last_one_indices, const Ints& mask,
                                          const Ints& input, const Ints& drafts,
                                          bool write_prefill_rows) {
  size_t base = 0;
  for (size_t p = 0; p < last_one_indices.size(); ++p) {
    const bool decode = p < drafts.size(), none = last_one_indices[p] < 0;
    const size_t last = none ? 0 : size_t(last_one_indices[p]);
    rows.sampled_tokens[p] = none ? -1 : output[last];
    rows.last_accepted_seq[p] = none ? -1 : required[last];
    if (decode || none || write_prefill_rows) {
      rows.accepted_counts[p] = 0;
      for (int64_t& token : rows.accepted_tokens[p]) token = -1;
    }
    if (decode && !none) {
      for (size_t s = 0; s < size_t(drafts[p]); ++s) {
        if (!mask[base + 1 + s]) continue;
        rows.accepted_tokens[p][s] = input[base + 1 + s];
        ++rows.accepted_counts[p];
      }
    }
    if (decode) base += 1 + size_t(drafts[p]);
  }
  return rows;
}

struct KvRequest {
  int64_t offset, length, count, last_id;
  Ints ids;
};
struct Release {
  int64_t block_to_release = 0;
  bool remove = false;
  Ints ids;  // in order
};

/// Tokens leave one by one, and a block leaves with its first token. For a request that has as many
/// tokens and blocks as it says.
inline Release rewind_token_by_token(KvRequest& kv, int64_t rejected, int64_t block_size) {
  Release release{kv.last_id, false, {}};
  for (; rejected > 0; --rejected) {
    --kv.length;
    if (kv.offset > 0) {
      --kv.offset;
      continue;
    }
    kv.offset = block_size - 1;
    release.remove = true;
    release.ids.push_back(kv.ids[size_t(--kv.count)]);
    kv.ids[size_t(kv.count)] = -1;
    kv.last_id = kv.count > 0 ? kv.ids[size_t(kv.count - 1)] : -1;
  }
  return release;
}

/// The published formulas for at most one block, whatever the state holds (count 0 and beyond the
/// table, too), where rejected <= block_size and offset >= 0.
inline Release rewind_one_block(KvRequest& kv, int64_t rejected, int64_t block_size) {
  const int64_t diff = kv.offset - rejected, max_blocks = int64_t(kv.ids.size());
  const bool remove = diff < 0;
  Release release{kv.last_id, remove, {}};
  kv.offset = ((diff % block_size) + block_size) % block_size;
  kv.length -= rejected;
  if (!remove) return release;
  if (kv.count > 0) release.ids.push_back(kv.last_id);
  const int64_t count = kv.count < 1 ? 0 : kv.count - 1;
  const int64_t before = count - 1 < max_blocks - 1 ? count - 1 : max_blocks - 1;
  kv.last_id = count == 0 ? -1 : kv.ids[size_t(before)];
  kv.ids[size_t(count < max_blocks - 1 ? count : max_blocks - 1)] = -1;
  kv.count = count;
  return release;
}

}  // namespace heddle::ref
