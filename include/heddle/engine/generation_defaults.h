#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "heddle/engine/request.h"

namespace heddle {

/// What the files of a model give for requests that do not say it themselves, as vLLM takes it from
/// generation_config.json (docs/models.md). The engine itself applies none of it: a Request holds
/// what it says, so whoever makes one calls `apply` first.
struct GenerationDefaults {
  std::optional<float> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<int32_t> top_k{};
  std::optional<int64_t> max_tokens{};  // max_new_tokens in the file
  std::string path{};  // of the file; empty: there is none, or the option is "none"
  /// Settings of the file that would change answers and that heddle does not do: "num_beams is 4".
  std::vector<std::string> not_done{};

  /// Puts what is given in the place of what the request has.
  void apply(SamplingOptions& sampling, int64_t& max_num_tokens) const;
  void apply(Request& request) const { apply(request.sampling, request.max_tokens); }
  /// "temperature 0.6, top_p 0.95"; empty: nothing is given.
  [[nodiscard]] std::string describe() const;
};

}  // namespace heddle
