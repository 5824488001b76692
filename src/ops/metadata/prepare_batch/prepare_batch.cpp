#include "heddle/core/validate.h"
#include "heddle/ops/metadata.h"

#include "core/scoped_operation.h"
#include "ops/metadata/checks.h"
#include "ops/metadata/prepare_batch/prepare_batch_kernels.h"
#include "ops/metadata/prepare_batch/prepare_batch_validate.h"

namespace heddle {
namespace {

/// The extents that the tensors of one call share; those that no tensor has bound yet are negative.
struct Extents {
  explicit Extents(int64_t num_seqs)
      : seqs("num_seqs", num_seqs), starts("num_seqs + 1", num_seqs + 1) {}

  Dim seqs, starts;
  Dim tokens{"num_tokens"}, segments{"num_segments"}, slot_starts{"num_slots + 1"};
  Dim max_pages{"max_pages"}, table_width{"width"}, max_length{"max_length"}, one{"1", 1};
};

void check_outputs(const ExecContext& ctx, const PrepareBatchOutputs& out, Extents& e) {
  struct Expected {
    const char* name;
    const TensorView& tensor;
    Dim* dim;
  };
  for (const Expected& t : std::initializer_list<Expected>{
           {"q_indptr", out.q_indptr, &e.starts},
           {"start_lengths", out.start_lengths, &e.seqs},
           {"kv_lengths", out.kv_lengths, &e.seqs},
           {"page_indptr", out.page_indptr, &e.starts},
           {"last_page_len", out.last_page_len, &e.seqs},
           {"pages", out.pages, &e.max_pages},
           {"positions", out.positions, &e.tokens},
           {"kv_slots", out.kv_slots, &e.tokens},
           {"token_to_seq", out.token_to_seq, &e.tokens},
           {"input_ids", out.input_ids, &e.tokens},
           {"slot_ids", out.slot_ids, &e.tokens},
           {"seg_starts", out.seg_starts, &e.segments},
           {"seg_ends", out.seg_ends, &e.segments},
           {"seg_slots", out.seg_slots, &e.segments},
           {"adapter_rows", out.adapter_rows, &e.tokens},
           {"adapter_indptr", out.adapter_indptr, &e.slot_starts},
           {"overflow", out.overflow, &e.one},
       }) {
    check_optional_index_tensor(ctx, t.name, t.tensor, {t.dim});
  }
  check_optional_index_tensor(ctx, "page_table", out.page_table, {&e.seqs, &e.table_width});
  check_optional_index_tensor(ctx, "all_input_ids", out.all_input_ids, {&e.seqs, &e.max_length});
  HEDDLE_CHECK(e.slot_starts.value() != 0, "adapter_indptr.size(0) is 0, expected num_slots + 1");
  HEDDLE_CHECK(!out.adapter_rows || out.adapter_indptr,
               "adapter_rows is asked for without adapter_indptr");
}

void check_inputs(const ExecContext& ctx, const PrepareBatchInputs& in, Extents& e) {
  Dim given_width("width"), given_pages("size"), given_ids("size");
  check_index_tensor(ctx, "cache_lengths", in.cache_lengths, {&e.seqs});
  check_optional_index_tensor(ctx, "accepted_lengths", in.accepted_lengths, {&e.seqs});
  check_optional_index_tensor(ctx, "input_lengths", in.input_lengths, {&e.seqs});
  if (in.num_active && in.num_active.rank() != 0) {
    check_shape("num_active", in.num_active, {&e.one});
  }
  check_index_dtype("num_active", in.num_active ? in.num_active : in.cache_lengths);
  check_device(ctx, {{"num_active", in.num_active}});
  check_optional_index_tensor(ctx, "seq_page_table", in.seq_page_table, {&e.seqs, &given_width});
  check_optional_index_tensor(ctx, "seq_pages", in.seq_pages, {&given_pages});
  check_optional_index_tensor(ctx, "seq_page_indptr", in.seq_page_indptr, {&e.starts});
  check_optional_index_tensor(ctx, "adapter_slots", in.adapter_slots, {&e.seqs});
  check_optional_index_tensor(ctx, "next_input_ids", in.next_input_ids, {&given_ids});
  check_optional_index_tensor(ctx, "next_indptr", in.next_indptr, {&e.starts});
  check_optional_index_tensor(ctx, "prompt_lengths", in.prompt_lengths, {&e.seqs});
  HEDDLE_CHECK(!in.seq_pages == !in.seq_page_indptr,
               "seq_pages and seq_page_indptr: expected both or neither");
  HEDDLE_CHECK(!in.seq_pages || !in.seq_page_table,
               "both seq_pages and seq_page_table are given, expected one of them");
  HEDDLE_CHECK(!in.next_input_ids == !in.next_indptr,
               "next_input_ids and next_indptr: expected both or neither");
  HEDDLE_CHECK(in.tokens_per_seq >= 0 && in.tokens_per_seq <= kHuge, "tokens_per_seq is ",
               in.tokens_per_seq, ", expected at least 0");
}

/// What an output needs of the inputs.
void check_sources(const PrepareBatchOutputs& out, const PrepareBatchInputs& in) {
  const bool pages_are_given = in.seq_page_table || in.seq_pages;
  struct Paged {
    const char* name;
    const TensorView& tensor;
    bool needs_table;
  };
  for (const Paged& t :
       {Paged{"page_indptr", out.page_indptr, false},
        Paged{"last_page_len", out.last_page_len, false}, Paged{"pages", out.pages, true},
        Paged{"page_table", out.page_table, true}, Paged{"kv_slots", out.kv_slots, true}}) {
    HEDDLE_CHECK(!t.tensor || in.page_size >= 1, t.name, " is asked for with page_size ",
                 in.page_size, ", expected at least 1");
    HEDDLE_CHECK(!t.tensor || !t.needs_table || pages_are_given, t.name,
                 " is asked for, but neither seq_page_table nor seq_pages is given");
  }
  HEDDLE_CHECK(in.page_size >= (pages_are_given ? 1 : 0) && in.page_size <= kHuge, "page_size is ",
               in.page_size, ", expected at least ", pages_are_given ? 1 : 0);
  HEDDLE_CHECK(!out.input_ids || out.all_input_ids || in.next_input_ids,
               "input_ids is asked for, but neither all_input_ids nor next_input_ids is given");
}

int64_t bound_or_huge(const Dim& dim) { return dim.value() < 0 ? kHuge : dim.value(); }

void pack_outputs(const PrepareBatchOutputs& out, const Extents& e, PrepareBatchParams& p) {
  p.q_indptr = IndexList(out.q_indptr);
  p.start_lengths = IndexList(out.start_lengths);
  p.kv_lengths = IndexList(out.kv_lengths);
  p.page_indptr = IndexList(out.page_indptr);
  p.last_page_len = IndexList(out.last_page_len);
  p.pages = IndexList(out.pages);
  p.page_table = IndexTable(out.page_table);
  p.positions = IndexList(out.positions);
  p.kv_slots = IndexList(out.kv_slots);
  p.token_to_seq = IndexList(out.token_to_seq);
  p.input_ids = IndexList(out.input_ids);
  p.slot_ids = IndexList(out.slot_ids);
  p.seg_starts = IndexList(out.seg_starts);
  p.seg_ends = IndexList(out.seg_ends);
  p.seg_slots = IndexList(out.seg_slots);
  p.adapter_rows = IndexList(out.adapter_rows);
  p.adapter_indptr = IndexList(out.adapter_indptr);
  p.all_input_ids = IndexTable(out.all_input_ids);
  p.overflow = IndexList(out.overflow);
  p.has_token_outputs = e.tokens.value() >= 0;
  p.num_tokens = bound_or_huge(e.tokens);
  p.max_pages = bound_or_huge(e.max_pages);
  p.table_width = bound_or_huge(e.table_width);
  p.num_segments = bound_or_huge(e.segments);
  if (out.adapter_indptr) p.num_slots = e.slot_starts.value() - 1;
}

void pack_inputs(const PrepareBatchInputs& in, PrepareBatchParams& p) {
  p.num_seqs = in.cache_lengths.size(0);
  p.cache_lengths = ConstIndexList(in.cache_lengths);
  p.accepted_lengths = ConstIndexList(in.accepted_lengths);
  p.input_lengths = ConstIndexList(in.input_lengths);
  p.num_active = ConstIndexList(in.num_active);
  p.seq_page_table = ConstIndexTable(in.seq_page_table);
  p.seq_pages = ConstIndexList(in.seq_pages);
  p.seq_page_indptr = ConstIndexList(in.seq_page_indptr);
  p.adapter_slots = ConstIndexList(in.adapter_slots);
  p.next_input_ids = ConstIndexList(in.next_input_ids);
  p.next_indptr = ConstIndexList(in.next_indptr);
  p.prompt_lengths = ConstIndexList(in.prompt_lengths);
  p.pages_are_given = in.seq_page_table || in.seq_pages;
  p.page_size = in.page_size;
  p.tokens_per_seq = in.tokens_per_seq;
  p.accepted_extra = bounded(in.accepted_extra);
  p.pad_page = in.pad_page;
  p.pad_token = in.pad_token;
}

void validate(const ExecContext& ctx, PrepareBatchInputs in, PrepareBatchParams p) {
  check_on_host(ctx,
                {&in.cache_lengths, &in.accepted_lengths, &in.input_lengths, &in.num_active,
                 &in.seq_page_table, &in.seq_pages, &in.seq_page_indptr, &in.adapter_slots,
                 &in.next_indptr, &in.prompt_lengths},
                [&] {
                  pack_inputs(in, p);
                  validate_prepare_batch(in, p);
                });
}

}  // namespace

void prepare_batch(const ExecContext& ctx, const PrepareBatchOutputs& outputs,
                   const PrepareBatchInputs& inputs) {
  check_kernels(ctx, "prepare_batch");
  HEDDLE_CHECK(inputs.cache_lengths.rank() == 1, "cache_lengths has rank ",
               inputs.cache_lengths.rank(), ", expected 1");
  Extents extents(inputs.cache_lengths.size(0));
  check_inputs(ctx, inputs, extents);
  check_outputs(ctx, outputs, extents);
  check_sources(outputs, inputs);
  PrepareBatchParams p;
  pack_inputs(inputs, p);
  pack_outputs(outputs, extents, p);
  if (validating()) validate(ctx, inputs, p);
  if (ctx.device.type == DeviceType::kCpu) {
    cpu::metadata::prepare_batch(ctx, p);
  } else if constexpr (kWithCuda) {
    const ScopedOperation operation("prepare_batch");
    cuda::metadata::prepare_batch(ctx, p);
  }
}

}  // namespace heddle
