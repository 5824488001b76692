#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"

namespace heddle::model {

/// What a model is called, in lower case and without anything but letters and digits:
/// "SmolLM2-135M-Instruct" is "smollm2135minstruct".
struct ModelNames {
  std::vector<std::string> whole;  // of its file and by its settings
  std::string family;              // what all versions of it begin with; empty: not known
  std::optional<bool> follows_instructions{};  // the model, by its settings; absent: not known

  /// Whether `base_model`, a path or a name of a hub ("HuggingFaceTB/SmolLM2-135M-Instruct"), may
  /// mean this model: its last part is one of the whole names, or begins with the family where both
  /// or neither follow instructions. What it says of packed weights ("-bnb-4bit", "-AWQ", "-GGUF")
  /// does not matter. An empty text may mean any model.
  [[nodiscard]] bool may_be(std::string_view base_model) const;
};

/// The names of a GGUF file: that of the file without the weights' format ("Q4_1", "f16"),
/// general.name, and as family general.basename with general.size_label.
[[nodiscard]] ModelNames read_model_names(const files::GgufFile& file);

/// The names of a folder that transformers saved: its own, and `name_or_path` of its settings, by
/// which it was loaded before ("HuggingFaceTB/SmolLM2-135M-Instruct"). A snapshot in the Hugging
/// Face cache is called as the hub calls it.
[[nodiscard]] ModelNames folder_model_names(const std::string& folder,
                                            std::string_view name_or_path);

}  // namespace heddle::model
