#pragma once

// What the programs bench_lora*_cuda share: random memory of the GPU, records, and the command line
//   bench_X_cuda --json FILE [--quick]

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/core/tensor_view.h"

#include "core/device_bytes.h"
#include "testing/device_memory.h"
#include "testing/graph_timing_cuda.h"

namespace heddle::lora_bench {

inline constexpr Device kGpu{DeviceType::kCuda, 0};
inline constexpr DType kDtype = DType::kBFloat16;
inline constexpr int64_t kElement = 2;            // bytes of a weight, and of x and y
inline constexpr double kReadBytesPerUs = 4.6e6;  // what plain reads reach on an H200

// values[i] = a hash of its address in [-scale, scale), in bf16 bits (cut off, not rounded). Any grid and block.
inline __global__ void fill_kernel(uint16_t* values, size_t count, float scale) {
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    auto bits = reinterpret_cast<uint64_t>(values + i);  // splitmix64
    bits = (bits ^ (bits >> 30)) * 0xBF58476D1CE4E5B9u;
    bits = (bits ^ (bits >> 27)) * 0x94D049BB133111EBu;
    const auto random = static_cast<int32_t>((bits ^ (bits >> 31)) >> 32);
    const float value = static_cast<float>(random) * 0x1p-31f * scale;
    values[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
  }
}

/// Memory with random values in [-scale, scale).
class RandomValues {
 public:
  RandomValues(int64_t count, double scale)
      : memory_(allocate_zeroed(kGpu, size_t(count * kElement))) {
    fill_kernel<<<1024, 256>>>(reinterpret_cast<uint16_t*>(memory_.get()), size_t(count),
                               static_cast<float>(scale));
    HEDDLE_CUDA_CHECK(cudaGetLastError());
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  /// [rows, columns] from value `first` on, rows `stride` values apart (0: columns, so that there are no gaps).
  [[nodiscard]] TensorView view(int64_t rows, int64_t columns, int64_t first = 0,
                                int64_t stride = 0) const {
    const std::array<int64_t, 2> shape{rows, columns};
    const std::array<int64_t, 2> strides{stride == 0 ? columns : stride, 1};
    return {memory_.get() + first * kElement, kDtype, kGpu, shape, strides};
  }

 private:
  DeviceBytes memory_;
};

/// An i32 array on the device.
class Indices {
 public:
  explicit Indices(const std::vector<int32_t>& values)
      : size_(std::ssize(values)), memory_(allocate_zeroed(kGpu, values.size() * sizeof(int32_t))) {
    HEDDLE_CUDA_CHECK(cudaMemcpy(memory_.get(), values.data(), values.size() * sizeof(int32_t),
                                 cudaMemcpyHostToDevice));
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());  // the copy may come after the call's return
  }
  [[nodiscard]] ConstTensorView view() const {
    return TensorView(memory_.get(), DType::kInt32, kGpu, {size_});
  }

 private:
  int64_t size_;
  DeviceBytes memory_;
};

struct Record {
  std::string op, site;
  int rank;
  int64_t tokens;
  int adapters;  // in use
  std::string form;
  int num_calls;  // in the graph of which a sample is one replay
  double floor_us;
  std::vector<double> samples;  // us of one call
  /// Further members of the record: names, and values as JSON.
  std::vector<std::pair<std::string, std::string>> facts = {};
};

inline double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

/// A JSON array.
template <class T>
std::string json_list(const std::vector<T>& values) {
  std::string list = "[";
  for (const T& value : values) list += (list.size() > 1 ? ", " : "") + std::to_string(value);
  return list + "]";
}

/// A run: the stream and the context of its calls, and what they took.
class Bench {
 public:
  explicit Bench(bool is_quick) : is_quick_(is_quick), context_(kGpu, stream_.get(), 0) {}

  [[nodiscard]] bool is_quick() const { return is_quick_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  [[nodiscard]] CudaContext& context() { return context_; }

  void add(Record record) {
    std::printf("%-11s %-10s rank %-3d %5lld tokens %3d adapters  %-28s %9.2f us  floor %8.2f\n",
                record.op.c_str(), record.site.c_str(), record.rank,
                static_cast<long long>(record.tokens), record.adapters, record.form.c_str(),
                median(record.samples), record.floor_us);
    std::fflush(stdout);
    records_.push_back(std::move(record));
  }

  void write_json(const std::string& path) const {
    std::ofstream file(path);
    const char* separator = "[\n";
    for (const Record& r : records_) {
      file << separator << R"({"op": ")" << r.op << R"(", "site": ")" << r.site << R"(", "rank": )"
           << r.rank << R"(, "tokens": )" << r.tokens << R"(, "adapters": )" << r.adapters
           << R"(, "form": ")" << r.form << '"';
      for (const auto& [name, value] : r.facts) file << ", \"" << name << "\": " << value;
      file << R"(, "calls_in_graph": )" << r.num_calls << R"(, "floor_us": )" << r.floor_us
           << R"(, "us": )" << median(r.samples) << R"(, "samples": )";
      for (size_t i = 0; i < r.samples.size(); ++i) file << (i == 0 ? "[" : ", ") << r.samples[i];
      file << "]}";
      separator = ",\n";
    }
    file << "\n]\n";
    file.close();
    HEDDLE_CHECK(!file.fail(), "cannot write ", path);
  }

 private:
  bool is_quick_;
  testing::DeviceStream stream_;
  CudaContext context_;
  std::vector<Record> records_;
};

/// The main of a program: run(bench), then the records, also those made before an error.
template <class Run>
int run_bench(int argc, char** argv, Run&& run) {
  std::string path;
  bool is_quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      is_quick = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      path = argv[++i];
    }
  }
  if (path.empty()) {
    std::fprintf(stderr, "%s --json FILE [--quick]\n", argv[0]);
    return 2;
  }
  try {
    const ScopedDevice current(kGpu);
    Bench bench(is_quick);
    try {
      run(bench);
    } catch (const std::exception&) {
      bench.write_json(path);
      throw;
    }
    bench.write_json(path);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace heddle::lora_bench
