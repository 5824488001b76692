#pragma once

#include <nanobind/nanobind.h>

namespace heddle::python {

/// From now on a call of the Python function `function` is one of `implementation`, without a
/// Python frame between. The two must do the same: torch.compile reads the function's code, and
/// while torch traces (watch_tracing) the function is run, as it always is before Python 3.12 and
/// in a Python that does not let a call be replaced. Both are kept to the end of the process.
void call_directly(nanobind::handle function, nanobind::handle implementation);

using Names = nanobind::typed<nanobind::dict, nanobind::str, nanobind::any>;
/// Torch traces where `names` has a value for `flag` that is not False.
void watch_tracing(Names names, nanobind::str flag);

}  // namespace heddle::python
