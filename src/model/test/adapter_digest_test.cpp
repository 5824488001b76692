#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gguf_builder.h"
#include "model/adapters/contents/adapter_contents.h"
#include "model/adapters/open_adapter.h"
#include "model/adapters/receipt/adapter_norms.h"
#include "model/test/adapter_cases.h"
#include "model/test/fake_adapter.h"
#include "model/test/llama_file.h"
#include "random.h"
#include "temp_folder.h"

namespace heddle::model {
namespace {

using Change = std::function<void(FakeAdapter&)>;

std::string fingerprint_of(const Adapter& adapter) {
  return AdapterContents(adapter).fingerprint();
}

/// Of an adapter with all kinds of parts, always the same, in which `change` changes one thing.
template <class Take>
auto take_after(const Change& change, const Take& take, const std::string& path = "dir") {
  FakeAdapter adapter(path);
  const auto vector = [&](const char* name, float value) {
    return adapter.tensor(name, DType::kFloat32, 1, 6, 0, value);
  };
  for (const int64_t layer : {0, 3}) {
    AdapterPair& pair = adapter.add_pair(adapter.tensor("a", DType::kFloat16, 2, 6, 5, 0.5f),
                                         adapter.tensor("b", DType::kFloat16, 6, 2, 3, 0.25f));
    pair.layer = layer;
    pair.module = &kLinearModules[layer + 1];
    pair.scale = 0.75f;
  }
  adapter.pair(1).magnitude = vector("m", 2.0f);
  adapter.of_head().pair = adapter.pair(0);
  adapter.of_head().pair->bias = vector("bias", 3.0f);
  adapter.of_embedding().token_ids = {4, 2};
  adapter.of_embedding().token_rows = adapter.tensor("rows", DType::kBFloat16, 2, 6, 7, 4.0f);
  change(adapter);
  return take(adapter);
}

Digest digest_after(const Change& change, const std::string& path = "dir") {
  return take_after(
      change, [](const Adapter& adapter) { return AdapterContents(adapter).digest(); }, path);
}

void flip_bit(const StoredValues& values) {
  const auto bytes = values.bytes();
  const auto at = static_cast<size_t>(testing::random_int(0, std::ssize(bytes) - 1));
  const_cast<std::byte&>(bytes[at]) ^= std::byte(1 << testing::random_int(0, 7));
}

void swap_types(DType& dtype) {  // the bytes stay
  dtype = dtype == DType::kFloat16 ? DType::kBFloat16 : DType::kFloat16;
}

/// Each takes the adapter to other content.
const std::pair<const char*, Change> kChanges[] = {
    {"nothing", [](FakeAdapter&) {}},
    {"scale", [](auto& a) { a.pair(0).scale = std::nextafter(a.pair(0).scale, 1.0f); }},
    {"A", [](auto& a) { flip_bit(a.pair(0).stored_a()); }},
    {"B", [](auto& a) { flip_bit(a.pair(0).stored_b()); }},
    {"A of another pair", [](auto& a) { flip_bit(a.pair(1).stored_a()); }},
    {"A for B", [](auto& a) { std::swap(a.pair(0).a, a.pair(0).b); }},
    {"dtype", [](auto& a) { swap_types(a.pair(0).dtype); }},
    {"rank",
     [](auto& a) { a.pair(0).rank = 1, a.pair(0).in_features = a.pair(0).out_features = 12; }},
    {"layer", [](auto& a) { a.pair(1).layer = 2; }},
    {"module", [](auto& a) { a.pair(0).module = &kLinearModules[2]; }},
    {"one more pair", [](auto& a) { a.add_pair(a.pair(1).stored_a(), a.pair(1).stored_b()); }},
    {"no magnitude", [](auto& a) { a.pair(1).magnitude = {}; }},
    {"magnitude", [](auto& a) { flip_bit(a.pair(1).magnitude); }},
    {"magnitude of the other",
     [](auto& a) { std::swap(a.pair(0).magnitude, a.pair(1).magnitude); }},
    {"bias for magnitude", [](auto& a) { std::swap(a.pair(1).bias, a.pair(1).magnitude); }},
    {"layer_bias for magnitude",
     [](auto& a) { std::swap(a.pair(1).layer_bias, a.pair(1).magnitude); }},
    {"bias", [](auto& a) { a.pair(0).bias = a.pair(1).magnitude; }},
    {"layer_bias", [](auto& a) { a.pair(0).layer_bias = a.pair(1).magnitude; }},
    {"no head", [](auto& a) { a.of_head().pair.reset(); }},
    {"scale of the head", [](auto& a) { a.of_head().pair->scale = -0.75f; }},
    {"bias of the head", [](auto& a) { flip_bit(a.of_head().pair->bias); }},
    {"head for embedding", [](auto& a) { std::swap(a.of_head(), a.of_embedding()); }},
    {"pair of the embedding", [](auto& a) { std::swap(a.of_head().pair, a.of_embedding().pair); }},
    {"token", [](auto& a) { a.of_embedding().token_ids[0] = 5; }},
    {"order of tokens",
     [](auto& a) { std::swap(a.of_embedding().token_ids[0], a.of_embedding().token_ids[1]); }},
    {"row of a token", [](auto& a) { flip_bit(a.of_embedding().token_rows); }},
    {"type of rows", [](auto& a) { swap_types(a.of_embedding().token_rows.dtype); }},
    {"shape of rows",
     [](auto& a) {
       std::swap(a.of_embedding().token_rows.rows, a.of_embedding().token_rows.columns);
     }},
    {"weight for rows",
     [](auto& a) { std::swap(a.of_embedding().weight, a.of_embedding().token_rows); }},
    {"weight of the head", [](auto& a) { a.of_head().weight = a.of_embedding().token_rows; }},
};

TEST(AdapterDigest, DependsOnAllThatARowComputes) {
  std::vector<std::pair<const char*, Digest>> all;
  for (const auto& [name, change] : kChanges) {
    const Digest digest = digest_after(change);
    for (const auto& [other, of_other] : all) {
      EXPECT_NE(digest, of_other) << name << ", and " << other;
    }
    all.emplace_back(name, digest);
  }
}

TEST(ContentFingerprint, DependsOnAllThatARowComputesAndWhere) {
  std::vector<std::pair<const char*, std::string>> all;
  const auto add = [&](const char* name, const Change& change) {
    const std::string fingerprint = take_after(change, fingerprint_of);
    EXPECT_EQ(fingerprint.size(), 32u);
    EXPECT_EQ(fingerprint.find_first_not_of("0123456789abcdef"), fingerprint.npos) << fingerprint;
    for (const auto& [other, of_other] : all) {
      EXPECT_NE(fingerprint, of_other) << name << ", and " << other;
    }
    all.emplace_back(name, fingerprint);
  };
  for (const auto& [name, change] : kChanges) add(name, change);
  add("invocation", [](auto& a) { a.invocation() = {1, 2}; });
  add("another invocation", [](auto& a) { a.invocation() = {12}; });
}

/// The formula of docs/adapter_receipts.md, word for word.
TEST(ContentFingerprint, IsTheHashOfItsLines) {
  const auto hex = [](std::string_view bytes) {
    const Digest digest = Hasher().add(std::as_bytes(std::span(bytes))).digest();
    char text[33];
    std::snprintf(text, sizeof text, "%016lx%016lx", digest.high, digest.low);
    return std::string(text);
  };
  FakeAdapter adapter;
  const StoredValues a = adapter.tensor("x", DType::kBFloat16, 2, 6, 5, 0.5f);
  const StoredValues b = adapter.tensor("y", DType::kBFloat16, 8, 2, 3, 0.25f);
  AdapterPair& pair = adapter.add_pair(a, b);
  pair.layer = 11;
  pair.module = find_linear_module("mlp.up_proj");
  pair.scale = 1.5f;
  const auto hash_of = [&](const StoredValues& values) {
    const auto bytes = values.bytes();
    return hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  const std::string module = "model.layers.11.mlp.up_proj", prefix = "base_model.model." + module;
  EXPECT_EQ(fingerprint_of(adapter),
            hex(prefix + ".lora_A.weight bf16 2x6 " + hash_of(a) + "\n" + prefix +
                ".lora_B.weight bf16 8x2 " + hash_of(b) + "\n" + module + " scale 3fc00000\n"));
}

TEST(AdapterIsZero, WhereNoValueOfTheModelChanges) {
  const auto make = [](float a, float b, const Change& change) {
    FakeAdapter adapter;
    const auto filled = [&](int64_t rows, int64_t columns, float value) {
      const StoredValues values = adapter.tensor("t", DType::kFloat16, rows, columns);
      const half element = from_float<half>(value);
      for (int64_t i = 0; i < values.num_elements(); ++i) {
        std::memcpy(const_cast<std::byte*>(values.data) + i * int64_t{sizeof(half)}, &element,
                    sizeof(half));
      }
      return values;
    };
    adapter.add_pair(filled(2, 6, a), filled(6, 2, b)).scale = 2.0f;
    change(adapter);
    return is_zero(adapter);
  };
  const auto nothing = [](FakeAdapter&) {};
  EXPECT_TRUE(make(1.0f, 0.0f, nothing));
  EXPECT_TRUE(make(1.0f, -0.0f, nothing));
  EXPECT_TRUE(make(0.0f, 1.0f, nothing));
  EXPECT_TRUE(make(1.0f, 1.0f, [](auto& a) { a.pair(0).scale = 0; }));
  EXPECT_FALSE(make(1.0f, 1.0f, nothing));
  EXPECT_FALSE(make(1.0f, 0.0f, [](auto& a) {
    a.add_pair(a.tensor("a", DType::kFloat32, 1, 6), a.tensor("b", DType::kFloat32, 6, 1)).scale =
        1;
  }));
  const auto vector = [](auto& a) { return a.tensor("v", DType::kFloat32, 1, 6); };
  EXPECT_FALSE(make(1.0f, 0.0f, [&](auto& a) { a.pair(0).magnitude = vector(a); }));
  EXPECT_FALSE(make(1.0f, 0.0f, [&](auto& a) { a.pair(0).bias = vector(a); }));
  EXPECT_FALSE(make(1.0f, 0.0f, [&](auto& a) { a.pair(0).layer_bias = vector(a); }));
  EXPECT_FALSE(make(1.0f, 0.0f, [&](auto& a) { a.of_head().weight = vector(a); }));
  EXPECT_FALSE(make(1.0f, 0.0f, [](auto& a) { a.of_embedding().token_ids = {3}; }));
}

/// |scale B A| without B A, against the product in double.
TEST(SquaredDelta, IsTheSumOfTheSquares) {
  for (const auto [rank, in, out] : {std::array<int64_t, 3>{1, 1, 1},
                                     {3, 24, 40},
                                     {16, 1500, 17},
                                     {33, 70, 2100},
                                     {64, 1024, 1025}}) {
    const auto a = testing::random_normal<bfloat16>(static_cast<size_t>(rank * in), 0.3f);
    const auto b = testing::random_normal<bfloat16>(static_cast<size_t>(out * rank), 0.3f);
    LowRank pair;
    pair.rank = rank, pair.in_features = in, pair.out_features = out;
    pair.scale = 0.625f, pair.dtype = DType::kBFloat16;
    pair.a = std::as_bytes(std::span(a)).data();
    pair.b = std::as_bytes(std::span(b)).data();
    const std::vector<double> of_a = testing::to_double(a), of_b = testing::to_double(b);
    double expected = 0;
    for (int64_t o = 0; o < out; ++o) {
      std::vector<double> row(static_cast<size_t>(in));
      for (int64_t r = 0; r < rank; ++r) {
        const double factor = 0.625 * of_b[static_cast<size_t>(o * rank + r)];
        for (size_t k = 0; k < row.size(); ++k) {
          row[k] += factor * of_a[static_cast<size_t>(r * in) + k];
        }
      }
      for (const double value : row) expected += value * value;
    }
    EXPECT_NEAR(squared_delta(pair), expected, 1e-5 * expected) << rank << " " << in << " " << out;
  }
}

/// Parts whose bytes are all 0, like those of absent parts next to them.
TEST(AdapterDigest, TellsPartsOfZerosApart) {
  const auto digest = [](const Change& change) {
    FakeAdapter adapter;
    change(adapter);
    return AdapterContents(adapter).digest();
  };
  EXPECT_NE(digest([](auto& a) { a.of_embedding().token_ids = {0}; }),
            digest([](auto& a) { a.of_head().token_ids = {0}; }));
  EXPECT_NE(digest([](auto& a) { a.of_embedding().pair.emplace(); }),
            digest([](auto& a) { a.of_head().pair.emplace(); }));
}

/// Places of files, and those of values in memory.
TEST(AdapterDigest, DoesNotDependOnNamesAndPlaces) {
  const Digest plain = digest_after([](auto&) {});
  EXPECT_EQ(digest_after([](auto&) {}, "another/dir"), plain);
  EXPECT_EQ(
      digest_after([](auto& a) { a.pair(0).a_name = "other", a.pair(1).magnitude.name = ""; }),
      plain);
  EXPECT_EQ(digest_after([](auto& a) { a.invocation() = {1, 2}; }), plain);
  EXPECT_EQ(digest_after([](auto& a) {
              const StoredValues copy = a.tensor("copy", DType::kFloat16, 2, 6, 5, 0.5f);
              a.pair(0).a = copy.data;
            }),
            plain);
}

/// A random adapter of f32 on rotating and other modules, and a folder for files with it.
class AdapterDigestOfFiles : public ::testing::Test {
 protected:
  AdapterDigestOfFiles() {
    ref::Llama merged = random_llama(config_, true);
    (void)random_adapter<float>("F32", kRank, {llama::kQ, llama::kV, llama::kDown}, weights_,
                                merged);
  }

  [[nodiscard]] std::string write_peft(const std::string& name, const std::string& weights,
                                       double alpha = 3.0) const {
    std::filesystem::create_directory(folder_.path() / name);
    folder_.write(name + "/adapter_config.json",
                  nlohmann::json({{"peft_type", "LORA"},
                                  {"r", kRank},
                                  {"lora_alpha", alpha},
                                  {"base_model_name_or_path", name},
                                  {"target_modules", {"q_proj", "v_proj", "down_proj"}}})
                      .dump());
    folder_.write(name + "/adapter_model.safetensors", weights);
    return (folder_.path() / name).string();
  }
  /// The same adapter as llama.cpp's conversion writes it, the last module first.
  [[nodiscard]] std::string write_gguf(const Adapter& adapter) const {
    testing::GgufBuilder file;
    file.value("general.type", "adapter")
        .value("general.architecture", "llama")
        .value("adapter.type", "lora")
        .value("adapter.lora.alpha", 3.0f);
    const BlockShape block = config_.block();
    for (size_t i = adapter.pairs().size(); i-- > 0;) {
      const AdapterPair& pair = adapter.pairs()[i];
      const std::string name =
          "blk." + std::to_string(pair.layer) + "." + std::string(pair.module->gguf) + ".weight";
      const bool rotates = block.slice(block.find(*pair.module).first).rotates;
      std::string b;
      for (int64_t row = 0; row < pair.out_features; ++row) {
        const int64_t from =
            rotates ? row_in_hugging_face_order(row, config_.head_dim, config_.head_dim) : row;
        b += text_of(pair.stored_b().narrow(from, 1));
      }
      const auto rank = static_cast<uint64_t>(kRank);
      file.tensor(name + ".lora_a", {static_cast<uint64_t>(pair.in_features), rank}, 0,
                  text_of(pair.stored_a()));
      file.tensor(name + ".lora_b", {rank, static_cast<uint64_t>(pair.out_features)}, 0, b);
    }
    return folder_.write("adapter.gguf", file.build());
  }
  static std::string text_of(const StoredValues& values) {
    return {reinterpret_cast<const char*>(values.data), values.bytes().size()};
  }
  [[nodiscard]] Digest digest_at(const std::string& path) const {
    const auto adapter = open_adapter(path, config_);
    adapter->check_fits(config_.dims());
    adapter->load();
    return AdapterContents(*adapter).digest();
  }

  static constexpr int64_t kRank = 3;
  const DecoderConfig config_ = llama::rotating({.num_layers = 2,
                                                 .hidden_size = 24,
                                                 .intermediate_size = 40,
                                                 .num_q_heads = 6,
                                                 .num_kv_heads = 2,
                                                 .head_dim = 8,
                                                 .vocab_size = 30,
                                                 .context_length = 64});
  std::string weights_;
  const testing::TempFolder folder_;
};

TEST_F(AdapterDigestOfFiles, IsThatOfAllFilesWithTheContent) {
  const std::string first = write_peft("first", weights_);
  const Digest digest = digest_at(first);
  EXPECT_EQ(digest_at(first), digest);
  EXPECT_EQ(digest_at(write_peft("second", weights_)), digest);
  const auto adapter = open_adapter(first, config_);
  adapter->load();
  EXPECT_EQ(digest_at(write_gguf(*adapter)), digest);
}

TEST_F(AdapterDigestOfFiles, IsAnotherWhereAFileHasOtherContent) {
  const Digest digest = digest_at(write_peft("first", weights_));
  EXPECT_NE(digest_at(write_peft("scaled", weights_, 3.5)), digest);
  std::string changed = weights_;
  changed.back() = static_cast<char>(changed.back() ^ 1);
  EXPECT_NE(digest_at(write_peft("changed", changed)), digest);
  EXPECT_NE(digest_at(write_peft("first", changed)), digest) << "of a path that was read before";
}

}  // namespace
}  // namespace heddle::model
