#pragma once

#include <memory>

#include "heddle/ops/metadata.h"

#include "mirror.h"
#include "ops/metadata/test/index_tensor_cases.h"
#include "ops/metadata/test/prepare_batch_ref.h"

namespace heddle::testing {

/// A call of prepare_batch with index tensors of random dtypes and strides; outputs that are absent
/// are left out of `names`.
class BatchTensors {
 public:
  BatchTensors(const ref::BatchCall& call, const std::vector<std::string>& names) : call_(call) {
    give_inputs();
    const ref::BatchResult shapes = ref::prepare_batch(call);
    for (const std::string& name : names) {
      const ref::Vector& want = shapes.at(name);
      ref::Vector before(want.size(), 4242);
      if (name == "all_input_ids") before = call.all_input_ids->values;
      *output(name) =
          name == "page_table" || name == "all_input_ids"
              ? add(name,
                    ref::Matrix{seqs(), seqs() > 0 ? int64_t(want.size()) / seqs() : 0, before})
              : add(name, before);
    }
  }

  void run(const ExecContext& ctx) { prepare_batch(ctx, out, in); }
  /// The same on the mirror's device.
  void run(const ExecContext& ctx, Mirror& mirror) {
    PrepareBatchOutputs o;
    PrepareBatchInputs i;
    mirror_into(o, i, mirror);
    prepare_batch(ctx, o, i);
    mirror.back();
  }
  /// The call's tensors on the mirror's device.
  void mirror_into(PrepareBatchOutputs& o, PrepareBatchInputs& i, Mirror& mirror) {
    o = out;
    i = in;
    for (TensorView* t :
         {&o.q_indptr, &o.start_lengths, &o.kv_lengths, &o.page_indptr, &o.last_page_len, &o.pages,
          &o.page_table, &o.positions, &o.kv_slots, &o.token_to_seq, &o.input_ids, &o.slot_ids,
          &o.seg_starts, &o.seg_ends, &o.seg_slots, &o.adapter_rows, &o.adapter_indptr,
          &o.all_input_ids, &o.overflow}) {
      *t = mirror(*t);
    }
    for (ConstTensorView* t :
         {&i.cache_lengths, &i.accepted_lengths, &i.input_lengths, &i.num_active, &i.seq_page_table,
          &i.seq_pages, &i.seq_page_indptr, &i.adapter_slots, &i.next_input_ids, &i.next_indptr,
          &i.prompt_lengths}) {
      *t = mirror(*t);
    }
  }

  /// Expects the outputs that are given to be those of the definition.
  void expect(const ref::BatchResult& want) const {
    for (const auto& [name, tensor] : outputs_) {
      SCOPED_TRACE(name);
      tensor->expect(want.at(name));
    }
  }

  PrepareBatchOutputs out;
  PrepareBatchInputs in;

 private:
  [[nodiscard]] int64_t seqs() const { return int64_t(call_.cache_lengths.size()); }

  template <class Values>
  TensorView keep(const Values& values) {
    inputs_.push_back(std::make_unique<IndexTensor>(values));
    return inputs_.back()->view();
  }
  template <class Values>
  TensorView add(const std::string& name, const Values& values) {
    return (outputs_[name] = std::make_unique<IndexTensor>(values))->view();
  }
  ConstTensorView keep_if(const std::optional<ref::Vector>& values) {
    return values ? ConstTensorView(keep(*values)) : ConstTensorView();
  }

  void give_inputs() {
    in.cache_lengths = keep(call_.cache_lengths);
    in.accepted_lengths = keep_if(call_.accepted_lengths);
    in.input_lengths = keep_if(call_.input_lengths);
    if (call_.num_active) in.num_active = keep(ref::Vector{*call_.num_active});
    in.adapter_slots = keep_if(call_.adapter_slots);
    in.next_input_ids = keep_if(call_.next_input_ids);
    in.next_indptr = keep_if(call_.next_indptr);
    in.prompt_lengths = keep_if(call_.prompt_lengths);
    if (call_.seq_pages) give_pages(*call_.seq_pages);
    in.page_size = call_.page_size;
    in.tokens_per_seq = call_.tokens_per_seq;
    in.accepted_extra = call_.accepted_extra;
    in.pad_page = call_.pad_page;
    in.pad_token = call_.pad_token;
  }

  /// As a table where all requests have the same number of pages, at times; else in CSR form, with
  /// a gap before the first.
  void give_pages(const std::vector<ref::Vector>& pages) {
    bool even = true;
    for (const ref::Vector& row : pages) even = even && row.size() == pages[0].size();
    ref::Vector lengths, values(size_t{2}, 999);
    for (const ref::Vector& row : pages) {
      lengths.push_back(int64_t(row.size()));
      values.insert(values.end(), row.begin(), row.end());
    }
    if (even && !pages.empty()) {
      values.erase(values.begin(), values.begin() + 2);
      in.seq_page_table = keep(ref::Matrix{seqs(), int64_t(pages[0].size()), values});
    } else {
      in.seq_pages = keep(values);
      in.seq_page_indptr = keep(starts_of_lengths(lengths, 2));
    }
  }

  TensorView* output(const std::string& name) {
    const std::map<std::string, TensorView*> fields = {{"q_indptr", &out.q_indptr},
                                                       {"start_lengths", &out.start_lengths},
                                                       {"kv_lengths", &out.kv_lengths},
                                                       {"page_indptr", &out.page_indptr},
                                                       {"last_page_len", &out.last_page_len},
                                                       {"pages", &out.pages},
                                                       {"page_table", &out.page_table},
                                                       {"positions", &out.positions},
                                                       {"kv_slots", &out.kv_slots},
                                                       {"token_to_seq", &out.token_to_seq},
                                                       {"input_ids", &out.input_ids},
                                                       {"slot_ids", &out.slot_ids},
                                                       {"seg_starts", &out.seg_starts},
                                                       {"seg_ends", &out.seg_ends},
                                                       {"seg_slots", &out.seg_slots},
                                                       {"adapter_rows", &out.adapter_rows},
                                                       {"adapter_indptr", &out.adapter_indptr},
                                                       {"all_input_ids", &out.all_input_ids},
                                                       {"overflow", &out.overflow}};
    return fields.at(name);
  }

  ref::BatchCall call_;
  std::vector<std::unique_ptr<IndexTensor>> inputs_;
  std::map<std::string, std::unique_ptr<IndexTensor>> outputs_;
};

}  // namespace heddle::testing
