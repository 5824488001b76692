#include "model/adapters/peft_adapter.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>
#include <vector>

#include "heddle/core/error.h"

#include "files/lfs_pointer.h"
#include "files/printable.h"
#include "model/adapters/kinds/kinds.h"
#include "model/adapters/kinds/peft_names.h"
#include "model/adapters/medusa/medusa_files.h"

namespace heddle::model {
namespace {

constexpr const char* kConfigFile = "/adapter_config.json";
constexpr const char* kTensorFile = "/adapter_model.safetensors";
constexpr const char* kMlxFile = "/adapters.safetensors";
constexpr const char* kPickleFile = "/adapter_model.bin";  // of PEFT before 0.7
constexpr uint64_t kMaxConfig = uint64_t{64} << 20;

bool exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

AdapterConfig read_config(const std::string& folder, const files::FolderBounds& bounds) {
  std::string names;
  for (const std::string& name : adapters_in(folder)) {
    names += (names.empty() ? "" : ", ") + files::printable(name);
  }
  HEDDLE_CHECK(names.empty(), folder, ": holds several adapters, name one of its folders: ", names);
  const std::string path = folder + kConfigFile;
  const std::string text = files::open_within(path, bounds).read_text(kMaxConfig);
  files::refuse_lfs_pointer(text, path);
  return parse_adapter_config(text, path);
}

std::string tensor_file(const std::string& folder, AdapterMethod method) {
  if (method == AdapterMethod::kMlx) return folder + kMlxFile;
  const std::string path = folder + kTensorFile, pickle = folder + kPickleFile;
  if (exists(path) || !exists(pickle)) return path;
  throw_error(
      ErrorCode::kUnsupported, pickle,
      ": is a pickle, which heddle does not read; this converts it: python -c \"import torch, "
      "safetensors.torch as s; s.save_file({k: v.contiguous() for k, v in torch.load('",
      pickle, "', map_location='cpu', weights_only=True).items()}, '", path, "')\"");
}

using Kind = AdapterPlace::Kind;
using Part = AdapterPart;

bool has_same_values(const files::SafetensorsFile& file, const files::SafetensorsTensor& x,
                     const files::SafetensorsTensor& y) {
  if (x.dtype_name != y.dtype_name || x.shape != y.shape) return false;
  std::vector<std::byte> of_x(x.data.size()), of_y(y.data.size());
  file.read(x, 0, of_x);
  file.read(y, 0, of_y);
  return of_x == of_y;
}

/// The tensors of an adapter by their places.
class TensorSorter {
 public:
  TensorSorter(const files::SafetensorsFile& file, AdapterConfig& config, bool has_heads)
      : file_(file), config_(config), has_heads_(has_heads) {}

  /// The decoder of the configuration becomes where it lies in the names of the tensors.
  AdapterTensors sort() {
    for (const files::SafetensorsTensor& tensor : file_.tensors()) {
      if (has_heads_ && is_medusa_name(tensor.name)) continue;
      ++sorted_.num_given;
      if (const auto part = parse_shared_name(tensor.name, config_.method)) {
        put(sorted_.shared, *part, tensor);
      } else {
        sort_one(tensor);
      }
    }
    HEDDLE_CHECK(!sorted_.places.empty(), file_.path(), ": holds no tensor");
    return std::move(sorted_);
  }

