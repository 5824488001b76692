#include <algorithm>

#include "heddle/core/check.h"
#include "heddle/core/product.h"
#include "heddle/ops/linear.h"

#include "ops/linear/format/packed_layout.h"
#include "ops/linear/pack/pack_group.h"

namespace heddle {

size_t packed_bytes(WeightType type, int64_t out_features, int64_t in_features) {
  HEDDLE_CHECK(out_features >= 0, "packed_bytes: out_features is ", out_features);
  static_cast<void>(stored_bytes(type, in_features));  // in_features must be whole blocks
  return static_cast<size_t>(checked_product(
      "packed bytes", {num_groups(out_features), in_features / block_format(type).block_size,
                       int64_t{PackedLayout(type).block_bytes}}));
}

void pack_rows(const ExecContext& ctx, std::span<std::byte> packed, WeightType type,
               int64_t out_features, int64_t in_features, int64_t first_row, int64_t num_rows,
               std::span<const std::byte> stored) {
  constexpr int64_t kGroup = PackedLayout::kGroup;
  check_cpu(ctx, "pack_rows");
  const size_t expected = packed_bytes(type, out_features, in_features);
  HEDDLE_CHECK(packed.size() == expected, "pack_rows: packed holds ", packed.size(),
               " bytes, expected ", expected, " for ", out_features, " x ", in_features,
               " weights of type ", type);
  HEDDLE_CHECK(first_row >= 0 && num_rows >= 0 && first_row <= out_features &&
                   num_rows <= out_features - first_row,
               "pack_rows: ", num_rows, " rows from row ", first_row, " on of a weight with ",
               out_features, " rows");
  HEDDLE_CHECK(first_row % kGroup == 0, "pack_rows: first_row ", first_row,
               " is not a multiple of ", kGroup);
  HEDDLE_CHECK(num_rows % kGroup == 0 || first_row + num_rows == out_features,
               "pack_rows: num_rows ", num_rows, " is not a multiple of ", kGroup,
               " and the rows end at ", first_row + num_rows, " of ", out_features);
  const size_t row_bytes = stored_bytes(type, in_features);
  const size_t stored_expected = static_cast<size_t>(num_rows) * row_bytes;
  HEDDLE_CHECK(stored.size() == stored_expected, "pack_rows: stored holds ", stored.size(),
               " bytes, expected ", stored_expected, " for ", num_rows, " rows of ", in_features,
               " weights of type ", type);
  const auto packed_step = static_cast<size_t>(group_bytes(type, in_features));
  parallel_for(ctx, num_groups(num_rows), 1, [&](int64_t begin, int64_t end) {
    for (int64_t g = begin; g < end; ++g) {
      const int rows = static_cast<int>(std::min(kGroup, num_rows - g * kGroup));
      pack_group(type, in_features, stored.data() + size_t(g * kGroup) * row_bytes, row_bytes, rows,
                 packed.data() + size_t(first_row / kGroup + g) * packed_step);
    }
  });
}

}  // namespace heddle
