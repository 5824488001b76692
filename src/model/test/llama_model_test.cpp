// A tiny random Llama against the same model in double: ragged steps, chunks, paged cache, adapters
// of several dtypes.
#include <span>

#include <gtest/gtest.h>

#include "compare.h"
#include "core/math.h"
#include "heap_count.h"
#include "model/decoder/decoder.h"
#include "model/test/adapter_cases.h"
#include "model/test/llama_model_ref.h"
#include "random.h"
#include "second_cpu.h"

namespace heddle::model {
namespace {

DecoderConfig tiny_config() {
  DecoderConfig config;
  config.num_layers = 2;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_q_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 37;
  config.context_length = 64;
  config.rotations[0].params.rotary_dim = 8;
  return config;
}

/// A model in both forms, on one device.
struct TinyLlama {
  ExecContext ctx;
  DecoderConfig config = tiny_config();
  DecoderWeights weights;
  ref::Llama ref;

  explicit TinyLlama(Device device) : ctx{.device = device} {
    ref.config = config;
    weights.embedding = matrix(config.vocab_size, config.hidden_size, 1.0f, ref.embedding);
    weights.output = matrix(config.vocab_size, config.hidden_size, 0.5f, ref.output);
    weights.output_norm = norm(ref.output_norm);
    const ModelDims dims = config.dims();
    for (int64_t i = 0; i < config.num_layers; ++i) {
      DecoderLayer layer;
      ref::Layer ref_layer;
      layer.attention_norm = norm(ref_layer.attention_norm);
      layer.mlp_norm = norm(ref_layer.mlp_norm);
      for (int p = 0; p < kNumProjections; ++p) {
        const ProjectionDims& d = dims.projections[p];
        layer.projection[static_cast<size_t>(p)] =
            matrix(d.out, d.in, 0.2f, ref_layer.projection[p]);
      }
      weights.layers.push_back(std::move(layer));
      ref.layers.push_back(std::move(ref_layer));
    }
  }

  PackedWeight matrix(int64_t out, int64_t in, float scale, std::vector<double>& ref_values) {
    const auto values = testing::random_normal<float>(static_cast<size_t>(out * in), scale);
    ref_values = testing::to_double(values);
    const size_t size = packed_bytes(WeightType::kF32, out, in);
    weights.buffers.push_back(allocate_zeroed(ctx.device, size));
    pack_rows(ctx, {weights.buffers.back().get(), size}, WeightType::kF32, out, in, 0, out,
              std::as_bytes(std::span(values)));
    return {WeightType::kF32, out, in, weights.buffers.back().get()};
  }

  DeviceTensor norm(std::vector<double>& ref_values) const {
    auto values = testing::random_normal<float>(static_cast<size_t>(config.hidden_size), 0.3f);
    for (float& v : values) v += 1.0f;
    ref_values = testing::to_double(values);
    return {ctx, std::span<const float>(values)};
  }
};

/// The memory of a paged cache and the pages of sequences in it, in a random order.
class TinyCache {
 public:
  TinyCache(Device device, const DecoderConfig& config, int num_seqs, int page_size)
      : page_size_(page_size) {
    pages_per_seq_ = ceil_div(config.context_length, page_size);
    const int64_t num_pages = num_seqs * pages_per_seq_;
    for (int64_t i = 0; i < config.num_layers * 2; ++i) {
      halves_.emplace_back(device, DType::kFloat32,
                           std::initializer_list<int64_t>{num_pages, config.num_kv_heads, page_size,
                                                          config.head_dim});
    }
    for (int64_t i = 0; i < num_pages; ++i) order_.push_back(static_cast<int32_t>(i));
    std::shuffle(order_.begin(), order_.end(), testing::rng());
  }

  [[nodiscard]] PagedKv layer(int index) const {
    const auto k = static_cast<size_t>(index) * 2;
    return PagedKv::from_pool(halves_[k].view(), halves_[k + 1].view());
  }

  void add_sequence(StepBatch& batch, int seq, int64_t kv_len) const {
    const int64_t num_pages = ceil_div(kv_len, page_size_);
    for (int64_t i = 0; i < num_pages; ++i) {
      batch.pages.push_back(order_[static_cast<size_t>(seq * pages_per_seq_ + i)]);
    }
    batch.page_indptr.push_back(static_cast<int32_t>(batch.pages.size()));
    batch.last_page_len.push_back(static_cast<int32_t>((kv_len - 1) % page_size_ + 1));
  }

 private:
  int page_size_;
  int64_t pages_per_seq_ = 0;
  std::vector<DeviceTensor> halves_;  // K and V of each layer
  std::vector<int32_t> order_;
};

void expect_the_reference_for_every_row_of_a_mixed_batch(Device device) {
  TinyLlama tiny(device);
  constexpr int kNumSeqs = 5;
  std::vector<ref::Llama> merged(kNumSeqs, tiny.ref);  // sequence i as the reference computes it
  std::string files[3];
  const std::vector<Projection> all = {Projection::kQ,   Projection::kK,    Projection::kV,
                                       Projection::kO,   Projection::kGate, Projection::kUp,
                                       Projection::kDown};
  ExecContext ctx = tiny.ctx;
  LoadedAdapters adapters{
      .layers = {tiny.config.dims(), LoraForm::of(device.type, DType::kFloat32)},
      .vocabularies = {}};
  LoraTables& tables = adapters.layers;
  EXPECT_EQ(tables.add(ctx, random_adapter<half>("F16", 3, all, files[0], merged[0])), 0);
  EXPECT_EQ(tables.add(ctx, random_adapter<float>("F32", 17, {Projection::kV, Projection::kDown},
                                                  files[1], merged[1])),
            1);
  EXPECT_EQ(
      tables.add(ctx, random_adapter<bfloat16>("BF16", 1, {Projection::kK}, files[2], merged[2])),
      2);
  EXPECT_EQ(tables.max_rank(), 17);
  const int32_t slots[kNumSeqs] = {0, 1, 2, kNoAdapter, kNoAdapter};

  std::vector<std::vector<int32_t>> tokens(kNumSeqs);
  for (auto& sequence : tokens) {
    const int64_t length = testing::random_int(2, 20);
    for (int64_t i = 0; i < length; ++i) {
      sequence.push_back(static_cast<int32_t>(testing::random_int(0, tiny.config.vocab_size - 1)));
    }
  }
  TinyCache cache(device, tiny.config, kNumSeqs, static_cast<int>(testing::random_int(1, 5)));
  Decoder model(tiny.config, std::move(tiny.weights));
  const StepLimits limits{
      .num_tokens = 100, .num_seqs = kNumSeqs, .num_pages = 500, .num_logit_rows = kNumSeqs};
  DecoderScratch scratch(device, tiny.config, limits, DType::kFloat32);
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
    const auto vocab = static_cast<size_t>(tiny.config.vocab_size);
    std::vector<float> logits(wanted.size() * vocab, NAN);
    const DeviceTensor computed(device, DType::kFloat32,
                                {static_cast<int64_t>(wanted.size()), tiny.config.vocab_size});
    copy_from_host(ctx, computed.view().raw(), std::as_bytes(std::span(logits)));
    double lora_seconds = 0;
    const int64_t num_allocations = testing::num_heap_allocations();
    model.forward(
        ctx, batch, scratch, [&](int layer) { return cache.layer(layer); }, adapters,
        computed.view(), &lora_seconds);
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
