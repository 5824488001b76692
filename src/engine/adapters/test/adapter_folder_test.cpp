// Adapters of a folder: found by name, read when they are needed, gone when others need the memory.
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "engine/adapters/test/adapter_folder_case.h"
#include "expect_error.h"
#include "files/file_stamps.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using testing::AdapterFolderTest;

TEST_F(AdapterFolderTest, TwoHundredShareTheMemoryOfEight) {
  constexpr int kNumAdapters = 200, kNumResident = 8;
  std::vector<Request> requests;
  for (int i = 0; i < kNumAdapters; ++i) {
    const std::string name = "a" + std::to_string(i);
    write(name);
    requests.push_back(request(name));
    if (i % 7 == 0) requests.push_back(request("a" + std::to_string(i / 2)));
    if (i % 9 == 0) requests.push_back(request(""));
  }
  Engine engine = this->engine(kNumResident);
  std::vector<testing::Outcome> outcomes(requests.size());
  for (const Request& request : requests) (void)engine.submit(request);
  int64_t most = 0;
  while (engine.num_unfinished() > 0) {
    testing::take(engine.step(), 0, outcomes);
    EXPECT_LE(engine.load().adapter_bytes, engine.options().adapter_memory);
    most = std::max(most, engine.load().num_adapters);
  }
  EXPECT_EQ(most, kNumResident);
  EXPECT_GE(engine.stats().adapter_loads, kNumAdapters);
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string& name = requests[i].adapter;
    const Completion want = name.empty() ? answer(alone_, "") : alone(name);
    testing::expect_same(outcomes[i].completion, want, name);
  }
}

TEST_F(AdapterFolderTest, TheOneUsedTheLongestAgoGoes) {
  for (const char* name : {"a", "b", "c"}) write(name);
  Engine engine = this->engine(2);
  const auto loads_for = [&](const std::string& name) {
    const int64_t before = engine.stats().adapter_loads;
    EXPECT_EQ(answer(engine, name).error, "");
    return engine.stats().adapter_loads - before;
  };
  EXPECT_EQ(loads_for("a"), 1);
  EXPECT_EQ(loads_for("b"), 1);
  EXPECT_EQ(loads_for("a"), 0);
  EXPECT_EQ(loads_for("c"), 1);
  EXPECT_EQ(loads_for("a"), 0) << "b was used before it";
  const std::vector<std::string> there = {"a", "c"}, with_copies = {"a", "b", "c"};
  EXPECT_EQ(engine.adapter_names(), testing::is_on_cpu() ? there : with_copies);
  EXPECT_EQ(loads_for("b"), 1);
  EXPECT_TRUE(engine.remove_adapter("b"));
  EXPECT_EQ(engine.load().num_adapters, 1);
  EXPECT_EQ(loads_for("b"), 1);
}

/// A request waits for the memory of one that runs; one for the adapter that is there starts with
/// that, and none that comes later.
TEST_F(AdapterFolderTest, NoneInUseGoes) {
  for (const char* name : {"a", "b"}) write(name);
  Engine engine = this->engine(1, 3);
  const std::vector<std::string> names = {"a", "b", "a", "a"};
  std::vector<testing::Outcome> outcomes(names.size());
  for (size_t i = 0; i < 3; ++i) (void)engine.submit(request(names[i], 5));
  testing::take(engine.step(), 0, outcomes);
  EXPECT_EQ(engine.load().num_running, 2);
  EXPECT_EQ(engine.load().num_waiting, 1);
  (void)engine.submit(request(names[3], 5));
  testing::take(engine.step(), 0, outcomes);
  EXPECT_EQ(engine.load().num_waiting, 2);
  while (engine.num_unfinished() > 0) {
    testing::take(engine.step(), 0, outcomes);
    EXPECT_LE(engine.load().num_adapters, 1);
  }
  EXPECT_EQ(engine.stats().adapter_loads, 3);
  testing::expect_idle(engine);
  for (size_t i = 0; i < names.size(); ++i) {
    (void)alone_.replace_adapter("it", (folder_.path() / names[i]).string());
    const Completion want = testing::run_all(alone_, {request("it", 5)}).front();
    testing::expect_same(outcomes[i].completion, want, names[i]);
  }
}

