#include "model/adapters/gguf_adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "heddle/core/error.h"
#include "heddle/ops/linear.h"
#include "heddle/ops/lora.h"

#include "files/printable.h"
#include "model/config/tensor_names.h"
#include "model/families/family.h"

namespace heddle::model {
namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";
/// Architectures whose files have the rows of q and k in the order of interleaved rotation.
constexpr std::array<std::string_view, 3> kInterleaved = {"llama", "granite", "smollm3"};
/// Keys that say what the adapter computes; others of these groups are not known.
constexpr std::array<std::string_view, 4> kKnown = {"adapter.type", "adapter.lora.alpha",
                                                    "adapter.lora.task_name",
                                                    "adapter.alora.invocation_tokens"};

}  // namespace

GgufAdapter::GgufAdapter(const std::string& path, const DecoderConfig& config,
                         const files::FolderBounds& bounds)
    : Adapter(path), file_(files::open_within(path, bounds)) {
  check_kind(config);
  if (file_.find("adapter.alora.invocation_tokens") != nullptr) {
    for (const int64_t id : file_.get_array<int64_t>("adapter.alora.invocation_tokens")) {
      HEDDLE_CHECK(id >= 0 && id < config.vocab_size, path,
                   ": adapter.alora.invocation_tokens has token ", id, ", the model has ",
                   config.vocab_size, " tokens");
      invocation_tokens_.push_back(static_cast<int32_t>(id));
    }
  }
  num_tensors_ = {std::ssize(file_.tensors()), std::ssize(file_.tensors())};
  HalvesByName halves;
  for (const files::GgufTensor& tensor : file_.tensors()) {
    const bool is_a = tensor.name.ends_with(kA);
    if (!is_a && !tensor.name.ends_with(kB)) {
      throw_error(ErrorCode::kUnsupported, path, ": tensor ", files::quote(tensor.name),
                  " is neither lora_a nor lora_b");
    }
    const std::string_view name = tensor.name.substr(0, tensor.name.size() - kA.size());
    Halves& both = halves[std::string(name)];
    (is_a ? both.a : both.b) = &tensor;
  }
  HEDDLE_CHECK(!halves.empty(), path, ": holds no tensor");
  read_parts(config, halves);
  for (const auto& [name, both] : halves) {  // what is left
    throw_error(ErrorCode::kUnsupported, path, ": tensor ", files::quote(name),
                " belongs to no linear layer of the model, which has ", config.num_layers,
                " layers");
  }
  HEDDLE_CHECK(invocation_tokens_.empty() || !embedding_.pair, path,
               ": adapter.alora.invocation_tokens is not supported for an adapted embedding");
}

void GgufAdapter::check_kind(const DecoderConfig& config) const {
  const auto expect = [&](const char* key, std::string_view expected) {
    const auto value = file_.get<std::string_view>(key);
    if (value != expected) {
      throw_error(ErrorCode::kUnsupported, path_, ": ", key, " is ", files::quote(value),
                  ", supported: \"", expected, "\"");
    }
  };
  expect("general.type", "adapter");
  expect("adapter.type", "lora");
  const auto family = std::ranges::find(families(), config.family, &Family::name);
  const bool has_own = family != families().end() && !(*family)->gguf_architecture.empty();
  expect("general.architecture", has_own ? (*family)->gguf_architecture : "llama");
  for (const files::GgufValue& value : file_.metadata()) {
    const bool is_known = std::ranges::find(kKnown, value.key) != kKnown.end();
    if (value.key.starts_with("adapter.") && !is_known) {
      throw_error(ErrorCode::kUnsupported, path_, ": ", files::quote(value.key),
                  " is a setting that heddle does not know");
    }
  }
}

/// Takes what has a place in the model out of `halves`.
void GgufAdapter::read_parts(const DecoderConfig& config, HalvesByName& halves) {
  const TensorNames names = gguf_tensor_names(config);
  if (const auto found = halves.extract(names.embedding)) {
    embedding_.pair = read_halves(names.embedding, found.mapped(), true);
  }
  if (const auto found = halves.extract(names.output)) {
    head_.pair = read_halves(names.output, found.mapped(), false);
  }
  const BlockShape block = config.block();
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    for (const auto& [module, slices] : block.stored()) {
      const std::string name = names.of(layer, *module) + ".weight";
      const auto found = halves.extract(name);
      if (!found) continue;
      pairs_.push_back({read_halves(name, found.mapped(), false), layer, module});
      if (block.slice(slices.first).rotates) put_rows_in_order(config, pairs_.back());
    }
  }
}

