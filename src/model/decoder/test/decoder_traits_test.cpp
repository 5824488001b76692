// Every trait in which families differ, against its definition in double: a small model whose
// sequence is run as a prompt in two pieces and then token by token.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "compare.h"
#include "model/decoder/decoder.h"
#include "model/test/llama_model_ref.h"
#include "random.h"

namespace heddle::model {
namespace {

using Values = std::vector<double>;

struct RefLayer {
  Values attention_norm, attention_post_norm, mlp_norm, mlp_post_norm, q_norm, k_norm;
  Values projection[kNumProjections], bias[kNumProjections];
};
struct RefModel {
  DecoderConfig config;
  Values embedding, output, output_norm;
  std::vector<RefLayer> layers;
};

constexpr int kTokens = 11;

DecoderConfig plain() {
  DecoderConfig config;
  config.num_layers = 3;
  config.hidden_size = 24;
  config.intermediate_size = 40;
  config.num_q_heads = 4;
  config.num_kv_heads = 2;
  config.head_dim = 8;
  config.vocab_size = 37;
  config.context_length = 32;
  config.rotations[0].params.rotary_dim = 8;
  return config;
}

/// The same weights for both forms; those of traits that the model lacks are made all the same, so
/// that a trait alone is what differs between two models of one seed.
struct Both {
  explicit Both(const DecoderConfig& config) {
    ref.config = config;
    ref.embedding = matrix(config.vocab_size, config.hidden_size, 1.0f, weights.embedding);
    ref.output = matrix(config.vocab_size, config.hidden_size, 0.5f, weights.output);
    ref.output_norm = norm(config.hidden_size, true, weights.output_norm);
    const ModelDims dims = config.dims();
    for (int64_t i = 0; i < config.num_layers; ++i) {
      RefLayer r;
      DecoderLayer layer;
      r.attention_norm = norm(config.hidden_size, config.norm_before, layer.attention_norm);
      r.mlp_norm = norm(config.hidden_size, config.norm_before, layer.mlp_norm);
      r.attention_post_norm =
          norm(config.hidden_size, config.norm_after, layer.attention_post_norm);
      r.mlp_post_norm = norm(config.hidden_size, config.norm_after, layer.mlp_post_norm);
      const auto qk = [&](Projection p) {
        return config.qk_norm == QkNorm::kAllHeads ? dims[p].out : config.head_dim;
      };
      const bool has_qk = config.qk_norm != QkNorm::kNone;
      r.q_norm = norm(qk(Projection::kQ), has_qk, layer.q_norm);
      r.k_norm = norm(qk(Projection::kK), has_qk, layer.k_norm);
      for (int p = 0; p < kNumProjections; ++p) {
        const auto projection = static_cast<Projection>(p);
        const ProjectionDims& d = dims[projection];
        r.projection[p] = matrix(d.out, d.in, 0.3f, layer[projection]);
        r.bias[p] = bias(d.out, has_bias(projection), layer.bias[static_cast<size_t>(p)]);
      }
      ref.layers.push_back(std::move(r));
      weights.layers.push_back(std::move(layer));
    }
  }

  [[nodiscard]] bool has_bias(Projection p) const {
    const bool is_qkv = p == Projection::kQ || p == Projection::kK || p == Projection::kV;
    if (is_qkv) return ref.config.qkv_bias;
    return p == Projection::kO ? ref.config.o_bias : ref.config.mlp_bias;
  }
  Values matrix(int64_t out, int64_t in, float scale, Matrix& packed) {
    const auto values = testing::random_normal<float>(static_cast<size_t>(out * in), scale);
    const size_t size = packed_bytes(WeightType::kF32, out, in);
    weights.buffers.push_back(allocate_zeroed(ctx.device, size));
    pack_rows(ctx, {weights.buffers.back().get(), size}, WeightType::kF32, out, in, 0, out,
              std::as_bytes(std::span(values)));
    packed = Matrix(PackedWeight{WeightType::kF32, out, in, weights.buffers.back().get()});
    return testing::to_double(values);
  }
  [[nodiscard]] Values norm(int64_t width, bool is_there, DeviceTensor& tensor) const {
    auto values = testing::random_normal<float>(static_cast<size_t>(width), 0.4f);
    for (float& v : values) v += 1.0f;
    if (is_there) tensor = DeviceTensor(ctx, std::span<const float>(values));
    return testing::to_double(values);
  }
  [[nodiscard]] Values bias(int64_t width, bool is_there, DeviceTensor& tensor) const {
    const auto values = testing::random_normal<float>(static_cast<size_t>(width), 0.5f);
    if (!is_there) return {};
    tensor = DeviceTensor(ctx, std::span<const float>(values));
    return testing::to_double(values);
  }

