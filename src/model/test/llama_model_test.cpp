// A tiny random Llama against the same model in double: ragged steps, chunks, paged cache, adapters of several dtypes.
#include "model/llama_model.h"

#include <span>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "compare.h"
#include "core/math.h"
#include "model/test/llama_model_ref.h"
#include "random.h"
#include "safetensors_builder.h"

namespace heddle::model {
namespace {

LlamaConfig tiny_config() {
  LlamaConfig config;
  config.num_layers = 2;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_q_heads = 6;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 37;
  config.context_length = 64;
  config.rope.rotary_dim = 8;
  return config;
}

/// A model in both forms.
struct TinyLlama {
  LlamaConfig config = tiny_config();
  LlamaWeights weights;
  ref::Llama ref;

  TinyLlama() {
    ref.config = config;
    weights.embedding = matrix(config.vocab_size, config.hidden_size, 1.0f, ref.embedding);
    weights.output = matrix(config.vocab_size, config.hidden_size, 0.5f, ref.output);
    weights.output_norm = norm(ref.output_norm);
    const ModelDims dims = config.dims();
    for (int64_t i = 0; i < config.num_layers; ++i) {
      LlamaLayer layer;
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
    weights.buffers.push_back(allocate_packed(size));
    pack_rows({}, {weights.buffers.back().get(), size}, WeightType::kF32, out, in, 0, out,
              std::as_bytes(std::span(values)));
    return {WeightType::kF32, out, in, weights.buffers.back().get()};
  }

  std::vector<float> norm(std::vector<double>& ref_values) const {
    auto values = testing::random_normal<float>(static_cast<size_t>(config.hidden_size), 0.3f);
    for (float& v : values) v += 1.0f;
    ref_values = testing::to_double(values);
    return values;
  }
};

/// A random adapter of one dtype on some projections, as PEFT would save it, added to a reference model as well.
template <class T>
PeftAdapter random_adapter(const char* dtype, int64_t rank, const std::vector<Projection>& targets,
                           std::string& file, ref::Llama& merged) {
  const ModelDims dims = merged.config.dims();
  const double alpha = 3.0;
  testing::SafetensorsBuilder tensors;
  std::vector<std::string> target_names;
  const auto add = [&](const std::string& name, int64_t rows, int64_t columns) {
    const auto values = testing::random_normal<T>(static_cast<size_t>(rows * columns), 0.2f);
    tensors.tensor(name, dtype, {rows, columns},
                   {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
    return testing::to_double(values);
  };
  for (const Projection p : targets) target_names.emplace_back(name(p));
  for (int64_t layer = 0; layer < dims.num_layers; ++layer) {
    for (const Projection p : targets) {
      const bool is_mlp = p >= Projection::kGate;
      const std::string prefix = "base_model.model.model.layers." + std::to_string(layer) +
                                 (is_mlp ? ".mlp." : ".self_attn.") + name(p);
      const std::vector<double> a = add(prefix + ".lora_A.weight", rank, dims[p].in);
      const std::vector<double> b = add(prefix + ".lora_B.weight", dims[p].out, rank);
      std::vector<double>& w =
          merged.layers[static_cast<size_t>(layer)].projection[static_cast<int>(p)];
      for (int64_t o = 0; o < dims[p].out; ++o) {
        for (int64_t r = 0; r < rank; ++r) {
          for (int64_t k = 0; k < dims[p].in; ++k) {
            w[static_cast<size_t>(o * dims[p].in + k)] +=
                alpha / static_cast<double>(rank) * b[static_cast<size_t>(o * rank + r)] *
                a[static_cast<size_t>(r * dims[p].in + k)];
          }
        }
      }
    }
  }
  file = tensors.build();
  const nlohmann::json config = {
      {"peft_type", "LORA"}, {"r", rank}, {"lora_alpha", alpha}, {"target_modules", target_names}};
  return PeftAdapter(config.dump(), std::as_bytes(std::span(file)), "random adapter");
}

/// The memory of a paged cache and the pages of sequences in it, in a random order.
class TinyCache {
 public:
  TinyCache(const LlamaConfig& config, int num_seqs, int page_size)
      : config_(config), page_size_(page_size) {
    pages_per_seq_ = ceil_div(config.context_length, page_size);
    const int64_t num_pages = num_seqs * pages_per_seq_;
    half_ = num_pages * config.num_kv_heads * page_size * config.head_dim;
    data_.resize(static_cast<size_t>(config.num_layers * 2 * half_));
    for (int64_t i = 0; i < num_pages; ++i) order_.push_back(static_cast<int32_t>(i));
    std::shuffle(order_.begin(), order_.end(), testing::rng());
  }

  PagedKv layer(int index) {
    const auto view = [&](int64_t kv) {
      return host_view(data_.data() + (index * 2 + kv) * half_,
                       {static_cast<int64_t>(order_.size()), config_.num_kv_heads, page_size_,
                        config_.head_dim});
    };
    return PagedKv::from_pool(view(0), view(1));
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
  LlamaConfig config_;
  int page_size_;
  int64_t pages_per_seq_ = 0, half_ = 0;
  std::vector<float> data_;
  std::vector<int32_t> order_;
};

TEST(LlamaModel, MatchesTheReferenceForEveryRowOfAMixedBatch) {
  TinyLlama tiny;
  constexpr int kNumSeqs = 5;
  std::vector<ref::Llama> merged(kNumSeqs, tiny.ref);  // sequence i as the reference computes it
  std::string files[3];
  const std::vector<Projection> all = {Projection::kQ,   Projection::kK,    Projection::kV,
                                       Projection::kO,   Projection::kGate, Projection::kUp,
                                       Projection::kDown};
  LoraTables tables(tiny.config.dims());
  EXPECT_EQ(tables.add(random_adapter<half>("F16", 3, all, files[0], merged[0])), 0);
  EXPECT_EQ(tables.add(random_adapter<float>("F32", 17, {Projection::kV, Projection::kDown},
                                             files[1], merged[1])),
            1);
  EXPECT_EQ(tables.add(random_adapter<bfloat16>("BF16", 1, {Projection::kK}, files[2], merged[2])),
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
  TinyCache cache(tiny.config, kNumSeqs, static_cast<int>(testing::random_int(1, 5)));
  LlamaModel model(tiny.config, std::move(tiny.weights));
  LlamaScratch scratch(tiny.config, 100, kNumSeqs);
  std::vector<std::byte> buffer(model.lora_workspace_bytes({}, 100, tables.max_rank()));
  Workspace workspace(buffer);
  ThreadPool threads(2);
  ExecContext ctx;
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
    double lora_seconds = 0;
    model.forward(
        ctx, batch, scratch, [&](int layer) { return cache.layer(layer); }, tables,
        host_view(logits.data(), {static_cast<int64_t>(wanted.size()), tiny.config.vocab_size}),
        &lora_seconds);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const auto seq = static_cast<size_t>(wanted[i]);
      const std::vector<double> want = ref::logits(merged[seq], tokens[seq]);
      const std::span<const float> got(logits.data() + i * vocab, vocab);
      EXPECT_LT(testing::relative_error<float>(got, want), 2e-5) << "sequence " << seq;
      compared[seq] = true;
    }
  }
}

}  // namespace
}  // namespace heddle::model
