#include "ops/metadata/prepare_batch/prepare_batch_validate.h"

#include "cpu/validate_indices.h"
#include "ops/metadata/conversions/conversions_validate.h"

namespace heddle {
namespace {

void validate_tensors(const PrepareBatchInputs& in, const PrepareBatchParams& p, int64_t active) {
  const auto first = [](const ConstTensorView& t, int64_t count) { return t.narrow(0, 0, count); };
  validate_lengths("cache_lengths", first(in.cache_lengths, active));
  if (in.accepted_lengths) validate_lengths("accepted_lengths", first(in.accepted_lengths, active));
  if (in.input_lengths) validate_lengths("input_lengths", first(in.input_lengths, active));
  if (in.prompt_lengths) validate_lengths("prompt_lengths", first(in.prompt_lengths, active));
  if (in.seq_page_indptr) {
    cpu::check_indptr("seq_page_indptr", first(in.seq_page_indptr, active + 1),
                      in.seq_pages.size(0), "size of seq_pages");
  }
  if (in.next_indptr) {
    cpu::check_indptr("next_indptr", first(in.next_indptr, active + 1), in.next_input_ids.size(0),
                      "size of next_input_ids");
  }
  if (in.adapter_slots) {
    cpu::check_indices("adapter_slots", first(in.adapter_slots, active), cpu::kAnyNegative,
                       p.num_slots, "num_slots");
  }
}

/// A request that is cut, and its pages.
void validate_plan(const PrepareBatchParams& p, int64_t seq, const SeqPlan& plan) {
  HEDDLE_CHECK((plan.overflow & kTokenOverflow) == 0, "request ", seq, " brings ",
               plan.asked_tokens, " tokens, expected at most the ", plan.num_tokens,
               " that are left of num_tokens = ", p.num_tokens);
  const ConstIndexList pages = pages_of(p, seq);
  HEDDLE_CHECK((plan.overflow & kMissingPages) == 0, "request ", seq, " needs ", plan.asked_pages,
               " pages, expected at most the ", pages.size, " that it is given");
  HEDDLE_CHECK((plan.overflow & kPageOverflow) == 0, "request ", seq, " needs ", plan.asked_pages,
               " pages, expected at most the ", plan.num_pages, " that its outputs have left");
  for (int64_t i = 0; p.pages_are_given && i < plan.num_pages; ++i) {
    HEDDLE_CHECK(pages[i] >= 0, "page ", i, " of request ", seq, " is ", pages[i],
                 ", expected at least 0");
  }
}

}  // namespace

void validate_prepare_batch(const PrepareBatchInputs& in, const PrepareBatchParams& p) {
  if (p.num_active) {
    HEDDLE_CHECK(p.num_active[0] >= 0 && p.num_active[0] <= p.num_seqs, "num_active[0] is ",
                 p.num_active[0], ", expected 0 to num_seqs = ", p.num_seqs);
  }
  const int64_t active = active_seqs(p);
  validate_tensors(in, p, active);
  SeqPlanner planner(p);
  int64_t slot = -1, num_segments = 0;
  for (int64_t i = 0; i < active; ++i) {
    const SeqPlan plan = planner.next();
    validate_plan(p, i, plan);
    if (plan.num_tokens == 0) continue;
    if (plan.slot >= 0 && plan.slot != slot) ++num_segments;
    slot = plan.slot;
    HEDDLE_CHECK(num_segments <= p.num_segments, "adapter_slots[", i, "] is ", plan.slot,
                 ", which begins segment ", num_segments,
                 ", expected at most num_segments = ", p.num_segments);
  }
}

}  // namespace heddle
