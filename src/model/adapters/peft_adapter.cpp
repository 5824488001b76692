#include "model/adapters/peft_adapter.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

#include "heddle/core/error.h"
#include "heddle/ops/lora.h"

#include "files/lfs_pointer.h"
#include "files/printable.h"
#include "model/adapters/peft_names.h"

namespace heddle::model {
namespace {

constexpr const char* kConfigFile = "/adapter_config.json";
constexpr const char* kTensorFile = "/adapter_model.safetensors";
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

std::string tensor_file(const std::string& folder) {
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

/// The tensors for one place while a file is read, by AdapterPart.
class PlaceTensors {
 public:
  [[nodiscard]] const files::SafetensorsTensor*& operator[](Part part) {
    return tensors_[static_cast<size_t>(part)];
  }
  [[nodiscard]] const files::SafetensorsTensor* operator[](Part part) const {
    return tensors_[static_cast<size_t>(part)];
  }
  /// Those that the adapter computes with.
  [[nodiscard]] int64_t num_applied() const {
    const auto num_absent = std::ranges::count(tensors_, nullptr);
    return std::ssize(tensors_) - num_absent - ((*this)[Part::kOriginal] == nullptr ? 0 : 1);
  }

 private:
  std::array<const files::SafetensorsTensor*, kNumAdapterParts> tensors_{};
};
using TensorsByPlace = std::map<AdapterPlace, PlaceTensors>;

bool has_same_values(const files::SafetensorsFile& file, const files::SafetensorsTensor& x,
                     const files::SafetensorsTensor& y) {
  if (x.dtype_name != y.dtype_name || x.shape != y.shape) return false;
  std::vector<std::byte> of_x(x.data.size()), of_y(y.data.size());
  file.read(x, 0, of_x);
  file.read(y, 0, of_y);
  return of_x == of_y;
}

/// decoder: becomes where it lies in the names of the adapter's modules.
TensorsByPlace sort_tensors(const files::SafetensorsFile& file, std::string& decoder) {
  TensorsByPlace places;
  std::string adapter;  // its name, where tensors have it
  for (const files::SafetensorsTensor& tensor : file.tensors()) {
    if (is_of_other_half(tensor.name)) {
      throw_error(
          ErrorCode::kUnsupported, file.path(), ": tensor ", files::quote(tensor.name),
          " is for the image or audio part of the model, which heddle does not load; train the "
          "adapter with target_modules of the language model alone, or with "
          "exclude_modules");
    }
    const auto parsed = parse_peft_name(tensor.name);
    if (!parsed) {
      throw_error(ErrorCode::kUnsupported, file.path(), ": tensor ", files::quote(tensor.name),
                  " is not lora_A or lora_B of a layer's q_proj, k_proj, v_proj, o_proj, "
                  "gate_proj, up_proj, down_proj, qkv_proj or gate_up_proj, nor of embed_tokens "
                  "or lm_head");
    }
    if (!parsed->adapter.empty()) {
      HEDDLE_CHECK(adapter.empty() || adapter == parsed->adapter, file.path(),
                   ": has tensors of two adapters, ", files::quote(adapter), " and ",
                   files::quote(parsed->adapter), "; save each in a folder of its own");
      adapter = parsed->adapter;
    }
    const files::SafetensorsTensor*& place = places[parsed->place][parsed->part];
    // PEFT saves a module of modules_to_save under two names where the vocabulary was resized.
    const bool is_twice = place != nullptr && has_same_values(file, *place, tensor);
    HEDDLE_CHECK(place == nullptr || is_twice, file.path(), ": tensors ", files::quote(place->name),
                 " and ", files::quote(tensor.name), " are for the same place");
    if (!is_twice) place = &tensor;
    if (parsed->decoder != decoder) decoder = parsed->decoder;
  }
  HEDDLE_CHECK(!places.empty(), file.path(), ": holds no tensor");
  return places;
}

void check_halves(const std::string& path, const AdapterPlace& place, const PlaceTensors& tensors) {
  const auto *const a = tensors[Part::kA], *const b = tensors[Part::kB];
  for (const Part part : {Part::kB, Part::kBias, Part::kMagnitude, Part::kLayerBias}) {
    HEDDLE_CHECK(a != nullptr || tensors[part] == nullptr, path, ": tensor ",
                 files::quote(tensors[part]->name), " has no partner ",
                 files::quote(peft_name(place, Part::kA)));
  }
  HEDDLE_CHECK(b != nullptr, path, ": tensor ", files::quote(a->name), " has no partner ",
               files::quote(peft_name(place, Part::kB)));
  for (const files::SafetensorsTensor* half : {a, b}) {
    HEDDLE_CHECK(half->shape.size() == 2 && half->shape[0] > 0 && half->shape[1] > 0, path,
                 ": tensor ", files::quote(half->name), " has shape ",
                 files::shape_text(half->shape), ", expected two extents of 1 or more");
  }
  HEDDLE_CHECK(a->shape[0] == b->shape[1], path, ": tensor ", files::quote(a->name), " has shape ",
               files::shape_text(a->shape), ", rank ", a->shape[0], ", its partner lora_B ",
               files::shape_text(b->shape), ", rank ", b->shape[1]);
}

/// The adapter's values for each output of a product, which exist where the configuration says so.
StoredValues read_vector(const files::SafetensorsFile& file, const AdapterConfig& config,
                         const AdapterPlace& place, Part part, const char* field, bool is_set,
                         const PlaceTensors& tensors) {
  const files::SafetensorsTensor* const tensor = tensors[part];
  const bool may_lack = part == Part::kLayerBias;  // layers without a bias have none to train
  if (tensor == nullptr) {
    HEDDLE_CHECK(!is_set || may_lack, file.path(), ": has no tensor ",
                 files::quote(peft_name(place, part)), ", yet ", field, " of ", config.path,
                 " is true");
    return {};
  }
  HEDDLE_CHECK(is_set, file.path(), ": tensor ", files::quote(tensor->name), " is present, but ",
               field, " of ", config.path, may_lack ? " is \"none\"" : " is false");
  const int64_t size = tensors[Part::kB]->shape[0];
  HEDDLE_CHECK(tensor->shape == std::vector<int64_t>{size}, file.path(), ": tensor ",
               files::quote(tensor->name), " has shape ", files::shape_text(tensor->shape),
               ", expected [", size, "]");
  return {file.dtype(*tensor), 1, size, tensor->data.data(), tensor->name};
}

bool is_target(const AdapterConfig& config, const AdapterPlace& place) {
  switch (place.kind) {
    case Kind::kLayer: return config.targets(place.name());
    case Kind::kEmbedding: return config.targets_vocabulary(place.name());
    case Kind::kHead:
      return config.targets_vocabulary(place.name()) ||
             (config.ensure_weight_tying && is_target(config, {Kind::kEmbedding}));
  }
  return false;
}

/// Reads the two halves of a place and what belongs to them. Where the halves are of two types both
/// become f32, in which PEFT computes: what must be converted comes to `converted`.
LowRank read_halves(const files::SafetensorsFile& file, const AdapterConfig& config,
                    const AdapterPlace& place, const PlaceTensors& tensors,
                    std::vector<ConvertedHalf>& converted) {
  const std::string& path = file.path();
  check_halves(path, place, tensors);
  const auto &a = *tensors[Part::kA], &b = *tensors[Part::kB];
  const std::string module = place.name();
  const int64_t rank = a.shape[0], expected = config.rank_of(module);
  HEDDLE_CHECK(rank == expected, path, ": tensor ", files::quote(a.name), " has rank ", rank, ", ",
               config.path, " gives it rank ", expected);
  if (rank > kMaxLoraRank) {
    throw_error(ErrorCode::kUnsupported, path, ": tensor ", files::quote(a.name), " has rank ",
                rank, ", supported: up to ", kMaxLoraRank);
  }
  HEDDLE_CHECK(is_target(config, place), path, ": tensor ", files::quote(a.name),
               " is for a module that target_modules, exclude_modules and layers_to_transform of ",
               config.path, " leave out");
  const bool is_mixed = file.dtype(a) != file.dtype(b);
  const auto data_of = [&](const files::SafetensorsTensor& half) {
    const DType dtype = file.dtype(half);
    if (!is_mixed || dtype == DType::kFloat32) return half.data.data();
    const StoredValues stored{dtype, half.shape[0], half.shape[1], half.data.data()};
    const size_t num_bytes = static_cast<size_t>(stored.num_elements()) * sizeof(float);
    converted.push_back({stored, files::ReservedBytes(num_bytes, path)});
    return converted.back().floats.bytes().data();
  };
  return {.rank = rank,
          .in_features = a.shape[1],
          .out_features = b.shape[0],
          .scale = config.scale_of(module),
          .dtype = is_mixed ? DType::kFloat32 : file.dtype(a),
          .a = data_of(a),
          .b = data_of(b),
          .magnitude = read_vector(file, config, place, Part::kMagnitude, "use_dora",
                                   config.use_dora, tensors),
          .bias = read_vector(file, config, place, Part::kBias, "lora_bias",
                              config.lora_bias && place.kind != Kind::kEmbedding, tensors),
          .layer_bias = read_vector(file, config, place, Part::kLayerBias, "bias",
                                    config.trains_bias, tensors),
          .a_name = a.name,
          .b_name = b.name};
}

StoredValues read_matrix(const files::SafetensorsFile& file,
                         const files::SafetensorsTensor* tensor) {
  if (tensor == nullptr) return {};
  HEDDLE_CHECK(tensor->shape.size() == 2 && tensor->shape[0] > 0 && tensor->shape[1] > 0,
               file.path(), ": tensor ", files::quote(tensor->name), " has shape ",
               files::shape_text(tensor->shape), ", expected two extents of 1 or more");
  return {file.dtype(*tensor), tensor->shape[0], tensor->shape[1], tensor->data.data(),
          tensor->name};
}

/// Reads what exists for the embedding or the head, perhaps nothing.
VocabularyPart read_part(const files::SafetensorsFile& file, const AdapterConfig& config,
                         const AdapterPlace& place, const PlaceTensors& tensors, bool is_saved,
                         const std::vector<int32_t>& token_ids,
                         std::vector<ConvertedHalf>& converted) {
  const std::string& path = file.path();
  VocabularyPart part;
  (void)read_matrix(file, tensors[Part::kOriginal]);  // it is checked, and nothing computes with it
  part.weight = read_matrix(file, tensors[Part::kWeight]);
  HEDDLE_CHECK(part.weight.is_present() || !is_saved, path, ": has no tensor ",
               files::quote(peft_name(place, Part::kWeight)),
               ", yet it is one of modules_to_save "
               "of ",
               config.path);
  for (const Part of_pair : {Part::kA, Part::kB, Part::kMagnitude, Part::kBias, Part::kLayerBias}) {
    if (tensors[of_pair] == nullptr) continue;
    part.pair = read_halves(file, config, place, tensors, converted);
    break;
  }
  // Where the head is tied PEFT saves the rows of the embedding as the head's, too.
  const bool is_tied =
      place.kind == Kind::kHead && token_ids.empty() && tensors[Part::kTokenRows] != nullptr;
  part.token_ids = is_tied ? config.embedding_tokens : token_ids;
  part.token_rows = read_matrix(file, tensors[Part::kTokenRows]);
  const auto num_ids = std::ssize(part.token_ids);
  HEDDLE_CHECK(part.token_rows.rows == num_ids, path, ": tensor ",
               files::quote(peft_name(place, Part::kTokenRows)), " has ", part.token_rows.rows,
               " rows, trainable_token_indices of ", config.path, " has ", num_ids,
               " tokens for it");
  return part;
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

PeftAdapter::PeftAdapter(const std::string& folder, const files::FolderBounds& bounds)
    : Adapter(folder),
      config_(read_config(folder, bounds)),
      tensors_(files::open_within(tensor_file(folder), bounds)) {
  read_tensors();
}

PeftAdapter::PeftAdapter(std::string_view config_json, std::span<const std::byte> safetensors,
                         const std::string& name)
    : Adapter(name),
      config_(parse_adapter_config(config_json, name + kConfigFile)),
      tensors_(safetensors, name + kTensorFile) {
  read_tensors();
  convert_halves();
}

void PeftAdapter::load() {
  tensors_.load();
  convert_halves();
}

void PeftAdapter::convert_halves() {
  for (ConvertedHalf& half : converted_) {
    const std::vector<float> values = half.stored.floats();
    std::ranges::copy(std::as_bytes(std::span(values)), half.floats.fill(path()).begin());
  }
}

void PeftAdapter::read_tensors() {
  const TensorsByPlace places = sort_tensors(tensors_, config_.decoder);
  const auto part = [&](Kind kind, bool is_saved, const std::vector<int32_t>& token_ids) {
    const AdapterPlace place{kind};
    const auto found = places.find(place);
    return read_part(tensors_, config_, place,
                     found == places.end() ? PlaceTensors{} : found->second, is_saved, token_ids,
                     converted_);
  };
  num_tensors_.given = std::ssize(tensors_.tensors());
  for (const auto& [place, tensors] : places) num_tensors_.applied += tensors.num_applied();
  base_model_ = config_.base_model;
  invocation_tokens_ = config_.invocation_tokens;
  embedding_ = part(Kind::kEmbedding, config_.saves_embedding, config_.embedding_tokens);
  head_ = part(Kind::kHead, config_.saves_head, config_.head_tokens);
  if (embedding_.pair && !invocation_tokens_.empty()) {  // PEFT refuses this too
    throw_error(
        ErrorCode::kUnsupported, config_.path,
        ": alora_invocation_tokens is set, which is not supported for an adapted embedding");
  }
  for (const auto& [place, tensors] : places) {
    if (place.kind != Kind::kLayer) continue;
    pairs_.push_back(
        {read_halves(tensors_, config_, place, tensors, converted_), place.layer, place.module});
  }
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
  auto next = pairs_.begin();
  for (int64_t layer = 0; layer < dims.num_layers; ++layer) {
    std::vector<int> has(dims.block.slices.size());
    for (; next != pairs_.end() && next->layer == layer; ++next) {
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
