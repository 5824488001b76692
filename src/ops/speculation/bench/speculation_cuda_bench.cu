// Times the bookkeeping after a forward pass over drafts on the first GPU, in a graph and from the
// host.
//   bench_speculation_cuda --json FILE [--quick]
// Requests keep 0, 1, 2 or 3 of three drafts in turn and lie in blocks of 16 tokens, so that one in
// six or so gives a block back. The floor is an empty kernel in a graph, 0.53 us on an H200; 256
// requests read and write 60 KB, 0.02 us. Peers' calls: 1.9 + 3.4 + 1.9 us in a graph, 130 us of
// host time.

#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "heddle/ops/speculation.h"

#include "core/device_bytes.h"
#include "testing/bench_program_cuda.h"

namespace heddle {
namespace {

using testing::kGpu;

constexpr int64_t kDrafts = 3, kBlockSize = 16, kMaxBlocks = 64;
constexpr int kCalls =
    50;  // of a graph, and of a sample of host time: far fewer than a cache has blocks to give back

/// The dtypes of a batch: of tokens and what counts them, and of the state of the cache.
struct BatchDTypes {
  const char* name;
  DType tokens, state;
  int64_t step = 1;  // elements from one to the next
};
// The third is what Megatron-LM's controller has.
constexpr BatchDTypes kBatchDTypes[] = {{"i32", DType::kInt32, DType::kInt32},
                                        {"i64", DType::kInt64, DType::kInt64},
                                        {"i64, state i32", DType::kInt64, DType::kInt32},
                                        {"i32, strided", DType::kInt32, DType::kInt32, 2},
                                        {"i64, strided", DType::kInt64, DType::kInt64, 2}};

/// The arrays of n decode requests.
class Batch {
 public:
  Batch(int64_t n, const BatchDTypes& of)
      : n_(n),
        input_(tokens([](int64_t, int64_t j) { return 100 + j; }), of.tokens, of.step),
        output_(tokens([](int64_t i, int64_t j) { return j < i % 4 ? 101 + j : 0; }), of.tokens,
                of.step),
        required_(tokens([](int64_t i, int64_t j) { return i * 4 + j; }), of.tokens, of.step),
        offset_(rows([](int64_t i) { return i % kBlockSize; }), of.state, of.step),
        length_(rows([](int64_t) { return 1000; }), of.state, of.step),
        count_(rows([](int64_t) { return kMaxBlocks; }), of.state, of.step),
        last_id_(rows([](int64_t) { return 7; }), of.state, of.step),
        ids_(std::vector<int64_t>(size_t(n * kMaxBlocks), 7), of.state, of.step),
        prefill_(zeros(1), of.state, of.step),
        last_ones_(zeros(1), of.tokens, of.step),
        sampled_(zeros(1), of.tokens, of.step),
        last_seq_(zeros(1), of.tokens, of.step),
        accepted_(zeros(1), of.tokens, of.step),
        blocks_(zeros(1), of.state, of.step),
        kv_lens_(zeros(1), of.state, of.step),
        last_page_(zeros(1), of.state, of.step),
        accepted_tokens_(zeros(kDrafts), of.tokens, of.step),
        released_(zeros(1), of.state, of.step),
        num_released_(std::vector<int64_t>{0}, of.state, of.step),
        positions_(zeros(1 + kDrafts), of.tokens, of.step),
        slots_(zeros(1 + kDrafts), of.tokens, of.step),
        masks_(allocate_zeroed(kGpu, size_t(n * (2 + kDrafts)))) {}

  /// Enough blocks for all rewinds of a replay.
  void restore() {
    offset_.upload(rows([](int64_t i) { return i % kBlockSize; }));
    count_.upload(rows([](int64_t) { return kMaxBlocks; }));
  }
  void verify(const ExecContext& ctx) const {
    verify_speculative_tokens(ctx, last_ones_.view(), mask(), input_.view(), output_.view(), n_, 0,
                              drafts());
  }
  void prepare(const ExecContext& ctx) const {
    prepare_next_forward_pass(
        ctx, sampled_.view(), last_seq_.view(), accepted_tokens_.table(kDrafts), accepted_.view(),
        output_.view(), required_.view(), last_ones_.view(), mask(), input_.view(), n_, drafts());
  }
  void rewind(const ExecContext& ctx) const {
    rewind_kv_cache(ctx, releases(), state(), accepted_.view(), prefill_.view(), drafts(),
                    kBlockSize);
  }
  /// As Megatron-LM calls it.
  void rewind_without_list(const ExecContext& ctx) const {
    ReleasedBlocks to = releases();
    to.released_ids = {};
    to.num_released = {};
    rewind_kv_cache(ctx, to, state(), accepted_.view(), prefill_.view(), drafts(), kBlockSize);
  }
  void step(const ExecContext& ctx) const {
    speculative_step(ctx,
                     {.last_one_indices = last_ones_.view(),
                      .accepted_tokens_mask = mask(),
                      .sampled_tokens = sampled_.view(),
                      .last_accepted_seq = last_seq_.view(),
                      .accepted_tokens = accepted_tokens_.table(kDrafts),
                      .accepted_counts = accepted_.view(),
                      .released = releases(),
                      .next_positions = positions_.table(1 + kDrafts),
                      .next_slots = slots_.table(1 + kDrafts),
                      .next_kv_lens = kv_lens_.view(),
                      .next_last_page_len = last_page_.view()},
                     state(), input_.view(), output_.view(), required_.view(), n_, 0, drafts(),
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
    return {offset_.view(), length_.view(), count_.view(), last_id_.view(), ids_.table(kMaxBlocks)};
  }
  [[nodiscard]] ReleasedBlocks releases() const {
    const TensorView remove(masks_.get() + n_ * (1 + kDrafts), DType::kBool, kGpu, {n_});
    return {blocks_.view(), remove, released_.view(), num_released_.view()};
  }

  int64_t n_;
  testing::DeviceIndices input_, output_, required_, offset_, length_, count_, last_id_, ids_,
      prefill_;
  testing::DeviceIndices last_ones_, sampled_, last_seq_, accepted_, blocks_, kv_lens_, last_page_;
  testing::DeviceIndices accepted_tokens_, released_, num_released_, positions_, slots_;
  DeviceBytes masks_;
};

/// n sequences of `length` tokens in rows of max_tokens. The last two tokens come again, and
/// nothing else, three quarters in.
class Sequences {
 public:
  Sequences(int64_t n, int64_t length, int64_t max_tokens, DType dtype)
      : n_(n),
        max_tokens_(max_tokens),
        tokens_(tokens(n, length, max_tokens), dtype),
        lengths_(std::vector<int64_t>(size_t(n), length), dtype),
        drafts_(std::vector<int64_t>(size_t(n * kDrafts)), dtype),
        counts_(std::vector<int64_t>(size_t(n)), dtype) {}

