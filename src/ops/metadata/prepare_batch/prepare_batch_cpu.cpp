#include "ops/metadata/index_runs.h"
#include "ops/metadata/prepare_batch/prepare_batch_kernels.h"
#include "ops/metadata/ragged_rows.h"

// Requests are planned one after the other, some hundred at a time; what is ragged is then written
// in parallel over its elements. A request's plan is a few additions, so the serial part is short.

namespace heddle::cpu::metadata {
namespace {

constexpr int64_t kSeqsPerPlan = 512;
constexpr int64_t kTokensPerTask = kElementsPerTask / 8;  // a token has several outputs

/// Plans of up to kSeqsPerPlan requests, in the form in which the ragged outputs read them.
struct PlannedSeqs {
  int64_t first_seq = 0, count = 0;
  int64_t first_token[kSeqsPerPlan + 1], first_page[kSeqsPerPlan + 1];
  int64_t start[kSeqsPerPlan], slot[kSeqsPerPlan];
  int64_t first_adapter_row[kSeqsPerPlan];  // where its rows begin in adapter_rows
};

void set_if(const IndexList& to, int64_t i, int64_t value) {
  if (to) to.set(i, value);
}

/// Runs of rows of one adapter.
class Segments {
 public:
  explicit Segments(const PrepareBatchParams& p) : p_(p) {}

  void add(const SeqPlan& plan) {
    if (plan.num_tokens == 0) return;  // without rows it ends no run
    if (plan.slot != slot_) {
      close(plan.first_token);
      slot_ = plan.slot;
      begin_ = plan.first_token;
    }
  }
  /// Ends the last run, pads the outputs; whether all segments had a place.
  bool finish(int64_t num_rows) {
    close(num_rows);
    const int64_t used = std::min(count_, p_.num_segments);
    for (const IndexList& t : {p_.seg_starts, p_.seg_ends}) fill_run(t, used, t.size - used, 0);
    fill_run(p_.seg_slots, used, p_.seg_slots.size - used, -1);
    return count_ == used;
  }

 private:
  void close(int64_t end) {
    if (slot_ < 0) return;
    if (count_ < p_.num_segments) {
      set_if(p_.seg_starts, count_, begin_);
      set_if(p_.seg_ends, count_, end);
      set_if(p_.seg_slots, count_, slot_);
    }
    ++count_;
  }