TEST_F(AdapterFolderTest, WhatCanNeverFitIsRefused) {
  write("large", 20);
  Engine engine = this->engine(2);
  const Completion large = answer(engine, "large");
  const std::string& refused = large.error;
  EXPECT_EQ(large.error_code, RequestError::kOutOfMemory);
  EXPECT_NE(refused.find("large: needs "), std::string::npos) << refused;
  EXPECT_NE(refused.find("there are " + std::to_string(2 * bytes_of_one_)), std::string::npos);
  (void)engine.add_adapter("x", (folder_.path() / "first").string());
  EXPECT_EQ(answer(engine, "first").error, "");
  (void)engine.add_adapter("y", (folder_.path() / "first").string());
  EXPECT_EQ(engine.load().num_adapters, 2) << "the one of the folder made room";
  EXPECT_NE(answer(engine, "first").error.find("there are 0 (adapter_memory: "), std::string::npos);
  EXPECT_THROW((void)engine.add_adapter("z", (folder_.path() / "first").string()), Error);
  const std::vector<std::string> there = {"x", "y"}, with_copies = {"first", "x", "y"};
  EXPECT_EQ(engine.adapter_names(), testing::is_on_cpu() ? there : with_copies);
  EXPECT_EQ(answer(engine, "x").error, "");
}

/// All of a list are in memory at once, and none goes for another of it.
TEST_F(AdapterFolderTest, AListHoldsAllOfItsAdapters) {
  for (const char* name : {"a", "b", "c"}) write(name);
  const auto list = [](const std::vector<std::string>& names) {
    Request made = request("");
    for (const std::string& name : names) made.adapters.push_back({name, 0.5f});
    return made;
  };
  const std::vector<Request> requests = {list({"a", "b"}), request("c"), list({"c", "a"}),
                                         list({"a", "b", "c"})};
  Engine engine = this->engine(2);
  const std::vector<Completion> answers = testing::run_all(engine, requests);
  EXPECT_NE(
      answers[3].error.find("a and those beside it need " + std::to_string(3 * bytes_of_one_)),
      std::string::npos)
      << answers[3].error;
  EXPECT_LE(engine.load().num_adapters, 2);
  for (const char* name : {"a", "b", "c"}) {
    (void)alone_.add_adapter(name, (folder_.path() / name).string());
  }
  for (size_t i = 0; i < 3; ++i) {
    testing::expect_same(answers[i], testing::run_all(alone_, {requests[i]})[0],
                         "request " + std::to_string(i));
  }
}

/// One prompt through adapters that are not in memory at once, and samples of one of them.
TEST_F(AdapterFolderTest, RowsOfOneRequestShareTheMemory) {
  for (const char* name : {"a", "b", "c"}) write(name);
  Engine engine = this->engine(2);
  const std::vector<RequestVariant> each = {
      {{{"a"}}}, {{{"b"}}}, {}, {{{"c"}}}, {{{"a"}}}, {{{"a"}, {"b"}, {"c"}}}, {{{"missing"}}}};
  std::vector<testing::Outcome> outcomes(each.size() + 3);
  (void)engine.submit_each(request(""), each);
  (void)engine.submit_each(request("b"), sample_variants(3));
  while (engine.num_unfinished() > 0) {
    testing::take(engine.step(), 0, outcomes);
    EXPECT_LE(engine.load().num_adapters, 2);
  }
  testing::expect_idle(engine);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    const std::string error = outcomes[i].completion.error;
    if (i == 5) {
      EXPECT_NE(error.find("and those beside it need "), std::string::npos) << error;
    } else if (i == 6) {
      EXPECT_NE(error.find("has no adapter of this name"), std::string::npos) << error;
    } else if (i == 2) {
      testing::expect_same(outcomes[i].completion, answer(alone_, ""), "the base model");
    } else {
      const std::string name = i >= each.size() ? "b" : each[i].adapters.front().name;
      testing::expect_same(outcomes[i].completion, alone(name), name);
    }
  }
}

