// An adapter merged into f32 weights answers as the adapter beside the quantised weights does.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <unistd.h>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "files/gguf.h"
#include "model/adapters/peft_adapter.h"
#include "model_fixture.h"

namespace heddle {
namespace {

constexpr uint32_t kGgmlF32 = 0;

double element(const std::byte* data, DType dtype, int64_t index) {
  const std::byte* p = data + index * static_cast<int64_t>(size_of(dtype));
  if (dtype == DType::kFloat32) {
    float value;
    std::memcpy(&value, p, sizeof(value));
    return static_cast<double>(value);
  }
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return static_cast<double>(dtype == DType::kFloat16 ? to_float(half{bits})
                                                      : to_float(bfloat16{bits}));
}

/// The row of a tensor in the file that holds row `row` of Hugging Face's order: q and k are
/// interleaved within heads.
int64_t file_row(int64_t row, int64_t head_dim, const model::LinearModule& module) {
  if (module.gguf != "attn_q" && module.gguf != "attn_k") return row;
  const int64_t d = row % head_dim;
  return row - d + 2 * (d % (head_dim / 2)) + d / (head_dim / 2);
}

void add_pair(std::vector<float>& weight, const model::AdapterPair& pair, int64_t head_dim) {
  for (int64_t o = 0; o < pair.out_features; ++o) {
    float* row = weight.data() + file_row(o, head_dim, *pair.module) * pair.in_features;
    std::vector<double> delta(static_cast<size_t>(pair.in_features), 0.0);
    for (int64_t r = 0; r < pair.rank; ++r) {
      const double b =
          static_cast<double>(pair.scale) * element(pair.b, pair.dtype, o * pair.rank + r);
      for (int64_t k = 0; k < pair.in_features; ++k) {
        delta[static_cast<size_t>(k)] += b * element(pair.a, pair.dtype, r * pair.in_features + k);
      }
    }
    for (int64_t k = 0; k < pair.in_features; ++k) {
      row[k] = static_cast<float>(static_cast<double>(row[k]) + delta[static_cast<size_t>(k)]);
    }
  }
}

template <class T>
void write(std::ofstream& file, const T& value) {
  file.write(reinterpret_cast<const char*>(&value), sizeof(value));
}

/// The model file with every tensor widened to f32 and the adapter added.
void write_merged(const std::string& path, const files::GgufFile& base,
                  const model::PeftAdapter& adapter) {
  const int64_t head_dim =
      base.get<int64_t>("llama.embedding_length") / base.get<int64_t>("llama.attention.head_count");
  std::map<std::string, const model::AdapterPair*> pairs;
  for (const model::AdapterPair& pair : adapter.pairs()) {
    pairs["blk." + std::to_string(pair.layer) + "." + std::string(pair.module->gguf) + ".weight"] =
        &pair;
  }
  std::ofstream file(path, std::ios::binary);
  std::ifstream original(base.path(), std::ios::binary);
  std::vector<char> head(24);  // magic, version, number of tensors, number of settings
  original.read(head.data(), static_cast<std::streamsize>(head.size()));
  file.write(head.data(), static_cast<std::streamsize>(head.size()));
  const files::GgufValue& last = base.metadata().back();
  const files::GgufValue& first = base.metadata().front();
  const char* begin = first.key.data() - sizeof(uint64_t);
  const char* end = reinterpret_cast<const char*>(last.bytes.data() + last.bytes.size());
  file.write(begin, end - begin);
  const auto padded = [&](uint64_t bytes) {
    return (bytes + base.alignment() - 1) / base.alignment() * base.alignment();
  };
  uint64_t offset = 0;
  for (const files::GgufTensor& tensor : base.tensors()) {
    write(file, uint64_t{tensor.name.size()});
    file << tensor.name;
    write(file, static_cast<uint32_t>(tensor.rank));
    for (int d = 0; d < tensor.rank; ++d) write(file, tensor.dims[d]);
    write(file, kGgmlF32);
    write(file, offset);
    offset += padded(static_cast<uint64_t>(tensor.num_weights()) * sizeof(float));
  }
  const auto pad = [&] {
    while (static_cast<uint64_t>(file.tellp()) % base.alignment() != 0) file.put(0);
  };
  pad();
  for (const files::GgufTensor& tensor : base.tensors()) {
    std::vector<float> values(static_cast<size_t>(tensor.num_weights()));
    dequantize(values, base.weight_type(tensor), base.data(tensor));
    const auto pair = pairs.find(std::string(tensor.name));
    if (pair != pairs.end()) add_pair(values, *pair->second, head_dim);
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
    pad();
  }
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

std::vector<Request> eval_requests(const std::string& adapter, size_t count) {
  std::ifstream file(testing::adapter_folder() + adapter + "/eval.jsonl");
  std::vector<Request> requests;
  for (std::string line; requests.size() < count && std::getline(file, line);) {
    Request request;
    request.messages = {{"user", nlohmann::json::parse(line)["prompt"]}};
    request.max_tokens = 48;
    requests.push_back(request);
  }
  return requests;
}

class MergedAdapter : public ::testing::TestWithParam<const char*> {};

TEST_P(MergedAdapter, GivesTheTokensOfTheAdapter) {
  const std::string adapter = GetParam();
  std::vector<Request> requests = eval_requests(adapter, 10);
  ASSERT_EQ(requests.size(), 10u);
  const std::string path = (std::filesystem::temp_directory_path() /
                            ("heddle-merged-" + adapter + "-" + std::to_string(getpid()) + ".gguf"))
                               .string();
  model::PeftAdapter stored(testing::adapter_folder() + adapter);
  stored.load();
  write_merged(path, files::GgufFile(testing::model_path()), stored);
  std::vector<Completion> merged;
  {
    Engine engine({.model_path = path});
    std::filesystem::remove(path);  // the engine has packed what it needs
    merged = testing::run_all(engine, requests);
  }
  Engine engine = testing::load_engine();
  for (Request& request : requests) request.adapter = adapter;
  const std::vector<Completion> apart = testing::run_all(engine, requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(merged[i].token_ids, apart[i].token_ids) << requests[i].messages[0].content;
    EXPECT_FALSE(apart[i].token_ids.empty());
  }
}
INSTANTIATE_TEST_SUITE_P(Adapters, MergedAdapter, ::testing::Values("iso-date", "sql", "slug"));

}  // namespace
}  // namespace heddle
