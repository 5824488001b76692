#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "compare.h"
#include "expect_error.h"
#include "ops/linear/test/linear_cases.h"
#include "ops/linear/test/linear_ref.h"
#include "poison.h"
#include "random.h"

namespace heddle {
namespace {

using testing::PoisonedBuffer;

TEST(PackRows, InPiecesAndByThreadsEqualsAtOnce) {
  constexpr int64_t kOut = 100;
  ThreadPool threads(3);
  for (const WeightType type : kAllWeightTypes) {
    const int64_t in = 2 * block_size(type) + (block_size(type) == 1 ? 5 : 0);
    const std::vector<std::byte> stored = random_stored(type, kOut * in, testing::rng());
    const OwnedWeight at_once(ExecContext{}, type, kOut, in, stored);
    const size_t size = packed_bytes(type, kOut, in), row_bytes = stored_bytes(type, in);
    PoisonedBuffer<std::byte> pieces(size);
    ExecContext ctx;
    ctx.threads = &threads;
    for (int64_t row = 0, step; row < kOut; row += step) {
      step = std::min<int64_t>(16 * testing::random_int(1, 3), kOut - row);
      pack_rows(ctx, {pieces.data(), size}, type, kOut, in, row, step,
                std::span(stored).subspan(size_t(row) * row_bytes, size_t(step) * row_bytes));
    }
    EXPECT_EQ(std::memcmp(pieces.data(), at_once.view().data, size), 0) << type;
    EXPECT_TRUE(pieces.guards_intact()) << type;
  }
}

TEST(PackRows, OutputsWithoutARowAreZeros) {
  for (const WeightType type : kAllWeightTypes) {
    const int64_t in = 2 * block_size(type) + (block_size(type) == 1 ? 5 : 0);
    const int64_t rows = testing::random_int(1, 15);
    std::vector<std::byte> stored = random_stored(type, rows * in, testing::rng());
    const size_t size = packed_bytes(type, rows, in);
    PoisonedBuffer<std::byte> packed(size);
    pack_rows({}, {packed.data(), size}, type, rows, in, 0, rows, stored);
    stored.resize(stored_bytes(type, 16 * in));
    const OwnedWeight with_zeros(ExecContext{}, type, 16, in, stored);
    EXPECT_EQ(std::memcmp(packed.data(), with_zeros.view().data, size), 0) << type << " " << rows;
    EXPECT_TRUE(packed.guards_intact()) << type;
  }
}

TEST(PackRows, StaysWithinThreePercentOfTheStoredSize) {
  for (const WeightType type : kAllWeightTypes) {
    for (const int64_t in :
         {int64_t{block_size(type)}, int64_t{3 * block_size(type)}, int64_t{1536}}) {
      const double stored = static_cast<double>(stored_bytes(type, 48 * in));
      EXPECT_LE(static_cast<double>(packed_bytes(type, 48, in)), 1.03 * stored)
          << type << " " << in;
    }
  }
}

TEST(PackRows, RefusesAWeightWhoseBytesDoNotFit) {
  constexpr int64_t kHuge = int64_t{1} << 58;
  using testing::message_of;
  const std::string message = "packed bytes: 18014398509481984 x 1024 x 64, expected 0 to";
  const auto begins = [&](const std::string& text) { return text.substr(0, message.size()); };
  EXPECT_EQ(begins(message_of([] { (void)packed_bytes(WeightType::kF32, kHuge, 1024); })), message);
  // 2^70 bytes are 0 where they wrap, which is what is given.
  EXPECT_EQ(begins(message_of([] { pack_rows({}, {}, WeightType::kF32, kHuge, 1024, 0, 0, {}); })),
            message);
  const PackedWeight weight{WeightType::kF32, kHuge, 1024, nullptr};
  std::vector<float> row(1024);
  const std::vector<int32_t> ids(1);
  EXPECT_EQ(begins(message_of([&] {
              embedding({}, host_view(row.data(), {1, 1024}), host_view(ids.data(), {1}), weight);
            })),
            message);
  EXPECT_EQ(message_of([&] {
              linear({}, host_view(row.data(), {1, 4}), host_view(row.data(), {1, 4}),
                     {WeightType::kF32, -1, 4, reinterpret_cast<std::byte*>(row.data())});
            }),
            "packed_bytes: out_features is -1");
  for (const WeightType type : kAllWeightTypes) {
    const int64_t most = std::numeric_limits<int64_t>::max() / block_size(type) * block_size(type);
    EXPECT_NE(message_of([&] { (void)packed_bytes(type, most, most); }), "no error") << type;
  }
}

TEST(PackRows, NamesWhatIsWrong) {
  std::vector<std::byte> packed(packed_bytes(WeightType::kQ4_1, 40, 64));
  const std::vector<std::byte> stored(size_t{40} * 40);
  const auto call = [&](int64_t out, int64_t in, int64_t first, int64_t rows, size_t packed_size,
                        size_t stored_size) {
    return testing::message_of([&] {
      pack_rows({}, std::span(packed).first(packed_size), WeightType::kQ4_1, out, in, first, rows,
                std::span(stored).first(stored_size));
    });
  };
  const size_t size = packed.size();
  ASSERT_EQ(size, size_t{48} * 40);
  EXPECT_EQ(call(40, 64, 0, 40, size, 1600), "no error");
  EXPECT_EQ(call(40, 64, 32, 0, size, 0), "no error") << "an empty piece is legal";
  EXPECT_EQ(call(40, 60, 0, 40, size, 1600),
            "60 weights of type Q4_1 are not a multiple of its block of 32");
  EXPECT_EQ(call(40, 64, 0, 40, size - 1, 1600),
            "pack_rows: packed holds 1919 bytes, expected 1920 for 40 x 64 weights of type Q4_1");
  EXPECT_EQ(
      call(40, 64, 0, 40, size, 1599),
      "pack_rows: stored holds 1599 bytes, expected 1600 for 40 rows of 64 weights of type Q4_1");
  EXPECT_EQ(call(40, 64, 16, 32, size, 1280),
            "pack_rows: 32 rows from row 16 on of a weight with 40 rows");
  EXPECT_EQ(call(40, 64, 8, 32, size, 1280), "pack_rows: first_row 8 is not a multiple of 16");
  EXPECT_EQ(call(40, 64, 0, 20, size, 800),
            "pack_rows: num_rows 20 is not a multiple of 16 and the rows end at 20 of 40");
}

}  // namespace
}  // namespace heddle
