#pragma once

#include <array>
#include <string_view>

#include "heddle/engine/request.h"

#include "request_json/row_reader.h"

namespace heddle::app {

/// The fields that say how tokens of the answer are drafted (docs/speculation.md).
inline constexpr std::array<std::string_view, 2> kSpeculationFields = {"speculation", "prediction"};

/// Reads the fields of kSpeculationFields: of `speculation` true is the engine's own method, false
/// "off"; `prediction` is as OpenAI has it. Throws FieldError.
void read_speculation_fields(const RowReader& row, Request& request);

}  // namespace heddle::app
