#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "heddle/ops/speculation.h"

namespace heddle {
namespace {

constexpr int64_t kBlockSize = 16, kMaxBlocks = 64;

/// num_requests decode requests with S = 3 drafts, of which request i keeps i mod 4, all in blocks
/// of 16 tokens.
template <class I>
struct Batch {
  static constexpr int64_t kDrafts = 3;
  int64_t n;
  std::vector<I> input, output, required, last_ones, sampled, last_seq, tokens, counts, prefill;
  std::vector<I> offset, length, count, last_id, ids, blocks, released, num_released;
  std::vector<I> positions, slots, kv_lens, last_page_len;
  std::vector<uint8_t> mask, remove;

  explicit Batch(int64_t num_requests) : n(num_requests) {
    const size_t rows = size_t(n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= kDrafts; ++j) {
        input.push_back(I(100 + j));
        output.push_back(I(j < i % 4 ? 101 + j : 0));
        required.push_back(I(required.size()));
      }
    }
    for (auto* v : {&last_ones, &sampled, &last_seq, &counts, &prefill, &offset, &length, &count,
                    &last_id, &blocks, &kv_lens, &last_page_len}) {
      v->assign(rows, 0);
    }
    for (auto* v : {&tokens, &positions, &slots, &released}) v->assign(rows * 4, 0);
    num_released.assign(1, 0);
    ids.assign(rows * size_t(kMaxBlocks), 7);
    mask.assign(input.size(), 0);
    remove.assign(rows, 0);
    reset();
  }
  /// Enough blocks for every rewind to come, so that each call does the work of a real one.
  void reset() {
    for (size_t i = 0; i < size_t(n); ++i) {
      offset[i] = I(i % size_t(kBlockSize));
      length[i] = 1000;
      count[i] = I(kMaxBlocks);
    }
  }
  TensorView row(std::vector<I>& v) { return host_view(v.data(), {std::ssize(v)}); }
  TensorView table(std::vector<I>& v, int64_t width) { return host_view(v.data(), {n, width}); }
  TensorView bits(std::vector<uint8_t>& v) { return host_view(v.data(), {std::ssize(v)}); }
  KvBlockState state() {
    return {row(offset), row(length), row(count), row(last_id), table(ids, kMaxBlocks)};
  }
  ReleasedBlocks releases() {
    return {row(blocks), bits(remove), row(released), row(num_released)};
  }

  void verify() {
    verify_speculative_tokens({}, row(last_ones), bits(mask), row(input), row(output), n, 0,
                              Drafts::uniform(kDrafts));
  }
  void prepare() {
    prepare_next_forward_pass({}, row(sampled), row(last_seq), table(tokens, 4), row(counts),
                              row(output), row(required), row(last_ones), bits(mask), row(input), n,
                              Drafts::uniform(kDrafts));
  }
  void rewind() {
    rewind_kv_cache({}, releases(), state(), row(counts), row(prefill), Drafts::uniform(kDrafts),
                    kBlockSize);
  }
  void step() {
    speculative_step({},
                     {.last_one_indices = row(last_ones),
                      .accepted_tokens_mask = bits(mask),
                      .sampled_tokens = row(sampled),
                      .last_accepted_seq = row(last_seq),
                      .accepted_tokens = table(tokens, 4),
                      .accepted_counts = row(counts),
                      .released = releases(),
                      .next_positions = table(positions, 4),
                      .next_slots = table(slots, 4),
                      .next_kv_lens = row(kv_lens),
                      .next_last_page_len = row(last_page_len)},
                     state(), row(input), row(output), row(required), n, 0,
                     Drafts::uniform(kDrafts), kBlockSize, {.num_next_tokens = 4});
  }
};

/// One thread. A rewind takes up to three tokens, so after 200 the blocks are put back.
template <class I>
void run(benchmark::State& state, int64_t num_requests, void (Batch<I>::*op)()) {
  Batch<I> batch(num_requests);
  batch.verify();
  batch.prepare();
  int calls = 0;
  for (auto _ : state) {
    if (++calls % 200 == 0) batch.reset();
    (batch.*op)();
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(state.iterations() * num_requests);
}

template <class I>
void add(int64_t num_requests) {
  const std::string suffix =
      std::string("/") + name(kDType<I>) + "/requests:" + std::to_string(num_requests);
  const auto add_op = [&](const char* op, void (Batch<I>::*call)()) {
    benchmark::RegisterBenchmark((std::string("speculation/") + op + suffix).c_str(), run<I>,
                                 num_requests, call);
  };
  add_op("verify_speculative_tokens", &Batch<I>::verify);
  add_op("prepare_next_forward_pass", &Batch<I>::prepare);
  add_op("rewind_kv_cache", &Batch<I>::rewind);
  add_op("speculative_step", &Batch<I>::step);
}

[[maybe_unused]] const bool registered = [] {
  add<int32_t>(256);
  add<int64_t>(256);
  add<int64_t>(4096);
  return true;
}();

}  // namespace
}  // namespace heddle
