#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"

#include "capi/last_error.h"
#include "capi/test/capi_test_body.h"
#include "capi/test/rows/rows.h"
#include "mirror.h"

namespace heddle::testing {

/// The rows of one family.
struct Family {
  const char* name;
  std::vector<Row> (*rows)();
};
inline constexpr Family kFamilies[] = {
    {"Attention", attention_rows}, {"Layers", layer_rows},  {"Linear", linear_rows},
    {"LinearSite", site_rows},     {"Lora", lora_rows},     {"Metadata", metadata_rows},
    {"Sampling", sampling_rows},   {"Verify", verify_rows}, {"Speculation", speculation_rows},
};

/// A context of either language on one device.
struct BothContexts {
  heddle_context* c;
  const ExecContext& cpp;
  Mirror& mirror;

  [[nodiscard]] bool have(RunsOn where) const {
    return where == RunsOn::kBoth ||
           (where == RunsOn::kGpu) == (cpp.device.type == DeviceType::kCuda);
  }
};

/// How a call ended: its status and, where it failed, its message.
using CallResult = std::pair<heddle_status, std::string>;
inline CallResult result_of(heddle_status status) {
  return {status, status == HEDDLE_OK ? "" : heddle_last_error()};
}
/// The C++ call of a row, with the result that a C function has whose body it is.
inline CallResult call_cpp(const Row& row, const ExecContext& ctx, PlacedTensors& tensors) {
  return result_of(capi::guard([&] { row.cpp(ctx, tensors); }));
}

/// Runs a row in both languages, without the optional tensor `absent` unless that is -1. The same
/// bits come out, or the same failure, and nothing else is written.
inline void expect_same(const Row& row, const BothContexts& contexts, int absent) {
  PlacedTensors c_side(row.tensors, contexts.mirror), cpp_side(row.tensors, contexts.mirror);
  if (absent >= 0) c_side[size_t(absent)].is_absent = cpp_side[size_t(absent)].is_absent = true;
  SCOPED_TRACE(row.name + (absent < 0 ? "" : " without " + row.tensors[size_t(absent)].name));
  const CallResult want = call_cpp(row, contexts.cpp, cpp_side);
  const CallResult got = result_of(row.c(contexts.c, c_side));
  contexts.mirror.back();
  EXPECT_EQ(got, want);
  if (absent < 0) {
    EXPECT_EQ(want.first, contexts.have(row.where) ? HEDDLE_OK : row.elsewhere) << want.second;
  }
  bool has_written = false;
  for (size_t i = 0; i < row.tensors.size(); ++i) {
    const PlacedTensor& c = c_side[i];
    SCOPED_TRACE(c.spec.name);
    has_written |= !c.is_unchanged();
    EXPECT_TRUE(c.is_unchanged() || c.spec.use != CallTensor::Use::kRead);
    if (c.spec.use == CallTensor::Use::kScratch || c.spec.step != 0) continue;
    EXPECT_TRUE(c.has_bits_of(cpp_side[i])) << "other bits than those of C++";
  }
  EXPECT_EQ(has_written, want.first == HEDDLE_OK);
}

/// What may be wrong with a tensor: C++ can see the last three, too.
enum class Wrong { kNull, kNoData, kLanes, kAddress, kOverlap, kDType, kRank, kDevice };
[[nodiscard]] inline bool can_be(const CallTensor& t, Wrong wrong) {
  if (t.use == CallTensor::Use::kMemory || t.use == CallTensor::Use::kAbsent) return false;
  if (wrong == Wrong::kNull) return !t.is_optional;  // expect_same has these
  if (wrong == Wrong::kAddress) return size_of(t.dtype) > 1;
  return wrong != Wrong::kOverlap || (t.use != CallTensor::Use::kRead && t.num_elements() > 1);
}

/// Makes what the next call gets of `t` wrong. What the message of C begins with, but "" where C++
/// gives the message.
inline std::string make_wrong(PlacedTensor& t, Wrong wrong) {
  static int64_t zeros[kMaxRank] = {}, ones[kMaxRank] = {1, 1, 1, 1, 1, 1, 1, 1};
  const std::string& name = t.spec.name;
  DLTensor& given = t.given;
  switch (wrong) {
    case Wrong::kNull:
      t.is_absent = true;
      return t.spec.if_null.empty() ? name + " is NULL" : t.spec.if_null;
    case Wrong::kNoData: given.data = nullptr; return name + ".data is NULL, but it has ";
    case Wrong::kLanes: given.dtype.lanes = 4; return name + " has DLPack type code ";
    case Wrong::kAddress:
      given.byte_offset = 1;
      return name + " is not aligned to its elements of ";
    case Wrong::kOverlap:
      given.strides = zeros;
      return name + " has elements that overlap in memory, but the operation writes to it";
    case Wrong::kDType:
      given.dtype = c_dtype(t.spec.dtype == DType::kFloat8E4M3 ? DType::kBool : DType::kFloat8E4M3);
      return t.spec.has_view ? "" : name + " is f8e4m3, supported: ";
    case Wrong::kRank:
      given.ndim = kMaxRank - 1;
      given.shape = given.strides = ones;
      return t.spec.has_view ? "" : name + " has rank 7, expected ";
    case Wrong::kDevice: {
      const bool is_on_cpu = given.device.device_type == kDLCPU;
      given.device = is_on_cpu ? DLDevice{kDLCUDA, 1} : DLDevice{kDLCPU, 0};
      return t.spec.has_view ? "" : name + (is_on_cpu ? " is on cuda:1, " : " is on cpu, ");
    }
  }
  return "";
}

/// Whatever is wrong with one tensor, the call fails as in C++, or says what only C can see, and
/// the calls that the row lists are refused. Nothing is written.
inline void expect_refusals(const Row& row, const BothContexts& contexts) {
  SCOPED_TRACE(row.name);
  PlacedTensors c_side(row.tensors, contexts.mirror), cpp_side(row.tensors, contexts.mirror);
  expect_failure(HEDDLE_INVALID_ARGUMENT, "context is NULL", row.c(nullptr, c_side));
  for (size_t i = 0; contexts.have(row.where) && i < row.tensors.size(); ++i) {
    for (int kind = 0; kind <= int(Wrong::kDevice); ++kind) {
      const auto wrong = Wrong(kind);
      if (!can_be(row.tensors[i], wrong)) continue;
      SCOPED_TRACE(row.tensors[i].name + ", wrong " + std::to_string(kind));
      const std::string message = make_wrong(c_side[i], wrong);
      make_wrong(cpp_side[i], wrong);
      const CallResult got = result_of(row.c(contexts.c, c_side));
      const bool is_type = wrong == Wrong::kLanes || wrong == Wrong::kDType;
      if (message.empty()) {
        EXPECT_EQ(got, call_cpp(row, contexts.cpp, cpp_side));
        EXPECT_TRUE(got.first == HEDDLE_INVALID_ARGUMENT || is_type) << got.second;
        EXPECT_NE(got.first, HEDDLE_OK);
      } else {
        expect_failure(is_type ? HEDDLE_UNSUPPORTED : HEDDLE_INVALID_ARGUMENT, message, got.first);
      }
      c_side[i].restore();
      cpp_side[i].restore();
    }
  }
  for (const Row::Refused& refused : row.refused) {
    if (!contexts.have(refused.where)) continue;
    expect_failure(HEDDLE_INVALID_ARGUMENT, refused.message, refused.call(contexts.c, c_side));
  }
  contexts.mirror.back();
  for (const PlacedTensor& t : c_side) {
    EXPECT_TRUE(t.is_unchanged() || t.spec.use == CallTensor::Use::kScratch) << t.spec.name;
  }
}

/// All that holds of a family.
inline void expect_c_is_cpp(const Family& family, const BothContexts& contexts) {
  for (const Row& row : family.rows()) {
    expect_same(row, contexts, -1);
    for (size_t i = 0; i < row.tensors.size(); ++i) {
      if (row.tensors[i].is_optional) expect_same(row, contexts, int(i));
    }
    expect_refusals(row, contexts);
  }
}

}  // namespace heddle::testing