  ExecContext ctx;
  RefModel ref;
  DecoderWeights weights;
};

double gate_of(GateActivation activation, double x) {
  constexpr double kRoot2OverPi = 0.7978845608028654;  // sqrt(2 / pi)
  switch (activation) {
    case GateActivation::kSilu: return x / (1 + std::exp(-x));
    case GateActivation::kGeluTanh:
      return 0.5 * x * (1 + std::tanh(kRoot2OverPi * (x + 0.044715 * x * x * x)));
    case GateActivation::kGeluErf: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  }
  return NAN;
}

double capped(double x, double cap) { return cap == 0 ? x : cap * std::tanh(x / cap); }

/// Each part of as many elements as the weight has.
Values normed(const DecoderConfig& c, const Values& x, const Values& weight) {
  Values w = weight, y;
  for (double& value : w) value += c.norm_adds_one ? 1 : 0;
  for (size_t at = 0; at < x.size(); at += w.size()) {
    const auto begin = x.begin() + static_cast<std::ptrdiff_t>(at);
    const Values part(begin, begin + std::ssize(w));
    const Values one = ref::rms_norm(part, w, double{c.rms_epsilon});
    y.insert(y.end(), one.begin(), one.end());
  }
  return y;
}

Values attended(const DecoderConfig& c, int64_t layer, const Values& q,
                const std::vector<Values>& keys, const std::vector<Values>& values) {
  const auto dim = static_cast<size_t>(c.head_dim);
  const auto group = static_cast<size_t>(c.num_q_heads / c.num_kv_heads);
  const int64_t window = c.layer(layer).window;
  const size_t first = window > 0 && std::ssize(keys) > window ? keys.size() - size_t(window) : 0;
  const double scale =
      c.attention_scale ? double{*c.attention_scale} : 1 / std::sqrt(static_cast<double>(dim));
  Values o(q.size(), 0.0);
  for (size_t h = 0; h < q.size() / dim; ++h) {
    const size_t kv = h / group * dim;
    Values p(keys.size(), 0.0);
    double total = 0;
    for (size_t j = first; j < keys.size(); ++j) {
      double score = 0;
      for (size_t d = 0; d < dim; ++d) score += q[h * dim + d] * keys[j][kv + d];
      p[j] = std::exp(capped(score * scale, double{c.attention_soft_cap}));
      total += p[j];
    }
    for (size_t j = first; j < keys.size(); ++j) {
      for (size_t d = 0; d < dim; ++d) o[h * dim + d] += p[j] / total * values[j][kv + d];
    }
  }
  return o;
}

/// The logits after each of the tokens.
std::vector<Values> reference(const RefModel& m, const std::vector<int32_t>& tokens) {
  const DecoderConfig& c = m.config;
  const auto hidden = static_cast<size_t>(c.hidden_size);
  std::vector<std::vector<Values>> keys(m.layers.size()), values(m.layers.size());
  std::vector<Values> logits;
  for (size_t t = 0; t < tokens.size(); ++t) {
    Values x(hidden);
    for (size_t i = 0; i < hidden; ++i) {
      x[i] = m.embedding[static_cast<size_t>(tokens[t]) * hidden + i] * double{c.embedding_scale};
    }
    const auto add = [&](Values delta, const Values& post_norm) {
      if (c.norm_after) delta = normed(c, delta, post_norm);
      for (size_t i = 0; i < hidden; ++i) x[i] += double{c.residual_scale} * delta[i];
    };
    for (size_t l = 0; l < m.layers.size(); ++l) {
      const RefLayer& layer = m.layers[l];
      const auto project = [&](Projection p, const Values& in) {
        Values y = ref::matvec(layer.projection[static_cast<int>(p)], in);
        const Values& bias = layer.bias[static_cast<int>(p)];
        for (size_t i = 0; i < bias.size(); ++i) y[i] += bias[i];
        return y;
      };
      const Values in = c.norm_before ? normed(c, x, layer.attention_norm) : x;
      Values q = project(Projection::kQ, in), k = project(Projection::kK, in);
      if (c.qk_norm != QkNorm::kNone) {
        q = normed(c, q, layer.q_norm);
        k = normed(c, k, layer.k_norm);
      }
      const int rotation = c.layer(static_cast<int64_t>(l)).rotation;
      if (rotation != LayerTraits::kNoRotation) {
        const RopeParams& rope = c.rotations[static_cast<size_t>(rotation)].params;
        ref::rotate(q, c.head_dim, rope, {}, static_cast<int64_t>(t));
        ref::rotate(k, c.head_dim, rope, {}, static_cast<int64_t>(t));
      }
      keys[l].push_back(k);
      values[l].push_back(project(Projection::kV, in));
      const Values o = attended(c, static_cast<int64_t>(l), q, keys[l], values[l]);
      add(project(Projection::kO, o), layer.attention_post_norm);
      const Values mlp_in = c.norm_before ? normed(c, x, layer.mlp_norm) : x;
      Values gate = project(Projection::kGate, mlp_in);
      const Values up = project(Projection::kUp, mlp_in);
      for (size_t i = 0; i < gate.size(); ++i)
        gate[i] = gate_of(c.gate_activation, gate[i]) * up[i];
      add(project(Projection::kDown, gate), layer.mlp_post_norm);
    }
    Values y = ref::matvec(m.output, normed(c, x, m.output_norm));
    for (double& v : y) v = capped(v * double{c.logits_scale}, double{c.logits_soft_cap});
    logits.push_back(std::move(y));
  }
  return logits;
}

/// The same from the decoder: four tokens, then three, then one by one, in pages of two.
std::vector<std::vector<float>> computed(Both& both, const std::vector<int32_t>& tokens) {
  const DecoderConfig config = both.ref.config;
  constexpr int64_t kPageSize = 2, kPages = kTokens;
  std::vector<DeviceTensor> halves;
  for (int64_t i = 0; i < config.num_layers * 2; ++i) {
    halves.emplace_back(
        both.ctx.device, DType::kFloat32,
        std::initializer_list<int64_t>{kPages, config.num_kv_heads, kPageSize, config.head_dim});
  }
  const Decoder model(config, std::move(both.weights));
  const StepLimits limits{.num_tokens = 8, .num_seqs = 1, .num_pages = kPages, .num_logit_rows = 8};
  DecoderScratch scratch(both.ctx.device, config, limits, DType::kFloat32);
  std::vector<std::byte> buffer(model.workspace_bytes(both.ctx.device, limits, 0));
  Workspace workspace(buffer);
  both.ctx.workspace = &workspace;
  const LoadedAdapters adapters{
      .layers = {config.dims(), LoraForm::of(both.ctx.device.type, DType::kFloat32)},
      .vocabularies = {}};
  std::vector<std::vector<float>> all;
  for (int64_t done = 0; done < std::ssize(tokens);) {
    const int64_t count = done == 0 ? 4 : (done == 4 ? 3 : 1);
    StepBatch batch;
    batch.q_indptr = {0, static_cast<int32_t>(count)};
    for (int64_t i = 0; i < count; ++i) {
      batch.token_ids.push_back(tokens[static_cast<size_t>(done + i)]);
      batch.positions.push_back(static_cast<int32_t>(done + i));
      batch.slot_ids.push_back(kNoAdapter);
      batch.logit_tokens.push_back(static_cast<int32_t>(i));
    }
    done += count;
    const auto num_pages = static_cast<int32_t>((done + kPageSize - 1) / kPageSize);
    for (int32_t page = 0; page < num_pages; ++page) batch.pages.push_back(kPages - 1 - page);
    batch.page_indptr = {0, num_pages};
    batch.last_page_len = {static_cast<int32_t>((done - 1) % kPageSize + 1)};
    const DeviceTensor logits(both.ctx.device, DType::kFloat32, {count, config.vocab_size});
    double lora_seconds = 0;
    const auto layer = [&](int index) {
      const auto k = static_cast<size_t>(index) * 2;
      return PagedKv::from_pool(halves[k].view(), halves[k + 1].view());
    };
    model.forward(both.ctx, batch, scratch, layer, adapters, logits.view(), &lora_seconds);
    std::vector<float> host(static_cast<size_t>(count * config.vocab_size), NAN);
    copy_to_host(both.ctx, std::span(host), logits.view());
    for (int64_t i = 0; i < count; ++i) {
      const auto begin = host.begin() + i * config.vocab_size;
      all.emplace_back(begin, begin + config.vocab_size);
    }
  }
  return all;
}

struct Trait {
  const char* name;
  std::function<void(DecoderConfig&)> set;
};

/// Windows of 4 and 5 keys: shorter than the first piece of the prompt is one, longer the other.
void windows(DecoderConfig& c) {
  c.layers.resize(3);
  c.layers[0].window = 3;
  c.layers[2].window = 5;
}

const Trait kTraits[] = {
    {"epsilon", [](DecoderConfig& c) { c.rms_epsilon = 0.25f; }},
    {"norms after, too", [](DecoderConfig& c) { c.norm_after = true; }},
    {"norms after alone", [](DecoderConfig& c) { c.norm_before = false, c.norm_after = true; }},
    {"norms add one", [](DecoderConfig& c) { c.norm_adds_one = true; }},
    {"norms of each head", [](DecoderConfig& c) { c.qk_norm = QkNorm::kEachHead; }},
    {"norms of all heads", [](DecoderConfig& c) { c.qk_norm = QkNorm::kAllHeads; }},
    {"norms of heads that add one",
     [](DecoderConfig& c) { c.qk_norm = QkNorm::kEachHead, c.norm_adds_one = true; }},
    {"biases of q, k and v", [](DecoderConfig& c) { c.qkv_bias = true; }},
    {"bias of o", [](DecoderConfig& c) { c.o_bias = true; }},
    {"biases of the MLP", [](DecoderConfig& c) { c.mlp_bias = true; }},
    {"gelu by tanh", [](DecoderConfig& c) { c.gate_activation = GateActivation::kGeluTanh; }},
    {"gelu by erf", [](DecoderConfig& c) { c.gate_activation = GateActivation::kGeluErf; }},
    {"scale of the embedding", [](DecoderConfig& c) { c.embedding_scale = 3.0f; }},
    {"scale of the residual", [](DecoderConfig& c) { c.residual_scale = 0.25f; }},
    {"scale of scores", [](DecoderConfig& c) { c.attention_scale = 0.7f; }},
    {"scale of logits", [](DecoderConfig& c) { c.logits_scale = 0.125f; }},
    {"cap of scores", [](DecoderConfig& c) { c.attention_soft_cap = 0.5f; }},
    {"cap of logits", [](DecoderConfig& c) { c.logits_soft_cap = 2.0f; }},
    {"scale and cap of logits",
     [](DecoderConfig& c) { c.logits_scale = 0.5f, c.logits_soft_cap = 2.0f; }},
    {"windows", windows},
    {"a window of one key",
     [](DecoderConfig& c) {
       c.layers.resize(3);
       c.layers[1].window = 1;
     }},
    {"layers without rotation",
     [](DecoderConfig& c) {
       c.layers.resize(3);
       c.layers[1].rotation = LayerTraits::kNoRotation;
     }},
    {"a rotation for some layers",
     [](DecoderConfig& c) {
       c.rotations.push_back(c.rotations[0]);
       c.rotations[1].params.theta = 100.0;
       c.rotations[1].params.scale = 2.0;
       c.layers.resize(3);
       c.layers[2].rotation = 1;
     }},
    {"part of a head turns", [](DecoderConfig& c) { c.rotations[0].params.rotary_dim = 4; }},
};

TEST(DecoderTraits, EachIsItsDefinition) {
  const uint64_t seed = testing::rng()();
  std::vector<int32_t> tokens;
  for (int i = 0; i < kTokens; ++i) {
    tokens.push_back(static_cast<int32_t>(testing::random_int(0, plain().vocab_size - 1)));
  }
  const auto logits_of = [&](const DecoderConfig& config) {
    testing::rng().seed(seed);
    return reference(Both(config).ref, tokens);
  };
  const std::vector<Values> without = logits_of(plain());
  for (const Trait& trait : kTraits) {
    DecoderConfig config = plain();
    trait.set(config);
    const std::vector<Values> want = logits_of(config);
    testing::rng().seed(seed);
    Both both(config);
    const std::vector<std::vector<float>> got = computed(both, tokens);
    ASSERT_EQ(got.size(), want.size());
    for (size_t t = 0; t < want.size(); ++t) {
      EXPECT_LT(testing::relative_error<float>(got[t], want[t]), 3e-5)
          << trait.name << ", token " << t;
    }
    // The last token sees all of them: a trait that changed nothing would be tested by nobody.
    const std::vector<float> last(without.back().begin(), without.back().end());
    EXPECT_GT(testing::relative_error<float>(last, want.back()), 1e-3) << trait.name;
  }
}

}  // namespace
}  // namespace heddle::model
