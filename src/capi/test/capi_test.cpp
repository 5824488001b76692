// What every function of the C interface shares: status, message, context, tensors.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "heddle/c_api.h"
#include "heddle/config.h"
#include "heddle/core/error.h"
#include "heddle/ops/norm.h"

#include "capi/guard.h"
#include "capi/test/call_tensors.h"
#include "capi/test/capi_test_body.h"
#include "exec_context.h"
#include "random.h"

namespace heddle::testing {
namespace {

TEST(CApi, TellsItsVersions) {
  EXPECT_EQ(heddle_abi_version(), HEDDLE_ABI_VERSION);
  EXPECT_STREQ(heddle_version(), kVersion);
}

TEST(CApi, EveryExceptionBecomesAStatusAndAMessage) {
  const auto status_of = [](auto thrown) { return capi::guard([&] { throw thrown; }); };
  EXPECT_EQ(status_of(Error(ErrorCode::kInvalidArgument, "one")), HEDDLE_INVALID_ARGUMENT);
  EXPECT_STREQ(heddle_last_error(), "one");
  EXPECT_EQ(status_of(Error(ErrorCode::kUnsupported, "two")), HEDDLE_UNSUPPORTED);
  EXPECT_EQ(status_of(Error(ErrorCode::kOutOfMemory, "three")), HEDDLE_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(Error(ErrorCode::kCuda, "four")), HEDDLE_CUDA_ERROR);
  EXPECT_STREQ(heddle_last_error(), "four");
  EXPECT_EQ(status_of(std::bad_alloc()), HEDDLE_OUT_OF_MEMORY);
  EXPECT_EQ(status_of(std::logic_error("five")), HEDDLE_INTERNAL_ERROR);
  EXPECT_STREQ(heddle_last_error(), "five");
  EXPECT_EQ(status_of(6), HEDDLE_INTERNAL_ERROR);
  EXPECT_EQ(capi::guard([] {}), HEDDLE_OK);
  EXPECT_STREQ(heddle_last_error(), "an exception that is no std::exception");
  EXPECT_EQ(status_of(std::runtime_error(std::string(5000, 'x'))), HEDDLE_INTERNAL_ERROR);
  EXPECT_EQ(std::string(heddle_last_error()), std::string(1023, 'x'));
}

TEST(CApi, MessagesAreOfTheThread) {
  (void)capi::guard([] { throw std::runtime_error("mine"); });
  std::thread([] {
    EXPECT_STREQ(heddle_last_error(), "");
    (void)capi::guard([] { throw std::runtime_error("theirs"); });
    EXPECT_STREQ(heddle_last_error(), "theirs");
  }).join();
  EXPECT_STREQ(heddle_last_error(), "mine");
}

TEST(CApi, AContextChecksItsOptions) {
  heddle_context_options options;
  heddle_context_options_init(&options);
  EXPECT_EQ(options.device.device_type, kDLCPU);
  EXPECT_EQ(options.stream, nullptr);
  EXPECT_EQ(options.workspace_bytes, size_t{64} << 20);
  EXPECT_EQ(options.num_threads, 0);

  heddle_context* context = nullptr;
  ASSERT_EQ(heddle_context_create(&context, nullptr), HEDDLE_OK);
  EXPECT_NE(context, nullptr);
  EXPECT_EQ(heddle_context_check(context), HEDDLE_OK);
  EXPECT_EQ(heddle_context_poll(context), HEDDLE_OK);
  expect_failure(HEDDLE_INVALID_ARGUMENT, "context is NULL", heddle_context_check(nullptr));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "context is NULL", heddle_context_poll(nullptr));
  heddle_context_destroy(context);
  heddle_context_destroy(nullptr);

  expect_failure(HEDDLE_INVALID_ARGUMENT, "context is NULL",
                 heddle_context_create(nullptr, &options));
  options.num_threads = -1;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "options.num_threads is -1, expected 0 to 1024",
                 heddle_context_create(&context, &options));
  options.num_threads = 1;
  options.device = {kDLCUDA, 1 << 20};
  if (kWithCuda) {
    expect_failure(HEDDLE_INVALID_ARGUMENT, "device is cuda:1048576, CUDA devices: ",
                   heddle_context_create(&context, &options));
  } else {
    expect_failure(HEDDLE_UNSUPPORTED, "device is cuda:1048576, this build is for the CPU alone",
                   heddle_context_create(&context, &options));
  }
  options.device = {kDLMetal, 0};
  expect_failure(HEDDLE_UNSUPPORTED, "options.device is on DLPack device type 8",
                 heddle_context_create(&context, &options));
  options.device = {kDLCPU, 0};
  options.workspace_bytes = std::numeric_limits<size_t>::max();
  expect_failure(HEDDLE_INVALID_ARGUMENT, "options.workspace_bytes is 18446744073709551615",
                 heddle_context_create(&context, &options));
}

/// Exits with the status of a context of more threads than the system gives.
[[noreturn]] void make_a_context_of_too_many_threads() {
  leave_room_for_threads(20);
  heddle_context_options options;
  heddle_context_options_init(&options);
  options.num_threads = 1024;
  options.workspace_bytes = 0;
  heddle_context* context = nullptr;
  const heddle_status status = heddle_context_create(&context, &options);
  std::fprintf(stderr, "%s\n", heddle_last_error());
  std::_Exit(context == nullptr ? status : -1);
}

TEST(CApi, AContextOfMoreThreadsThanTheSystemGivesIsAnError) {
  if (!kCanLimitThreads) GTEST_SKIP() << "under the address sanitizer";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(make_a_context_of_too_many_threads(), ::testing::ExitedWithCode(HEDDLE_OUT_OF_MEMORY),
              "the system gives [0-9]+ of 1024 threads: ");
}

