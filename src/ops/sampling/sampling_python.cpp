#include "heddle/ops/sampling.h"

#include "bindings/array_operation.h"

namespace heddle::python {
namespace {

using namespace nb::literals;

void draw(nb::handle token_ids, nb::handle logprobs, nb::handle logits, nb::handle temperature,
          nb::handle top_k, nb::handle top_p, nb::handle min_p, nb::handle seed, nb::handle step) {
  Call call;
  const TensorView ids = call.out("token_ids", token_ids);
  const TensorView logs = call.optional_out("logprobs", logprobs);
  const ConstTensorView rows = call.in("logits", logits);
  const SamplingTable table{.temperature = call.in("temperature", temperature),
                            .top_k = call.in("top_k", top_k),
                            .top_p = call.in("top_p", top_p),
                            .min_p = call.in("min_p", min_p),
                            .seed = call.in("seed", seed),
                            .step = call.in("step", step)};
  const size_t bytes =
      rows.rank() == 2 ? sample_workspace_bytes(rows.size(0), rows.size(1)) : size_t{0};
  call.run([&](const ExecContext& ctx) { sample(ctx, ids, logs, rows, table); }, bytes);
}

void adjust(nb::handle logits, nb::handle saved, nb::handle indptr, nb::handle token_ids,
            nb::handle prompt_counts, nb::handle output_counts, nb::handle bias,
            nb::handle repetition, nb::handle presence, nb::handle frequency) {
  Call call;
  const TensorView rows = call.out("logits", logits);
  const TensorView before = call.optional_out("saved", saved);
  const LogitAdjustments adjustments{.indptr = call.in("indptr", indptr),
                                     .token_ids = call.in("token_ids", token_ids),
                                     .prompt_counts = call.in("prompt_counts", prompt_counts),
                                     .output_counts = call.in("output_counts", output_counts),
                                     .bias = call.in("bias", bias),
                                     .repetition = call.in("repetition", repetition),
                                     .presence = call.in("presence", presence),
                                     .frequency = call.in("frequency", frequency)};
  call.run([&](const ExecContext& ctx) { adjust_logits(ctx, rows, before, adjustments); });
}

void restore(nb::handle logits, nb::handle saved, nb::handle indptr, nb::handle token_ids) {
  Call call;
  const TensorView rows = call.out("logits", logits);
  const ConstTensorView before = call.in("saved", saved);
  const LogitAdjustments adjustments{.indptr = call.in("indptr", indptr),
                                     .token_ids = call.in("token_ids", token_ids)};
  call.run([&](const ExecContext& ctx) { restore_logits(ctx, rows, before, adjustments); });
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.def("sample", &draw, "token_ids"_a, "logprobs"_a.none(), "logits"_a, "temperature"_a, "top_k"_a,
        "top_p"_a, "min_p"_a, "seed"_a, "step"_a);
  bind_arrays(m, "greedy", &greedy, OutArray{"token_ids"}, OptionalOutArray{"logprobs"},
              InArray{"logits"});
  bind_arrays(m, "token_logprobs", &token_logprobs, OutArray{"logprobs"},
              OptionalOutArray{"top_ids"}, OptionalOutArray{"top_logprobs"}, InArray{"logits"},
              InArray{"token_ids"});
  m.def("adjust_logits", &adjust, "logits"_a, "saved"_a.none(), "indptr"_a, "token_ids"_a,
        "prompt_counts"_a, "output_counts"_a, "bias"_a, "repetition"_a, "presence"_a,
        "frequency"_a);
  m.def("restore_logits", &restore, "logits"_a, "saved"_a, "indptr"_a, "token_ids"_a);
}

}  // namespace heddle::python
