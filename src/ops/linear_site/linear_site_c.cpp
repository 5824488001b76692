#include "heddle/ops/linear_site.h"

#include <limits>
#include <string>
#include <vector>

#include "heddle/c_linear_site.h"

#include "capi/convert.h"
#include "capi/guard.h"
#include "capi/lora_arguments.h"
#include "capi/weight_arguments.h"

using heddle::capi::guard;
using heddle::capi::guard_size;
using heddle::capi::in;
using heddle::capi::in_or_absent;
using heddle::capi::out;
using heddle::capi::weight_of;

namespace {

static_assert(int{HEDDLE_LINEAR_DECODE} == int(heddle::LinearPath::kDecode) &&
              int{HEDDLE_LINEAR_PROMPT} == int(heddle::LinearPath::kPrompt));

heddle::LinearPath path_of(heddle_linear_path path) {
  HEDDLE_CHECK(path >= 0 && path <= std::numeric_limits<uint8_t>::max(), "path is ", path,
               ", which is no heddle_linear_path");
  return static_cast<heddle::LinearPath>(path);
}

std::vector<heddle::LinearSlice> slices_of(const heddle::ExecContext& ctx,
                                           const heddle_linear_slice* slices, int32_t num_slices) {
  HEDDLE_CHECK(num_slices >= 0, "num_slices is ", num_slices, ", expected at least 1");
  HEDDLE_CHECK(num_slices == 0 || slices != nullptr, "slices is NULL");
  std::vector<heddle::LinearSlice> result;
  for (int32_t s = 0; s < num_slices; ++s) {
    const std::string name = "slices[" + std::to_string(s) + "]";
    const heddle_linear_slice& given = slices[s];
    heddle::LinearSlice slice{.y = out((name + ".y").c_str(), given.y),
                              .weight = in_or_absent((name + ".weight").c_str(), given.weight),
                              .bias = in_or_absent((name + ".bias").c_str(), given.bias)};
    if (given.packed != nullptr) {
      slice.packed = weight_of(ctx, (name + ".packed").c_str(), given.packed);
    } else {
      HEDDLE_CHECK(slice.weight, name, ".weight and ", name, ".packed are NULL");
    }
    result.push_back(slice);
  }
  return result;
}

}  // namespace

heddle_status heddle_linear_site(heddle_context* context, const heddle_linear_slice* slices,
                                 int32_t num_slices, const DLTensor* x, heddle_linear_path path,
                                 const heddle_lora_table* a, const heddle_lora_table* b,
                                 const heddle_lora_batch* batch) {
  return guard(context, [&](const heddle::ExecContext& ctx) {
    const std::vector<heddle::LinearSlice> products = slices_of(ctx, slices, num_slices);
    const heddle::ConstTensorView rows = in("x", x);
    if (a == nullptr && b == nullptr && batch == nullptr) {
      return heddle::linear_site(ctx, products, rows, path_of(path));
    }
    const heddle::LinearAdapters adapters{heddle::capi::table_of("a", a),
                                          heddle::capi::table_of("b", b),
                                          heddle::capi::batch_of(batch)};
    heddle::linear_site(ctx, products, rows, path_of(path), &adapters);
  });
}

size_t heddle_linear_site_workspace_bytes(DLDevice device, int64_t num_tokens, int64_t in_features,
                                          int64_t out_features, int32_t num_slices,
                                          int32_t max_rank, int64_t max_pairs) {
  return guard_size([&] {
    return heddle::linear_site_workspace_bytes(heddle::capi::device_of(device), num_tokens,
                                               in_features, out_features, num_slices, max_rank,
                                               max_pairs);
  });
}
