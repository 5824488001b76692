#pragma once

#include <string>
#include <vector>

#include "files/json.h"
#include "generate/row_parser.h"
#include "request_json/row_reader.h"

namespace heddle::app {

/// Reads which adapters the row has: `each_adapter`, `adapter`, `adapters` or `model`, else the
/// default.
void read_adapters(const RowReader& reader, const RowDefaults& defaults, Row& row);

/// All adapters of a list as one text: "sql+0.5*cron", merged "ties(sql+0.5*cron)"; of none "base".
[[nodiscard]] std::string shown_adapters(const std::vector<AdapterWeight>& list,
                                         const AdapterMerge& merge);
/// Adds `adapter`, `adapters` where the list is more than one adapter with scale 1, and `merge`
/// where that list is merged.
void add_adapters(const std::vector<AdapterWeight>& list, const AdapterMerge& merge,
                  files::JsonObject& answer);

}  // namespace heddle::app