  const PrepareBatchParams& p_;
  int64_t slot_ = -1, begin_ = 0, count_ = 0;
};

/// Counts the rows of every adapter: adapter_indptr becomes the start of each slot in adapter_rows,
/// its last entry the end.
void count_adapter_rows(const PrepareBatchParams& p) {
  const IndexList& indptr = p.adapter_indptr;
  fill_run(indptr, 0, indptr.size, 0);
  SeqPlanner planner(p);
  for (int64_t i = 0; i < p.num_seqs; ++i) {
    const SeqPlan plan = planner.next_without_pages();
    if (plan.slot >= 0) indptr.set(plan.slot + 1, indptr[plan.slot + 1] + plan.num_tokens);
  }
  for (int64_t s = 1; s < indptr.size; ++s) indptr.set(s, indptr[s - 1] + indptr[s]);
}

/// Takes the next places of a request's rows in adapter_rows: until all have theirs,
/// adapter_indptr[slot] is the next one.
int64_t take_adapter_rows(const PrepareBatchParams& p, const SeqPlan& plan) {
  if (!p.adapter_rows || plan.slot < 0) return 0;
  const int64_t first = p.adapter_indptr[plan.slot];
  p.adapter_indptr.set(plan.slot, first + plan.num_tokens);
  return first;
}

/// Now that adapter_indptr[slot] has become the end of each slot, which is the start of the next
/// one.
void restore_adapter_indptr(const PrepareBatchParams& p) {
  for (int64_t s = p.num_slots; s > 0; --s) p.adapter_indptr.set(s, p.adapter_indptr[s - 1]);
  p.adapter_indptr.set(0, 0);
}

/// The outputs that have one entry per request.
void write_seq(const PrepareBatchParams& p, int64_t seq, const SeqPlan& plan) {
  set_if(p.q_indptr, seq + 1, plan.first_token + plan.num_tokens);
  set_if(p.start_lengths, seq, plan.start);
  set_if(p.kv_lengths, seq, plan.kv_length);
  set_if(p.page_indptr, seq + 1, plan.first_page + plan.num_pages);
  if (p.last_page_len) {
    const int64_t before = std::max<int64_t>(0, plan.num_pages - 1) * p.page_size;
    p.last_page_len.set(seq, plan.num_pages > 0 ? plan.kv_length - before : 0);
  }
}

/// kv_slots of n tokens from `position` on, page by page.
void write_kv_slots(const PrepareBatchParams& p, int64_t seq, int64_t row, int64_t n,
                    int64_t position) {
  const ConstIndexList pages = pages_of(p, seq);
  int64_t index = position / p.page_size, place = position % p.page_size;
  for (; n > 0; ++index, place = 0) {
    const int64_t page = index < pages.size ? bounded(pages[index]) : -1;
    const int64_t length = std::min(n, p.page_size - place);
    if (page >= 0 && page < kHuge / p.page_size) {
      count_run(p.kv_slots, row, length, page * p.page_size + place);
    } else {
      fill_run(p.kv_slots, row, length, -1);
    }
    row += length;
    n -= length;
  }
}

/// The ids of a request's tokens `range`: those that the step brings, which go to all_input_ids,
/// too, and those from there.
void write_ids(const PrepareBatchParams& p, int64_t seq, int64_t start, int64_t first_token,
               Range range) {
  Range brought{range.end, range.end};
  int64_t next = 0;
  if (p.next_input_ids) {
    next = bounded(p.next_indptr[seq]);
    const int64_t count = bounded(p.next_indptr[seq + 1]) - next;
    const int64_t prompt = p.prompt_lengths ? bounded(p.prompt_lengths[seq]) : 0;
    const Range given{std::max(range.begin, prompt - start), std::min(range.end, count)};
    const Range read = given.within(next, p.next_input_ids.size);
    if (read.length() > 0) brought = read;
  }
  if (p.all_input_ids) {
    const Range stored = brought.within(start, p.all_input_ids.width);
    copy_run(p.all_input_ids[seq], start + stored.begin, p.next_input_ids, next + stored.begin,
             stored.length());
  }
  if (!p.input_ids) return;
  copy_run(p.input_ids, first_token + brought.begin, p.next_input_ids, next + brought.begin,
           brought.length());
  const ConstIndexList known = p.all_input_ids ? p.all_input_ids[seq] : IndexList();
  const Fill pad{.on = true, .value = p.pad_token};
  copy_piece(p.input_ids, first_token, known, start, {range.begin, brought.begin}, pad);
  copy_piece(p.input_ids, first_token, known, start, {brought.end, range.end}, pad);
}

/// Everything that has one entry per token.
void write_tokens(const ExecContext& ctx, const PrepareBatchParams& p, const PlannedSeqs& seqs) {
  const bool has_ids = p.input_ids || (p.all_input_ids && p.next_input_ids);
  const auto write = [&](int64_t i, Range range) {
    const int64_t seq = seqs.first_seq + i, row = seqs.first_token[i] + range.begin;
    const int64_t n = range.length(), position = seqs.start[i] + range.begin;
    if (p.positions) count_run(p.positions, row, n, position);
    if (p.kv_slots) write_kv_slots(p, seq, row, n, position);
    if (p.token_to_seq) fill_run(p.token_to_seq, row, n, seq);
    if (p.slot_ids) fill_run(p.slot_ids, row, n, seqs.slot[i]);
    if (p.adapter_rows && seqs.slot[i] >= 0) {
      count_run(p.adapter_rows, seqs.first_adapter_row[i] + range.begin, n, row);
    }
    if (has_ids) write_ids(p, seq, seqs.start[i], seqs.first_token[i], range);
  };
  if (p.has_token_outputs) {
    for_each_piece(
        ctx, seqs.count, seqs.first_token[0], seqs.first_token[seqs.count], kTokensPerTask,
        [&](int64_t i) { return seqs.first_token[i]; }, write);
  } else if (has_ids) {  // no capacity bounds the tokens then, but the ids that are brought do
    for (int64_t i = 0; i < seqs.count; ++i) {
      const int64_t n = seqs.first_token[i + 1] - seqs.first_token[i];
      write_ids(p, seqs.first_seq + i, seqs.start[i], seqs.first_token[i], {0, n});
    }
  }
}

void write_pages(const ExecContext& ctx, const PrepareBatchParams& p, const PlannedSeqs& seqs) {
  if (p.pages) {
    for_each_piece(
        ctx, seqs.count, seqs.first_page[0], seqs.first_page[seqs.count], kElementsPerTask,
        [&](int64_t i) { return seqs.first_page[i]; },
        [&](int64_t i, Range range) {
          copy_run(p.pages, seqs.first_page[i] + range.begin, pages_of(p, seqs.first_seq + i),
                   range.begin, range.length());
        });
  }
  if (p.page_table) {
    const int64_t grain = 1 + kElementsPerTask / p.table_width;
    parallel_for(ctx, seqs.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const IndexList row = p.page_table[seqs.first_seq + i];
        const int64_t used = seqs.first_page[i + 1] - seqs.first_page[i];
        copy_run(row, 0, pages_of(p, seqs.first_seq + i), 0, used);
        fill_run(row, used, row.size - used, p.pad_page);
      }
    });
  }
}