  void propose(const ExecContext& ctx) const {
    propose_ngram_drafts(ctx, drafts_.table(kDrafts), counts_.view(), tokens_.table(max_tokens_),
                         lengths_.view(), kDrafts);
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
  testing::DeviceIndices tokens_, lengths_, drafts_, counts_;
};

class Bench {
 public:
  explicit Bench(testing::BenchProgram& program)
      : program_(program), ctx_(program.context().exec()) {}

  void time_all() {
    for (const int requests : {1, 32, 256, 1024, 4096}) {
      for (const BatchDTypes& dtypes : kBatchDTypes) {
        Batch batch(requests, dtypes);
        batch.verify(ctx_);
        batch.prepare(ctx_);
        time("verify_speculative_tokens", batch, requests, dtypes.name, &Batch::verify);
        time("prepare_next_forward_pass", batch, requests, dtypes.name, &Batch::prepare);
        time("rewind_kv_cache", batch, requests, dtypes.name, &Batch::rewind);
        time("rewind_kv_cache without list", batch, requests, dtypes.name,
             &Batch::rewind_without_list);
        time("speculative_step", batch, requests, dtypes.name, &Batch::step);
      }
    }
    for (const auto& [requests, length] :
         {std::pair<int64_t, int64_t>{1, 2048}, {256, 2048}, {1, 131072}, {32, 131072}}) {
      Sequences sequences(requests, length, length, DType::kInt32);
      length_ = length;
      time("propose_ngram_drafts", sequences, requests, "i32", &Sequences::propose);
    }
  }

 private:
  /// One sample for each graph of kCalls calls, before which the blocks are put back.
  template <class Batch>
  void time(const char* op, Batch& batch, int64_t requests, const char* dtypes,
            void (Batch::*call)(const ExecContext&) const) {
    constexpr double kBytesPerRequest = 240;
    const cudaStream_t stream = program_.stream();
    const int num_samples = program_.is_quick() ? 5 : 15;
    const testing::RecordedGraph graph(stream, [&] {
      for (int i = 0; i < kCalls; ++i) (batch.*call)(ctx_);
    });
    testing::ReplayTimer replay_us;
    std::vector<double> in_graph, on_host;
    for (int i = 0; i < num_samples + 3; ++i) {
      batch.restore();
      const double us = replay_us(graph, stream) / kCalls;
      batch.restore();
      const auto begin = std::chrono::steady_clock::now();
      for (int c = 0; c < kCalls; ++c) (batch.*call)(ctx_);
      const std::chrono::duration<double, std::micro> host =
          std::chrono::steady_clock::now() - begin;
      HEDDLE_CUDA_CHECK(cudaStreamSynchronize(stream));
      if (i < 3) continue;
      in_graph.push_back(us);
      on_host.push_back(host.count() / kCalls);
    }
    const double bytes =
        length_ > 0 ? double(length_) * double(size_of(DType::kInt32)) : kBytesPerRequest;
    const double floor_us =
        testing::kEmptyKernelUs + double(requests) * bytes / testing::kReadBytesPerUs;
    add(op, "graph", requests, dtypes, floor_us, in_graph);
    add(op, "host", requests, dtypes, 0, on_host);
  }
  void add(const char* op, const char* form, int64_t requests, const char* dtypes, double floor_us,
           const std::vector<double>& samples) {
    std::vector<testing::Fact> facts{{"op", op}, {"form", form}, {"requests", requests}};
    if (length_ > 0) facts.emplace_back("length", length_);
    facts.emplace_back("drafts", kDrafts);
    facts.emplace_back("dtype", dtypes);
    program_.add(facts, floor_us, samples);
  }

  testing::BenchProgram& program_;
  const ExecContext& ctx_;
  int64_t length_ = 0;  // tokens of a sequence, where they count
};

void run(testing::BenchProgram& program) { Bench(program).time_all(); }

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::testing::run_bench(argc, argv, heddle::run); }