TEST_F(AdapterFolderTest, OneThatWaitsForMemoryMayBeCancelled) {
  for (const char* name : {"a", "b", "c"}) write(name);
  Engine engine = this->engine(1, 3);
  std::vector<testing::Outcome> outcomes(3);
  for (const char* name : {"a", "b", "c"}) (void)engine.submit(request(name));
  testing::take(engine.step(), 0, outcomes);
  EXPECT_EQ(engine.load().num_waiting, 2);
  EXPECT_TRUE(engine.cancel(1));
  while (engine.num_unfinished() > 0) testing::take(engine.step(), 0, outcomes);
  EXPECT_EQ(outcomes[1].completion.finish_reason, FinishReason::kCancelled);
  testing::expect_same(outcomes[0].completion, alone("a"), "ran");
  testing::expect_same(outcomes[2].completion, alone("c"), "waited for it");
  EXPECT_EQ(engine.stats().adapter_loads, 2);
}

TEST_F(AdapterFolderTest, ANameLeadsNowhereElse) {
  const testing::TempFolder outside;
  fs::copy(folder_.path() / "first", outside.path() / "first");
  fs::create_directory_symlink(outside.path() / "first", folder_.path() / "link");
  fs::create_directory_symlink(folder_.path() / "first", folder_.path() / "alias");
  fs::create_directory(folder_.path() / "parts");
  for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
    fs::create_symlink(outside.path() / "first" / file, folder_.path() / "parts" / file);
  }
  fs::create_symlink(folder_.path() / "nothing", folder_.path() / "broken");
  Engine engine = this->engine(2);
  const auto expect_refused = [&](const std::string& name, const std::string& says,
                                  RequestError code = RequestError::kUnknownAdapter) {
    const Completion refused = answer(engine, name);
    EXPECT_EQ(refused.error_code, code) << name;
    EXPECT_NE(refused.error.find(says), std::string::npos) << name << ": " << refused.error;
  };
  const std::string up = "../" + outside.path().filename().string() + "/first";
  for (const std::string& name : {up, (outside.path() / "first").string(), std::string("first/"),
                                  std::string("first/../first"), std::string("/")}) {
    expect_refused(name, "can have this name, it holds a '/'");
  }
  expect_refused("..", "it refers to another folder");
  expect_refused(".", "it refers to another folder");
  expect_refused(std::string("first\0x", 7), "it holds a NUL byte");
  expect_refused(std::string(300, 'a'), "it has more than 255 bytes");
  expect_refused("none", "has no adapter of this name");
  expect_refused("link", "is a link that leads out of", RequestError::kInvalidArgument);
  expect_refused("parts", "is a link that leads out of", RequestError::kInvalidArgument);
  expect_refused("broken", "broken: ", RequestError::kInvalidArgument);
  testing::expect_same(answer(engine, "alias"), alone("first"), "a link within the folder");
}

TEST_F(AdapterFolderTest, LinksOfEveryFileStayInside) {
  const testing::TempFolder outside;
  const std::string secret = outside.write("secret", "{{ 'secret' }}");
  Engine engine = this->engine(2);
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt",
                           "additional_chat_templates/default.jinja"}) {
    write("evil");
    fs::create_directories(folder_.path() / "evil/additional_chat_templates");
    fs::create_symlink(secret, folder_.path() / "evil" / file);
    const Completion refused = answer(engine, "evil");
    EXPECT_NE(refused.error.find(std::string(file) + " is a link that leads out of"),
              std::string::npos)
        << refused.error;
    fs::remove_all(folder_.path() / "evil");
  }
  // By its path, where nothing but what opens the files looks at them.
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "additional_chat_templates/default.jinja",
                           "adapter_config.json", "adapter_model.safetensors"}) {
    write("evil");
    const fs::path path = folder_.path() / "evil";
    fs::create_directories(path / "additional_chat_templates");
    fs::remove(path / file);
    fs::create_symlink(secret, path / file);
    testing::expect_invalid({file, ": is a link that leads out of"},
                            [&] { (void)engine.add_adapter("evil", path.string()); });
    fs::remove_all(path);
  }
}

