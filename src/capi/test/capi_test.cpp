// What every function of the C interface shares: status, message, context, tensors.
#include <array>
#include <cmath>
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

TEST(CApi, ATensorThatIsNotAlignedIsNamed) {
  const Context context(1);
  alignas(16) std::array<std::byte, 64> bytes{};
  std::vector<float> weight(4), output(8);
  const CTensor w(weight.data(), {4});
  const auto call = [&](const DLTensor* x) {
    const CTensor y(output.data(), {x->shape == nullptr ? 2 : x->shape[0], 4});
    return heddle_rms_norm(context, y.get(), x, w.get(), nullptr);
  };
  // Data and byte_offset may be anywhere, together they are a multiple of the element.
  CTensor x(reinterpret_cast<float*>(bytes.data() + 2), {2, 4});
  expect_failure(HEDDLE_INVALID_ARGUMENT,
                 "input is not aligned to its elements of 4 bytes: data and byte_offset = 0 are 2 "
                 "bytes past a multiple of that",
                 call(x.get()));
  x.get()->byte_offset = 2;
  expect_ok(call(x.get()));
  x.get()->byte_offset = 3;
  expect_failure(HEDDLE_INVALID_ARGUMENT,
                 "input is not aligned to its elements of 4 bytes: data and byte_offset = 3 are 1 "
                 "bytes past a multiple of that",
                 call(x.get()));
  CTensor ids(reinterpret_cast<int64_t*>(bytes.data() + 4), {2});
  expect_failure(
      HEDDLE_INVALID_ARGUMENT,
      "token_ids is not aligned to its elements of 8 bytes: data and byte_offset = 0 are "
      "4 bytes past a multiple of that",
      heddle_embedding(context, CTensor(weight.data(), {2, 2}).get(), ids.get(),
                       CTensor(weight.data(), {2, 2}).get()));
  CTensor empty(reinterpret_cast<float*>(bytes.data() + 1), {0, 4});
  expect_ok(call(empty.get()));
  CTensor shapeless(weight.data(), {4});
  shapeless.get()->shape = nullptr;
  expect_failure(HEDDLE_INVALID_ARGUMENT, "input.shape is NULL, but it has rank 1",
                 call(shapeless.get()));
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

TEST(CApi, AnOutputWhoseElementsOverlapIsRefusedAndAnInputIsNot) {
  const Context context(1);
  std::vector<float> data(12, 3.0f), ones(4, 1.0f), result(8);
  const CTensor rows(data.data(), {2, 4}, {0, 1}), x(data.data(), {2, 4}), y(result.data(), {2, 4});
  const CTensor weight(ones.data(), {4});
  expect_failure(HEDDLE_INVALID_ARGUMENT,
                 "output has elements that overlap in memory, but the operation writes to it: "
                 "shape [2, 4], strides [0, 1]",
                 heddle_rms_norm(context, rows.get(), x.get(), weight.get(), nullptr));
  EXPECT_EQ(data, std::vector<float>(12, 3.0f));
  EXPECT_EQ(heddle_rms_norm(context, y.get(), rows.get(), weight.get(), nullptr), HEDDLE_OK);
  EXPECT_NEAR(result[7], 1.0f, 1e-4);
  const CTensor k(data.data(), {2, 1, 4});
  heddle_paged_kv cache{};
  const CTensor pool(data.data(), {2, 1, 2, 4}, {0, 4, 4, 1});
  cache.k = cache.v = pool.get();
  Array<int32_t> indptr({3}, {0, 1, 2}), pages({2}, {0, 1}), lengths({2}, {1, 1});
  const heddle_page_table table{
      .page_indptr = indptr.c(), .pages = pages.c(), .last_page_len = lengths.c()};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "cache.k has elements that overlap in memory",
                 heddle_kv_append(context, &cache, &table, k.get(), k.get()));
  const CTensor o(result.data(), {2, 1, 4});
  EXPECT_EQ(heddle_batch_decode(context, o.get(), nullptr, k.get(), &cache, &table, nullptr),
            HEDDLE_OK);
  EXPECT_EQ(result[0], 3.0f);
}

TEST(CApi, AWrongCallNamesTheArgument) {
  const Context context(1);
  std::vector<float> data(12);
  const CTensor x(data.data(), {3, 4}), weight(data.data(), {4}), wrong(data.data(), {5});
  const auto call = [&](heddle_context* c, DLTensor* output, const DLTensor* w) {
    return heddle_rms_norm(c, output, x.get(), w, nullptr);
  };
  expect_failure(HEDDLE_INVALID_ARGUMENT, "context is NULL", call(nullptr, x.get(), weight.get()));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "output is NULL", call(context, nullptr, weight.get()));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight is NULL", call(context, x.get(), nullptr));
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.size(0) is 5, expected width = 4",
                 call(context, x.get(), wrong.get()));
  const CTensor nowhere(static_cast<float*>(nullptr), {4});
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight.data is NULL, but it has 4 elements",
                 call(context, x.get(), nowhere.get()));
  CTensor lanes(data.data(), {4});
  lanes.get()->dtype.lanes = 4;
  expect_failure(HEDDLE_UNSUPPORTED, "weight has DLPack type code 2 with 32 bits and 4 lanes",
                 call(context, x.get(), lanes.get()));
  CTensor elsewhere(data.data(), {4});
  elsewhere.get()->device = {kDLCUDA, 1};
  expect_failure(HEDDLE_INVALID_ARGUMENT, "weight is on cuda:1, the context runs on cpu",
                 call(context, x.get(), elsewhere.get()));
  EXPECT_EQ(call(context, x.get(), weight.get()), HEDDLE_OK);
}

TEST(CApi, TensorsMayHaveStridesAndOffsets) {
  const Context context(2);
  const std::vector<float> data = random_normal<float>(40);
  std::vector<float> got(8), want(8);
  CTensor x(const_cast<float*>(data.data()), {2, 4}, {10, 1});
  x.get()->byte_offset = 3 * sizeof(float);
  const CTensor y(got.data(), {2, 4}), weight(const_cast<float*>(data.data()), {4});
  ASSERT_EQ(heddle_rms_norm(context, y.get(), x.get(), weight.get(), nullptr), HEDDLE_OK);
  const ConstTensorView wide = host_view(data.data(), {4, 10});
  rms_norm({}, host_view(want.data(), {2, 4}), wide.narrow(0, 0, 2).narrow(1, 3, 4),
           host_view(data.data(), {4}));
  EXPECT_EQ(got, want);
}

}  // namespace
}  // namespace heddle::testing
