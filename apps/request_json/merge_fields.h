#pragma once

#include <string>

#include "heddle/engine/request.h"

#include "files/json.h"
#include "request_json/row_reader.h"

namespace heddle::app {

/// {"method": "ties", "density": 0.5, "majority_sign_method": "total", "seed": 0}; `where` begins
/// every error. Whether the values go together is for the engine to say.
[[nodiscard]] AdapterMerge read_merge(const files::Json& value, const std::string& where);

// Fields of such an object, as AdapterMerge has them; its own where they are absent or null.
[[nodiscard]] double merge_density(const RowReader& row);
[[nodiscard]] AdapterMerge::MajoritySign merge_sign(const RowReader& row);
[[nodiscard]] int64_t merge_seed(const RowReader& row);

/// The object of a merge that is not linear, with the fields that its method has.
[[nodiscard]] files::JsonObject merge_object(const AdapterMerge& merge);

}  // namespace heddle::app
