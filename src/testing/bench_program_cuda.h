#pragma once

// What the programs bench_X_cuda share, which time ops on the first GPU:
//   bench_X_cuda --json FILE [--quick] [--capability N]
// FILE gets a list of records, which tools/gpu_check, plot_lora.py, plot_attention.py and
// small_ops_figures.py read.

#include <chrono>
#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/core/tensor_view.h"

#include "device_memory.h"
#include "graph_timing_cuda.h"

namespace heddle::testing {

inline constexpr Device kGpu{DeviceType::kCuda, 0};

// What an H200 reaches at most: plain reads; a copy, whose bytes count twice; and an empty kernel
// in a graph.
inline constexpr double kReadBytesPerUs = 4.6e6, kCopyBytesPerUs = 4.28e6, kEmptyKernelUs = 0.53;

[[nodiscard]] double median(std::vector<double> samples);

/// A member of a record.
struct Fact {
  Fact(std::string its_name, std::string its_text)
      : name(std::move(its_name)), text(std::move(its_text)), is_quoted(true) {}
  Fact(std::string its_name, const char* its_text)
      : Fact(std::move(its_name), std::string(its_text)) {}
  Fact(std::string its_name, double number);
  template <std::integral T>
  Fact(std::string its_name, T number) : name(std::move(its_name)), text(std::to_string(number)) {}
  template <class T>
  Fact(std::string its_name, const std::vector<T>& numbers) : name(std::move(its_name)) {
    for (const T number : numbers) text += (text.empty() ? "" : ", ") + Fact("", number).text;
    text = '[' + text + ']';
  }

  std::string name, text;
  bool is_quoted = false;  // the text is a string of JSON, not a number or a list
};

/// A run: the stream and the context of its calls, and what they took.
class BenchProgram {
 public:
  BenchProgram(bool is_quick, int capability)
      : is_quick_(is_quick), capability_(capability), context_(kGpu, stream_.get(), 0) {}

  [[nodiscard]] bool is_quick() const { return is_quick_; }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }
  [[nodiscard]] CudaContext& context() { return context_; }
  /// For calls, as for a chip of the compute capability that --capability names: with 80 the
  /// kernels run that older chips have.
  [[nodiscard]] ExecContext exec() const {
    ExecContext ctx = context_.exec();
    if (capability_ != 0) ctx.info.compute_capability = capability_;
    return ctx;
  }

  /// Keeps and prints a record: {"op": ...}, what names its case, what the hardware takes at least,
  /// and us of one call.
  void add(const std::vector<Fact>& facts, double floor_us, const std::vector<double>& samples);
  void write_json(const std::string& path) const;

 private:
  bool is_quick_;
  int capability_;  // 0: the chip's
  DeviceStream stream_;
  CudaContext context_;
  std::vector<std::string> records_;  // as JSON
};

/// The main of a program: run(bench), then the records, also those made before an error.
int run_bench(int argc, char** argv, void (*run)(BenchProgram&));

/// Microseconds that the host takes for one of num_calls calls into a stream that is empty at
/// first, one sample for each round.
template <class Call>
std::vector<double> time_on_host(cudaStream_t stream, int num_calls, Call&& call, Replays rounds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> samples;
  for (int i = 0; i < rounds.warm_up + rounds.timed; ++i) {
    HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
    const auto begin = Clock::now();
    for (int c = 0; c < num_calls; ++c) call();
    const std::chrono::duration<double, std::micro> time = Clock::now() - begin;
    if (i >= rounds.warm_up) samples.push_back(time.count() / num_calls);
  }
  HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
  return samples;
}

/// bf16 values in [-scale, scale) on the GPU, a hash of their addresses: zeros would take less
/// power.
class RandomValues {
 public:
  explicit RandomValues(int64_t count, double scale = 1);

  [[nodiscard]] std::byte* data() const { return memory_.data(); }
  /// [rows, columns] from value `first` on, rows `stride` values apart (0: columns, so that there
  /// are no gaps).
  [[nodiscard]] TensorView view(int64_t rows, int64_t columns, int64_t first = 0,
                                int64_t stride = 0) const;

 private:
  DeviceMemory memory_;
};

/// 0, step, 2 step, ..., count * step: where rows of one length begin, and the end.
[[nodiscard]] std::vector<int32_t> even_starts(int64_t count, int64_t step);
/// 0, 1, ..., n - 1 in an order that looks random, the same in every run.
[[nodiscard]] std::vector<int32_t> shuffled(int64_t n);

/// An array of i32 or i64 on the GPU, whose elements lie `step` elements apart.
class DeviceIndices {
 public:
  explicit DeviceIndices(const std::vector<int32_t>& values);
  DeviceIndices(const std::vector<int64_t>& values, DType dtype, int64_t step = 1);

  /// As many values as before.
  void upload(const std::vector<int64_t>& values);
  [[nodiscard]] TensorView view() const;
  [[nodiscard]] TensorView table(int64_t width) const;

 private:
  DType dtype_;
  int64_t size_, step_ = 1;
  DeviceMemory memory_;
};

}  // namespace heddle::testing
