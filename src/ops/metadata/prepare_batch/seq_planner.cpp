#include "core/math.h"
#include "ops/metadata/prepare_batch/prepare_batch_kernels.h"

namespace heddle {

SeqPlan SeqPlanner::next() {
  const int64_t seq = seq_;
  SeqPlan plan = next_without_pages();
  if (seq < num_active_ && p_.page_size > 0) add_pages(seq, plan);
  return plan;
}

SeqPlan SeqPlanner::next_without_pages() {
  const int64_t seq = seq_++;
  SeqPlan plan{.first_token = tokens_, .first_page = pages_};
  if (seq >= num_active_) return plan;

  plan.start = length_of(p_.cache_lengths[seq]);
  if (p_.accepted_lengths) {
    plan.start += length_of(bounded(p_.accepted_lengths[seq]) + p_.accepted_extra);
  }
  plan.asked_tokens = p_.input_lengths ? length_of(p_.input_lengths[seq]) : p_.tokens_per_seq;
  plan.num_tokens = std::min(plan.asked_tokens, p_.num_tokens - tokens_);
  if (plan.num_tokens < plan.asked_tokens) plan.overflow |= kTokenOverflow;
  tokens_ += plan.num_tokens;
  plan.kv_length = plan.start + plan.num_tokens;

  if (p_.adapter_slots) {
    const int64_t slot = p_.adapter_slots[seq];
    plan.slot = slot >= 0 && slot < p_.num_slots ? slot : -1;
  }
  return plan;
}

void SeqPlanner::add_pages(int64_t seq, SeqPlan& plan) {
  plan.asked_pages = ceil_div(plan.kv_length, p_.page_size);
  const int64_t given = p_.pages_are_given ? pages_of(p_, seq).size : kHuge;
  const int64_t room = std::min(p_.table_width, p_.max_pages - pages_);
  if (plan.asked_pages > given) plan.overflow |= kMissingPages;
  if (std::min(plan.asked_pages, given) > room) plan.overflow |= kPageOverflow;
  plan.num_pages = std::min({plan.asked_pages, given, room});
  if (plan.num_pages < plan.asked_pages) plan.kv_length = plan.num_pages * p_.page_size;
  pages_ += plan.num_pages;
}

}  // namespace heddle