 private:
  void sort_one(const files::SafetensorsTensor& tensor) {
    if (is_of_other_half(tensor.name)) {
      throw_error(
          ErrorCode::kUnsupported, file_.path(), ": tensor ", files::quote(tensor.name),
          " is for the image or audio part of the model, which heddle does not load; train the "
          "adapter with target_modules of the language model alone, or with "
          "exclude_modules");
    }
    const auto parsed = parse_peft_name(tensor.name, config_.method);
    if (!parsed) {
      const bool is_lora = config_.method == AdapterMethod::kLora;
      throw_error(
          ErrorCode::kUnsupported, file_.path(), ": tensor ", files::quote(tensor.name), " is not ",
          is_lora ? "lora_A or lora_B" : "a tensor of ",
          is_lora ? "" : info_of(config_.method).peft_type,
          " of a layer's q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, "
          "qkv_proj or gate_up_proj, nor of embed_tokens or lm_head, nor the weight or bias of "
          "score");
    }
    if (!parsed->adapter.empty()) {
      HEDDLE_CHECK(adapter_.empty() || adapter_ == parsed->adapter, file_.path(),
                   ": has tensors of two adapters, ", files::quote(adapter_), " and ",
                   files::quote(parsed->adapter), "; save each in a folder of its own");
      adapter_ = parsed->adapter;
    }
    put(sorted_.places[parsed->place], parsed->part, tensor);
    if (parsed->decoder != config_.decoder) config_.decoder = parsed->decoder;
  }

  void put(PlaceTensors& tensors, Part part, const files::SafetensorsTensor& tensor) const {
    const files::SafetensorsTensor*& place = tensors[part];
    // PEFT saves a module of modules_to_save under two names where the vocabulary was resized.
    const bool is_twice = place != nullptr && has_same_values(file_, *place, tensor);
    HEDDLE_CHECK(place == nullptr || is_twice, file_.path(), ": tensors ",
                 files::quote(place->name), " and ", files::quote(tensor.name),
                 " are for the same place");
    if (!is_twice) place = &tensor;
  }

