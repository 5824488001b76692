#pragma once

#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "files/gguf.h"
#include "model/adapters/adapter.h"
#include "model/decoder/decoder_config.h"

namespace heddle::model {

/// A LoRA adapter as llama.cpp's conversion writes it: a GGUF file whose general.type is "adapter",
/// with tensors that have the names of the model's and end in .lora_a and .lora_b. Its values are
/// brought into f32, rows of q and k into Hugging Face's order.
class GgufAdapter : public Adapter {
 public:
  /// `config`: of the model that it shall run with.
  GgufAdapter(const std::string& path, const DecoderConfig& config);

  void check_fits(const ModelDims& dims) const override;

 private:
  struct Halves {
    const files::GgufTensor *a = nullptr, *b = nullptr;
  };

  void check_kind() const;
  void read_pair(const DecoderConfig& config, std::string_view name, const Halves& halves);
  [[nodiscard]] const float* keep(std::vector<float> values);
  [[nodiscard]] std::vector<float> values_of(const files::GgufTensor& tensor) const;
  [[nodiscard]] LowRank read_halves(std::string_view name, const Halves& halves, bool is_embedding);

  files::GgufFile file_;
  std::list<std::vector<float>> values_;
};

}  // namespace heddle::model
