// A tiny random Llama against the same model in double: ragged steps, chunks, paged cache, adapters
// of several dtypes.
#include <span>

#include <gtest/gtest.h>

#include "heap_count.h"
#include "model/decoder/decoder.h"
#include "model/test/adapter_cases.h"
#include "model/test/random_decoder.h"
#include "second_cpu.h"

namespace heddle::model {
namespace {

DecoderConfig tiny_config() {
  return llama::rotating({.num_layers = 2,
                          .hidden_size = 24,
                          .intermediate_size = 40,
                          .num_q_heads = 6,
                          .num_kv_heads = 2,
                          .head_dim = 8,
                          .vocab_size = 37,
                          .context_length = 64});
}

void expect_the_reference_for_every_row_of_a_mixed_batch(Device device) {
  const DecoderConfig config = tiny_config();
  RandomDecoder tiny(config, device);
  constexpr int kNumSeqs = 5;
  std::vector<ref::Llama> merged(kNumSeqs, tiny.ref);  // sequence i as the reference computes it
  std::string files[3];
  const std::vector<int> all = {llama::kQ,    llama::kK,  llama::kV,   llama::kO,
                                llama::kGate, llama::kUp, llama::kDown};
  ExecContext ctx = tiny.ctx;
  LoadedAdapters adapters{.layers = {config.dims(), LoraForm::of(device.type, DType::kFloat32)},
                          .vocabularies = {}};
  LoraTables& tables = adapters.layers;
  EXPECT_EQ(tables.add(ctx, random_adapter<half>("F16", 3, all, files[0], merged[0])), 0);
  EXPECT_EQ(tables.add(ctx, random_adapter<float>("F32", 17, {llama::kV, llama::kDown}, files[1],
                                                  merged[1])),
            1);
  EXPECT_EQ(tables.add(ctx, random_adapter<bfloat16>("BF16", 1, {llama::kK}, files[2], merged[2])),
            2);
  EXPECT_EQ(tables.max_rank(), 17);
  const int32_t slots[kNumSeqs] = {0, 1, 2, kNoAdapter, kNoAdapter};

  std::vector<std::vector<int32_t>> tokens(kNumSeqs);
  for (auto& sequence : tokens) {
    const int64_t length = testing::random_int(2, 20);
    for (int64_t i = 0; i < length; ++i) {
      sequence.push_back(static_cast<int32_t>(testing::random_int(0, config.vocab_size - 1)));
    }
  }
  const RandomCache cache(device, config, kNumSeqs, static_cast<int>(testing::random_int(1, 5)));
  Decoder model(config, std::move(tiny.weights));
  const StepLimits limits{
      .num_tokens = 100, .num_seqs = kNumSeqs, .num_pages = 500, .num_logit_rows = kNumSeqs};
  DecoderScratch scratch(device, config, limits, DType::kFloat32);
  std::vector<std::byte> buffer(model.workspace_bytes(device, limits, tables.max_rank()));
  Workspace workspace(buffer);
  ThreadPool threads(2);
  ctx.workspace = &workspace;
  ctx.threads = &threads;

  std::vector<int64_t> cached(kNumSeqs, 0);
  std::vector<bool> compared(kNumSeqs, false);
  while (std::ranges::find(compared, false) != compared.end()) {
    StepBatch batch;
    batch.q_indptr = batch.page_indptr = {0};
    std::vector<int> wanted;  // sequences whose logits this step gives
    for (int seq = 0; seq < kNumSeqs; ++seq) {
      const auto& sequence = tokens[static_cast<size_t>(seq)];
      int64_t& done = cached[static_cast<size_t>(seq)];
      const auto left = static_cast<int64_t>(sequence.size()) - done;
      const int64_t chunk = std::min(left, testing::random_int(0, 6));
      if (chunk == 0) continue;
      for (int64_t i = 0; i < chunk; ++i, ++done) {
        batch.token_ids.push_back(sequence[static_cast<size_t>(done)]);
        batch.positions.push_back(static_cast<int32_t>(done));
        batch.slot_ids.push_back(slots[seq]);
      }
      batch.q_indptr.push_back(static_cast<int32_t>(batch.num_tokens()));
      cache.add_sequence(batch, seq, done);
      if (chunk == left) {
        batch.logit_tokens.push_back(static_cast<int32_t>(batch.num_tokens() - 1));
        wanted.push_back(seq);
      }
    }
    const auto vocab = static_cast<size_t>(config.vocab_size);
    std::vector<float> logits(wanted.size() * vocab, NAN);
    const DeviceTensor computed(device, DType::kFloat32,
                                {static_cast<int64_t>(wanted.size()), config.vocab_size});
    copy_from_host(ctx, computed.view().raw(), std::as_bytes(std::span(logits)));
    double lora_seconds = 0;
    const int64_t num_allocations = testing::num_heap_allocations();
    model.forward(ctx, batch, scratch, cache.layers(), adapters, computed.view(), &lora_seconds);
    EXPECT_EQ(testing::num_heap_allocations(), num_allocations) << "a step allocates nothing";
    copy_to_host(ctx, std::span(logits), computed.view());
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto seq = static_cast<size_t>(wanted[i]);
      const std::vector<double> want = ref::logits(merged[seq], tokens[seq]);
      const std::span<const float> got(logits.data() + i * vocab, vocab);
      EXPECT_LT(testing::relative_error<float>(got, want), 2e-5) << "sequence " << seq;
      compared[seq] = true;
    }
  }
}

TEST(Decoder, MatchesTheReferenceForEveryRowOfAMixedBatch) {
  expect_the_reference_for_every_row_of_a_mixed_batch({});
}

/// The ops refuse tensors of another device: a buffer of the graph that did not come from the
/// context's device throws here.
TEST(Decoder, TakesAllMemoryFromTheDeviceOfItsContext) {
  expect_the_reference_for_every_row_of_a_mixed_batch(testing::kSecondCpu);
}

/// Memory of a device is not from operator new: what a scratch has from there, a GPU cannot read.
TEST(DecoderScratch, HasNothingOnTheHeap) {
  const DecoderConfig config = tiny_config();
  const int64_t num_allocations = testing::num_heap_allocations();
  const DecoderScratch scratch(
      {}, config, {.num_tokens = 100, .num_seqs = 8, .num_pages = 500, .num_logit_rows = 8},
      DType::kFloat32);
  EXPECT_EQ(testing::num_heap_allocations(), num_allocations);
}

}  // namespace
}  // namespace heddle::model
