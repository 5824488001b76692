#include "heddle/ops/metadata.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include <nanobind/stl/optional.h>

#include "bindings/array_operation.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

using OptionalInt = std::optional<int64_t>;

void to_ragged(nb::handle ragged, nb::handle block_tables, nb::handle input_lengths,
               nb::handle cache_lengths, OptionalInt fill_value, OptionalInt total) {
  Call call;
  const TensorView out = call.out("ragged", ragged);
  const ConstTensorView tables = call.in("block_tables", block_tables);
  const ConstTensorView input = call.in("input_lengths", input_lengths);
  const ConstTensorView cache = call.in("cache_lengths", cache_lengths);
  call.run([&](const ExecContext& ctx) {
    block_tables_to_ragged(ctx, out, tables, input, cache, fill_value, total);
  });
}

void to_padded(nb::handle block_tables, nb::handle ragged, nb::handle cu_seqlens,
               OptionalInt fill_value) {
  Call call;
  const TensorView out = call.out("block_tables", block_tables);
  const ConstTensorView from = call.in("ragged", ragged), cu = call.in("cu_seqlens", cu_seqlens);
  call.run([&](const ExecContext& ctx) { block_tables_to_padded(ctx, out, from, cu, fill_value); });
}

void filtering(nb::handle filtered_slots, nb::handle slots, nb::handle cu_slots,
               nb::handle slots_start, OptionalInt fill_value) {
  Call call;
  const TensorView out = call.out("filtered_slots", filtered_slots);
  const ConstTensorView from = call.in("slots", slots), cu = call.in("cu_slots", cu_slots);
  const ConstTensorView start = call.in("slots_start", slots_start);
  call.run([&](const ExecContext& ctx) { slots_filtering(ctx, out, from, cu, start, fill_value); });
}

/// A keyword of prepare_batch and the member that it sets.
template <class Member>
struct Field {
  std::string_view name;
  Member member;
};
using Out = PrepareBatchOutputs;
using In = PrepareBatchInputs;

constexpr Field<TensorView Out::*> kOutputs[] = {{"q_indptr", &Out::q_indptr},
                                                 {"start_lengths", &Out::start_lengths},
                                                 {"kv_lengths", &Out::kv_lengths},
                                                 {"page_indptr", &Out::page_indptr},
                                                 {"last_page_len", &Out::last_page_len},
                                                 {"pages", &Out::pages},
                                                 {"page_table", &Out::page_table},
                                                 {"positions", &Out::positions},
                                                 {"kv_slots", &Out::kv_slots},
                                                 {"token_to_seq", &Out::token_to_seq},
                                                 {"input_ids", &Out::input_ids},
                                                 {"slot_ids", &Out::slot_ids},
                                                 {"seg_starts", &Out::seg_starts},
                                                 {"seg_ends", &Out::seg_ends},
                                                 {"seg_slots", &Out::seg_slots},
                                                 {"adapter_rows", &Out::adapter_rows},
                                                 {"adapter_indptr", &Out::adapter_indptr},
                                                 {"all_input_ids", &Out::all_input_ids},
                                                 {"overflow", &Out::overflow}};
constexpr Field<ConstTensorView In::*> kInputs[] = {
    {"cache_lengths", &In::cache_lengths},     {"accepted_lengths", &In::accepted_lengths},
    {"input_lengths", &In::input_lengths},     {"num_active", &In::num_active},
    {"seq_page_table", &In::seq_page_table},   {"seq_pages", &In::seq_pages},
    {"seq_page_indptr", &In::seq_page_indptr}, {"adapter_slots", &In::adapter_slots},
    {"next_input_ids", &In::next_input_ids},   {"next_indptr", &In::next_indptr},
    {"prompt_lengths", &In::prompt_lengths}};
constexpr Field<int64_t In::*> kScalars[] = {{"page_size", &In::page_size},
                                             {"tokens_per_seq", &In::tokens_per_seq},
                                             {"accepted_extra", &In::accepted_extra},
                                             {"pad_page", &In::pad_page},
                                             {"pad_token", &In::pad_token}};

template <class Fields>
auto find(const Fields& fields, std::string_view name) {
  const auto* found = std::find_if(std::begin(fields), std::end(fields),
                                   [&](const auto& field) { return field.name == name; });
  return found == std::end(fields) ? nullptr : found;
}

void whole_step(const nb::kwargs& arguments) {
  Call call;
  Out out;
  In in;
  for (const auto& [key, value] : arguments) {
    const std::string_view name = nb::cast<const char*>(key);
    if (const auto* output = find(kOutputs, name)) {
      out.*output->member = call.optional_out(output->name.data(), value);
    } else if (const auto* input = find(kInputs, name)) {
      in.*input->member = call.optional_in(input->name.data(), value);
    } else if (const auto* scalar = find(kScalars, name)) {
      if (!nb::try_cast(value, in.*scalar->member)) {
        nb::raise_type_error("prepare_batch(): %s is no integer", scalar->name.data());
      }
    } else {
      nb::raise_type_error("prepare_batch() got an unexpected keyword argument '%s'", name.data());
    }
  }
  if (!in.cache_lengths) nb::raise_type_error("prepare_batch() needs the argument 'cache_lengths'");
  call.run([&](const ExecContext& ctx) { prepare_batch(ctx, out, in); });
}

}  // namespace

void bind_metadata(nb::module_& m) {
  m.attr("TOKEN_OVERFLOW") = int{kTokenOverflow};
  m.attr("PAGE_OVERFLOW") = int{kPageOverflow};
  m.attr("MISSING_PAGES") = int{kMissingPages};
  m.attr("SEGMENT_OVERFLOW") = int{kSegmentOverflow};
  m.def("block_tables_to_ragged", &to_ragged, "ragged"_a, "block_tables"_a, "input_lengths"_a,
        "cache_lengths"_a, nb::kw_only(), "fill_value"_a = nb::none(), "total"_a = nb::none());
  m.def("block_tables_to_padded", &to_padded, "block_tables"_a, "ragged"_a, "cu_seqlens"_a,
        nb::kw_only(), "fill_value"_a = nb::none());
  bind_arrays(m, "copy_next_input_ids_inplace", &copy_next_input_ids_inplace,
              OutArray{"all_input_ids"}, InArray{"next_input_ids"}, InArray{"cu_accepted_ids"},
              InArray{"cache_lengths"}, InArray{"input_lengths"}, InArray{"prompt_lengths"});
  bind_arrays(m, "prepare_position_slot_ids", &prepare_position_slot_ids,
              OptionalOutArray{"position_ids"}, OptionalOutArray{"slot_indices"},
              InArray{"cache_lengths"}, InArray{"cu_seqlens"}, OptionalInArray{"cu_slots"});
  m.def("slots_filtering", &filtering, "filtered_slots"_a, "slots"_a, "cu_slots"_a, "slots_start"_a,
        nb::kw_only(), "fill_value"_a = nb::none());
  m.def("prepare_batch", &whole_step, nb::sig("def prepare_batch(**arguments: object) -> None"));
}

}  // namespace heddle::python
