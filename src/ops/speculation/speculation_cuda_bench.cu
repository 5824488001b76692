// Times the bookkeeping after a forward pass over drafts on the first GPU, in a graph and from the host.
//   bench_speculation_cuda --json FILE [--quick]
// Requests keep 0, 1, 2 or 3 of three drafts in turn and lie in blocks of 16 tokens, so that one in six or so gives a block back.
// The floor is an empty kernel in a graph, 1.03 us on an H200; 256 requests read and write 60 KB, 0.02 us. Peers' calls: 1.9 + 3.4 +
// 1.9 us in a graph, 130 us of host time.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "cuda/check.h"

#include "heddle/core/cuda_context.h"
#include "heddle/ops/speculation.h"

#include "core/device_bytes.h"
#include "testing/graph_timing_cuda.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceType::kCuda, 0};
constexpr int64_t kDrafts = 3, kBlockSize = 16, kMaxBlocks = 64;
constexpr int kCalls =
    50;  // of a graph, and of a sample of host time: far fewer than a cache has blocks to give back

/// An index array in device memory.
class Indices {
 public:
  Indices(DType dtype, const std::vector<int64_t>& values)
      : dtype_(dtype), size_(std::ssize(values)), bytes_(values.size() * size_of(dtype)) {
    memory_ = allocate_zeroed(kGpu, bytes_);
    upload(values);
  }
  void upload(const std::vector<int64_t>& values) {
    const std::vector<int32_t> narrow(values.begin(), values.end());
    const void* from = dtype_ == DType::kInt64 ? static_cast<const void*>(values.data())
                                               : static_cast<const void*>(narrow.data());
    HEDDLE_CUDA_CHECK(cudaMemcpy(memory_.get(), from, bytes_, cudaMemcpyHostToDevice));
    HEDDLE_CUDA_CHECK(cudaDeviceSynchronize());
  }
  [[nodiscard]] TensorView row() const { return {memory_.get(), dtype_, kGpu, {size_}}; }
  [[nodiscard]] TensorView table(int64_t width) const {
    return {memory_.get(), dtype_, kGpu, {size_ / width, width}};
  }

 private:
  DType dtype_;
  int64_t size_;
  size_t bytes_;
  DeviceBytes memory_;
};

/// The arrays of n decode requests.
class Batch {
 public:
  Batch(int64_t n, DType dtype)
      : n_(n),
        input_(dtype, tokens([](int64_t, int64_t j) { return 100 + j; })),
        output_(dtype, tokens([](int64_t i, int64_t j) { return j < i % 4 ? 101 + j : 0; })),
        required_(dtype, tokens([](int64_t i, int64_t j) { return i * 4 + j; })),
        offset_(dtype, rows([](int64_t i) { return i % kBlockSize; })),
        length_(dtype, rows([](int64_t) { return 1000; })),
        count_(dtype, rows([](int64_t) { return kMaxBlocks; })),
        last_id_(dtype, rows([](int64_t) { return 7; })),
        ids_(dtype, std::vector<int64_t>(size_t(n * kMaxBlocks), 7)),
        prefill_(dtype, zeros(1)),
        last_ones_(dtype, zeros(1)),
        sampled_(dtype, zeros(1)),
        last_seq_(dtype, zeros(1)),
        accepted_(dtype, zeros(1)),
        blocks_(dtype, zeros(1)),
        kv_lens_(dtype, zeros(1)),
        last_page_(dtype, zeros(1)),
        accepted_tokens_(dtype, zeros(kDrafts)),
        released_(dtype, zeros(1)),
        num_released_(dtype, {0}),
        positions_(dtype, zeros(1 + kDrafts)),
        slots_(dtype, zeros(1 + kDrafts)),
        masks_(allocate_zeroed(kGpu, size_t(n * (2 + kDrafts)))) {}

