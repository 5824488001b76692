#pragma once

#include <vector>

#include "capi/test/row.h"

namespace heddle::testing {

/// The rows of each family.
std::vector<Row> attention_rows();
std::vector<Row> layer_rows();
std::vector<Row> linear_rows();
std::vector<Row> site_rows();
std::vector<Row> lora_rows();
std::vector<Row> metadata_rows();
std::vector<Row> sampling_rows();
std::vector<Row> verify_rows();
std::vector<Row> speculation_rows();

}  // namespace heddle::testing
