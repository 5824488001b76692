#pragma once

#include <array>
#include <optional>
#include <string>

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>

#include "heddle/core/device.h"
#include "heddle/core/dtype.h"
#include "heddle/ops/lora_table.h"
#include "heddle/ops/rope.h"

// Options that are words or tuples in Python.
namespace heddle::python {

/// "f32", "f16" and so on; `argument` names it in errors.
[[nodiscard]] DType dtype_named(const char* argument, const char* name);

/// The dtype that a Python string names, `otherwise` for None.
[[nodiscard]] DType dtype_or(const char* argument, nanobind::handle name, DType otherwise);

/// The device of "cpu", "cuda", "cuda:1", or of an object that prints so, as torch.device.
[[nodiscard]] Device device_named(nanobind::handle device);
/// "cpu", "cuda:1".
[[nodiscard]] std::string name_of(Device device);

/// "rank_major" or "rank_minor".
[[nodiscard]] LoraLayout layout_named(const char* name);

/// factor, low_freq_factor, high_freq_factor, original_max_position of Llama 3's frequency
/// correction.
using Llama3Numbers = std::optional<std::array<double, 4>>;
[[nodiscard]] RopeParams rope_params(double theta, double scale, int rotary_dim,
                                     const Llama3Numbers& llama3);

}  // namespace heddle::python