  /// Enough blocks for all rewinds of a replay.
  void restore() {
    offset_.upload(rows([](int64_t i) { return i % kBlockSize; }));
    count_.upload(rows([](int64_t) { return kMaxBlocks; }));
  }
  void verify(const ExecContext& ctx) const {
    verify_speculative_tokens(ctx, last_ones_.row(), mask(), input_.row(), output_.row(), n_, 0,
                              drafts());
  }
  void prepare(const ExecContext& ctx) const {
    prepare_next_forward_pass(ctx, sampled_.row(), last_seq_.row(), accepted_tokens_.table(kDrafts),
                              accepted_.row(), output_.row(), required_.row(), last_ones_.row(),
                              mask(), input_.row(), n_, drafts());
  }
  void rewind(const ExecContext& ctx) const {
    rewind_kv_cache(ctx, releases(), state(), accepted_.row(), prefill_.row(), drafts(),
                    kBlockSize);
  }
  void step(const ExecContext& ctx) const {
    speculative_step(ctx,
                     {.last_one_indices = last_ones_.row(),
                      .accepted_tokens_mask = mask(),
                      .sampled_tokens = sampled_.row(),
                      .last_accepted_seq = last_seq_.row(),
                      .accepted_tokens = accepted_tokens_.table(kDrafts),
                      .accepted_counts = accepted_.row(),
                      .released = releases(),
                      .next_positions = positions_.table(1 + kDrafts),
                      .next_slots = slots_.table(1 + kDrafts),
                      .next_kv_lens = kv_lens_.row(),
                      .next_last_page_len = last_page_.row()},
                     state(), input_.row(), output_.row(), required_.row(), n_, 0, drafts(),
                     kBlockSize, {.num_next_tokens = 1 + kDrafts});
  }

 private:
  template <class Value>
  [[nodiscard]] std::vector<int64_t> rows(const Value& value) const {
    std::vector<int64_t> values;
    for (int64_t i = 0; i < n_; ++i) values.push_back(value(i));
    return values;
  }
  template <class Value>
  [[nodiscard]] std::vector<int64_t> tokens(const Value& value) const {
    std::vector<int64_t> values;
    for (int64_t t = 0; t < n_ * (1 + kDrafts); ++t) {
      values.push_back(value(t / (1 + kDrafts), t % (1 + kDrafts)));
    }
    return values;
  }
  [[nodiscard]] std::vector<int64_t> zeros(int64_t width) const {
    return std::vector<int64_t>(size_t(n_ * width));
  }
  [[nodiscard]] static Drafts drafts() { return Drafts::uniform(kDrafts); }
  [[nodiscard]] TensorView mask() const {
    return {masks_.get(), DType::kBool, kGpu, {n_ * (1 + kDrafts)}};
  }
  [[nodiscard]] KvBlockState state() const {
    return {offset_.row(), length_.row(), count_.row(), last_id_.row(), ids_.table(kMaxBlocks)};
  }
  [[nodiscard]] ReleasedBlocks releases() const {
    const TensorView remove(masks_.get() + n_ * (1 + kDrafts), DType::kBool, kGpu, {n_});
    return {blocks_.row(), remove, released_.row(), num_released_.row()};
  }

  int64_t n_;
  Indices input_, output_, required_, offset_, length_, count_, last_id_, ids_, prefill_;
  Indices last_ones_, sampled_, last_seq_, accepted_, blocks_, kv_lens_, last_page_;
  Indices accepted_tokens_, released_, num_released_, positions_, slots_;
  DeviceBytes masks_;
};

/// n sequences of `length` tokens in rows of max_tokens. The last two tokens come again, and nothing else, three quarters in.
class Sequences {
 public:
  Sequences(int64_t n, int64_t length, int64_t max_tokens, DType dtype)
      : n_(n),
        max_tokens_(max_tokens),
        tokens_(dtype, tokens(n, length, max_tokens)),
        lengths_(dtype, std::vector<int64_t>(size_t(n), length)),
        drafts_(dtype, std::vector<int64_t>(size_t(n * kDrafts))),
        counts_(dtype, std::vector<int64_t>(size_t(n))) {}

  void propose(const ExecContext& ctx) const {
    propose_ngram_drafts(ctx, drafts_.table(kDrafts), counts_.row(), tokens_.table(max_tokens_),
                         lengths_.row(), kDrafts);
  }
  void restore() {}

 private:
  static std::vector<int64_t> tokens(int64_t n, int64_t length, int64_t max_tokens) {
    std::vector<int64_t> values(size_t(n * max_tokens));
    for (size_t i = 0; i < values.size(); ++i) {
      const auto at = int64_t(i) % max_tokens;
      const bool is_ngram = at >= length - 2 || at / 2 == length * 3 / 8;
      values[i] = is_ngram ? (length - at) % 2 : 2 + at;
    }
    return values;
  }

  int64_t n_, max_tokens_;
  Indices tokens_, lengths_, drafts_, counts_;
};

struct Record {
  std::string op, form;
  int64_t requests, length;  // length: tokens of a sequence, where they count
  DType dtype;
  double floor_us;
  std::vector<double> samples;  // us of one call
};

