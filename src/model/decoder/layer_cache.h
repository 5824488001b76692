#pragma once

#include <variant>

#include "heddle/ops/kv_cache.h"

namespace heddle::model {

/// What the mixer of one layer keeps of earlier tokens, by the kind of mixer: attention has keys
/// and values in pages.
using LayerCache = std::variant<PagedKv>;

}  // namespace heddle::model
