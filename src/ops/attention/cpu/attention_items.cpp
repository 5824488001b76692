#include <algorithm>
#include <cmath>

#include "ops/attention/cpu/attention_kernels.h"

namespace heddle::cpu::attention {

AttentionItems::AttentionItems(const AttentionParams& params, int num_kv_heads, int64_t num_seqs,
                               std::optional<IndexArray> q_indptr)
    : cache_(*params.cache),
      trees_(params.trees),
      group_size_(params.group_size),
      rows_per_item_(item_rows(params.head_dim)),
      num_kv_heads_(num_kv_heads),
      num_seqs_(num_seqs),
      q_indptr_(q_indptr) {}

std::optional<AttentionItem> AttentionItems::get(int64_t number) const {
  // The last items of a prompt see the most keys: they come first, so that threads finish together.
  const int64_t reversed = count() - 1 - number;
  const int64_t place = reversed / num_kv_heads_;
  int64_t low = 0, high = num_seqs_;  // first_item(low) <= place < first_item(high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (first_item(middle) <= place ? low : high) = middle;
  }
  AttentionItem item;
  item.seq = low;
  item.kv_head = reversed % num_kv_heads_;
  item.first_token = token(low);
  item.q_len = token(low + 1) - item.first_token;
  item.first_row = (place - first_item(low)) * rows_per_item_;
  const int64_t rows_left = item.q_len * group_size_ - item.first_row;
  if (rows_left <= 0) return std::nullopt;
  item.num_rows = static_cast<int>(std::min(rows_left, rows_per_item_));
  item.kv_len = cache_.kv_len(low);
  item.tree = trees_.of(low);
  return item;
}

float log_sum_exp(float max, float sum) { return max + std::log(sum); }

}  // namespace heddle::cpu::attention