/// What lies past the last token and the last page.
void pad_tails(const ExecContext& ctx, const PrepareBatchParams& p, int64_t num_tokens,
               int64_t num_pages) {
  struct Tail {
    const IndexList& to;
    int64_t begin, value;
  };
  const int64_t num_adapter_rows = p.adapter_rows ? p.adapter_indptr[p.num_slots] : 0;
  for (const Tail& tail :
       {Tail{p.positions, num_tokens, 0}, Tail{p.kv_slots, num_tokens, -1},
        Tail{p.token_to_seq, num_tokens, -1}, Tail{p.input_ids, num_tokens, p.pad_token},
        Tail{p.slot_ids, num_tokens, -1}, Tail{p.adapter_rows, num_adapter_rows, -1},
        Tail{p.pages, num_pages, p.pad_page}}) {
    parallel_for(ctx, tail.to.size - tail.begin, kElementsPerTask, [&](int64_t begin, int64_t end) {
      fill_run(tail.to, tail.begin + begin, end - begin, tail.value);
    });
  }
}

}  // namespace

void prepare_batch(const ExecContext& ctx, const PrepareBatchParams& p) {
  if (p.adapter_indptr) count_adapter_rows(p);
  set_if(p.q_indptr, 0, 0);
  set_if(p.page_indptr, 0, 0);
  SeqPlanner planner(p);
  Segments segments(p);
  PlannedSeqs seqs;
  int64_t num_tokens = 0, num_pages = 0;
  int32_t overflow = 0;
  for (int64_t first = 0; first < p.num_seqs; first += kSeqsPerPlan) {
    seqs.first_seq = first;
    seqs.count = std::min(kSeqsPerPlan, p.num_seqs - first);
    for (int64_t i = 0; i < seqs.count; ++i) {
      const SeqPlan plan = planner.next();
      seqs.first_token[i] = plan.first_token;
      seqs.first_page[i] = plan.first_page;
      seqs.start[i] = plan.start;
      seqs.slot[i] = plan.slot;
      seqs.first_adapter_row[i] = take_adapter_rows(p, plan);
      write_seq(p, first + i, plan);
      segments.add(plan);
      overflow |= plan.overflow;
      num_tokens = plan.first_token + plan.num_tokens;
      num_pages = plan.first_page + plan.num_pages;
    }
    seqs.first_token[seqs.count] = num_tokens;
    seqs.first_page[seqs.count] = num_pages;
    write_tokens(ctx, p, seqs);
    write_pages(ctx, p, seqs);
  }
  if (p.adapter_rows) restore_adapter_indptr(p);
  if (!segments.finish(num_tokens)) overflow |= kSegmentOverflow;
  pad_tails(ctx, p, num_tokens, num_pages);
  set_if(p.overflow, 0, overflow);
}

}  // namespace heddle::cpu::metadata