/// As `hf download` has it, and as an operator links it into the folder.
TEST_F(AdapterFolderTest, LinksIntoAHubCacheAreFollowed) {
  const testing::TempFolder cache;
  const fs::path repository = cache.path() / "hub/models--someone--lora";
  const fs::path snapshot = repository / "snapshots/abc";
  fs::create_directories(snapshot);
  fs::create_directories(repository / "blobs");
  const auto fill = [&](const fs::path& blobs) {
    for (const char* file : {"adapter_config.json", "adapter_model.safetensors"}) {
      fs::copy_file(folder_.path() / "first" / file, blobs / file);
      fs::create_symlink(fs::path("../../blobs") / file, snapshot / file);
    }
  };
  fill(repository / "blobs");
  fs::create_directory_symlink(snapshot, folder_.path() / "mine");
  Engine engine = this->engine(2);
  testing::expect_same(answer(engine, "mine"), alone("first"), "a link into a cache");
  (void)engine.add_adapter("by path", (folder_.path() / "mine").string());
  (void)engine.add_adapter("elsewhere", snapshot.string());
  testing::expect_same(answer(engine, "elsewhere"), alone("first"), "a path into a cache");
  // Its files stay in the cache's folder of the adapter.
  const std::string secret = cache.write("hub/secret", "{{ 'secret' }}");
  fs::create_symlink(secret, snapshot / "chat_template.jinja");
  EXPECT_NE(answer(engine, "mine").error.find("chat_template.jinja is a link that leads out of"),
            std::string::npos);
  // No other link out of the folder is followed, whatever its name.
  fs::create_directories(cache.path() / "models--x/snapshots/abc");
  fs::create_directory_symlink(cache.path() / "models--x/snapshots/abc", folder_.path() / "other");
  EXPECT_NE(answer(engine, "other").error.find("is a link that leads out of"), std::string::npos);
}

