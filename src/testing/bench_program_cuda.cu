#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <numeric>
#include <random>
#include <string_view>

#include "heddle/core/check.h"

#include "bench_program_cuda.h"

namespace heddle::testing {
namespace {

// values[i] = a hash of its address in [-scale, scale), in bf16 bits (cut off, not rounded). Any
// grid and block.
__global__ void fill_kernel(uint16_t* values, size_t count, float scale) {
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

/// "name": value
std::string member(const Fact& fact) {
  const char* quote = fact.is_quoted ? "\"" : "";
  return '"' + fact.name + "\": " + quote + fact.text + quote;
}

}  // namespace

std::vector<int32_t> even_starts(int64_t count, int64_t step) {
  std::vector<int32_t> values(static_cast<size_t>(count + 1));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(int64_t(i) * step);
  return values;
}
std::vector<int32_t> shuffled(int64_t n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  std::shuffle(values.begin(), values.end(), std::mt19937(1));
  return values;
}

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  return samples[samples.size() / 2];
}

Fact::Fact(std::string its_name, double number) : name(std::move(its_name)) {
  std::array<char, 32> digits;
  std::snprintf(digits.data(), digits.size(), "%.6g", number);
  text = digits.data();
}

void BenchProgram::add(const std::vector<Fact>& facts, double floor_us,
                       const std::vector<double>& samples) {
  std::string record, shown;
  for (const Fact& fact : facts) {
    record += (record.empty() ? "" : ", ") + member(fact);
    shown += (shown.empty() ? "" : ", ") + fact.text + (fact.is_quoted ? "" : ' ' + fact.name);
  }
  const double us = median(samples);
  for (const Fact& fact : {Fact("floor_us", floor_us), Fact("us", us), Fact("samples", samples)}) {
    record += ", " + member(fact);
  }
  std::printf("%9.2f us, floor %8.2f: %s\n", us, floor_us, shown.c_str());
  std::fflush(stdout);
  records_.push_back('{' + record + '}');
}

void BenchProgram::write_json(const std::string& path) const {
  std::ofstream file(path);
  for (size_t i = 0; i < records_.size(); ++i) file << (i == 0 ? "[\n" : ",\n") << records_[i];
  file << (records_.empty() ? "[]\n" : "\n]\n");
  file.close();
  HEDDLE_CHECK(!file.fail(), "cannot write ", path);
}

int run_bench(int argc, char** argv, void (*run)(BenchProgram&)) {
  std::string path;
  bool is_quick = false;
  int capability = 0;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--quick") {
      is_quick = true;
    } else if (argument == "--json" && i + 1 < argc) {
      path = argv[++i];
    } else if (argument == "--capability" && i + 1 < argc) {
      capability = std::atoi(argv[++i]);
    }
  }
  if (path.empty()) {
    std::fprintf(stderr, "%s --json FILE [--quick] [--capability N]\n", argv[0]);
    return 2;
  }
  try {
    const ScopedDevice current(kGpu);
    BenchProgram bench(is_quick, capability);
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

RandomValues::RandomValues(int64_t count, double scale) : memory_(size_t(count) * 2) {
  fill_kernel<<<1024, 256>>>(reinterpret_cast<uint16_t*>(memory_.data()), size_t(count),
                             static_cast<float>(scale));
  HEDDLE_CUDA_CHECK(cudaGetLastError());
  HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
}

TensorView RandomValues::view(int64_t rows, int64_t columns, int64_t first, int64_t stride) const {
  const std::array<int64_t, 2> shape{rows, columns}, strides{stride == 0 ? columns : stride, 1};
  return {memory_.data() + 2 * first, DType::kBFloat16, kGpu, shape, strides};
}

DeviceIndices::DeviceIndices(const std::vector<int32_t>& values)
    : dtype_(DType::kInt32), size_(std::ssize(values)), memory_(values.size() * sizeof(int32_t)) {
  memory_.write(0, values.data(), memory_.size());
}

DeviceIndices::DeviceIndices(const std::vector<int64_t>& values, DType dtype, int64_t step)
    : dtype_(dtype),
      size_(std::ssize(values)),
      step_(step),
      memory_(values.size() * size_t(step) * size_of(dtype)) {
  upload(values);
}

void DeviceIndices::upload(const std::vector<int64_t>& values) {
  std::vector<int64_t> wide(values.size() * size_t(step_));
  for (size_t i = 0; i < values.size(); ++i) wide[i * size_t(step_)] = values[i];
  const std::vector<int32_t> narrow(wide.begin(), wide.end());
  const void* from = dtype_ == DType::kInt64 ? static_cast<const void*>(wide.data())
                                             : static_cast<const void*>(narrow.data());
  memory_.write(0, from, memory_.size());
}

TensorView DeviceIndices::view() const {
  const int64_t shape[] = {size_}, strides[] = {step_};
  return {memory_.data(), dtype_, kGpu, shape, strides};
}
TensorView DeviceIndices::table(int64_t width) const {
  const int64_t shape[] = {size_ / width, width}, strides[] = {width * step_, step_};
  return {memory_.data(), dtype_, kGpu, shape, strides};
}

}  // namespace heddle::testing
