#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "generate/row_parser.h"
#include "generate/row_reader.h"

namespace heddle::app {

/// Reads which adapters the row has: `adapter`, `adapters` or `model`, else the default.
void read_adapters(const RowReader& row, const RowDefaults& defaults, Request& request);

/// All adapters of a list as one text: "sql+0.5*cron".
[[nodiscard]] std::string shown_adapters(const std::vector<AdapterWeight>& list);
/// The same as JSON, as a row has it.
[[nodiscard]] nlohmann::ordered_json adapters_json(const std::vector<AdapterWeight>& list);

}  // namespace heddle::app
