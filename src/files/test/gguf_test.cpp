#include "files/gguf.h"

#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "expect_error.h"
#include "gguf_builder.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"
#include "temp_folder.h"

namespace heddle::files {
namespace {

using testing::append;
using testing::expect_invalid;
using testing::expect_unsupported;
using testing::GgufBuilder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The file reads from `bytes`, so they must outlive it.
GgufFile read(const std::string& bytes) {
  return {std::as_bytes(std::span(bytes.data(), bytes.size())), "m.gguf"};
}
void expect_refused(std::initializer_list<const char*> parts, const std::string& bytes) {
  expect_invalid(parts, [&] { (void)read(bytes); });
}

GgufBuilder sample() {
  GgufBuilder builder;
  builder.value("general.architecture", std::string_view("llama"))
      .value("u8", uint8_t{200})
      .value("i8", int8_t{-7})
      .value("u16", uint16_t{60000})
      .value("i16", int16_t{-30000})
      .value("u32", uint32_t{4000000000})
      .value("i32", int32_t{-2000000000})
      .value("f32", 0.5f)
      .value("bool", true)
      .value("u64", uint64_t{1} << 63)
      .value("i64", int64_t{-5000000000})
      .value("f64", 0.1)
      .array<std::string_view>("words", {"", "a",
                                         "\xc4\xa0"
                                         "b"})
      .array<int32_t>("numbers", {3, -1, 2})
      .array<float>("scores", {1.5f, -2.0f})
      .array<uint32_t>("none", {})
      .tensor("norm", {4}, 0, std::string(16, 'n'))
      .tensor("weight", {32, 2}, 3, std::string(40, 'w'));
  return builder;
}

TEST(GgufFile, ReadsEveryTypeOfValue) {
  for (const uint32_t version : {2u, 3u}) {
    GgufBuilder builder = sample();
    builder.version = version;
    const std::string bytes = builder.build();
    const GgufFile file = read(bytes);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.metadata().size(), 16u);
    EXPECT_EQ(file.get<std::string_view>("general.architecture"), "llama");
    EXPECT_EQ(file.get<uint32_t>("u8"), 200u);
    EXPECT_EQ(file.get<int32_t>("i8"), -7);
    EXPECT_EQ(file.get<uint64_t>("u16"), 60000u);
    EXPECT_EQ(file.get<int64_t>("i16"), -30000);
    EXPECT_EQ(file.get<uint32_t>("u32"), 4000000000u);
    EXPECT_EQ(file.get<int32_t>("i32"), -2000000000);
    EXPECT_EQ(file.get<float>("f32"), 0.5f);
    EXPECT_TRUE(file.get<bool>("bool"));
    EXPECT_EQ(file.get<uint64_t>("u64"), uint64_t{1} << 63);
    EXPECT_EQ(file.get<int64_t>("i64"), -5000000000);
    EXPECT_EQ(file.get<double>("f64"), 0.1);
    EXPECT_EQ(file.get<float>("i8"), -7.0f);
    EXPECT_EQ(file.get_array<std::string_view>("words"), (std::vector<std::string_view>{"", "a",
                                                                                        "\xc4\xa0"
                                                                                        "b"}));
    EXPECT_EQ(file.get_array<int64_t>("numbers"), (std::vector<int64_t>{3, -1, 2}));
    EXPECT_EQ(file.get_array<float>("scores"), (std::vector<float>{1.5f, -2.0f}));
    EXPECT_TRUE(file.get_array<int32_t>("none").empty());
    EXPECT_EQ(file.find("other"), nullptr);
    EXPECT_EQ(file.get_or<uint32_t>("other", 7u), 7u);
    EXPECT_EQ(file.get_or<uint32_t>("u8", 7u), 200u);
  }
}

template <class T>
void expect_array(const std::vector<T>& values) {
  const std::string bytes = GgufBuilder().array<T>("key", values).value("next", true).build();
  const GgufFile file = read(bytes);
  const auto got =
      file.get_array<std::conditional_t<std::is_floating_point_v<T>, double, int64_t>>("key");
  EXPECT_EQ(std::vector<T>(got.begin(), got.end()), values);
  EXPECT_TRUE(file.get<bool>("next"));
}

TEST(GgufFile, ReadsArraysOfEveryType) {
  expect_array<uint8_t>({200, 1, 2});
  expect_array<int8_t>({-7, 1, 2});
  expect_array<uint16_t>({60000, 1, 2});
  expect_array<int16_t>({-30000, 1, 2});
  expect_array<uint32_t>({4000000000, 1, 2});
  expect_array<int32_t>({-2000000000, 1, 2});
  expect_array<uint64_t>({uint64_t{1} << 62, 1, 2});
  expect_array<int64_t>({-5000000000, 1, 2});
  expect_array<float>({0.5f, -1.0f, 2.0f});
  expect_array<double>({0.1, -1.0, 2.0});
  const std::string bytes = GgufBuilder().array<bool>("key", {true, false, true}).build();
  EXPECT_EQ(read(bytes).get_array<bool>("key"), (std::vector<bool>{true, false, true}));
}

TEST(GgufFile, NamesTheKeyWhenTheCallerExpectsAnotherValue) {
  const std::string bytes = sample().build();
  const GgufFile file = read(bytes);
  expect_invalid({"m.gguf: has no metadata value 'other'"}, [&] { (void)file.get<bool>("other"); });
  expect_invalid({"'f32' has type f32, expected u32"}, [&] { (void)file.get<uint32_t>("f32"); });
  expect_invalid({"'u8' has type u8, expected string"},
                 [&] { (void)file.get<std::string_view>("u8"); });
  expect_invalid({"'bool' has type bool, expected i32"}, [&] { (void)file.get<int32_t>("bool"); });
  expect_invalid({"'u8' has type u8, expected bool"}, [&] { (void)file.get<bool>("u8"); });
  expect_invalid({"'i8' is -7, which does not fit u32"}, [&] { (void)file.get<uint32_t>("i8"); });
  expect_invalid({"'u64' is 9223372036854775808, which does not fit i64"},
                 [&] { (void)file.get<int64_t>("u64"); });
  expect_invalid({"'u64'", "does not fit i32"}, [&] { (void)file.get_or<int32_t>("u64", 0); });
  expect_invalid({"'numbers' is an array, expected a single value"},
                 [&] { (void)file.get<int32_t>("numbers"); });
  expect_invalid({"'u8' is a single value, expected an array"},
                 [&] { (void)file.get_array<int32_t>("u8"); });
  expect_invalid({"'words' has type string, expected i32"},
                 [&] { (void)file.get_array<int32_t>("words"); });
  expect_invalid({"'numbers' is -1, which does not fit u64"},
                 [&] { (void)file.get_array<uint64_t>("numbers"); });
}

TEST(GgufFile, FindsTensorsWhereTheyLie) {
  for (const uint64_t alignment : {1, 32, 4096}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.value("general.alignment", static_cast<uint32_t>(alignment))
        .tensor("norm", {4}, 0, std::string(16, 'n'))
        .tensor("weight", {32, 2, 1, 1}, 3, std::string(40, 'w'));
    const std::string bytes = builder.build();
    const GgufFile file = read(bytes);
    ASSERT_EQ(file.tensors().size(), 2u);
    const GgufTensor& norm = file.tensors()[0];
    EXPECT_EQ(norm.rank, 1);
    EXPECT_EQ(norm.num_weights(), 4);
    EXPECT_TRUE(file.weight_type(norm) == WeightType::kF32);
    EXPECT_EQ(text_of(file.data(norm)), std::string(16, 'n'));
    const GgufTensor& weight = file.tensor("weight");
    EXPECT_EQ(weight.rank, 4);
    EXPECT_EQ(weight.dims[0], 32);
    EXPECT_EQ(weight.dims[1], 2);
    EXPECT_TRUE(file.weight_type(weight) == WeightType::kQ4_1);
    EXPECT_EQ(text_of(file.data(weight)), std::string(40, 'w'));
    EXPECT_EQ(file.find_tensor("other"), nullptr);
    expect_invalid({"m.gguf: has no tensor 'other'"}, [&] { (void)file.tensor("other"); });
  }
}

TEST(GgufFile, CountsTheWeightsOfEveryRank) {
  const std::string bytes = GgufBuilder()
                                .tensor("two", {3, 2}, 0, std::string(24, 't'))
                                .tensor("four", {3, 2, 5, 7}, 0, std::string(840, 'f'))
                                .build();
  const GgufFile file = read(bytes);
  EXPECT_EQ(file.tensor("two").num_weights(), 6);
  EXPECT_EQ(file.tensor("four").num_weights(), 210);
  EXPECT_EQ(file.tensor("four").num_bytes, 840u);
}

TEST(GgufFile, ReadsAFileAndSurvivesMoves) {
  const testing::TempFolder folder;
  const std::string bytes = sample().build(), path = folder.write("s.gguf", bytes);
  GgufFile first(path);
  const std::string_view architecture = first.get<std::string_view>("general.architecture");
  const GgufFile file = std::move(first);
  const GgufTensor& weight = file.tensor("weight");
  EXPECT_EQ(text_of(file.data(weight)), std::string(40, 'w'));
  EXPECT_EQ(architecture, "llama");
  EXPECT_EQ(file.file_size(), bytes.size());
  std::vector<std::byte> some(9);
  file.read(weight, 31, some);
  read(bytes).read(weight, 31, some);
  EXPECT_EQ(text_of(some), std::string(9, 'w'));
  expect_invalid({"s.gguf", "read of 9 bytes at 32 of tensor 'weight', which has 40"},
                 [&] { file.read(weight, 32, some); });
}

TEST(GgufFile, ReadsMetadataOfAnyLength) {
  const testing::TempFolder folder;
  GgufBuilder builder;
  builder.value("general.architecture", "llama");
  const std::string text(5'000'000, 't');  // more than is read at first
  builder.value("long", text).value("last", uint32_t{7});
  builder.tensor("weight", {10}, 0, std::string(40, 'w'));
  const GgufFile file(folder.write("long.gguf", builder.build()));
  EXPECT_EQ(file.get<std::string_view>("long"), text);
  EXPECT_EQ(file.get<uint32_t>("last"), 7u);
  EXPECT_EQ(file.metadata().size(), 3u);
  EXPECT_EQ(text_of(file.data(file.tensor("weight"))), std::string(40, 'w'));
}

/// A file is cut by another program after it was opened, or copied over, which cuts it first.
TEST(GgufFile, AFileThatShrinksIsAnError) {
  const testing::TempFolder folder;
  const std::string path = folder.write("s.gguf", sample().build());
  const GgufFile file(path);
  std::filesystem::resize_file(path, 60);
  expect_invalid({"s.gguf: the file ends at byte ", "it has changed while it was read"},
                 [&] { (void)file.data(file.tensor("weight")); });
  expect_invalid({"s.gguf", "60 bytes"}, [&] { const GgufFile again(path); });
}

TEST(GgufFile, ShowsUnsupportedTensorTypesAndRefusesTheirData) {
  GgufBuilder builder;
  builder.tensor("two", {256}, 10, std::string(84, '2')).tensor("new", {3, 5}, 97, "xyz");
  const std::string bytes = builder.build();
  const GgufFile file = read(bytes);
  EXPECT_EQ(file.tensor("two").num_bytes, 84u);
  EXPECT_EQ(file.tensor("new").num_bytes, 0u);
  EXPECT_EQ(ggml_type_name(97), "type 97");
  expect_unsupported({"m.gguf: tensor 'two' has type Q2_K, supported: F32, F16, Q4_0, ", "BF16"},
                     [&] { (void)file.data(file.tensor("two")); });
  expect_unsupported({"tensor 'new' has type type 97"},
                     [&] { (void)file.weight_type(file.tensor("new")); });
}

TEST(GgufFile, RefusesEveryTruncation) {
  const std::string bytes = sample().build();
  // The last tensor's padding is not needed.
  const size_t needed = bytes.size() - (64 - 40);
  for (size_t length = 0; length < needed; ++length) {
    const std::string cut = bytes.substr(0, length);
    expect_invalid({"m.gguf: "}, [&] { (void)read(cut); });
  }
  EXPECT_NO_THROW((void)read(bytes.substr(0, needed)));
  const std::string end = std::to_string(needed), length = std::to_string(needed - 1);
  expect_refused(
      {"tensor 'weight' needs the bytes ", end.c_str(), "the file ends at ", length.c_str()},
      bytes.substr(0, needed - 1));
}

TEST(GgufFile, RefusesOtherFilesAndVersions) {
  expect_refused({"not a GGUF file: it begins with 'PK\\x03\\x04', expected 'GGUF'"},
                 "PK\x03\x04 and more");
  for (const uint32_t version : {0u, 1u, 4u}) {
    GgufBuilder builder;
    builder.version = version;
    const std::string bytes = builder.build(), text = "GGUF version " + std::to_string(version);
    expect_unsupported({"m.gguf: ", text.c_str(), "supported: 2 and 3"},
                       [&] { (void)read(bytes); });
  }
  GgufBuilder swapped;
  swapped.version = 0x03000000;
  const std::string bytes = swapped.build();
  expect_unsupported({"big-endian"}, [&] { (void)read(bytes); });
}

TEST(GgufFile, RefusesCountsThatTheFileCannotHold) {
  for (const size_t at : {size_t{8}, size_t{16}}) {  // the number of tensors, of values
    for (const uint64_t count : {uint64_t{100}, uint64_t{1} << 40, ~uint64_t{0}}) {
      std::string bytes = GgufBuilder().value("key", uint64_t{1}).build();
      std::memcpy(bytes.data() + at, &count, sizeof(count));
      expect_refused({"the header counts ", std::to_string(count).c_str(),
                      at == 8 ? " tensors, too many" : " metadata values, too many"},
                     bytes);
    }
  }
}

std::string array_head(uint32_t type, uint64_t count) {
  std::string bytes;
  append(bytes, type);
  append(bytes, count);
  return bytes;
}

TEST(GgufFile, RefusesHostileValues) {
  const auto with = [](uint32_t type, const std::string& value) {
    return GgufBuilder().raw_value("key", type, value).build();
  };
  expect_refused({"metadata value 0 ('key') has type 13, which GGUF does not define"},
                 with(13, ""));
  expect_refused({"('key') has type 77"}, with(9, array_head(77, 1)));
  const std::string nested = with(9, array_head(9, 1) + array_head(0, 0));
  expect_unsupported({"('key') is an array of arrays"}, [&] { (void)read(nested); });
  for (const uint64_t count : {uint64_t{5}, uint64_t{1} << 62, ~uint64_t{0}}) {
    expect_refused({"('key') has ", std::to_string(count).c_str(), "of type u32, too many"},
                   with(9, array_head(4, count) + "0123"));
    expect_refused({"('key') has ", "of type string, too many"},
                   with(9, array_head(8, count) + "0123"));
  }
  std::string length;
  append(length, ~uint64_t{0});
  expect_refused({"('key') needs 18446744073709551615 bytes at offset "}, with(8, length));
  expect_refused({"('key') needs 18446744073709551615 bytes"}, with(9, array_head(8, 1) + length));
  expect_refused({"('key') holds 2 as a bool, expected 0 or 1"}, with(7, "\x02"));
  expect_refused({"('key') holds 255 as a bool"}, with(9, array_head(7, 2) + "\x01\xff"));
  expect_refused({"metadata value 1 ('a') has a key that the file has already"},
                 GgufBuilder().value("a", 1).value("a", 2).build());
  expect_refused({"metadata value 0 has an empty key"}, GgufBuilder().value("", 1).build());
  expect_refused({"('a\\x0ab')", "which GGUF does not define"},
                 GgufBuilder().raw_value("a\nb", 13, "").build());
}

TEST(GgufFile, RefusesAlignmentsThatAreNone) {
  for (const uint32_t alignment : {0u, 24u, 0xffffffffu}) {
    expect_refused({"general.alignment is ", std::to_string(alignment).c_str(), "a power of two"},
                   GgufBuilder().value("general.alignment", alignment).build());
  }
  expect_refused({"'general.alignment' has type string, expected u32"},
                 GgufBuilder().value("general.alignment", std::string_view("32")).build());
}

TEST(GgufFile, RefusesHostileTensors) {
  const auto with = [](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset = 0) {
    return GgufBuilder().raw_tensor("t", dims, type, offset, std::string(64, 't')).build();
  };
  expect_refused({"tensor 0 ('t') has 0 dimensions, expected 1 to 4"}, with({}, 0));
  expect_refused({"('t') has 5 dimensions"}, with({1, 1, 1, 1, 1}, 0));
  expect_refused({"('t') has extent 0 in dimension 1"}, with({4, 0}, 0));
  const uint64_t half = uint64_t{1} << 32;
  expect_refused({"('t') has extent 4294967296 in dimension 1: its size overflows"},
                 with({half, half}, 0));
  expect_refused({"overflows"}, with({~uint64_t{0}}, 0));
  expect_refused({"('t') has 4611686018427387904 weights: its size overflows"},
                 with({uint64_t{1} << 62}, 0));
  expect_refused({"('t') has rows of 33 weights, Q4_1 needs a multiple of 32"}, with({33}, 3));
  expect_refused({"('t') has rows of 128 weights, Q4_K needs a multiple of 256"},
                 with({128, 2}, 12));
  expect_refused({"tensor 't' needs the bytes ", "the file ends at "}, with({64}, 0));
  expect_refused({"tensor 't' needs the bytes "}, with({16}, 0, 64));
  expect_refused({"tensor 't' begins at 8 of the data, expected a multiple of 32"},
                 with({4}, 0, 8));
  expect_refused({"tensor 't': its end overflows 64 bits"}, with({4}, 0, ~uint64_t{31}));
  expect_refused({"tensor 't' needs the bytes "}, with({4}, 97, uint64_t{1} << 40));
  expect_refused({"tensor 1 ('t') has a name that the file has already"},
                 GgufBuilder().tensor("t", {1}, 0, "1234").tensor("t", {1}, 0, "1234").build());
  expect_refused({"tensor 0 has an empty name"}, GgufBuilder().tensor("", {1}, 0, "1234").build());
  expect_refused({"tensor 'b' begins at ", " inside tensor 'a', which ends at "},
                 GgufBuilder()
                     .tensor("a", {16}, 0, std::string(64, 'a'))
                     .raw_tensor("b", {1}, 0, 32, "")
                     .build());
}

TEST(GgufFile, TakesTimeInProportionToItsParts) {
  const auto values = [](size_t n) {
    GgufBuilder builder;
    for (size_t i = 0; i < n; ++i) builder.value("key" + std::to_string(i), uint32_t{1});
    return builder.build();
  };
  const auto tensors = [](size_t n) {
    GgufBuilder builder;
    for (size_t i = n; i-- > 0;) {
      builder.raw_tensor("t" + std::to_string(i), {1}, 0, 32 * i, std::string(32, 't'));
    }
    return builder.build();
  };
  const auto strings = [](size_t n) {
    return GgufBuilder().array<std::string_view>("words", {n, std::string_view("word")}).build();
  };
  const auto read_all = [](const std::string& bytes) {
    const GgufFile file = read(bytes);
    for (const GgufValue& value : file.metadata()) {
      if (value.is_array) (void)file.get_array<std::string_view>(value.key);
    }
  };
  testing::expect_linear("values", 5000, values, read_all);
  testing::expect_linear("tensors", 5000, tensors, read_all);
  testing::expect_linear("strings", 50000, strings, read_all);
}

TEST(GgufFile, QuotesLittleOfTheFile) {
  const std::string text = testing::hostile_text(size_t{10} << 20);
  const auto refused = [&](const char* what, const std::string& bytes) {
    testing::expect_clean_message(what, [&] {
      const GgufFile file = read(bytes);
      if (!file.tensors().empty()) (void)file.data(file.tensors().back());
      (void)file.get<uint32_t>(text);
    });
  };
  refused("first bytes", text);
  refused("the value's type", GgufBuilder().value(text, std::string_view("word")).build());
  refused("an array", GgufBuilder().array<int32_t>(text, {1}).build());
  refused("too large a value", GgufBuilder().value(text, ~uint64_t{0}).build());
  refused("no such type", GgufBuilder().raw_value(text, 13, "").build());
  refused("no bool", GgufBuilder().raw_value(text, 7, "\x02").build());
  refused("a key twice", GgufBuilder().value(text, 1).value(text, 1).build());
  refused("a missing key", GgufBuilder().value("other", 1).build());
  const auto tensor = [&](const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    return GgufBuilder().raw_tensor(text, dims, type, offset, "12345678").build();
  };
  refused("dimensions", tensor({}, 0, 0));
  refused("rows", tensor({33}, 3, 0));
  refused("offset", tensor({1}, 0, 8));
  refused("past the end", tensor({1}, 0, 1 << 20));
  refused("no such format", tensor({1}, 24, 0));
  refused("tensors on one another",
          GgufBuilder().raw_tensor(text, {1}, 0, 0, "1234").raw_tensor("b", {1}, 0, 0, "").build());
}

}  // namespace
}  // namespace heddle::files
