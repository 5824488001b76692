// Adapters that are loaded from memory.
#include "heddle/engine/adapter_content.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/adapters/test/adapter_folder_case.h"
#include "expect_error.h"
#include "files/safetensors.h"
#include "random.h"

namespace heddle {
namespace {

class AdapterContentTest : public testing::AdapterFolderTest {
 protected:
  [[nodiscard]] std::string text_of(const std::string& file) const {
    std::ifstream in(folder_.path() / file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  /// Of the files of an adapter; the bytes are the content's own.
  [[nodiscard]] AdapterContent content(const std::string& adapter) const {
    const auto weights =
        std::make_shared<std::string>(text_of(adapter + "/adapter_model.safetensors"));
    return {.name = "memory",
            .config_json = text_of(adapter + "/adapter_config.json"),
            .safetensors = std::as_bytes(std::span(*weights)),
            .owner = weights};
  }
  /// Has the engine load it under the name.
  static AdapterInfo load(Engine& engine, const std::string& name, const AdapterContent& content) {
    return engine.replace_adapter(name, engine.prepare_adapter(content));
  }
};

TEST_F(AdapterContentTest, AnswersAsFromItsFolder) {
  Engine engine = model_.engine();
  const AdapterInfo info = load(engine, "it", content("first"));
  const Completion want = alone("first"), got = answer(engine, "it");
  testing::expect_same(got, want, "from memory");
  EXPECT_EQ(got.adapter_digest, want.adapter_digest);
  EXPECT_EQ(info.receipt.digest, want.adapter_digest);
  EXPECT_EQ(engine.adapter_receipt("it", ReceiptNorms::kComputed)->delta_norm(),
            alone_.adapter_receipt("it", ReceiptNorms::kComputed)->delta_norm());
}

/// Rows that run keep what they began with, whatever becomes of the bytes.
TEST_F(AdapterContentTest, TakesThePlaceOfAnotherForRowsThatFollow) {
  write("second");
  Engine engine = model_.engine({.max_batch = 2});
  (void)load(engine, "it", content("first"));
  (void)engine.submit(request("it", 12));
  std::vector<Event> events = engine.step();
  (void)load(engine, "it", content("second"));
  (void)engine.submit(request("it", 12));
  std::vector<Completion> ends(2);
  while (engine.num_unfinished() > 0) {
    for (Event& event : engine.step()) {
      if (event.completion) ends.at(static_cast<size_t>(event.request)) = *event.completion;
    }
  }
  (void)alone_.replace_adapter("it", (folder_.path() / "first").string());
  testing::expect_same(ends[0], testing::run_all(alone_, {request("it", 12)}).front(), "first");
  (void)alone_.replace_adapter("it", (folder_.path() / "second").string());
  testing::expect_same(ends[1], testing::run_all(alone_, {request("it", 12)}).front(), "second");
  EXPECT_NE(ends[0].adapter_digest, ends[1].adapter_digest);
}

/// Steps run between the calls that begin its copy to a GPU and give it its name.
TEST_F(AdapterContentTest, RowsRunOnWhileItIsCopied) {
  write("second");
  const Completion first = alone("first"), second = alone("second");
  Engine engine = model_.engine({.max_batch = 2});
  (void)load(engine, "it", content("first"));
  (void)engine.submit(request("it"));
  PreparedAdapter next = engine.prepare_adapter(content("second"));
  engine.begin_copy(next);
  std::vector<Completion> ends;
  const auto step = [&] {
    for (Event& event : engine.step()) {
      if (event.completion) ends.push_back(std::move(*event.completion));
    }
  };
  step();
  engine.wait_for_copy(next);
  step();
  (void)engine.replace_adapter("it", std::move(next));
  (void)engine.submit(request("it"));
  while (engine.num_unfinished() > 0) step();
  ASSERT_EQ(ends.size(), 2u);
  testing::expect_same(ends[0], first, "first");
  testing::expect_same(ends[1], second, "second");
}

/// Adapters that are dropped before they have a name take no memory, at whatever moment.
TEST_F(AdapterContentTest, WhatIsDroppedWhileItIsCopiedLeavesItsRoom) {
  write("second");
  const Completion want = alone("second");
  Engine engine = model_.engine({.max_batch = 2, .adapter_memory = 2 * bytes_of_one_});
  for (int i = 0; i < 6; ++i) {
    PreparedAdapter dropped = engine.prepare_adapter(content("first"));
    engine.begin_copy(dropped);
    if (i % 3 > 0) engine.wait_for_copy(dropped);
    if (i % 3 > 1) (void)testing::run_all(engine, {request("")});
  }
  (void)load(engine, "it", content("first"));
  EXPECT_NO_THROW((void)load(engine, "other", content("second")));
  testing::expect_same(answer(engine, "other"), want, "other");
  EXPECT_EQ(engine.load().adapter_bytes, 2 * bytes_of_one_);
  testing::expect_error(ErrorCode::kOutOfMemory, {"adapter_memory"}, [&] {
    PreparedAdapter third = engine.prepare_adapter(content("first"));
    engine.begin_copy(third);
    (void)engine.add_adapter("third", std::move(third));
  });
  testing::expect_same(answer(engine, "other"), want, "other, again");
}

/// The tensors of a program, as they come.
TEST_F(AdapterContentTest, IsMadeOfTensors) {
  const AdapterContent whole = content("first");
  const files::SafetensorsFile file(whole.safetensors, "first");
  std::vector<AdapterTensor> tensors;
  for (const files::SafetensorsTensor& tensor : file.tensors()) {
    tensors.insert(tensors.begin(),
                   {tensor.name, ConstTensorView(tensor.data.data(), file.dtype(tensor), Device{},
                                                 tensor.shape)});
  }
  Engine engine = model_.engine();
  const AdapterContent made = content_of({}, "memory", whole.config_json, tensors);
  EXPECT_EQ(load(engine, "it", made).receipt.digest, alone("first").adapter_digest);
  ContentStaging staging;
  const void* first = nullptr;
  for (int i = 0; i < 2; ++i) {  // the second one in the memory of the first
    const AdapterContent kept = content_of({}, "memory", "{}", tensors, &staging);
    EXPECT_TRUE(std::ranges::equal(kept.safetensors, made.safetensors));
    const AdapterContent other = content_of({}, "memory", "{}", tensors, &staging);
    EXPECT_NE(kept.safetensors.data(), other.safetensors.data());
    if (i == 0) first = kept.safetensors.data();
    EXPECT_TRUE(kept.safetensors.data() == first || other.safetensors.data() == first);
  }
  AdapterTensor odd = tensors[0];
  odd.name = "odd";
  odd.values = ConstTensorView(odd.values.raw(), DType::kFloat32, Device{}, odd.values.shape(),
                               std::vector<int64_t>{1, odd.values.size(0)});
  testing::expect_invalid({"tensor \"odd\" is not row-major without gaps"}, [&] {
    (void)content_of({}, "memory", "{}", {&odd, 1});
  });
  odd = {"odd", ConstTensorView(tensors[0].values.raw(), DType::kInt32, Device{}, {1, 1})};
  testing::expect_error(ErrorCode::kUnsupported, {"tensor \"odd\" is", "f32, f16, bf16"}, [&] {
    (void)content_of({}, "memory", "{}", {&odd, 1});
  });
  const std::vector<AdapterTensor> twice = {tensors[0], tensors[0]};
  testing::expect_invalid({"is given twice"}, [&] { (void)content_of({}, "memory", "{}", twice); });
}

/// Several threads copy one of 16 MB and more.
TEST_F(AdapterContentTest, OfALargeOneEachTensorHasItsBytes) {
  constexpr int64_t kRows = 1100, kColumns = 1024;  // 4.5 MB of f32
  std::vector<std::vector<float>> values;
  std::vector<AdapterTensor> tensors;
  for (int i = 0; i < 5; ++i) {
    values.push_back(testing::random_normal<float>(kRows * kColumns));
    const std::string name = "tensor " + std::to_string(i);
    tensors.push_back({name, ConstTensorView(reinterpret_cast<const std::byte*>(values[i].data()),
                                             DType::kFloat32, Device{}, {kRows, kColumns})});
  }
  const AdapterContent made = content_of({}, "memory", "{}", tensors);
  const files::SafetensorsFile file(made.safetensors, "memory");
  ASSERT_EQ(file.tensors().size(), 5u);
  for (const files::SafetensorsTensor& tensor : file.tensors()) {
    const std::vector<float>& want = values[static_cast<size_t>(tensor.name.back() - '0')];
    EXPECT_TRUE(std::ranges::equal(tensor.data, std::as_bytes(std::span(want)))) << tensor.name;
  }
}

TEST_F(AdapterContentTest, WithoutAConfigItsMetadataHasIt) {
  const std::string config = text_of("first/adapter_config.json");
  std::string weights = text_of("first/adapter_model.safetensors");
  uint64_t size = 0;
  std::memcpy(&size, weights.data(), sizeof size);
  const auto with_metadata = [&](const std::string& metadata) {
    std::string head = "{\"__metadata__\":" + metadata + "," + weights.substr(9, size - 1);
    const uint64_t length = head.size();
    std::string whole(reinterpret_cast<const char*>(&length), sizeof length);
    const auto bytes =
        std::make_shared<std::string>(whole + head + weights.substr(sizeof size + size));
    return AdapterContent{.name = "memory",
                          .config_json = {},
                          .safetensors = std::as_bytes(std::span(*bytes)),
                          .owner = bytes};
  };
  std::string quoted = "\"";
  for (const char c : config) quoted += c == '"' ? "\\\"" : std::string(1, c);
  Engine engine = model_.engine();
  EXPECT_EQ(
      load(engine, "it", with_metadata("{\"adapter_config\":" + quoted + "\"}")).receipt.digest,
      alone("first").adapter_digest);
  testing::expect_invalid({"memory: has no config", "adapter_config"},
                          [&] { (void)load(engine, "it", with_metadata("{\"format\":\"pt\"}")); });
}

/// Alone, next to one of files, and while its name stands for others.
TEST_F(AdapterContentTest, IsMergedAsFromItsFolder) {
  write("second");
  write("third");
  const auto merged = [](const char* with) {
    Request both = request("", 4);
    both.adapters = {{"it", 0.5f}, {with, -1.5f}};
    both.merge = {.method = AdapterMerge::Method::kTies, .density = 0.6};
    return both;
  };
  const auto answer_of = [&](Engine& engine, const char* with) {
    return testing::run_all(engine, {merged(with)}).front();
  };
  Engine engine = model_.engine({.adapter_dir = folder_.path().string()});
  Engine of_files = model_.engine({.adapter_dir = folder_.path().string()});
  (void)load(engine, "other", content("second"));
  (void)of_files.add_adapter("other", (folder_.path() / "second").string());
  for (const char* now : {"first", "third", "first"}) {
    (void)load(engine, "it", content(now));
    (void)of_files.replace_adapter("it", (folder_.path() / now).string());
    for (const char* with : {"other", "second"}) {
      const Completion got = answer_of(engine, with), want = answer_of(of_files, with);
      testing::expect_same(got, want, now);
      EXPECT_EQ(got.adapter_digest, want.adapter_digest);
    }
  }
  // One that runs keeps the weights that it was submitted with, and these their bytes.
  const Completion want = answer_of(of_files, "other");
  (void)engine.submit(merged("other"));
  (void)load(engine, "it", content("third"));
  EXPECT_TRUE(engine.remove_adapter("it"));
  std::vector<Event> events;
  while (engine.num_unfinished() > 0) events = engine.step();
  ASSERT_TRUE(events.back().completion);
  testing::expect_same(*events.back().completion, want, "submitted before");
}

/// One sentence, which begins with the name; what was there stays.
TEST_F(AdapterContentTest, WhatIsDamagedIsRefused) {
  Engine engine = model_.engine();
  (void)load(engine, "it", content("first"));
  const std::string digest = answer(engine, "it").adapter_digest;
  AdapterContent cut = content("first");
  cut.safetensors = cut.safetensors.first(cut.safetensors.size() - 1);
  testing::expect_invalid({"memory"}, [&] { (void)load(engine, "it", cut); });
  AdapterContent other = content("first");
  other.config_json = "{\"peft_type\": \"LORA\", \"r\": 3}";
  testing::expect_invalid({"memory/adapter_config.json"}, [&] { (void)load(engine, "it", other); });
  EXPECT_EQ(answer(engine, "it").adapter_digest, digest);
}

}  // namespace
}  // namespace heddle
