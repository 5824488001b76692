#include "heddle/engine/inspect.h"

#include <filesystem>
#include <map>

#include "heddle/core/error.h"

#include "engine/cache/kv_cache.h"
#include "engine/face/inspect_adapter.h"
#include "files/gguf.h"
#include "files/printable.h"
#include "model/adapters/open_adapter.h"
#include "model/adapters/peft_adapter.h"
#include "model/source/folder_weights.h"
#include "model/source/model_files.h"
#include "model/source/read_json.h"

namespace heddle {
namespace {

constexpr size_t kMaxShown = 72;      // bytes of a string value
constexpr uint64_t kMaxElements = 8;  // of an array value

std::string shown(std::string_view text) { return files::printable(text, kMaxShown); }

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

/// Writes what a model takes in memory: weights as they are packed, KV cache, and an adapter on all
/// linear layers. A model that heddle does not run: why there is no estimate.
void print_model_memory(std::ostream& out, const std::string& path) {
  constexpr int64_t kRank = 16;
  out << "\nmemory\n";
  try {
    const auto files = model::open_model(path);
    const model::DecoderConfig& config = files->config();
    const KvCache::Shape token{static_cast<int>(config.num_layers),
                               static_cast<int>(config.num_kv_heads), 1,
                               static_cast<int>(config.head_dim)};
    KvCache::Shape in_fp8 = token;
    in_fp8.dtype = DType::kFloat8E4M3;
    out << "  weights " << weight_bytes(files->weights()) << " bytes\n"
        << "  KV cache " << token.page_bytes() << " bytes a token in f32 (" << in_fp8.page_bytes()
        << " in fp8), " << token.page_bytes() * config.context_length << " for "
        << config.context_length << " tokens, the longest row\n"
        << "  adapter of rank " << kRank << " on all linear layers in f16 or bf16 "
        << kRank * adapter_bytes(config.dims()) << " bytes\n";
  } catch (const Error& error) {
    out << "  not estimated: " << error.what() << "\n";
  }
}

void print_value(std::ostream& out, const files::GgufFile& file, const files::GgufValue& value) {
  using files::GgufType;
  const auto print = [&]<class T>() {
    if (!value.is_array) {
      if constexpr (std::is_same_v<T, std::string_view>) {
        out << '"' << shown(file.get<T>(value.key)) << '"';
      } else {
        out << file.get<T>(value.key);
      }
      return;
    }
    out << "[" << value.count << " x " << value.type << "]";
    if (value.count > kMaxElements) return;
    for (const auto& element : file.get_array<T>(value.key)) {
      out << ' ';
      if constexpr (std::is_same_v<T, std::string_view>) {
        out << '"' << shown(element) << '"';
      } else {
        out << element;
      }
    }
  };
  switch (value.type) {
    case files::GgufType::kString: return print.template operator()<std::string_view>();
    case files::GgufType::kBool: return print.template operator()<bool>();
    case files::GgufType::kFloat32:
    case files::GgufType::kFloat64: return print.template operator()<double>();
    case files::GgufType::kUInt64: return print.template operator()<uint64_t>();
    default: return print.template operator()<int64_t>();
  }
}

void inspect_model(std::ostream& out, const std::string& path) {
  const files::GgufFile file(path);
  out << shown_path(path) << ": GGUF version " << file.version() << ", " << file.file_size()
      << " bytes, " << file.metadata().size() << " settings, " << file.tensors().size()
      << " tensors\n\nsettings\n";
  for (const files::GgufValue& value : file.metadata()) {
    out << "  " << shown(value.key) << " = ";
    print_value(out, file, value);
    out << "\n";
  }
  struct Total {
    int64_t tensors = 0, weights = 0;
    uint64_t bytes = 0;
  };
  std::map<std::string, Total> totals;
  out << "\ntensors\n";
  for (const files::GgufTensor& tensor : file.tensors()) {
    const std::string type = files::ggml_type_name(tensor.type_id);
    out << "  " << shown(tensor.name) << "  " << type << " [";
    for (int d = tensor.rank; d-- > 0;) out << tensor.dims[d] << (d > 0 ? ", " : "]\n");
    Total& total = totals[type];
    ++total.tensors;
    total.weights += tensor.num_weights();
    total.bytes += tensor.num_bytes;
  }
  out << "\ntypes\n";
  for (const auto& [type, total] : totals) {
    out << "  " << type << ": " << total.tensors << " tensors, " << total.weights << " weights";
    if (total.bytes > 0) {
      out << ", " << total.bytes << " bytes\n";
    } else {
      out << "; not supported\n";
    }
  }
}

void inspect_folder(std::ostream& out, const std::string& path) {
  const auto settings = model::members_of(*model::read_json(path + "/config.json"));
  const model::FolderWeights weights(path);
  const std::vector<std::string_view> names = weights.names();
  out << shown_path(path) << ": folder of a model, " << settings.size() << " settings, "
      << names.size() << " tensors\n\nsettings\n";
  for (const auto& [key, value] : settings) {
    out << "  " << shown(key) << " = " << shown(value) << "\n";
  }
  out << "\ntensors\n";
  int64_t num_weights = 0;
  for (const std::string_view name : names) {
    const model::StoredTensor tensor = weights.tensor(name);
    out << "  " << shown(name) << "  " << tensor.type << " [";
    if (tensor.rank > 1) out << tensor.rows << ", ";
    out << tensor.columns << "]\n";
    num_weights += tensor.rows * tensor.columns;
  }
  out << "\n" << num_weights << " weights\n";
}

}  // namespace

void inspect(std::ostream& out, const std::string& given, const std::string& base) {
  const std::string path = model::find_adapter_path(given);  // a model's is found alike
  std::ostringstream text;  // an error half way through leaves nothing on `out`
  const std::vector<std::string> several = model::adapters_in(path);
  if (!base.empty()) {
    inspect_adapters_on(text, base, path, several);
  } else if (std::filesystem::exists(path + "/adapter_config.json")) {
    static_cast<void>(inspect_adapter(text, path));
  } else if (!several.empty()) {
    int64_t num_bytes = 0;
    for (const std::string& name : several) num_bytes += inspect_adapter(text, path + "/" + name);
    text << several.size() << " adapters, " << num_bytes << " bytes of memory\n";
  } else if (std::filesystem::is_directory(path)) {
    inspect_folder(text, path);
    print_model_memory(text, path);
  } else {
    inspect_model(text, path);
    print_model_memory(text, path);
  }
  out << text.str();
}

}  // namespace heddle