/// heddle_rms_norm of x [2, 4] f32 to y, with weights 1.
heddle_status norm_of(DLTensor x, DLTensor y) {
  const Context context(2);
  const std::vector<float> ones(4, 1.0f);
  int64_t width[] = {4};
  const DLTensor weight{
      const_cast<float*>(ones.data()), {kDLCPU, 0}, 1, x.dtype, width, nullptr, 0};
  return heddle_rms_norm(context, &y, &x, &weight, nullptr);
}

TEST(CApi, DataAndOffsetTogetherAreAligned) {
  alignas(16) std::array<std::byte, 64> bytes{};
  std::vector<float> output(8);
  int64_t shape[] = {2, 4};
  const DLTensor y{output.data(), {kDLCPU, 0}, 2, c_dtype(DType::kFloat32), shape, nullptr, 0};
  DLTensor x = y;
  x.data = bytes.data() + 2;
  x.byte_offset = 2;
  expect_ok(norm_of(x, y));
  x.byte_offset = 3;
  expect_failure(HEDDLE_INVALID_ARGUMENT,
                 "input is not aligned to its elements of 4 bytes: data and byte_offset = 3 are 1 "
                 "bytes past a multiple of that",
                 norm_of(x, y));
  x.shape = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "input.shape is NULL, but it has rank 2", norm_of(x, y));
  int64_t empty[] = {0, 4};
  DLTensor no_rows = y;
  x.shape = no_rows.shape = empty;
  expect_ok(norm_of(x, no_rows));
}

TEST(CApi, ASizeThatNoMemoryHoldsIsRefused) {
  constexpr int64_t kHuge = int64_t{1} << 59;
  size_t bytes = 5;
  expect_failure(HEDDLE_INVALID_ARGUMENT,
                 "packed bytes: 36028797018963968 x 32 x 64, expected 0 to",
                 heddle_packed_bytes(&bytes, HEDDLE_F32, kHuge, 32));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "stored bytes: 9223372036854775807 x 4, expected 0 to",
                 heddle_stored_bytes(&bytes, HEDDLE_F32, std::numeric_limits<int64_t>::max()));
  EXPECT_EQ(bytes, 5u);
  const auto expect_none = [](const std::string& message, size_t size) {
    EXPECT_EQ(size, SIZE_MAX);
    EXPECT_EQ(heddle_last_error(), message);
  };
  const std::string range = ", expected 0 to 1099511627776";
  for (const DLDevice device : {DLDevice{kDLCPU, 0}, DLDevice{kDLCUDA, 0}}) {
    expect_none("num_tokens is 576460752303423488" + range,
                heddle_lora_apply_workspace_bytes(device, kHuge, 64, 1, 8));
    expect_none("in_features is -1" + range,
                heddle_lora_apply_workspace_bytes(device, 1, -1, 1, 8));
    expect_none("num_slices is -2" + range, heddle_lora_apply_workspace_bytes(device, 1, 1, -2, 8));
    expect_none("out_features is 576460752303423488" + range,
                heddle_lora_pairs_workspace_bytes(device, 1, 64, kHuge, 1, 8));
    expect_none("num_seqs is 576460752303423488" + range,
                heddle_batch_decode_workspace_bytes(device, kHuge, 8, 64));
  }
  expect_none("max_rank is 2147483647, expected 0 to 65536",
              heddle_lora_plan_bytes(1 << 20, std::numeric_limits<int32_t>::max()));
  expect_none("vocab_size is 576460752303423488" + range, heddle_sample_workspace_bytes(4, kHuge));
}

TEST(CApi, AnInputMayOverlapItself) {
  const Context context(1);
  std::vector<half> data(16, from_float<half>(3.0f)), result(8);
  std::vector<int32_t> indptr{0, 1, 2}, pages{0, 1}, lengths{1, 1};
  const int64_t pool_shape[] = {2, 1, 2, 4}, pool_strides[] = {0, 4, 4, 1};
  const TensorView pool(reinterpret_cast<std::byte*>(data.data()), DType::kFloat16, {}, pool_shape,
                        pool_strides);
  const TensorView views[] = {host_view(indptr.data(), {3}), host_view(pages.data(), {2}),
                              host_view(lengths.data(), {2}), host_view(result.data(), {2, 1, 4}),
                              host_view(data.data(), {2, 1, 4})};
  DLTensor cached = c_tensor(pool), t[5];
  std::ranges::transform(views, t, c_tensor);
  heddle_paged_kv cache{};
  cache.k = cache.v = &cached;
  const heddle_page_table table{&t[0], &t[1], &t[2]};
  expect_ok(heddle_batch_decode(context, &t[3], nullptr, &t[4], &cache, &table, nullptr));
  EXPECT_EQ(to_float(result[0]), 3.0f);
}

TEST(CApi, TensorsMayHaveStridesAndOffsets) {
  std::vector<float> data = random_normal<float>(40), got(8), want(8);
  const std::vector<float> ones(4, 1.0f);
  const TensorView x = host_view(data.data(), {4, 10}).narrow(0, 0, 2).narrow(1, 3, 4),
                   y = host_view(got.data(), {2, 4});
  DLTensor moved = c_tensor(x);
  moved.data = data.data();
  moved.byte_offset = 3 * sizeof(float);
  expect_ok(norm_of(moved, c_tensor(y)));
  rms_norm({}, host_view(want.data(), {2, 4}), x, host_view(ones.data(), {4}));
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace heddle::testing