class Bench {
 public:
  explicit Bench(bool is_quick) : is_quick_(is_quick) {
    HEDDLE_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    context_.emplace(kGpu, stream_, 0);
    ctx_ = context_->exec();
  }
  ~Bench() {
    context_.reset();
    cudaStreamDestroy(stream_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  void run() {
    for (const int64_t requests : {int64_t{1}, int64_t{256}, int64_t{1024}, int64_t{4096}}) {
      for (const DType dtype : {DType::kInt32, DType::kInt64}) {
        Batch batch(requests, dtype);
        batch.verify(ctx_);
        batch.prepare(ctx_);
        time("verify_speculative_tokens", batch, requests, dtype, &Batch::verify);
        time("prepare_next_forward_pass", batch, requests, dtype, &Batch::prepare);
        time("rewind_kv_cache", batch, requests, dtype, &Batch::rewind);
        time("speculative_step", batch, requests, dtype, &Batch::step);
      }
    }
    for (const auto& [requests, length] :
         {std::pair<int64_t, int64_t>{1, 2048}, {256, 2048}, {1, 131072}, {32, 131072}}) {
      Sequences sequences(requests, length, length, DType::kInt32);
      length_ = length;
      time("propose_ngram_drafts", sequences, requests, DType::kInt32, &Sequences::propose);
    }
  }
  void write_json(const std::string& path) const {
    std::ofstream file(path);
    const char* separator = "[\n";
    for (const Record& r : records_) {
      file << separator << R"({"op": ")" << r.op << R"(", "form": ")" << r.form
           << R"(", "requests": )" << r.requests;
      if (r.length > 0) file << R"(, "length": )" << r.length;
      file << R"(, "drafts": )" << kDrafts << R"(, "dtype": ")" << name(r.dtype)
           << R"(", "floor_us": )" << r.floor_us << R"(, "us": )" << median(r.samples)
           << R"(, "samples": )";
      for (size_t i = 0; i < r.samples.size(); ++i) file << (i == 0 ? "[" : ", ") << r.samples[i];
      file << "]}";
      separator = ",\n";
    }
    file << "\n]\n";
    file.close();
    HEDDLE_CHECK(!file.fail(), "cannot write ", path);
  }

 private:
  static double median(std::vector<double> samples) {
    std::sort(samples.begin(), samples.end());
    return samples[samples.size() / 2];
  }
  /// One sample for each graph of kCalls calls, before which the blocks are put back.
  template <class Batch>
  void time(const char* op, Batch& batch, int64_t requests, DType dtype,
            void (Batch::*call)(const ExecContext&) const) {
    constexpr double kEmptyKernelUs = 1.03, kBytesPerRequest = 240, kReadBytesPerUs = 4.6e6;
    const int samples = is_quick_ ? 5 : 15;
    const double bytes = length_ > 0 ? double(length_) * double(size_of(dtype)) : kBytesPerRequest;
    const double floor = kEmptyKernelUs + double(requests) * bytes / kReadBytesPerUs;
    const testing::RecordedGraph graph(stream_, [&] {
      for (int i = 0; i < kCalls; ++i) (batch.*call)(ctx_);
    });
    testing::ReplayTimer replay_us;
    Record in_graph{op, "graph", requests, length_, dtype, floor, {}};
    Record on_host{op, "host", requests, length_, dtype, 0, {}};
    for (int i = 0; i < samples + 3; ++i) {
      batch.restore();
      const double us = replay_us(graph, stream_) / kCalls;
      batch.restore();
      const auto begin = std::chrono::steady_clock::now();
      for (int c = 0; c < kCalls; ++c) (batch.*call)(ctx_);
      const std::chrono::duration<double, std::micro> host =
          std::chrono::steady_clock::now() - begin;
      HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream_));
      if (i < 3) continue;
      in_graph.samples.push_back(us);
      on_host.samples.push_back(host.count() / kCalls);
    }
    add(std::move(in_graph));
    add(std::move(on_host));
  }
  void add(Record record) {
    std::printf("%-26s %-5s %5lld requests %6lld tokens %-3s %8.2f us  floor %5.2f\n",
                record.op.c_str(), record.form.c_str(), static_cast<long long>(record.requests),
                static_cast<long long>(record.length), name(record.dtype), median(record.samples),
                record.floor_us);
    std::fflush(stdout);
    records_.push_back(std::move(record));
  }

  bool is_quick_;
  int64_t length_ = 0;
  cudaStream_t stream_ = nullptr;
  std::optional<CudaContext> context_;
  ExecContext ctx_;
  std::vector<Record> records_;
};

int run_main(int argc, char** argv) {
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
    bench.run();
    bench.write_json(path);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    return 1;
  }
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::run_main(argc, argv); }
