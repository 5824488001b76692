#include "model/adapters/kinds/module_tensors.h"

#include <algorithm>

#include "heddle/core/error.h"
#include "heddle/ops/lora.h"

#include "files/printable.h"

namespace heddle::model {
namespace {

using Kind = AdapterPlace::Kind;

bool is_target(const AdapterConfig& config, const AdapterPlace& place) {
  switch (place.kind) {
    case Kind::kLayer: return config.targets(place.name());
    case Kind::kScore: return false;  // it is saved whole
    case Kind::kEmbedding: return config.targets_vocabulary(place.name());
    case Kind::kHead:
      return config.targets_vocabulary(place.name()) ||
             (config.ensure_weight_tying && is_target(config, {Kind::kEmbedding}));
  }
  return false;
}

void check_is_matrix(const std::string& path, const files::SafetensorsTensor& tensor) {
  HEDDLE_CHECK(tensor.shape.size() == 2 && tensor.shape[0] > 0 && tensor.shape[1] > 0, path,
               ": tensor ", files::quote(tensor.name), " has shape ",
               files::shape_text(tensor.shape), ", expected two extents of 1 or more");
}

}  // namespace

int64_t PlaceTensors::num_applied() const {
  auto count = std::ssize(tensors_) - std::ranges::count(tensors_, nullptr);
  for (const AdapterPart unread :
       {AdapterPart::kOriginal, AdapterPart::kOriginalBias, AdapterPart::kVelora}) {
    if ((*this)[unread] != nullptr) --count;
  }
  return count;
}

StoredValues AdapterSource::stored(const files::SafetensorsTensor& tensor) const {
  const bool is_matrix = tensor.shape.size() == 2;
  return {file.dtype(tensor), is_matrix ? tensor.shape[0] : 1, tensor.shape.back(),
          tensor.data.data(), tensor.name};
}

const ModelDims& AdapterSource::model() const {
  if (dims == nullptr) {
    throw_error(ErrorCode::kUnsupported, path(), ": an adapter of peft_type \"",
                info_of(config.method).peft_type,
                "\" has the widths of its model, which is not known here; name the model with "
                "--model");
  }
  return *dims;
}

LinearDims AdapterSource::dims_of(const AdapterPlace& place) const {
  const ModelDims& of_model = model();
  if (place.kind == Kind::kHead) return {of_model.hidden_size, of_model.vocab_size};
  return of_model.block.dims_of(of_model.block.find(*place.module));
}

StoredValues AdapterSource::shared_matrix(AdapterPart part) const {
  const files::SafetensorsTensor* const tensor = shared[part];
  HEDDLE_CHECK(tensor != nullptr, path(), ": has no tensor ",
               files::quote(shared_name(part, config.method)), ", yet save_projection of ",
               config.path, " is true");
  check_is_matrix(path(), *tensor);
  return stored(*tensor);
}

const files::SafetensorsTensor& ModuleTensors::needed(AdapterPart part) const {
  const files::SafetensorsTensor* const tensor = tensors[part];
  HEDDLE_CHECK(tensor != nullptr, source.path(), ": has no tensor ",
               files::quote(peft_name(place, part)));
  return *tensor;
}

const files::SafetensorsTensor& ModuleTensors::basis(AdapterPart part) const {
  const files::SafetensorsTensor* const of_all = source.shared[part];
  const files::SafetensorsTensor* const tensor = of_all != nullptr ? of_all : tensors[part];
  if (tensor == nullptr) {
    throw_error(ErrorCode::kUnsupported, source.path(), ": has no tensor ",
                files::quote(peft_name(place, part)),
                ", which PEFT would draw anew from projection_prng_key; save the adapter with "
                "save_projection=True");
  }
  return *tensor;
}

StoredValues ModuleTensors::matrix(AdapterPart part) const {
  const files::SafetensorsTensor& tensor = needed(part);
  check_is_matrix(source.path(), tensor);
  return source.stored(tensor);
}

StoredValues ModuleTensors::shaped(AdapterPart part, const std::vector<int64_t>& shape) const {
  const files::SafetensorsTensor& tensor = needed(part);
  HEDDLE_CHECK(tensor.shape == shape, source.path(), ": tensor ", files::quote(tensor.name),
               " has shape ", files::shape_text(tensor.shape), ", expected ",
               files::shape_text(shape));
  return source.stored(tensor);
}

bool ModuleTensors::has_part(AdapterPart part, const char* field, bool is_set,
                             const char* unset) const {
  const files::SafetensorsTensor* const tensor = tensors[part];
  HEDDLE_CHECK(tensor == nullptr || is_set, source.path(), ": tensor ", files::quote(tensor->name),
               " is present, but ", field, " of ", source.config.path, " is ", unset);
  return tensor != nullptr;
}

void ModuleTensors::check_target(AdapterPart part) const {
  HEDDLE_CHECK(is_target(source.config, place), source.path(), ": tensor ",
               files::quote(needed(part).name),
               " is for a module that target_modules, exclude_modules and layers_to_transform of ",
               source.config.path, " leave out");
}

void ModuleTensors::check_rank(AdapterPart part, int64_t rank) const {
  const int64_t expected = source.config.rank_of(place.name());
  HEDDLE_CHECK(rank == expected, source.path(), ": tensor ", files::quote(needed(part).name),
               " has rank ", rank, ", ", source.config.path, " gives it rank ", expected);
}

void ModuleTensors::check_fits_engine(AdapterPart part, int64_t rank) const {
  if (rank <= kMaxLoraRank) return;
  throw_error(ErrorCode::kUnsupported, source.path(), ": tensor ", files::quote(needed(part).name),
              " has rank ", rank, ", supported: up to ", kMaxLoraRank);
}

}  // namespace heddle::model
