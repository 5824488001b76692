#pragma once

#include "heddle/engine/adapter_receipt.h"

#include "files/json_value.h"

namespace heddle::serve {

/// All that a receipt says; norms that are not known are null.
[[nodiscard]] files::JsonObject receipt_json(const AdapterReceipt& receipt);

}  // namespace heddle::serve
