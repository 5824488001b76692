#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/c_linear_site.h"
#include "heddle/ops/linear_site.h"

#include "capi/test/rows/rows.h"
#include "capi/test/rows/weights.h"

namespace heddle::testing {
namespace {

/// A slice of a site in C, with its packed weight where it has one.
struct CSlice {
  heddle_linear_slice slice;
  std::optional<heddle_packed_weight> packed{};
};
auto dense_slice(const std::string& slice, int64_t out_features, CallTensor bias) {
  return made(
      [](auto*, auto... t) {
        return CSlice{{t..., nullptr}};
      },
      [](auto&, auto... t) { return LinearSlice{t...}; },
      out<float>(slice + ".y", {kLoraTokens, out_features}),
      in<bfloat16>(slice + ".weight", {out_features, kLoraIn})
          .null_says(slice + ".weight and " + slice + ".packed are NULL"),
      std::move(bias));
}
auto packed_slice(int64_t out_features) {
  const auto weight = packed_weight("slices[0].packed.data", out_features, kLoraIn);
  return made(
      [](auto*, DLTensor* y, heddle_packed_weight packed) {
        return CSlice{{y, nullptr, nullptr, nullptr}, packed};
      },
      [](auto&, TensorView y, PackedWeight packed) {
        return LinearSlice{.y = y, .packed = packed};
      },
      out<float>("slices[0].y", {kLoraTokens, out_features}), weight);
}

}  // namespace

std::vector<Row> site_rows() {
  // Without adapters, or with what follows path.
  const auto run = [](auto* context, auto* first, auto* second, auto* x, auto path, auto... with) {
    heddle_linear_slice slices[] = {first->slice, second->slice};
    if (first->packed) slices[0].packed = &*first->packed;
    if constexpr (sizeof...(with) == 0) {
      return heddle_linear_site(context, slices, 2, x, path, nullptr, nullptr, nullptr);
    } else {
      return heddle_linear_site(context, slices, 2, x, path, with...);
    }
  };
  const auto cpp_run = [](auto& ctx, const auto& first, const auto& second, const auto& x,
                          const auto& path, const auto&... with) {
    const LinearSlice slices[] = {first, second};
    if constexpr (sizeof...(with) == 0) {
      linear_site(ctx, slices, x, path);
    } else {
      const LinearAdapters adapters{with...};
      linear_site(ctx, slices, x, path, &adapters);
    }
  };
  constexpr int64_t kOut0 = 40, kOut1 = 24;
  const auto dense =
      dense_slice("slices[0]", kOut0, in<bfloat16>("slices[0].bias", {kOut0}).optional());
  const auto second = dense_slice("slices[1]", kOut1, absent());
  const auto packed = packed_slice(kOut0);
  const auto x = in<bfloat16>("x", {kLoraTokens, kLoraIn});
  const auto a_of_slice = in<bfloat16>("weight", {kLoraRank, kLoraIn});
  const auto a = adapters(DType::kBFloat16, LoraLayout::kRankMajor, a_of_slice, a_of_slice),
             b = adapters(DType::kBFloat16, LoraLayout::kRankMinor,
                          in<bfloat16>("weight", {kOut0, kLoraRank}),
                          in<bfloat16>("weight", {kOut1, kLoraRank}));
  const auto decode = both(HEDDLE_LINEAR_DECODE, LinearPath::kDecode),
             prompt = both(HEDDLE_LINEAR_PROMPT, LinearPath::kPrompt);
  const auto refused = [](int32_t num_slices, bool has_slices, const heddle_lora_batch* batch) {
    return [=](auto* context, auto* first, auto*, auto* rows, auto path) {
      return heddle_linear_site(context, has_slices ? &first->slice : nullptr, num_slices, rows,
                                path, nullptr, nullptr, batch);
    };
  };
  static constexpr heddle_lora_batch kBatch{};
  return {row("linear_site, decode", run, cpp_run, dense, second, x, decode)
              .refuses<3>("path is 256, which is no heddle_linear_path", 256)
              .refuses<3>("linear_site: path is 9", 9)
              .refuses_call("num_slices is -1, expected at least 1", refused(-1, true, nullptr))
              .refuses_call("slices is NULL", refused(1, false, nullptr))
              .refuses_call("a is NULL", refused(1, true, &kBatch)),
          row("linear_site, prompt", run, cpp_run, dense, second, x, prompt),
          row("linear_site, decode, adapters", run, cpp_run, dense, second, x, decode, a, b,
              ids_batch()),
          row("linear_site, prompt, adapters", run, cpp_run, dense, second, x, prompt, a, b,
              ids_batch()),
          row("linear_site, decode, packed", run, cpp_run, packed, second, x, decode)
              .refuses<0>("slices[0].packed.data.size(0) is ",
                          [](CSlice slice) {
                            slice.packed->out_features = 100;
                            return slice;
                          })
              .refuses_call("slices[0].weight and slices[0].packed are both given",
                            [=](auto* context, auto* first, auto* other, auto* rows, auto path) {
                              CSlice both_given = *first;
                              both_given.slice.weight = other->slice.weight;
                              return run(context, &both_given, other, rows, path);
                            })
              .refuses_call("slices[0].packed.data is not 64-byte aligned",
                            [=](auto* context, auto* first, auto* other, auto* rows, auto path) {
                              DLTensor odd = *first->packed->data;
                              odd.byte_offset = 1;
                              CSlice crooked = *first;
                              crooked.packed->data = &odd;
                              return run(context, &crooked, other, rows, path);
                            }),
          row("linear_site, prompt, packed", run, cpp_run, packed, second, x, prompt),
          row("linear_site, packed, adapters", run, cpp_run, packed, second, x, decode, a, b,
              ids_batch())};
}

}  // namespace heddle::testing
