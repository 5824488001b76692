#include "engine/face/inspect_memory.h"

#include "heddle/core/error.h"

#include "engine/cache/kv_cache.h"
#include "model/adapters/adapter_vocabulary.h"
#include "model/adapters/slice_affine.h"
#include "model/source/model_files.h"

namespace heddle {
namespace {

int64_t weight_bytes(const model::WeightSource& weights) {
  size_t bytes = 0;
  for (const std::string_view name : weights.names()) {
    const model::StoredTensor tensor = weights.tensor(name);
    const bool is_vector = tensor.rank < 2;
    bytes += packed_bytes(is_vector ? WeightType::kF32 : tensor.type, tensor.rows, tensor.columns);
  }
  return static_cast<int64_t>(bytes);
}

/// Of rank 1 on all linear layers, in types of 16 bits.
int64_t adapter_bytes(const model::ModelDims& dims) {
  constexpr int64_t kBytes = 2;
  int64_t features = 0;
  for (const model::BlockSlice& slice : dims.block.slices) {
    features += slice.dims.in + slice.dims.out;
  }
  return kBytes * features * dims.num_layers;
}

}  // namespace

void print_model_memory(std::ostream& out, const std::string& path) {
  constexpr int64_t kRank = 16;
  out << "\nmemory\n";
  try {
    const auto files = model::open_model(path);
    const model::DecoderConfig& config = files->config();
    const KvCache::Shape token{static_cast<int>(config.num_layers),
                               static_cast<int>(config.num_kv_heads), 1,
                               static_cast<int>(config.head_dim)};
    out << "  weights " << weight_bytes(files->weights()) << " bytes\n"
        << "  KV cache " << token.page_bytes() << " bytes a token in f32, "
        << token.page_bytes() * config.context_length << " for " << config.context_length
        << " tokens, the longest row\n"
        << "  adapter of rank " << kRank << " on all linear layers in f16 or bf16 "
        << kRank * adapter_bytes(config.dims()) << " bytes\n";
  } catch (const Error& error) {
    out << "  not estimated: " << error.what() << "\n";
  }
}

int64_t estimated_bytes(const model::Adapter& adapter) {
  int64_t bytes = model::affine_bytes(adapter) + model::vocabulary_bytes(adapter, false);
  for (const model::AdapterPair& pair : adapter.pairs()) {
    bytes += pair.rank * (pair.in_features + pair.out_features) *
             static_cast<int64_t>(size_of(pair.dtype));
  }
  return bytes;
}

}  // namespace heddle
