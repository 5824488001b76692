#pragma once

#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "files/bounded_open.h"
#include "files/gguf.h"
#include "model/adapters/adapter.h"
#include "model/config/decoder_config.h"

namespace heddle::model {

/// A LoRA adapter as llama.cpp's conversion writes it: a GGUF file whose general.type is "adapter",
/// with tensors that have the names of the model's and end in .lora_a and .lora_b. Its values are
/// brought into f32, rows of q and k into Hugging Face's order.
class GgufAdapter : public Adapter {
 public:
  /// `config`: of the model that it shall run with.
  /// `bounds`: where the file must lie.
  GgufAdapter(const std::string& path, const DecoderConfig& config,
              const files::FolderBounds& bounds = {});

  void check_fits(const ModelDims& dims) const override;
  [[nodiscard]] std::vector<std::string> warnings(const ModelDims&) const override { return {}; }

 private:
  struct Halves {
    const files::GgufTensor *a = nullptr, *b = nullptr;
  };
  using HalvesByName = std::map<std::string, Halves>;  // without .lora_a and .lora_b

  void check_kind(const DecoderConfig& config) const;
  void read_parts(const DecoderConfig& config, HalvesByName& halves);
  void put_rows_in_order(const DecoderConfig& config, const AdapterPair& pair);
  [[nodiscard]] const float* keep(std::vector<float> values);
  [[nodiscard]] std::vector<float> values_of(const files::GgufTensor& tensor) const;
  [[nodiscard]] LowRank read_halves(std::string_view name, const Halves& halves, bool is_embedding);

  files::GgufFile file_;
  std::list<std::vector<float>> values_;
};

}  // namespace heddle::model
