#pragma once

#include <cstddef>
#include <cstdint>

#include "files/json.h"

namespace heddle::serve {

/// Refuses the body of a request in which a field is larger than docs/server.md allows. Throws
/// ApiError, which names the field, the bound and how much is there. A field that has no row in the
/// table is bounded as well, so that one that is new cannot be forgotten. Ranges of numbers are the
/// business of what reads them.
void check_bounds(const files::Json& body);

/// Refuses a list of more entries than the option allows. Throws ApiError.
void check_count(size_t count, int64_t most, const char* field, const char* option);

/// `rows` requests that each keep `num_entries` numbers of the field. Throws ApiError where they
/// are too many together.
void check_copies(const char* field, size_t num_entries, size_t rows);

/// A request of each_adapter, of which each of `rows` keeps a copy. Throws ApiError where these are
/// too large together.
void check_copies(const files::Json& body, size_t rows);

}  // namespace heddle::serve
