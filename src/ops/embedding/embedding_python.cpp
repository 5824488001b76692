#include "heddle/ops/embedding.h"

#include "heddle/core/check.h"

#include "bindings/packed_weight.h"

namespace heddle::python {

using namespace nb::literals;

void bind_embedding(nb::module_& m) {
  m.def(
      "embedding",
      [](nb::handle y, nb::handle token_ids, nb::handle table) {
        Call call;
        const TensorView out = call.out("y", y);
        const ConstTensorView ids = call.in("token_ids", token_ids);
        if (const OwnedWeight* const packed = as_packed_weight(table)) {
          const PackedWeight& view = packed->view_for(call, "table");
          return call.run([&](const ExecContext& ctx) { embedding(ctx, out, ids, view); });
        }
        const ConstTensorView rows = call.in("table", table);
        call.run([&](const ExecContext& ctx) { embedding(ctx, out, ids, rows); });
      },
      "y"_a, "token_ids"_a, "table"_a);
}

}  // namespace heddle::python
