#include "heddle/ops/sampling.h"

#include "bindings/call.h"

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
  call.run_on_cpu([&](const ExecContext& ctx) { sample(ctx, ids, logs, rows, table); }, bytes);
}

void pick(nb::handle token_ids, nb::handle logprobs, nb::handle logits) {
  Call call;
  const TensorView ids = call.out("token_ids", token_ids);
  const TensorView logs = call.optional_out("logprobs", logprobs);
  const ConstTensorView rows = call.in("logits", logits);
  call.run_on_cpu([&](const ExecContext& ctx) { greedy(ctx, ids, logs, rows); });
}

}  // namespace

void bind_sampling(nb::module_& m) {
  m.def("sample", &draw, "token_ids"_a, "logprobs"_a.none(), "logits"_a, "temperature"_a, "top_k"_a,
        "top_p"_a, "min_p"_a, "seed"_a, "step"_a);
  m.def("greedy", &pick, "token_ids"_a, "logprobs"_a.none(), "logits"_a);
}

}  // namespace heddle::python
