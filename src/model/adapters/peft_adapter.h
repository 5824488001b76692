#pragma once

#include <cstddef>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "files/bounded_open.h"
#include "files/safetensors.h"
#include "model/adapters/adapter.h"
#include "model/adapters/adapter_config.h"
#include "model/adapters/kinds/made_values.h"
#include "model/adapters/kinds/peft_names.h"
#include "model/config/block_shape.h"

namespace heddle::model {

/// The folders of adapters in a folder that PeftModel.save_pretrained wrote of several, by name;
/// none where it is itself the folder of an adapter.
[[nodiscard]] std::vector<std::string> adapters_in(const std::string& folder);

/// An adapter as PEFT saves it, LoRA or another method that comes down to A and B: a folder with
/// adapter_config.json and adapter_model.safetensors, or MLX-LM's adapters.safetensors. What heddle
/// does not compute is refused by name. `dims`, of the model that it shall run with, tell the
/// widths of methods whose files do not; null where the model is not known, and such methods are
/// refused.
class PeftAdapter : public Adapter {
 public:
  /// `bounds`: where its files must lie.
  explicit PeftAdapter(const std::string& folder, const files::FolderBounds& bounds = {},
                       const ModelDims* dims = nullptr);
  /// From memory that outlives the object; `name` stands for the folder in errors.
  PeftAdapter(std::string_view config_json, std::span<const std::byte> safetensors,
              const std::string& name, const ModelDims* dims = nullptr);

  [[nodiscard]] const AdapterConfig& config() const { return config_; }

  void load() override;
  /// Error(kInvalidArgument) unless every pair fits its layer. Pairs of q_proj, k_proj and v_proj
  /// also fit a layer that has them fused, and pairs of a fused layer one that does not, so long as
  /// no two are for the same rows; so do gate_proj and up_proj.
  void check_fits(const ModelDims& dims) const override;
  /// As PEFT, which warns too, of modules that the config targets and the file has nothing for.
  [[nodiscard]] std::vector<std::string> warnings(const ModelDims& dims) const override;

 private:
  void read_tensors(const ModelDims* dims, bool has_heads);
  [[nodiscard]] std::vector<std::string> missing_modules(const ModelDims& dims) const;

  AdapterConfig config_;
  files::SafetensorsFile tensors_;
  MadeValues made_;
  std::set<AdapterPlace> given_;  // the places that the file has tensors for
};

}  // namespace heddle::model
