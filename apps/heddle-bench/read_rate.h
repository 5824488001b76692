#pragma once

#include <cstdint>
#include <vector>

#include "heddle/core/device.h"

namespace heddle::app {

/// Seconds of each of `num_samples` plain reads of `num_bytes` of the device's memory, which is
/// asked for and freed. num_bytes is a multiple of 64.
[[nodiscard]] std::vector<double> time_reads(Device device, int num_threads, int64_t num_bytes,
                                             int num_samples);

/// `read_rate` of the current CUDA device; only in programs with CUDA code.
[[nodiscard]] std::vector<double> time_cuda_reads(int64_t num_bytes, int num_samples);

}  // namespace heddle::app
