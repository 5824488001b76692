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
        const OwnedWeight* packed = nullptr;
        if (nb::try_cast<const OwnedWeight*>(table, packed) && packed != nullptr) {
          return call.run_on_cpu([&](const ExecContext& ctx) {
            check_cpu(ctx, "embedding");  // where the packed weight is
            embedding(ctx, out, ids, packed->view());
          });
        }
        const ConstTensorView rows = call.in("table", table);
        call.run([&](const ExecContext& ctx) { embedding(ctx, out, ids, rows); });
      },
      "y"_a, "token_ids"_a, "table"_a);
}

}  // namespace heddle::python