/// Brings the rows of B, the values read last, into Hugging Face's order.
void GgufAdapter::put_rows_in_order(const DecoderConfig& config, const AdapterPair& pair) {
  const auto architecture = file_.get<std::string_view>("general.architecture");
  if (std::ranges::find(kInterleaved, architecture) == kInterleaved.end() ||
      pair.out_features % config.head_dim != 0) {
    return;
  }
  std::vector<float>& b = values_.back();
  const std::vector<float> stored = b;
  for (int64_t row = 0; row < pair.out_features; ++row) {
    const auto from = stored.begin() + config.interleaved_row(row) * pair.rank;
    std::copy_n(from, pair.rank, b.begin() + row * pair.rank);
  }
}

/// a [rank, in], b [out, rank]; of the embedding a [tokens, rank].
LowRank GgufAdapter::read_halves(std::string_view name, const Halves& halves, bool is_embedding) {
  HEDDLE_CHECK(halves.a != nullptr && halves.b != nullptr, path_, ": tensor ", files::quote(name),
               " has one of lora_a and lora_b, expected both");
  const auto &a = *halves.a, &b = *halves.b;
  const int64_t rank = b.dims[0], rank_of_a = a.dims[is_embedding ? 0 : 1];
  const int64_t in = a.dims[is_embedding ? 1 : 0];
  HEDDLE_CHECK(
      a.rank == 2 && b.rank == 2 && rank > 0 && in > 0 && b.dims[1] > 0 && rank == rank_of_a, path_,
      ": halves of ", files::quote(name), " are [", a.dims[1], ", ", a.dims[0], "] and [",
      b.dims[1], ", ", rank, "], expected matrices of one rank");
  if (rank > kMaxLoraRank) {
    throw_error(ErrorCode::kUnsupported, path_, ": ", files::quote(name), " has rank ", rank,
                ", supported: up to ", kMaxLoraRank);
  }
  std::vector<float> values = values_of(a);
  if (is_embedding) {  // PEFT's order is [rank, tokens]
    const std::vector<float> stored = values;
    for (int64_t token = 0; token < in; ++token) {
      for (int64_t r = 0; r < rank; ++r) {
        values[static_cast<size_t>(r * in + token)] = stored[static_cast<size_t>(token * rank + r)];
      }
    }
  }
  const auto alpha = file_.get_or<double>("adapter.lora.alpha", 0.0);
  LowRank pair;
  pair.rank = rank;
  pair.in_features = in;
  pair.out_features = b.dims[1];
  // As in llama.cpp, where an alpha of 0 means a scale of 1.
  pair.scale = alpha == 0 ? 1.0f : static_cast<float>(alpha / static_cast<double>(rank));
  HEDDLE_CHECK(std::isfinite(pair.scale), path_, ": adapter.lora.alpha is ", alpha, " for rank ",
               rank, ", which does not give a finite scale");
  pair.a = reinterpret_cast<const std::byte*>(keep(std::move(values)));
  pair.b = reinterpret_cast<const std::byte*>(keep(values_of(b)));
  pair.a_name = a.name;
  pair.b_name = b.name;
  return pair;
}

const float* GgufAdapter::keep(std::vector<float> values) {
  return values_.emplace_back(std::move(values)).data();
}

std::vector<float> GgufAdapter::values_of(const files::GgufTensor& tensor) const {
  std::vector<float> values(static_cast<size_t>(tensor.num_weights()));
  dequantize(values, file_.weight_type(tensor), file_.data(tensor));
  return values;
}

void GgufAdapter::check_fits(const ModelDims& dims) const {
  check_vocabulary_fits(dims);
  for (const AdapterPair& pair : pairs_) {
    const auto [in, out] = dims.block.dims_of(dims.block.find(*pair.module));
    HEDDLE_CHECK(pair.in_features == in && pair.out_features == out, path_, ": layer ", pair.layer,
                 ", ", pair.module->name, ": takes ", pair.in_features, " features and gives ",
                 pair.out_features, ", the model's takes ", in, " and gives ", out);
  }
}

}  // namespace heddle::model
