#pragma once

#include <cstdint>
#include <span>

#include "heddle/engine/request.h"

#include "engine/adapters/adapter_store.h"
#include "engine/rows/sequence.h"

namespace heddle {

/// Most adapters in the list of one row.
inline constexpr size_t kMaxAdaptersOfRow = 64;

/// Gives the row the adapters of its request. A list of one with scale 1 is that adapter, and one
/// that is merged is the merge. Throws Error, which names the entry, for an unknown name, for a
/// list that has no defined sum or cannot be merged, and for what can never fit into memory.
void set_adapters(RowAdapters& to, const Request& request, AdapterStore& adapters);

/// Sets where the adapters act: one with invocation tokens (aLoRA) from the last invocation in the
/// prompt on, or nowhere without one; all others from the first position on.
void set_active_positions(RowAdapters& adapters, std::span<const int32_t> prompt);

/// Throws Error, which names what differs, where requests with `from` cannot go on with `to`.
void check_switch(const KnownAdapter& from, const KnownAdapter& to);

/// The adapter whose tokenizer and chat template the request has; empty: the base model's.
[[nodiscard]] const std::string& adapter_of_text(const Request& request);

}  // namespace heddle