  const files::SafetensorsFile& file_;
  AdapterConfig& config_;
  bool has_heads_;
  AdapterTensors sorted_;
  std::string adapter_;  // its name, where tensors have it
};

/// Whether a place has more than a weight in place of the base's and rows of single tokens.
bool has_pair(const PlaceTensors& tensors) {
  for (size_t i = 0; i < kNumAdapterParts; ++i) {
    const auto part = static_cast<Part>(i);
    const bool is_of_pair =
        part != Part::kWeight && part != Part::kOriginal && part != Part::kTokenRows;
    if (is_of_pair && tensors[part] != nullptr) return true;
  }
  return false;
}

LowRank read_pair(const ModuleTensors& module) {
  switch (module.source.config.method) {
    case AdapterMethod::kLora: return read_lora(module);
    case AdapterMethod::kLoha: return read_loha(module);
    case AdapterMethod::kVera: return read_vera(module);
    case AdapterMethod::kRandLora: return read_rand_lora(module);
    case AdapterMethod::kMlx: return read_mlx(module);
    case AdapterMethod::kIa3: break;
  }
  throw_error(ErrorCode::kUnsupported, module.source.path(), ": IA3 of ", module.place.name(),
              " is not supported, that of layers is");
}

StoredValues read_matrix(const ModuleTensors& module, Part part) {
  return module.tensors[part] == nullptr ? StoredValues{} : module.matrix(part);
}

/// Reads what exists for the embedding or the head, perhaps nothing.
VocabularyPart read_part(const ModuleTensors& module, bool is_saved,
                         const std::vector<int32_t>& token_ids) {
  const auto& [source, place, tensors] = module;
  const AdapterConfig& config = source.config;
  const std::string& path = source.path();
  VocabularyPart part;
  (void)read_matrix(module, Part::kOriginal);  // it is checked, and nothing computes with it
  part.weight = read_matrix(module, Part::kWeight);
  HEDDLE_CHECK(part.weight.is_present() || !is_saved, path, ": has no tensor ",
               files::quote(peft_name(place, Part::kWeight)),
               ", yet it is one of modules_to_save "
               "of ",
               config.path);
  if (has_pair(tensors)) part.pair = read_pair(module);
  // Where the head is tied PEFT saves the rows of the embedding as the head's, too.
  const bool is_tied =
      place.kind == Kind::kHead && token_ids.empty() && tensors[Part::kTokenRows] != nullptr;
  part.token_ids = is_tied ? config.embedding_tokens : token_ids;
  part.token_rows = read_matrix(module, Part::kTokenRows);
  const auto num_ids = std::ssize(part.token_ids);
  HEDDLE_CHECK(part.token_rows.rows == num_ids, path, ": tensor ",
               files::quote(peft_name(place, Part::kTokenRows)), " has ", part.token_rows.rows,
               " rows, trainable_token_indices of ", config.path, " has ", num_ids,
               " tokens for it");
  return part;
}

/// Weight and bias of a score head; where modules_to_save names one it is there, whole.
std::pair<StoredValues, StoredValues> read_score(const AdapterSource& source,
                                                 const AdapterTensors& tensors) {
  const AdapterPlace place{Kind::kScore};
  const auto found = tensors.places.find(place);
  const bool is_given = found != tensors.places.end();
  const PlaceTensors none;
  const ModuleTensors module{source, place, is_given ? found->second : none};
  (void)read_matrix(module, Part::kOriginal);
  const StoredValues weight = read_matrix(module, Part::kWeight);
  const AdapterConfig& config = source.config;
  HEDDLE_CHECK(weight.is_present() || (!config.saves_score && !is_given), source.path(),
               ": has no tensor ", files::quote(peft_name(place, Part::kWeight)), ", yet ",
               config.saves_score ? "modules_to_save of " + config.path + " names score"
                                  : "others of score");
  if (module.tensors[Part::kWeightBias] == nullptr) return {weight, {}};
  return {weight, module.shaped(Part::kWeightBias, {weight.rows})};
}

}  // namespace

std::vector<std::string> adapters_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  if (exists(folder + kConfigFile)) return names;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (exists(entry.path().string() + kConfigFile))
      names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

PeftAdapter::PeftAdapter(const std::string& folder, const files::FolderBounds& bounds,
                         const ModelDims* dims)
    : Adapter(folder),
      config_(read_config(folder, bounds)),
      tensors_(files::open_within(tensor_file(folder, config_.method), bounds)) {
  read_tensors(dims, has_medusa_tensors(folder, bounds));
}

PeftAdapter::PeftAdapter(std::string_view config_json, std::span<const std::byte> safetensors,
                         const std::string& name, const ModelDims* dims)
    : Adapter(name),
      config_(parse_adapter_config(config_json, name + kConfigFile)),
      tensors_(safetensors, name + kTensorFile) {
  read_tensors(dims, false);
  made_.make(path());
}

void PeftAdapter::load() {
  tensors_.load();
  made_.make(path());
}

/// has_heads: tensors of Medusa heads are no part of the adapter.
void PeftAdapter::read_tensors(const ModelDims* dims, bool has_heads) {
  const AdapterTensors tensors = TensorSorter(tensors_, config_, has_heads).sort();
  AdapterSource source{tensors_, config_, tensors.shared, dims, made_};
  if (config_.method == AdapterMethod::kVera) source.vera = vera_projections(source);
  const auto part = [&](Kind kind, bool is_saved, const std::vector<int32_t>& token_ids) {
    const AdapterPlace place{kind};
    const auto found = tensors.places.find(place);
    const PlaceTensors of_place = found == tensors.places.end() ? PlaceTensors{} : found->second;
    return read_part({source, place, of_place}, is_saved, token_ids);
  };
  num_tensors_ = {tensors.num_given, tensors.shared.num_applied()};
  for (const auto& [place, of_place] : tensors.places) {
    num_tensors_.applied += of_place.num_applied();
  }
  base_model_ = config_.base_model;
  invocation_tokens_ = config_.invocation_tokens;
  embedding_ = part(Kind::kEmbedding, config_.saves_embedding, config_.embedding_tokens);
  head_ = part(Kind::kHead, config_.saves_head, config_.head_tokens);
  std::tie(score_, score_bias_) = read_score(source, tensors);
  if (embedding_.pair && !invocation_tokens_.empty()) {  // PEFT refuses this too
    throw_error(
        ErrorCode::kUnsupported, config_.path,
        ": alora_invocation_tokens is set, which is not supported for an adapted embedding");
  }
  std::map<AdapterPlace, LowRank> pairs;
  if (config_.method == AdapterMethod::kIa3) pairs = read_ia3(source, tensors.places);
  for (const auto& [place, of_place] : tensors.places) {
    if (place.kind != Kind::kLayer) continue;
    given_.insert(place);
    if (config_.method == AdapterMethod::kIa3) continue;
    pairs.emplace(place, read_pair({source, place, of_place}));
  }
  for (const auto& [place, pair] : pairs) pairs_.push_back({pair, place.layer, place.module});
}

void PeftAdapter::check_fits(const ModelDims& dims) const {
  const std::string& path = tensors_.path();
  check_vocabulary_fits(dims);
  std::vector<const AdapterPair*> of_slice(dims.block.slices.size());  // of one layer
  int64_t layer = -1;
  for (const AdapterPair& pair : pairs_) {
    if (pair.layer != layer) std::ranges::fill(of_slice, nullptr);
    layer = pair.layer;
    HEDDLE_CHECK(layer < dims.num_layers, path, ": tensor ", files::quote(pair.a_name),
                 " is for layer ", layer, ", the model has ", dims.num_layers, " layers");
    const auto slices = dims.block.find(*pair.module);
    const auto [in, out] = dims.block.dims_of(slices);
    HEDDLE_CHECK(pair.in_features == in, path, ": tensor ", files::quote(pair.a_name), " takes ",
                 pair.in_features, " features, the model's layer has ", in);
    HEDDLE_CHECK(pair.out_features == out, path, ": tensor ", files::quote(pair.b_name), " gives ",
                 pair.out_features, " features, the model's layer has ", out);
    for (int i = slices.first; i < slices.first + slices.count; ++i) {
      const AdapterPair*& other = of_slice[static_cast<size_t>(i)];
      HEDDLE_CHECK(other == nullptr, path, ": tensors ", files::quote(other->a_name), " and ",
                   files::quote(pair.a_name), " are for the same rows of a layer");
      other = &pair;
    }
  }
}

/// The modules that the config targets, that the model has and that the adapter has no pair for.
std::vector<std::string> PeftAdapter::missing_modules(const ModelDims& dims) const {
  std::vector<std::string> missing;
  if (!config_.target_modules) return missing;
  for (const auto& [kind, part] :
       {std::pair(Kind::kEmbedding, &embedding_), {Kind::kHead, &head_}}) {
    const std::string module = AdapterPlace{kind}.name();
    if (!part->pair && config_.targets_vocabulary(module)) missing.push_back(module);
  }
  auto next = given_.begin();
  for (int64_t layer = 0; layer < dims.num_layers; ++layer) {
    std::vector<int> has(dims.block.slices.size());
    for (; next != given_.end() && next->layer == layer; ++next) {
      const auto [first, count] = dims.block.find(*next->module);
      std::fill_n(has.begin() + first, count, 1);
    }
    for (const auto& [linear, slices] : dims.block.stored()) {
      const auto first = has.begin() + slices.first;
      if (std::find(first, first + slices.count, 1) != first + slices.count) continue;
      const std::string module = AdapterPlace{Kind::kLayer, layer, linear}.name();
      if (config_.targets(module)) missing.push_back(module);
    }
  }
  return missing;
}

std::vector<std::string> PeftAdapter::warnings(const ModelDims& dims) const {
  std::vector<std::string> all = config_.warnings;
  if (heads() != nullptr) std::ranges::copy(heads()->warnings(), std::back_inserter(all));
  const std::vector<std::string> missing = missing_modules(dims);
  if (missing.empty()) return all;
  std::ostringstream text;
  text << tensors_.path() << ": has no tensors for " << missing.size()
       << (missing.size() == 1 ? " module" : " modules") << " that target_modules of "
       << config_.path << " names, the first is " << missing.front() << "; "
       << (missing.size() == 1 ? "it stays" : "they stay") << " as in the base model";
  all.push_back(text.str());
  return all;
}

}  // namespace heddle::model
