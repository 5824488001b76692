#pragma once

#include <tuple>

#include "bindings/call.h"

namespace heddle::python {

/// An argument of bind_arrays. One that is optional may be None: the view is then absent.
template <Access kAccess, bool kOptional>
struct ArrayArgument {
  const char* name;

  [[nodiscard]] auto view(Call& call, nb::handle array) const {
    if constexpr (kAccess == Access::kWrite) {
      return kOptional ? call.optional_out(name, array) : call.out(name, array);
    } else {
      return kOptional ? call.optional_in(name, array) : call.in(name, array);
    }
  }
  [[nodiscard]] auto named() const {  // nanobind 3 has types of their own for the two
    if constexpr (kOptional) {
      return nb::arg(name).none();
    } else {
      return nb::arg(name);
    }
  }
  using Handle = nb::handle;
};

using OutArray = ArrayArgument<Access::kWrite, false>;
using OptionalOutArray = ArrayArgument<Access::kWrite, true>;
using InArray = ArrayArgument<Access::kRead, false>;
using OptionalInArray = ArrayArgument<Access::kRead, true>;

/// Binds an operation that takes a context and arrays alone, in the order of the arguments.
///
///   bind_arrays(m, "silu_and_mul", &silu_and_mul, OutArray{"y"}, InArray{"gate"}, InArray{"up"});
template <class Operation, class... Arguments>
void bind_arrays(nb::module_& m, const char* name, Operation operation, Arguments... arguments) {
  m.def(
      name,
      [operation, arguments...](typename Arguments::Handle... arrays) {
        Call call;
        const std::tuple views{arguments.view(call, arrays)...};  // braces: from left to right
        call.run([&](const ExecContext& ctx) {
          std::apply([&](const auto&... view) { operation(ctx, view...); }, views);
        });
      },
      arguments.named()...);
}

}  // namespace heddle::python
