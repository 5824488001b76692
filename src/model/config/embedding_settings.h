#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle::model {

/// How the hidden states of a prompt become one vector.
enum class Pooling : uint8_t {
  kLast,  // that of the last token
  kMean,  // their mean
  kFirst  // that of the first token: "cls"
};

/// By the name that requests and sentence-transformers have for it: "last" or "lasttoken", "mean",
/// "cls"; nothing for another.
[[nodiscard]] constexpr std::optional<Pooling> find_pooling(std::string_view name) {
  if (name == "last" || name == "lasttoken") return Pooling::kLast;
  if (name == "mean") return Pooling::kMean;
  if (name == "cls") return Pooling::kFirst;
  return std::nullopt;
}

/// What a model's files say of its embeddings.
struct EmbeddingSettings {
  Pooling pooling = Pooling::kLast;
  bool normalizes = true;
  std::string unsupported{};  // why the model's embeddings cannot be computed: one sentence
};

}  // namespace heddle::model
