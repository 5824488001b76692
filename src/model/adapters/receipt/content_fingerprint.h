#pragma once

#include <string>

#include "model/adapters/adapter.h"

namespace heddle::model {

/// 32 hexadecimal digits that name what a loaded adapter computes with, aLoRA's invocation tokens
/// included: XXH3-128 without a secret, so that whoever has the tensors can compute it, in other
/// programs too. docs/adapter_receipts.md has the formula. It names contents of people who trust
/// each other; a cache that must withstand others uses content_digest.
[[nodiscard]] std::string content_fingerprint(const Adapter& adapter);

}  // namespace heddle::model