/// The halves of a file are written again and again: it is loaded whole or not at all.
TEST_F(AdapterFolderTest, ATornFileIsNeverLoaded) {
  write("a");
  write("b");
  const auto content = [&](const char* name) {
    std::ifstream file(folder_.path() / name / "adapter_model.safetensors", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string versions[] = {content("a"), content("b")};
  ASSERT_EQ(versions[0].size(), versions[1].size());
  fs::copy(folder_.path() / "a", folder_.path() / "torn");
  const std::string path = (folder_.path() / "torn/adapter_model.safetensors").string();
  // Where the machine stops the writer for as long as files take to settle, they are at rest.
  std::atomic<bool> ends = false, has_rested = false;
  std::thread writer([&] {
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    auto last = std::chrono::steady_clock::now();
    for (size_t i = 0; !ends; ++i) {
      const std::string& version = versions[i % 2];
      const size_t half = version.size() / 2;
      for (const size_t begin : {size_t{0}, half}) {
        file.seekp(static_cast<std::streamoff>(begin));
        file.write(version.data() + begin,
                   static_cast<std::streamsize>(begin == 0 ? half : version.size() - half));
        file.flush();
        const auto now = std::chrono::steady_clock::now();
        if (now - std::exchange(last, now) > files::kSettled / 2) has_rested = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    }
  });
  Engine engine = this->engine(3);
  Completion torn;
  do {
    has_rested = false;
    torn = answer(engine, "torn");
  } while (torn.error.empty() && has_rested);
  std::string error;
  do {
    has_rested = false;
    (void)engine.remove_adapter("it");
    error = testing::message_of(
        [&] { (void)engine.add_adapter("it", path.substr(0, path.rfind('/'))); });
  } while (error == "no error" && has_rested);
  EXPECT_NE(error.find("torn: is being written to; load it again when the writer is done"),
            std::string::npos)
      << error;
  ends = true;
  writer.join();
  EXPECT_NE(torn.error.find("torn"), std::string::npos) << torn.error;
  EXPECT_TRUE(torn.token_ids.empty());
  testing::expect_same(answer(engine, "torn"), alone("torn"), "when it is at rest");
  EXPECT_TRUE(answer(engine, "a").error.empty());
}

/// An adapter that was written this moment runs as soon as it is at rest.
TEST_F(AdapterFolderTest, OneThatWasJustWrittenIsWaitedFor) {
  Engine engine = this->engine(2);
  write("new");
  const Completion first = answer(engine, "new");
  EXPECT_EQ(first.error, "");
  testing::expect_same(first, alone("new"), "just written");
  EXPECT_EQ(engine.stats().adapter_reads, 1);
  testing::expect_same(answer(engine, "new"), first, "at rest");
  EXPECT_EQ(engine.stats().adapter_reads, 1) << "its load has found what was described";
  // Copied over by another one, which cuts it first.
  const std::string path = (folder_.path() / "new/adapter_model.safetensors").string();
  fs::resize_file(path, 100);
  EXPECT_NE(answer(engine, "new").error.find("adapter_model.safetensors"), std::string::npos);
  write("new");
  testing::expect_same(answer(engine, "new"), alone("new"), "whole again");
}

TEST_F(AdapterFolderTest, AChangeCountsFromTheNextRequestOn) {
  write("a");
  Engine engine = this->engine(1, 1);
  const Completion old = alone("a");
  testing::expect_same(answer(engine, "a"), old, "before");
  std::vector<testing::Outcome> outcomes(2);
  const RequestId first = engine.submit(request("a"));
  testing::take(engine.step(), first, outcomes);
  write("a");
  (void)engine.submit(request("a"));
  while (engine.num_unfinished() > 0) testing::take(engine.step(), first, outcomes);
  testing::expect_same(outcomes[0].completion, old, "ran when it changed");
  testing::expect_same(outcomes[1].completion, alone("a"), "came after it changed");
  EXPECT_EQ(engine.load().num_adapters, 1) << "the old one is gone";

  write("b");
  const Completion old_b = alone("b");
  outcomes.assign(2, {});
  const RequestId second = engine.submit(request("a"));
  (void)engine.submit(request("b"));
  testing::take(engine.step(), second, outcomes);
  write("b");
  while (engine.num_unfinished() > 0) testing::take(engine.step(), second, outcomes);
  if (outcomes[1].completion.error.empty()) {  // a GPU's engine may have had its copy before
    EXPECT_FALSE(testing::is_on_cpu());
    testing::expect_same(outcomes[1].completion, old_b, "was read before it changed");
  } else {
    EXPECT_NE(outcomes[1].completion.error.find("has changed while the request waited"),
              std::string::npos);
  }
  testing::expect_same(answer(engine, "b"), alone("b"), "submitted again");
}

/// Rows that run go on while the weights of others are read.
TEST_F(AdapterFolderTest, LoadsRunBesideSteps) {
  write("a");
  write("b");
  Engine engine = this->engine(2);
  const Completion other = alone("b");
  std::vector<testing::Outcome> outcomes(2);
  const RequestId first = engine.submit(request("a", 40));
  testing::take(engine.step(), first, outcomes);
  (void)engine.submit(request("b"));
  while (engine.num_unfinished() > 0) testing::take(engine.step(), first, outcomes);
  EXPECT_EQ(outcomes[0].completion.token_ids.size(), 40u);
  testing::expect_same(outcomes[1].completion, other, "loaded while the other runs");
  EXPECT_EQ(engine.stats().adapter_loads, 2);
}

/// An adapter that was prepared elsewhere is the same as one that was added.
TEST_F(AdapterFolderTest, APreparedAdapterGetsItsNameLater) {
  write("a");
  write("b");
  Engine engine = model_.engine({.max_batch = 2});
  const auto prepare = [&](const char* name) {
    return std::async(std::launch::async,
                      [&engine, path = (folder_.path() / name).string()] {
                        return engine.prepare_adapter(path);
                      })
        .get();
  };
  PreparedAdapter a = prepare("a"), b = prepare("b");
  EXPECT_FALSE(engine.has_adapter("x"));
  EXPECT_EQ(engine.add_adapter("x", std::move(a)).name, "x");
  testing::expect_same(answer(engine, "x"), alone("a"), "added");
  testing::expect_invalid({"x", "given twice"},
                          [&] { (void)engine.add_adapter("x", prepare("b")); });
  (void)engine.replace_adapter("x", std::move(b));
  testing::expect_same(answer(engine, "x"), alone("b"), "replaced");
}

/// No file is read before a request names its adapter.
TEST_F(AdapterFolderTest, ADamagedOneIsItsRequestsAlone) {
  write("a");
  write("damaged");
  fs::resize_file(folder_.path() / "damaged" / "adapter_model.safetensors", 100);
  Engine engine = this->engine(2);
  const auto answers = testing::run_all(engine, {request("a"), request("damaged"), request("")});
  EXPECT_EQ(answers[0].error, "");
  EXPECT_NE(answers[1].error.find("damaged/adapter_model.safetensors"), std::string::npos);
  EXPECT_EQ(answers[2].error, "");
  EXPECT_THROW((void)model_.engine({.adapter_dir = (folder_.path() / "none").string()}), Error);
}

/// What compute-sanitizer runs on a GPU: prompts in chunks together with drawn tokens, steps one
/// ahead and as graphs, adapters of several ranks that evict each other, greedy and drawn.
TEST_F(AdapterFolderTest, TwoHundredStepsOfMixedRowsKeepTheirBits) {
  constexpr int kNumAdapters = 7, kNumRequests = 96;
  constexpr int64_t kNumSteps = 200;
  for (int i = 0; i < kNumAdapters; ++i) write("a" + std::to_string(i), 1 + i % 3);
  const auto made = [](int i) {
    Request request = testing::endless_request(testing::random_tokens(1 + i % 23), 5 + i % 31);
    if (i % 4 != 0) request.adapter = "a" + std::to_string(i % kNumAdapters);
    request.sampling.seed = i;
    if (i % 3 == 0) request.sampling.temperature = 0.8f;
    if (i % 6 == 0) request.sampling.top_p = 0.9f;
    if (i % 16 == 7) request.sampling.repetition_penalty = 1.1f;
    return request;
  };
  std::vector<Request> requests;
  for (int i = 0; i < kNumRequests; ++i) requests.push_back(made(i));
  Engine crowded = model_.engine({.max_batch = 8,
                                  .page_size = 4,
                                  .prefill_chunk = 6,
                                  .adapter_dir = folder_.path().string(),
                                  .adapter_memory = 4 * bytes_of_one_});
  const std::vector<Completion> answers = testing::run_all(crowded, requests);
  const EngineStats& stats = crowded.stats();
  EXPECT_GE(stats.prefill_steps + stats.decode_steps, kNumSteps);
  EXPECT_GT(stats.adapter_evictions, 0);
  Engine calm = engine(0, 1);
  for (size_t i = 0; i < requests.size(); i += 7) {
    const Completion alone = testing::run_all(calm, {requests[i]}).front();
    testing::expect_same(answers[i], alone, "request " + std::to_string(i));
  }
}

}  // namespace
}  // namespace heddle
