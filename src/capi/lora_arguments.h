#pragma once

#include "heddle/ops/lora.h"

#include "capi/convert.h"

struct heddle_adapter_table {
  heddle::AdapterTable table;
};

namespace heddle::capi {

[[nodiscard]] LoraLayout layout_of(heddle_lora_layout layout);
[[nodiscard]] LoraBatch batch_of(const heddle_lora_batch* batch);
/// `name` is that of the argument, for errors.
[[nodiscard]] LoraTable table_of(const char* name, const heddle_lora_table* table);

}  // namespace heddle::capi
