#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "files/bounded_open.h"
#include "files/safetensors.h"
#include "model/adapters/adapter.h"
#include "model/config/decoder_config.h"

namespace heddle::model {

/// What config.json says of Medusa heads.
struct MedusaConfig {
  std::string path{};        // of the file
  std::string base_model{};  // base_model_name_or_path; may be empty
  int64_t num_heads = 0, num_layers = 0;
  std::vector<std::string> unknown{};  // settings that mean nothing here
};

/// Medusa heads of a folder, as Medusa and LoRAX have them: config.json, and tensors of
/// medusa_lm_head.safetensors, else of adapter_model.safetensors, else of model.safetensors. Head i
/// has
///   {i}.{l}.linear.weight [hidden_size, hidden_size], {i}.{l}.linear.bias [hidden_size]
/// for layer l, and all heads or none have besides
///   {i}.{num_layers}.weight [vocab_size, hidden_size]
/// Names may begin with "medusa_head.". The values exist after `load`.
class MedusaFiles {
 public:
  /// Throws Error where something is missing, does not fit the model or has no place.
  MedusaFiles(const std::string& folder, const DecoderConfig& model,
              const files::FolderBounds& bounds = {});
  MedusaFiles(const MedusaFiles&) = delete;
  MedusaFiles& operator=(const MedusaFiles&) = delete;

  /// Reads the values; rounded_to: the dtype to which a GPU rounds them. Throws Error where one is
  /// not finite then.
  void load(std::optional<DType> rounded_to);

  struct Layer {
    StoredValues weight{}, bias{};
  };
  struct Head {
    std::vector<Layer> layers{};
    StoredValues output{};  // absent: the model's head is that of its drafts
  };

  [[nodiscard]] const MedusaConfig& config() const { return config_; }
  [[nodiscard]] const std::vector<Head>& heads() const { return heads_; }
  /// What is odd about them, one sentence each.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  void sort(bool is_shared);
  void check_complete(const DecoderConfig& model) const;
  [[nodiscard]] StoredValues stored(const files::SafetensorsTensor& tensor) const;

  MedusaConfig config_;
  files::SafetensorsFile file_;
  std::vector<Head> heads_;
};

/// Whether a tensor of this name is of a Medusa head.
[[nodiscard]] bool is_medusa_name(std::string_view name);
/// Whether the folder's config.json is one of Medusa heads.
[[nodiscard]] bool has_medusa_config(const std::string& folder, const files::FolderBounds& bounds);
/// Whether besides the heads lie in adapter_model.safetensors.
[[nodiscard]] bool has_medusa_tensors(const std::string& folder, const files::FolderBounds& bounds);
/// The heads of a folder; null where it has none.
[[nodiscard]] std::shared_ptr<MedusaFiles> open_heads(const std::string& folder,
                                                      const DecoderConfig& model,
                                                      const files::FolderBounds& bounds);

}  // namespace heddle::model
