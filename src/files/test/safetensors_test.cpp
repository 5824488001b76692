#include "files/safetensors.h"

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "expect_error.h"
#include "readers/clean_message.h"
#include "readers/linear_time.h"
#include "safetensors_builder.h"
#include "temp_folder.h"

namespace heddle::files {
namespace {

using testing::expect_invalid;
using testing::expect_unsupported;
using testing::safetensors_of;
using testing::SafetensorsBuilder;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
SafetensorsFile read(const std::string& bytes) {
  return {std::as_bytes(std::span(bytes.data(), bytes.size())), "a.safetensors"};
}
void expect_refused(std::initializer_list<const char*> parts, const std::string& header,
                    const std::string& data = "") {
  const std::string bytes = safetensors_of(header, data);
  expect_invalid(parts, [&] { (void)read(bytes); });
}

TEST(SafetensorsFile, ReadsTensorsInTheOrderOfTheirData) {
  const testing::TempFolder folder;
  const std::string bytes = safetensors_of(R"({"__metadata__": {"format": "pt"},
 "b": {"dtype": "F16", "shape": [2, 1], "data_offsets": [4, 8]},
 "a": {"data_offsets": [0, 4], "shape": [], "dtype": "F32"},
 "c": {"dtype": "BF16", "shape": [3, 0], "data_offsets": [8, 8]},
 "d": {"dtype": "I64", "shape": [1], "data_offsets": [8, 16]},
 "e": {"dtype": "F4_E2M1", "shape": [3], "data_offsets": [16, 17]}}   )",
                                           "aaaabbbbdddddddde");
  SafetensorsFile first(folder.write("a.safetensors", bytes));
  SafetensorsFile file = std::move(first);
  file.load();
  ASSERT_EQ(file.tensors().size(), 5u);
  std::string names;
  for (const SafetensorsTensor& tensor : file.tensors()) names += tensor.name;
  EXPECT_EQ(names, "abcde");
  const SafetensorsTensor* b = file.find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(shape_text(b->shape), "[2, 1]");
  EXPECT_EQ(text_of(b->data), "bbbb");
  EXPECT_EQ(file.dtype(*b), DType::kFloat16);
  EXPECT_EQ(file.dtype(*file.find("a")), DType::kFloat32);
  EXPECT_EQ(file.dtype(*file.find("c")), DType::kBFloat16);
  EXPECT_TRUE(file.find("c")->data.empty());
  EXPECT_EQ(file.find("other"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  expect_unsupported({"a.safetensors: tensor 'd' has type I64, supported: F32, F16, BF16"},
                     [&] { (void)file.dtype(*file.find("d")); });
  expect_unsupported({"tensor 'e' has type F4_E2M1"}, [&] { (void)file.dtype(*file.find("e")); });
}

/// A file is cut by another program after it was opened, or copied over, which cuts it first.
TEST(SafetensorsFile, AFileThatShrinksIsAnError) {
  const testing::TempFolder folder;
  const std::string bytes = safetensors_of(
      R"({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}})", "aaaabbbb");
  const std::string path = folder.write("a.safetensors", bytes);
  SafetensorsFile file(path);
  std::vector<std::byte> values(4);
  file.read(file.tensors().front(), 4, values);
  EXPECT_EQ(text_of(values), "bbbb");
  std::filesystem::resize_file(path, bytes.size() - 2);
  const auto expect_shrunk = [](const auto& run) {
    expect_invalid({"a.safetensors: the file ends at byte ", ", it had "}, run);
  };
  expect_shrunk([&] { file.load(); });
  expect_shrunk([&] { file.read(file.tensors().front(), 4, values); });
  file.read(file.tensors().front(), 0, values);
  EXPECT_EQ(text_of(values), "aaaa");
}

TEST(SafetensorsFile, RefusesEveryTruncation) {
  const std::string bytes = SafetensorsBuilder()
                                .tensor("a", "F32", {2}, "12345678")
                                .tensor("b", "F16", {1}, "12")
                                .build();
  EXPECT_NO_THROW((void)read(bytes));
  for (size_t length = 0; length < bytes.size(); ++length) {
    const std::string cut = bytes.substr(0, length);
    expect_invalid({"a.safetensors: "}, [&] { (void)read(cut); });
  }
  const std::string longer = bytes + "x";
  expect_invalid({"the tensors end at byte 10 of the data, the file has 11"},
                 [&] { (void)read(longer); });
}

TEST(SafetensorsFile, RefusesHeadersOfTheWrongLength) {
  std::string bytes = safetensors_of("{}", "");
  EXPECT_NO_THROW((void)read(bytes));
  bytes[7] = '\x7f';
  expect_invalid({"the header takes 9151314442816847874 bytes, the file has 10"},
                 [&] { (void)read(bytes); });
  const std::string large = safetensors_of(std::string((16 << 20) + 1, ' '), "");
  expect_unsupported({"the header takes 16777217 bytes, supported: 16777216"},
                     [&] { (void)read(large); });
  const std::string tiny = "{}";
  expect_invalid({"not a safetensors file: it has 2 bytes"}, [&] { (void)read(tiny); });
}

TEST(SafetensorsFile, RefusesWhatIsNoObjectOfTensors) {
  expect_refused({"a.safetensors: not valid JSON: parse error at line 1"}, "{\"a\": ");
  expect_refused({"not valid JSON"}, "{} {}");
  expect_refused({"not valid JSON"}, "");
  expect_refused({"not valid JSON"}, "{\"\xff\": 1}");
  expect_refused({"the header is an array, expected an object"}, "[]");
  expect_refused({"the header is null"}, "null");
  expect_refused({"nested deeper than 3 levels"}, std::string(1000000, '['));
  expect_refused({"nested deeper than 3 levels"}, R"({"a": {"shape": [[1]]}})");
  expect_refused({"key 'a' is given twice"}, R"({"a": {}, "a": {}})");
  expect_refused({"key 'shape' is given twice"}, R"({"a": {"shape": [1], "shape": [2]}})");
  expect_refused({"tensor 'a' is a string, expected an object"}, R"({"a": "F32"})");
  expect_refused({"tensor '__metadata__' is an array, expected an object"},
                 R"({"__metadata__": []})");
  expect_refused({"__metadata__: 'k' is an integer, expected a string"},
                 R"({"__metadata__": {"k": 1}})");
}

TEST(SafetensorsFile, RefusesTensorsThatAreNotWhole) {
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return std::string("{\"t\": {\"dtype\": ") + dtype + ", \"shape\": " + shape +
           ", \"data_offsets\": " + offsets + "}}";
  };
  const std::string data(8, 'x');
  EXPECT_NO_THROW((void)read(safetensors_of(entry("\"F32\"", "[2]", "[0, 8]"), data)));
  expect_refused({"a.safetensors: tensor 't' has no dtype"}, R"({"t": {"shape": []}})", data);
  expect_refused({"tensor 't' has no shape"}, R"({"t": {"dtype": "F32"}})", data);
  expect_refused({"tensor 't' has no data_offsets"}, R"({"t": {"dtype": "F32", "shape": []}})");
  expect_refused({"'t': dtype is an integer, expected a string"}, entry("1", "[2]", "[0, 8]"),
                 data);
  expect_refused({"'t': shape is an integer, expected an array"}, entry("\"F32\"", "2", "[0, 8]"),
                 data);
  for (const char* bad : {"-1", "1.5", "\"2\"", "null", "true", "9223372036854775808", "1e300",
                          "99999999999999999999"}) {
    expect_refused({"'t' has ", "in shape, expected an integer of 0 or more"},
                   entry("\"F32\"", std::string("[") + bad + "]", "[0, 8]"), data);
  }
  expect_refused({"not valid JSON: number overflow"}, entry("\"F32\"", "[1e999]", "[0, 8]"), data);
  expect_refused({"overflows 64 bits"}, entry("\"F32\"", "[4294967296, 4294967296]", "[0, 8]"),
                 data);
  expect_refused({"'t' is F32 [3], which takes 12 bytes, data_offsets span 8"},
                 entry("\"F32\"", "[3]", "[0, 8]"), data);
  expect_refused({"'t' has 3 data_offsets, expected 2"}, entry("\"F32\"", "[2]", "[0, 8, 8]"),
                 data);
  expect_refused({"'t' has data_offsets 8 to 0, the file has 8 bytes"},
                 entry("\"F32\"", "[2]", "[8, 0]"), data);
  expect_refused({"'t' has data_offsets 0 to 16, the file has 8 bytes"},
                 entry("\"F32\"", "[4]", "[0, 16]"), data);
}

TEST(SafetensorsFile, KnowsTheSizeOfEveryType) {
  for (const auto& [dtype, size] : {std::pair<const char*, size_t>("F64", 8),
                                    {"F32", 4},
                                    {"F16", 2},
                                    {"BF16", 2},
                                    {"I64", 8},
                                    {"I32", 4},
                                    {"I16", 2},
                                    {"I8", 1},
                                    {"U64", 8},
                                    {"U32", 4},
                                    {"U16", 2},
                                    {"U8", 1},
                                    {"F8_E4M3", 1},
                                    {"F8_E5M2", 1},
                                    {"BOOL", 1}}) {
    const std::string data(3 * size, 'x');
    const std::string whole = SafetensorsBuilder().tensor("t", dtype, {3}, data).build();
    EXPECT_EQ(text_of(read(whole).find("t")->data), data) << dtype;
    const std::string longer = SafetensorsBuilder().tensor("t", dtype, {3}, data + 'x').build();
    const std::string says = "which takes " + std::to_string(3 * size) + " bytes";
    expect_invalid({dtype, says.c_str()}, [&] { (void)read(longer); });
  }
}

TEST(SafetensorsFile, RefusesHolesAndOverlaps) {
  const auto two = [](const char* first, const char* second) {
    return std::string(R"({"a": {"dtype": "U8", "shape": [4], "data_offsets": )") + first +
           R"(}, "b": {"dtype": "U8", "shape": [4], "data_offsets": )" + second + "}}";
  };
  const std::string data(12, 'x');
  expect_refused({"tensor 'b' begins at byte 8 of the data, the one before it ends at 4"},
                 two("[0, 4]", "[8, 12]"), data);
  expect_refused({"tensor 'b' begins at byte 2 of the data, the one before it ends at 4"},
                 two("[0, 4]", "[2, 6]"), data);
  expect_refused({"tensor 'b' begins at byte 0"}, two("[0, 4]", "[0, 4]"), data);
  expect_refused({"tensor 'a' begins at byte 4 of the data, the one before it ends at 0"},
                 two("[4, 8]", "[8, 12]"), data);
  expect_refused({"the tensors end at byte 8 of the data, the file has 12"},
                 two("[0, 4]", "[4, 8]"), data);
}

TEST(SafetensorsFile, TakesTimeInProportionToItsTensors) {
  const auto tensors = [](size_t n) {
    SafetensorsBuilder builder;
    for (size_t i = n; i-- > 0;) builder.tensor("t" + std::to_string(i), "U8", {0}, "");
    return builder.build();
  };
  const auto metadata = [](size_t n) {
    std::string header = R"({"__metadata__": {"format": "pt")";
    for (size_t i = 0; i < n; ++i) header += ", \"" + std::to_string(i) + "\": \"\"";
    return safetensors_of(header + "}}", "");
  };
  const auto extents = [](size_t n) {
    std::string header = R"({"t": {"dtype": "U8", "data_offsets": [0, 0], "shape": [0)";
    for (size_t i = 0; i < n; ++i) header += ",1";
    return safetensors_of(header + "]}}", "");
  };
  const auto read_all = [](const std::string& bytes) { (void)read(bytes); };
  testing::expect_linear("tensors", 500, tensors, read_all);
  testing::expect_linear("metadata", 2000, metadata, read_all);
  testing::expect_linear("extents", 20000, extents, read_all);
}

TEST(SafetensorsFile, QuotesLittleOfTheFile) {
  const std::string text = nlohmann::json(testing::hostile_text(size_t{4} << 20)).dump();
  const auto refused = [](const std::string& header) {
    const std::string bytes = safetensors_of(header, "");
    testing::expect_clean_message(header.substr(0, 60), [&] {
      const SafetensorsFile file = read(bytes);
      (void)file.dtype(file.tensors().at(0));
    });
  };
  refused("{" + text + ": 1}");
  refused("{" + text + ": {}}");
  refused("{" + text + R"(: {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}})");
  refused("{" + text + R"(: {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]}})");
  refused(R"({"a": {"dtype": )" + text + R"(, "shape": [0], "data_offsets": [0, 0]}})");
  refused(R"({"a": {"dtype": "U8", "data_offsets": [0, 0], "shape": [)" + text + "]}}");
  refused(R"({"a": {"dtype": "U8", "shape": [0], "data_offsets": [0, )" + text + "]}}");
  refused(R"({"__metadata__": {)" + text + ": 1}}");
  refused(R"({"__metadata__": {)" + text + R"(: "a", )" + text + R"(: "b"}})");
  std::string many = "0";
  while (many.size() < text.size()) many += ",1000";
  refused(R"({"a": {"dtype": "U8", "data_offsets": [0, 0], "shape": [1,)" + many.substr(2) + "]}}");
  refused(R"({"a": {"dtype": "U8", "shape": [0], "data_offsets": [)" + many + "]}}");
}

}  // namespace
}  // namespace heddle::files
