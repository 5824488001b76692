#pragma once

#include "core/digest.h"
#include "model/adapters/adapter.h"

namespace heddle::model {

/// Of all that a loaded adapter makes a token row compute: its layers, modules, scales, types and
/// values, of its embedding and head too. Two adapters of one digest give the same bits, whatever
/// their paths, names and file formats. What is stored in another dtype has another digest, even
/// where its values are equal. The secret is that of Hasher.
///
/// aLoRA's invocation tokens do not count: they say where in a prompt an adapter acts and not what
/// it computes there. What is kept of a prompt has to know from where on it acted, too.
[[nodiscard]] Digest content_digest(const Adapter& adapter, std::span<const std::byte> secret);

}  // namespace heddle::model
