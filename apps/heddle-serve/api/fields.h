#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation.h"
#include "files/json_tree.h"
#include "files/json_value.h"
#include "options.h"
#include "request_json/row_reader.h"

namespace heddle::serve {

using json = files::Json;

/// Parses a body that must be an object. Throws ApiError.
[[nodiscard]] files::JsonTree parse_body(const std::string& body);

/// Takes out what is null, which counts as not there, and the fields of the table of
/// field_table.h at values that are accepted; refuses a field that is in none of the lists by its
/// name, unless unknown ones are ignored. Names in `ignored` those that have no effect.
void check_fields(json& body, std::span<const std::string_view> fields,
                  std::span<const std::string_view> more, bool ignores_unknown,
                  std::vector<std::string>& ignored);
/// check_fields for routes whose responses do not name the ignored ones.
void check_fields(json& body, std::span<const std::string_view> fields, bool ignores_unknown);

/// Adds a name to those of fields without effect, of which there are not many.
void add_ignored(std::vector<std::string>& ignored, std::string_view name);

/// The fields of read_common.
[[nodiscard]] std::span<const std::string_view> common_fields();

/// Reads what chat and completions have in common: how tokens are picked, what ends the answer,
/// which model, what is returned.
void read_common(json& body, const app::ServeOptions& options, Generation& generation,
                 Request& request);

/// Reads where adapters come from: adapter_source and api_token.
[[nodiscard]] SourceChoice read_source(const app::RowReader& row);
/// Of any number; nothing: it is not given.
[[nodiscard]] std::optional<int64_t> read_priority(const app::RowReader& row);

/// Reads [{"name": "sql", "scale": 0.5}, ...]; errors begin with `where`.
[[nodiscard]] AdapterList read_adapter_list(std::span<const json> list, const std::string& where);

/// Reads which model or adapters the request names.
void read_model(const app::RowReader& row, Generation& generation);

/// Reads what the text of answers must be.
void read_format(const app::RowReader& row, Generation& generation, Request& request);

/// A seed that no request before had, but by chance.
[[nodiscard]] int64_t random_seed();

/// Takes the field out of the object; null where it is not there. It lies in the memory of the
/// body's tree.
[[nodiscard]] json take(json& body, const char* field);

}  // namespace heddle::serve
