#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/ops/lora.h"

#include "engine/adapters/adapter_folder.h"
#include "engine/text/row_text.h"

namespace heddle {

/// The weights of an adapter in memory. A row that runs holds them, so that they stay.
struct AdapterWeights {
  int32_t slot = kNoAdapter;
};
using WeightsHold = std::shared_ptr<const AdapterWeights>;

/// The weights of an adapter on their way into memory, beside the steps of the engine.
struct AdapterLoad;

/// An adapter as it was when it was read.
struct KnownAdapter {
  std::string path;
  RowText text;
  int64_t num_tokens = 0;               // that its rows may have in their prompts
  int64_t num_logits = 0;               // that they get
  int64_t num_bytes = 0;                // of its weights in memory, at most
  std::string_view runs_alone{};        // ModelRunner::runs_alone
  std::vector<int32_t> invocation;      // of aLoRA, which acts from these tokens on; else empty
  bool has_embedding = false;           // one of its own, or changes to the model's
  std::optional<FileStamps> found;      // of one that was found in the folder of adapters
  WeightsHold weights{};                // null: not in memory
  std::shared_ptr<AdapterLoad> load{};  // null: none is under way
  uint64_t last_used = 0;               // the store's count of uses
};
/// What a row holds from when it is submitted to its end.
using AdapterHold = std::shared_ptr<KnownAdapter>;

}  // namespace heddle
