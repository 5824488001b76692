#pragma once

#include <string>
#include <vector>

#include "heddle/core/context.h"

#include "core/digest.h"

namespace heddle::model {

/// Of what the files hold, in their order, read by all threads of the context. Their paths do not
/// count. Error where one cannot be read.
[[nodiscard]] Digest digest_of_files(const ExecContext& ctx, const std::vector<std::string>& paths);

}  // namespace heddle::model
