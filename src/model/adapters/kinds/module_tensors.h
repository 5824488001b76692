#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "files/safetensors.h"
#include "model/adapters/adapter.h"
#include "model/adapters/adapter_config.h"
#include "model/adapters/kinds/made_values.h"
#include "model/adapters/kinds/peft_names.h"

namespace heddle::model {

/// The tensors of a file that belong to one place, or to all of them, by AdapterPart.
class PlaceTensors {
 public:
  [[nodiscard]] const files::SafetensorsTensor*& operator[](AdapterPart part) {
    return tensors_[static_cast<size_t>(part)];
  }
  [[nodiscard]] const files::SafetensorsTensor* operator[](AdapterPart part) const {
    return tensors_[static_cast<size_t>(part)];
  }
  /// Those that the adapter computes with.
  [[nodiscard]] int64_t num_applied() const;

 private:
  std::array<const files::SafetensorsTensor*, kNumAdapterParts> tensors_{};
};

/// What an adapter's file has.
struct AdapterTensors {
  std::map<AdapterPlace, PlaceTensors> places;
  PlaceTensors shared;    // of all places: projections of VeRA and RandLoRA
  int64_t num_given = 0;  // all of them, copies too
};

/// Matrices of VeRA that all modules share: A [r, in] and B [out, r] of the widest ones.
struct VeraProjections {
  StoredValues a, b;
};

/// What is known while a file is read.
struct AdapterSource {
  const files::SafetensorsFile& file;
  const AdapterConfig& config;
  const PlaceTensors& shared;
  const ModelDims* dims;  // of the model that it shall run with; null: not known
  MadeValues& made;
  VeraProjections vera{};

  [[nodiscard]] const std::string& path() const { return file.path(); }
  /// A tensor of one or two extents as the file has it.
  [[nodiscard]] StoredValues stored(const files::SafetensorsTensor& tensor) const;
  /// Error(kUnsupported) where the model is not known.
  [[nodiscard]] const ModelDims& model() const;
  /// Features of the module in the model.
  [[nodiscard]] LinearDims dims_of(const AdapterPlace& place) const;
  /// A matrix that all modules share.
  [[nodiscard]] StoredValues shared_matrix(AdapterPart part) const;
};

/// What a file has for one module, checked as it is read.
struct ModuleTensors {
  const AdapterSource& source;
  const AdapterPlace& place;
  const PlaceTensors& tensors;

  /// The tensor of a part, which the kind needs.
  [[nodiscard]] const files::SafetensorsTensor& needed(AdapterPart part) const;
  /// A basis of RandLoRA, which all modules share: PEFT saves it once, and with each of them.
  [[nodiscard]] const files::SafetensorsTensor& basis(AdapterPart part) const;
  /// The tensor of a part where it is a matrix without an extent of 0.
  [[nodiscard]] StoredValues matrix(AdapterPart part) const;
  /// The same where it has this shape.
  [[nodiscard]] StoredValues shaped(AdapterPart part, const std::vector<int64_t>& shape) const;
  /// Whether there is a tensor that exists where `field` of the configuration says so, and only
  /// there; `unset`: what the field is elsewhere.
  [[nodiscard]] bool has_part(AdapterPart part, const char* field, bool is_set,
                              const char* unset = "false") const;
  /// Unless the configuration applies the adapter to the module, whose tensor is named.
  void check_target(AdapterPart part) const;
  /// Unless the tensor's rank is what the configuration says.
  void check_rank(AdapterPart part, int64_t rank) const;
  /// Error(kUnsupported) where the rank of what is added to the module is more than the engine
  /// takes.
  void check_fits_engine(AdapterPart part, int64_t rank) const;
  /// Values that are made of the module's tensors, the named one among them.
  [[nodiscard]] StoredValues make(std::string_view name, int64_t rows, int64_t columns,
                                  MadeValues::Make make) const {
    return source.made.add(source.path(), name, rows, columns, std::move(make));
  }
  [[nodiscard]] float scale() const { return source.config.scale_of(place.name()); }
};

}  // namespace heddle::model
