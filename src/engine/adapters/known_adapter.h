#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "heddle/ops/lora.h"

#include "engine/text/row_text.h"

namespace heddle {

/// An adapter as it was when it was read. Rows share it with the store, which keeps its weights
/// until the last of them has ended.
struct KnownAdapter {
  RowText text;
  int64_t num_tokens = 0;         // that its rows may have in their prompts
  int32_t slot = kNoAdapter;      // of its weights
  std::string_view runs_alone{};  // ModelRunner::runs_alone
  bool has_invocation = false;    // aLoRA: it acts from invocation tokens on
};
/// What a row holds from when it is submitted to its end; null: the base model.
using AdapterHold = std::shared_ptr<const KnownAdapter>;

}  // namespace heddle
